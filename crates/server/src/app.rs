//! What every handler is given: the engine, the model, the settings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use lapidary_engine::{Engine, Health};
use lapidary_text::Grammars;
use serde_json::Value;

use crate::access::{self, Keys};
use crate::body::Reading;
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::world::World;
use crate::{
    chat, completions, embeddings, info, messages, openapi, page, record, responses, tokens,
};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether fields that mean nothing here are refused.
    pub strict: bool,
    /// Who may use it; with no keys, everybody who can reach it.
    pub keys: Keys,
    /// Most bytes of a request's body.
    pub max_body: usize,
    /// Connections at once; further ones wait for one to end. At least one.
    pub connections: usize,
    /// How long the head of a request may take, from the connection or the last answer on.
    pub head_timeout: Duration,
    /// After how much silence a stream sends a sign of life.
    pub heartbeat: Duration,
    /// Whether the log may hold what people wrote.
    pub log_prompts: bool,
    /// Sequences that run at once.
    pub slots: usize,
    /// Bytes of the cache: of global layers and of sliding ones.
    pub kv_bytes: (u64, u64),
    /// The most guesses in a row; zero if nobody guesses.
    pub drafts: usize,
    /// The effective configuration, for `/props`.
    pub props: Value,
}

/// A server without its sockets. Clones are the same server.
#[derive(Clone)]
pub struct App(Arc<Parts>);

struct Parts {
    engine: Engine,
    model: Model,
    settings: Settings,
    world: World,
    metrics: Metrics,
    started: u64,
    draining: AtomicBool,
    /// Made when the first request needs it: a large vocabulary takes a while.
    grammars: OnceLock<Grammars>,
}

impl App {
    /// A server over a running engine.
    pub fn new(engine: Engine, model: Model, settings: Settings, world: World) -> Self {
        let metrics = Metrics::new(settings.kv_bytes);
        let started = (world.unix)();
        let draining = AtomicBool::new(false);
        let grammars = OnceLock::new();
        let parts = Parts { engine, model, settings, world, metrics, started, draining, grammars };
        Self(Arc::new(parts))
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        let routes = Router::new()
            .route("/v1/chat/completions", post(chat::chat))
            .route("/v1/completions", post(completions::completions))
            .route("/v1/embeddings", post(embeddings::embeddings))
            .route("/v1/responses", post(responses::responses))
            .route("/v1/messages", post(messages::messages))
            .route("/v1/messages/count_tokens", post(messages::count_tokens))
            .route("/v1/models", get(info::models))
            .route("/v1/models/{*name}", get(info::model))
            .route("/tokenize", post(tokens::tokenize))
            .route("/detokenize", post(tokens::detokenize))
            .route("/apply-template", post(tokens::apply_template))
            .route("/props", get(info::props))
            .route("/metrics", get(info::metrics))
            .route("/health", get(info::health))
            .route("/ready", get(info::ready))
            .route("/openapi.json", get(openapi::document))
            .route("/", get(page::page))
            .fallback(no_route);
        record::layers(access::layer(routes, self), self).with_state(self.clone())
    }

    /// From now on `/ready` says no, so that load balancers look elsewhere.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn model(&self) -> &Model {
        &self.0.model
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn world(&self) -> &World {
        &self.0.world
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// What makes grammars ready for this vocabulary.
    pub(crate) fn grammars(&self) -> &Grammars {
        self.0.grammars.get_or_init(|| Grammars::new(&self.model().tokenizer))
    }

    /// When the server started, in seconds since 1970.
    pub(crate) fn started(&self) -> u64 {
        self.0.started
    }

    /// Time since some fixed moment.
    pub(crate) fn elapsed(&self) -> Duration {
        (self.0.world.elapsed)()
    }

    pub(crate) fn reading(&self) -> Reading {
        Reading { most: self.settings().max_body, strict: self.settings().strict }
    }

    /// The name that an answer gives the model that was asked for.
    pub(crate) fn name(&self, asked: Option<&str>) -> Result<String, ApiError> {
        match asked {
            None => Ok(self.model().name.clone()),
            Some(name) if self.model().is_called(name) => Ok(name.to_owned()),
            Some(name) => {
                let known = &self.model().name;
                let public = format!(
                    "there is no model {name:?} here; use {known:?}, or start the server with \
                     --alias {name:?}"
                );
                let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found", public);
                Err(ApiError { param: Some("model".to_owned()), ..error })
            }
        }
    }

    /// Refuses if the engine is down.
    pub(crate) fn alive(&self) -> Result<(), ApiError> {
        match self.engine().health() {
            Health::Ready => Ok(()),
            Health::Failed(reason) => {
                let public = "the engine has broken down and must be started anew";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let error = ApiError::new(status, "engine_down", public);
                Err(ApiError { private: Some(reason), ..error })
            }
        }
    }

    /// Whether new work is welcome.
    pub(crate) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Does work that takes a while, such as rendering a template or waiting for the engine, where
    /// it holds up nobody.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&app)).await;
        done.unwrap_or_else(|panic| Err(ApiError::internal(panic.to_string())))
    }
}

async fn no_route(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let public = format!("{method} {} leads nowhere; /openapi.json lists the routes", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "no_route", public)
}
