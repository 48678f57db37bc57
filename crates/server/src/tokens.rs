//! `/tokenize`, `/detokenize` and `/apply-template`.

use axum::extract::{Request, State};
use axum::response::Response;
use lapidary_core::TokenId;
use lapidary_text::Control;
use serde_json::json;

use crate::app::App;
use crate::body::read;
use crate::chat::conversation;
use crate::error::ApiError;
use crate::info::json as answer;
use crate::prompt::write;
use crate::wire::chat::ChatRequest;
use crate::wire::common::ErrorBody;
use crate::wire::tokens::{DetokenizeRequest, Rendered, Text, TokenizeRequest, Tokens};

/// Cuts a text into tokens.
#[utoipa::path(post, path = "/tokenize", request_body = TokenizeRequest,
    responses((status = 200, body = Tokens), (status = 400, body = ErrorBody)))]
pub(crate) async fn tokenize(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: TokenizeRequest = read(request, app.reading()).await?;
    app.apart(move |app| {
        let text = asked.content.ok_or_else(|| ApiError::missing("content"))?;
        let special = asked.parse_special.unwrap_or(true);
        let tokenizer = &app.model().tokenizer;
        let control = if special { Control::Honour } else { Control::Spell };
        let mut tokens = tokenizer.encode(&text, control);
        if asked.add_special.unwrap_or(false) {
            tokens = tokenizer.with_bos(&tokens);
        }
        let pieces = asked.with_pieces.unwrap_or(false);
        let one = |token: &TokenId| match pieces {
            true => json!({ "id": token.0, "piece": piece(tokenizer.bytes(*token)) }),
            false => json!(token.0),
        };
        Ok(answer(&Tokens { tokens: tokens.iter().map(one).collect() }))
    })
    .await
}

/// The text of a token, or its bytes if they are no text.
fn piece(bytes: &[u8]) -> serde_json::Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// Writes tokens as text.
#[utoipa::path(post, path = "/detokenize", request_body = DetokenizeRequest,
    responses((status = 200, body = Text), (status = 400, body = ErrorBody)))]
pub(crate) async fn detokenize(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: DetokenizeRequest = read(request, app.reading()).await?;
    let tokens = asked.tokens.ok_or_else(|| ApiError::missing("tokens"))?;
    let tokenizer = &app.model().tokenizer;
    if let Some(id) = tokens.iter().find(|id| **id as usize >= tokenizer.len()) {
        let public = format!("`tokens` holds {id}; ids are below {}", tokenizer.len());
        return Err(ApiError::field("tokens", public));
    }
    let tokens: Vec<_> = tokens.into_iter().map(TokenId).collect();
    Ok(answer(&Text { content: tokenizer.decode(&tokens) }))
}

/// Shows what a chat request would have the model read.
#[utoipa::path(post, path = "/apply-template", request_body = ChatRequest,
    responses((status = 200, body = Rendered), (status = 400, body = ErrorBody)))]
pub(crate) async fn apply_template(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: ChatRequest = read(request, app.reading()).await?;
    app.apart(move |app| {
        let written = write(conversation(&asked, app)?, app)?;
        Ok(answer(&Rendered { prompt: written.text, tokens: written.tokens.len() }))
    })
    .await
}
