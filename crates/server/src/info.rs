//! What can be known without asking the model: names, health, settings, metrics.

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use crate::app::App;
use crate::error::ApiError;
use crate::wire::info::{Capabilities, Health, ModelCard, Models};

/// An answer of JSON.
pub(crate) fn json(body: &impl Serialize) -> Response {
    let text = serde_json::to_string(body).expect("answers have text keys");
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The models there are.
#[utoipa::path(get, path = "/v1/models", responses((status = 200, body = Models)))]
pub(crate) async fn models(State(app): State<App>) -> Response {
    json(&Models { object: "list", data: vec![card(&app)] })
}

/// One model.
#[utoipa::path(get, path = "/v1/models/{model}", params(("model" = String, Path)),
    responses((status = 200, body = ModelCard)))]
pub(crate) async fn model(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let id = app.name(Some(&name))?;
    Ok(json(&ModelCard { id, ..card(&app) }))
}

fn card(app: &App) -> ModelCard {
    let model = app.model();
    ModelCard {
        id: model.name.clone(),
        object: "model",
        created: app.started(),
        owned_by: "lapidary",
        aliases: model.aliases.clone(),
        context_length: model.context,
        capabilities: Capabilities { chat: model.template.is_some(), vision: false },
    }
}

/// Whether the engine works.
#[utoipa::path(get, path = "/health", responses((status = 200, body = Health)))]
pub(crate) async fn health(State(app): State<App>) -> Result<Response, ApiError> {
    app.alive()?;
    Ok(json(&Health { status: "ok" }))
}

/// Whether new requests are welcome.
#[utoipa::path(get, path = "/ready", responses((status = 200, body = Health)))]
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, ApiError> {
    app.alive()?;
    if app.is_draining() {
        let public = "the server is shutting down; ask another one";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "draining", public));
    }
    Ok(json(&Health { status: "ok" }))
}

/// The effective configuration.
#[utoipa::path(get, path = "/props", responses((status = 200, body = Object)))]
pub(crate) async fn props(State(app): State<App>) -> Response {
    let (model, settings) = (app.model(), app.settings());
    let defaults = model.defaults;
    let (global, sliding) = settings.kv_bytes;
    let specials = model.tokenizer.specials();
    json(&json!({
        "model": model.name,
        "aliases": model.aliases,
        "context": model.context,
        "slots": settings.slots,
        "vocabulary": model.tokenizer.len(),
        "bos_token": specials.bos_text(),
        "eos_token": specials.eos_text(),
        "chat_template": model.template.is_some(),
        "modalities": { "vision": false, "audio": false },
        "default_generation_settings": {
            "temperature": defaults.temperature,
            "top_k": defaults.top_k,
            "top_p": defaults.top_p,
            "min_p": defaults.min_p,
            "thinking": defaults.thinking,
        },
        "drafts": settings.drafts,
        "kv_bytes": { "global": global, "sliding": sliding },
        "strict": settings.strict,
        "max_body": settings.max_body,
        "keys": settings.keys.count(),
        "configuration": settings.props,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Counters and histograms, for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String)))]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let mut response = app.metrics().text(&app.engine().stats()).into_response();
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
