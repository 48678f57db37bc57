//! `/v1/messages`: Anthropic's form.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::Asked;

/// A conversation to be continued.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    /// The model's name or one of its aliases.
    pub model: Option<String>,
    /// Turns of the user and the model.
    #[schema(value_type = Vec<Object>)]
    pub messages: Option<Value>,
    /// Text, or text blocks, of the operator.
    pub system: Option<Value>,
    /// Most tokens to write, thoughts included.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    pub stop_sequences: Option<Vec<String>>,
    /// Send the answer as it is written.
    pub stream: Option<bool>,
    /// 0 takes the likeliest token.
    pub temperature: Option<f32>,
    /// Keep the likeliest tokens that make up this probability.
    pub top_p: Option<f32>,
    /// Keep only this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `any`, `none`, or a function that must be called.
    #[schema(value_type = Option<Object>)]
    pub tool_choice: Option<Value>,
    /// Whether the model thinks first, and how long.
    #[schema(value_type = Option<Object>)]
    pub thinking: Option<Value>,
    /// Refused: no servers are called from here.
    #[schema(value_type = Option<Object>)]
    pub mcp_servers: Option<Value>,
    /// Refused: nothing is kept here.
    #[schema(value_type = Option<Object>)]
    pub container: Option<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for MessagesRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct MessageAnswer {
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`.
    pub role: &'static str,
    pub model: String,
    pub content: Vec<Block>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: Option<&'static str>,
    pub stop_sequence: Option<String>,
    pub usage: MessageUsage,
}

/// A part of an answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Block {
    /// Words for the reader.
    Text { text: String },
    /// Words of thought; nothing is signed here.
    Thinking { thinking: String, signature: &'static str },
    /// A call of a function.
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Tokens read and written.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct MessageUsage {
    /// Tokens of the prompt that were read.
    pub input_tokens: u64,
    /// Always 0: whatever is read is kept without being asked.
    pub cache_creation_input_tokens: u64,
    /// Tokens of the prompt that were found in the cache.
    pub cache_read_input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

/// How long a prompt would be.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenCount {
    pub input_tokens: u64,
}
