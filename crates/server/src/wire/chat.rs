//! `/v1/chat/completions`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::common::{SamplingFields, StreamOptions, Timings, Usage};
use crate::body::Asked;

/// A conversation to be continued.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    /// The model's name or one of its aliases; without it, the one that is loaded.
    pub model: Option<String>,
    /// What was said, in order of time. A last message of the model is continued.
    #[schema(value_type = Vec<Object>)]
    pub messages: Option<Value>,
    /// Functions the model may call.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or a function that must be called.
    pub tool_choice: Option<Value>,
    /// Whether several calls may come in one answer.
    pub parallel_tool_calls: Option<bool>,
    /// `text`, `json_object`, or `json_schema` with a schema that the answer conforms to.
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
    /// Send the answer as it is written.
    pub stream: Option<bool>,
    /// What a stream adds.
    pub stream_options: Option<StreamOptions>,
    /// Most tokens to write, thoughts included.
    pub max_tokens: Option<u32>,
    /// The newer word for `max_tokens`.
    pub max_completion_tokens: Option<u32>,
    /// How many answers to write.
    pub n: Option<u32>,
    /// Report how likely each token of the answer was.
    pub logprobs: Option<bool>,
    /// How many of the likeliest tokens to report at each place, at most 20.
    pub top_logprobs: Option<usize>,
    /// `none` and `minimal` answer at once, all else lets the model think first.
    pub reasoning_effort: Option<String>,
    /// Most tokens of thought before the answer has to begin.
    pub thinking_budget: Option<u32>,
    /// Variables for the chat template; `enable_thinking` is one.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Which kinds of answer are wanted; only `text` is made here.
    pub modalities: Option<Vec<String>>,
    /// Refused: no speech is made here.
    #[schema(value_type = Option<Object>)]
    pub audio: Option<Value>,
    /// Refused: use `tools`.
    #[schema(value_type = Option<Object>)]
    pub functions: Option<Value>,
    /// Refused: use `tool_choice`.
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<Value>,
    /// Refused: nothing is searched here.
    #[schema(value_type = Option<Object>)]
    pub web_search_options: Option<Value>,
    /// Refused: guesses come from the server's own drafter.
    #[schema(value_type = Option<Object>)]
    pub prediction: Option<Value>,
    /// How tokens are chosen.
    #[serde(flatten)]
    pub sampling: SamplingFields,
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl Asked for ChatRequest {
    fn unknown(&self) -> &Map<String, Value> {
        &self.unknown
    }
}

/// An answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    pub timings: Timings,
}

/// One of the answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    pub index: u32,
    pub message: ChatAnswer,
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
}

/// What the model said.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatAnswer {
    /// `assistant`.
    pub role: &'static str,
    /// `null` if the model only called functions.
    pub content: Option<String>,
    /// What the model thought first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Always `null`.
    #[schema(value_type = Option<String>)]
    pub refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
}

/// A call of a function.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatCall {
    /// Its place among the calls, in streams only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Names the call in the message that answers it.
    pub id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: ChatFunction,
}

/// The function called.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatFunction {
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// How likely the tokens of an answer were.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    pub content: Vec<ChatLogprob>,
    /// Always `null`.
    #[schema(value_type = Option<String>)]
    pub refusal: Option<()>,
}

/// How likely a token was.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatLogprob {
    /// Its text; a broken character stands for bytes that are none.
    pub token: String,
    /// Natural logarithm of its probability; -9999 if it could not come up.
    pub logprob: f64,
    pub bytes: Vec<u8>,
    pub top_logprobs: Vec<TopLogprob>,
}

/// How likely another token was.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopLogprob {
    pub token: String,
    pub logprob: f64,
    pub bytes: Vec<u8>,
}

/// A piece of a streamed answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChunk<'a> {
    pub id: &'a str,
    /// `chat.completion.chunk`.
    pub object: &'static str,
    pub created: u64,
    pub model: &'a str,
    pub choices: Vec<ChunkChoice>,
    /// `null` in all chunks but the one that has it; absent if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub usage: Option<Option<Usage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// A piece of one of the answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    pub index: u32,
    pub delta: ChatDelta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
}

/// What is new.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Complete calls: a call is sent once, when it is known to be one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ChatCall>,
}
