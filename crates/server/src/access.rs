//! Who may use the server: keys, and pages of other sites.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::error::ApiError;
use crate::record::is_anthropic;

/// Routes that need no key: they tell nothing and cost nothing.
const OPEN: &[&str] = &["/", "/health", "/ready"];

/// SHA-256 hashes of the keys that open the server; with none, it is open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Keys(Vec<[u8; 32]>);

/// A line of a key file is no hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "line {line} of the key file does not begin with a SHA-256 hash of 64 hex digits; make one \
     with `printf %s KEY | sha256sum`"
)]
pub struct BadKeyFile {
    /// Which line, from 1.
    pub line: usize,
}

impl Keys {
    /// Reads a key file: on each line the SHA-256 hash of a key in hex, then, after a blank,
    /// anything. Empty lines and lines that begin with `#` mean nothing.
    ///
    /// # Errors
    /// A line is no hash.
    pub fn parse(file: &str) -> Result<Self, BadKeyFile> {
        let lines = (1..).zip(file.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|(line, text)| {
            let hash = text.split_whitespace().next().and_then(hash);
            hash.ok_or(BadKeyFile { line })
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether `key` is one of them. Takes as long for a near miss as for a far one.
    fn open_with(&self, key: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        self.0.iter().fold(false, |found, known| found | equal(known, &hash))
    }
}

/// Compares without stopping at the first difference.
fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn hash(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Lets through only those who may.
pub(crate) fn layer(routes: Router<App>, app: &App) -> Router<App> {
    routes.layer(from_fn_with_state(app.clone(), check))
}

async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    match permit(&app.settings().keys, path, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) if is_anthropic(path) => error.into_anthropic(),
        Err(error) => error.into_response(),
    }
}

fn permit(keys: &Keys, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    if !is_own_page(headers) {
        let public = "pages of other sites may not use this server; open its own page, or call it \
                      from outside a browser";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", public));
    }
    if keys.0.is_empty() || OPEN.contains(&path) {
        return Ok(());
    }
    match key(headers) {
        Some(key) if keys.open_with(key) => Ok(()),
        Some(_) => Err(unauthorized("this API key is not known here; use another one")),
        None => Err(unauthorized("an API key is needed; send `Authorization: Bearer KEY`")),
    }
}

/// A browser names the site whose page sends a request, and pages of other sites could otherwise
/// reach a server that only this machine can.
fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    site.is_some_and(|(_, site)| text(header::HOST) == Some(site))
}

fn key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| text("x-api-key"))
}

fn unauthorized(public: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", public)
}
