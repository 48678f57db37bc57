//! `/tokenize`, `/detokenize` and `/apply-template`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::Asked;

/// A text to be cut into tokens.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    /// The text.
    pub content: Option<String>,
    /// Begin with the beginning token.
    pub add_special: Option<bool>,
    /// Read `<special tokens>` as such; otherwise they are spelled out.
    pub parse_special: Option<bool>,
    /// Report each token's text too.
    pub with_pieces: Option<bool>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for TokenizeRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// Ids, or objects of `id` and `piece` if pieces were asked for.
    #[schema(value_type = Vec<u32>)]
    pub tokens: Vec<Value>,
}

/// Tokens to be written as text.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// Ids.
    pub tokens: Option<Vec<u32>>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for DetokenizeRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// Text.
#[derive(Serialize, ToSchema)]
pub(crate) struct Text {
    pub content: String,
}

/// What a chat request would have the model read.
#[derive(Serialize, ToSchema)]
pub(crate) struct Rendered {
    pub prompt: String,
    /// Tokens of the prompt.
    pub tokens: usize,
}
