//! `/v1/embeddings`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::Asked;

/// Texts to make vectors of.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct EmbeddingRequest {
    /// The model's name or one of its aliases; without it, the one that is loaded.
    pub model: Option<String>,
    /// A text, a list of texts, a list of token ids, or a list of such lists.
    pub input: Option<Value>,
    /// `float` or `base64`.
    pub encoding_format: Option<String>,
    /// Refused unless it is the model's own width.
    pub dimensions: Option<usize>,
    /// `last` or `mean`.
    pub pooling: Option<String>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for EmbeddingRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// Vectors.
#[derive(Serialize, ToSchema)]
pub(crate) struct Embeddings {
    /// `list`.
    pub object: &'static str,
    pub data: Vec<EmbeddingItem>,
    pub model: String,
    pub usage: EmbeddingUsage,
}

/// One vector, of length one.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmbeddingItem {
    /// `embedding`.
    pub object: &'static str,
    pub index: usize,
    /// Numbers, or base64 of little-endian 32-bit floats.
    #[schema(value_type = Vec<f32>)]
    pub embedding: Value,
}

/// Tokens read.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmbeddingUsage {
    pub prompt_tokens: u64,
    pub total_tokens: u64,
}
