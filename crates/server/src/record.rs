//! What is kept of every request: an id, a line in the log, a count. And what a panic comes to.

use std::any::Any;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::error::ApiError;

/// The header that names a request, in both directions.
const REQUEST_ID: &str = "x-request-id";
/// Longest id that is taken from a client.
const LONGEST_ID: usize = 128;

/// Whether a route speaks Anthropic's form.
pub(crate) fn is_anthropic(path: &str) -> bool {
    path.starts_with("/v1/messages")
}

/// Records every request, and answers for handlers that panic.
pub(crate) fn layers(routes: Router<App>, app: &App) -> Router<App> {
    routes
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(app.clone(), record))
}

async fn record(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = app.elapsed();
    let id = id(request.headers()).unwrap_or_else(|| app.world().id("req-"));
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let status = response.status().as_u16();
    let ms = app.elapsed().saturating_sub(began).as_millis() as u64;
    app.metrics().request(status);
    tracing::info!(id, %method, path, status, ms, "request");
    response
}

/// The client's own id for a request, if it is one that a log can hold.
fn id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = id.chars().all(|c| c.is_ascii_graphic());
    (plain && (1..=LONGEST_ID).contains(&id.len())).then(|| id.to_owned())
}

async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let public = format!("{} does not take {method}; /openapi.json says what it takes", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", public)
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands panics over")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    ApiError::internal(text.unwrap_or_else(|| "a panic without words".to_owned())).into_response()
}
