//! Reading a request's body: bounded, and with errors that name the field.

use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Fields of other servers that change no answer here. They are accepted, and listed in
/// docs/server.md.
pub(crate) const WITHOUT_EFFECT: &[&str] = &[
    "cache_control",
    "cache_prompt",
    "client_metadata",
    "include",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "timings_per_token",
    "user",
    "verbosity",
];

/// A request whose fields are all optional, and which keeps those it does not know.
pub(crate) trait Asked: DeserializeOwned {
    /// The fields that the type does not know.
    fn unknown(&self) -> &Map<String, Value>;
}

/// How bodies are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Most bytes of a body.
    pub(crate) most: usize,
    /// Whether unknown fields are refused.
    pub(crate) strict: bool,
}

/// How long a body may take to come, so that nobody holds a connection by sending none.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reads a body as JSON.
pub(crate) async fn read<T: Asked>(request: Request, how: Reading) -> Result<T, ApiError> {
    let body = tokio::time::timeout(PATIENCE, to_bytes(request.into_body(), how.most)).await;
    let body = body.map_err(|_| {
        let public = format!("the body did not come within {} s; send it anew", PATIENCE.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", public)
    })?;
    let bytes = body.map_err(|error| {
        let most = how.most;
        let public = format!(
            "the body could not be read, or has more than {most} bytes; send less, or start the \
             server with a larger --max-body"
        );
        let error = error.to_string();
        let too_large = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", public);
        ApiError { private: Some(error), ..too_large }
    })?;
    parse(&bytes, how.strict)
}

/// Reads JSON text as a request.
pub(crate) fn parse<T: Asked>(bytes: &[u8], strict: bool) -> Result<T, ApiError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let public = format!("the body is not JSON: {error}; send one JSON object");
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", public)
    })?;
    let Value::Object(fields) = value else {
        let public = "the body is not a JSON object; send one";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", public));
    };
    let asked: T = serde_json::from_value(Value::Object(fields.clone()))
        .map_err(|error| at_fault::<T>(fields, &error))?;
    let unknown = asked.unknown().keys().find(|key| !WITHOUT_EFFECT.contains(&key.as_str()));
    match unknown {
        Some(key) if strict => {
            let public = format!("`{key}` is not a field of this request; leave it out");
            Err(ApiError::unsupported(key, public))
        }
        _ => Ok(asked),
    }
}

/// The field that cannot be read. All fields are optional, so the one at fault fails alone.
fn at_fault<T: Asked>(fields: Map<String, Value>, whole: &serde_json::Error) -> ApiError {
    for (key, value) in fields {
        let alone = Value::Object(Map::from_iter([(key.clone(), value)]));
        if let Err(error) = serde_json::from_value::<T>(alone) {
            return ApiError::field(&key, format!("`{key}` cannot be used: {error}"));
        }
    }
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_value", format!("the fields clash: {whole}"))
}
