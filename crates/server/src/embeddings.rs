//! `/v1/embeddings`: texts to vectors.

use axum::extract::{Request, State};
use axum::response::Response;
use lapidary_core::TokenId;
use lapidary_engine::Pooling;
use lapidary_text::Control;
use serde_json::{Value, json};

use crate::app::App;
use crate::body::read;
use crate::error::ApiError;
use crate::generate;
use crate::info::json as answer;
use crate::wire::common::ErrorBody;
use crate::wire::embeddings::{EmbeddingItem, EmbeddingRequest, EmbeddingUsage, Embeddings};

/// Most texts of a request.
const MOST: usize = 2048;

/// Makes vectors of texts.
#[utoipa::path(post, path = "/v1/embeddings", request_body = EmbeddingRequest, responses(
    (status = 200, body = Embeddings), (status = 400, body = ErrorBody),
    (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn embeddings(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: EmbeddingRequest = read(request, app.reading()).await?;
    let model = app.name(asked.model.as_deref())?;
    let pooling = pooling(asked.pooling.as_deref())?;
    let format = Format::of(asked.encoding_format.as_deref())?;
    let input = asked.input.ok_or_else(|| ApiError::missing("input"))?;
    let texts = app.apart(move |app| texts(&input, app)).await?;
    let mut tokens = 0;
    let mut data = Vec::new();
    // One after the other: a long list leaves the queue to others.
    for (index, text) in texts.into_iter().enumerate() {
        tokens += text.len() as u64;
        let vector = generate::vector(&app, text, pooling).await?;
        check_width(asked.dimensions, vector.len())?;
        data.push(EmbeddingItem { object: "embedding", index, embedding: format.write(&vector) });
    }
    let usage = EmbeddingUsage { prompt_tokens: tokens, total_tokens: tokens };
    Ok(answer(&Embeddings { object: "list", data, model, usage }))
}

fn pooling(asked: Option<&str>) -> Result<Pooling, ApiError> {
    match asked {
        None | Some("mean") => Ok(Pooling::Mean),
        Some("last") => Ok(Pooling::Last),
        Some(other) => {
            let public = format!("`pooling` is {other:?}; use mean or last");
            Err(ApiError::field("pooling", public))
        }
    }
}

fn check_width(asked: Option<usize>, width: usize) -> Result<(), ApiError> {
    match asked {
        Some(asked) if asked != width => {
            let public = format!("`dimensions` is {asked}, but this model's vectors have {width}");
            Err(ApiError::unsupported("dimensions", public))
        }
        _ => Ok(()),
    }
}

/// The tokens of every text, each beginning with exactly one beginning token.
fn texts(input: &Value, app: &App) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let wrong = || {
        let public = "`input` must be a text, a list of texts, a list of token ids, or a list of \
                      such lists, none of them empty";
        ApiError::field("input", public)
    };
    let texts = match input {
        Value::String(_) => vec![text(input, app)],
        Value::Array(items) if items.iter().all(Value::is_number) => vec![text(input, app)],
        Value::Array(items) => items.iter().map(|item| text(item, app)).collect(),
        _ => return Err(wrong()),
    };
    if texts.len() > MOST {
        let count = texts.len();
        return Err(ApiError::field(
            "input",
            format!("`input` has {count} texts; send at most {MOST}"),
        ));
    }
    let texts: Option<Vec<_>> = texts.into_iter().collect();
    texts.filter(|texts| !texts.is_empty()).ok_or_else(wrong)
}

fn text(input: &Value, app: &App) -> Option<Vec<TokenId>> {
    let tokenizer = &app.model().tokenizer;
    let tokens = match input {
        Value::String(text) => tokenizer.encode(text, Control::Spell),
        Value::Array(items) => {
            let id = |item: &Value| item.as_u64().filter(|id| *id < tokenizer.len() as u64);
            items.iter().map(|item| Some(TokenId(id(item)? as u32))).collect::<Option<Vec<_>>>()?
        }
        _ => return None,
    };
    (!tokens.is_empty()).then(|| tokenizer.with_bos(&tokens))
}

/// How vectors are written.
#[derive(Clone, Copy, Debug)]
enum Format {
    Numbers,
    Base64,
}

impl Format {
    fn of(asked: Option<&str>) -> Result<Self, ApiError> {
        match asked {
            None | Some("float") => Ok(Self::Numbers),
            Some("base64") => Ok(Self::Base64),
            Some(other) => {
                let public = format!("`encoding_format` is {other:?}; use float or base64");
                Err(ApiError::field("encoding_format", public))
            }
        }
    }

    fn write(self, vector: &[f32]) -> Value {
        match self {
            Self::Numbers => json!(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(base64(&bytes))
            }
        }
    }
}

/// Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit > chunk.len() { '=' } else { DIGITS[value as usize].into() });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, expected) in cases {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xFB, 0xFF]), "+/8=");
    }
}
