//! `/v1/responses`: OpenAI's newer form. Nothing is stored.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::Asked;

/// A conversation to be continued.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    /// The model's name or one of its aliases; without it, the one that is loaded.
    pub model: Option<String>,
    /// A text, or a list of items.
    pub input: Option<Value>,
    /// Text of the operator, before the input.
    pub instructions: Option<String>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or a function that must be called.
    pub tool_choice: Option<Value>,
    /// Whether several calls may come in one answer.
    pub parallel_tool_calls: Option<bool>,
    /// Send the answer as it is written.
    pub stream: Option<bool>,
    /// Most tokens to write, thoughts included.
    pub max_output_tokens: Option<u32>,
    /// 0 takes the likeliest token.
    pub temperature: Option<f32>,
    /// Keep the likeliest tokens that make up this probability.
    pub top_p: Option<f32>,
    /// `effort`, as `reasoning_effort` in chat.
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    /// `format`, as `response_format` in chat.
    #[schema(value_type = Option<Object>)]
    pub text: Option<Value>,
    /// Refused unless `disabled`: nothing is cut away.
    pub truncation: Option<String>,
    /// Refused: nothing is stored.
    pub previous_response_id: Option<String>,
    /// Refused: nothing is stored.
    #[schema(value_type = Option<Object>)]
    pub conversation: Option<Value>,
    /// Refused: nothing is stored.
    #[schema(value_type = Option<Object>)]
    pub prompt: Option<Value>,
    /// Refused if true: nothing goes on once the client has left.
    pub background: Option<bool>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for ResponsesRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseAnswer {
    pub id: String,
    /// `response`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created_at: u64,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub status: &'static str,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub incomplete_details: Option<Value>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<u32>,
    pub model: String,
    pub output: Vec<Item>,
    pub parallel_tool_calls: bool,
    /// Always `null`.
    #[schema(value_type = Option<String>)]
    pub previous_response_id: Option<()>,
    /// Always false.
    pub store: bool,
    pub temperature: Option<f32>,
    pub tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    pub top_p: Option<f32>,
    /// `null` until the answer is complete.
    pub usage: Option<ResponseUsage>,
}

/// A part of an answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    /// What the model thought.
    Reasoning {
        id: String,
        #[schema(value_type = Vec<Object>)]
        summary: [(); 0],
        content: Vec<Text>,
    },
    /// Words for the reader.
    Message {
        id: String,
        /// `assistant`.
        role: &'static str,
        status: &'static str,
        content: Vec<Text>,
    },
    /// A call of a function.
    FunctionCall {
        id: String,
        call_id: String,
        name: String,
        /// A JSON object, as text.
        arguments: String,
        status: &'static str,
    },
}

/// Words.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Text {
    /// For the reader.
    OutputText {
        text: String,
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
    },
    /// Of thought.
    ReasoningText { text: String },
}

/// Tokens read and written.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseUsage {
    pub input_tokens: u64,
    pub input_tokens_details: InputTokens,
    pub output_tokens: u64,
    pub output_tokens_details: OutputTokens,
    pub total_tokens: u64,
}

/// Of the tokens read.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct InputTokens {
    /// Found in the cache.
    pub cached_tokens: u64,
}

/// Of the tokens written.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OutputTokens {
    /// Thoughts and structure.
    pub reasoning_tokens: u64,
}
