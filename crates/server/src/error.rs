//! What a client is told when something is wrong, in OpenAI's form or Anthropic's.
//!
//! A client reads `public`; `private`, where there is one, goes to the log.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lapidary_engine::{Refused, SubmitError};
use serde_json::{Value, json};

/// A refusal or a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub(crate) status: StatusCode,
    /// For programs, as in `context_length_exceeded`.
    pub(crate) code: &'static str,
    /// The field at fault, as in `messages[2].content`.
    pub(crate) param: Option<String>,
    /// One sentence for the client: the thing and the remedy.
    pub(crate) public: String,
    /// What only the operator should know.
    pub(crate) private: Option<String>,
}

/// Seconds after which a refused client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, public: impl Into<String>) -> Self {
        Self { status, code, param: None, public: public.into(), private: None }
    }

    /// A field that cannot be meant.
    pub(crate) fn field(param: impl Into<String>, public: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", public).about(param)
    }

    /// A field that would have an effect which this server cannot give.
    pub(crate) fn unsupported(param: &str, public: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", public).about(param)
    }

    /// A field that must be there.
    pub(crate) fn missing(param: &str) -> Self {
        let public = format!("`{param}` is missing; give it a value");
        Self::new(StatusCode::BAD_REQUEST, "missing_required_parameter", public).about(param)
    }

    /// A prompt that leaves no room for an answer.
    pub(crate) fn too_long(tokens: usize, context: u32) -> Self {
        let public = format!(
            "the prompt has {tokens} tokens and the context holds {context}; shorten the prompt \
             or start the server with a larger --ctx"
        );
        Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", public).about("messages")
    }

    /// The same, in a request whose prompt has another name.
    pub(crate) fn of_prompt(self, name: &str) -> Self {
        match self.code {
            "context_length_exceeded" => self.about(name),
            _ => self,
        }
    }

    /// The engine ended an answer that it had begun.
    pub(crate) fn failed(reason: String) -> Self {
        let public = "the engine failed while it worked on this request; try again later";
        let error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "engine_failed", public);
        Self { private: Some(reason), ..error }
    }

    /// A bug.
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        let public = "the server has a fault that this request met; its log says more";
        let error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", public);
        Self { private: Some(reason.into()), ..error }
    }

    fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The kind of error, in OpenAI's words.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "service_unavailable_error",
            _ => "server_error",
        }
    }

    /// The body in OpenAI's form.
    pub(crate) fn openai(&self) -> Value {
        json!({ "error": {
            "message": self.public, "type": self.kind(), "param": self.param, "code": self.code,
        } })
    }

    /// The body in Anthropic's form.
    pub(crate) fn anthropic(&self) -> Value {
        let kind = match self.status.as_u16() {
            413 => "request_too_large",
            503 => "overloaded_error",
            500..=599 => "api_error",
            _ => self.kind(),
        };
        let message = match &self.param {
            Some(param) if !self.public.contains(param) => format!("{param}: {}", self.public),
            _ => self.public.clone(),
        };
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    }

    /// The answer in Anthropic's form.
    pub(crate) fn into_anthropic(self) -> Response {
        let body = self.anthropic();
        self.respond(&body)
    }

    fn respond(self, body: &Value) -> Response {
        if let Some(private) = &self.private {
            tracing::error!(code = self.code, "{private}");
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.openai();
        self.respond(&body)
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Refused(Refused::Busy { .. }) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
            }
            SubmitError::Refused(Refused::PromptTooLong { tokens, context }) => {
                Self::too_long(tokens, context)
            }
            SubmitError::Down { .. } => {
                let public = "the engine has broken down and must be started anew";
                let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "engine_down", public);
                Self { private: Some(message), ..error }
            }
            SubmitError::Refused(_)
            | SubmitError::UnknownToken { .. }
            | SubmitError::SoftWidth { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "invalid_value", message)
            }
        }
    }
}
