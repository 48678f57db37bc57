//! `/v1/completions`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::common::{SamplingFields, StreamOptions, Timings, Usage};
use crate::body::Asked;

/// A text to be continued as it stands.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    /// The model's name or one of its aliases; without it, the one that is loaded.
    pub model: Option<String>,
    /// A text, in which special tokens are honoured, or a list of token ids.
    pub prompt: Option<Value>,
    /// Send the answer as it is written.
    pub stream: Option<bool>,
    /// What a stream adds.
    pub stream_options: Option<StreamOptions>,
    /// Most tokens to write. Without it, until the text ends.
    pub max_tokens: Option<u32>,
    /// How many texts to write.
    pub n: Option<u32>,
    /// How many of the likeliest tokens to report at each place, at most 20.
    pub logprobs: Option<usize>,
    /// Begin each text with the prompt.
    pub echo: Option<bool>,
    /// Refused above 1: all texts are returned.
    pub best_of: Option<u32>,
    /// Refused: text is continued, never filled in.
    pub suffix: Option<String>,
    /// As in chat: `json_object`, or `json_schema` with a schema.
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
    /// How tokens are chosen.
    #[serde(flatten)]
    pub sampling: SamplingFields,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for CompletionRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// Continued texts.
#[derive(Serialize, ToSchema)]
pub(crate) struct Completion {
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    /// Absent in a stream's chunks but the one that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// One of the texts, or a piece of it.
#[derive(Serialize, ToSchema)]
pub(crate) struct CompletionChoice {
    pub index: u32,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: Option<&'static str>,
}

/// How likely the tokens of a text were.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct CompletionLogprobs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<f64>,
    #[schema(value_type = Vec<Object>)]
    pub top_logprobs: Vec<Map<String, Value>>,
    /// Where each token begins, in characters.
    pub text_offset: Vec<usize>,
}
