//! What several routes share: how tokens are chosen, what was used, how long it took.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// How tokens are chosen. Absent fields take the model's recommended values.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
    /// 0 takes the likeliest token, 1 draws from the model's own distribution.
    pub temperature: Option<f32>,
    /// Keep the likeliest tokens that make up this probability.
    pub top_p: Option<f32>,
    /// Keep the tokens about as surprising as one is on average that make up this probability.
    pub typical_p: Option<f32>,
    /// Keep only this many of the likeliest tokens; 0 keeps all.
    pub top_k: Option<usize>,
    /// Drop tokens less likely than this part of the likeliest.
    pub min_p: Option<f32>,
    /// Same seed, same text. Without one, a fresh seed is drawn, and reported in `timings`.
    pub seed: Option<i64>,
    /// Makes recent tokens less likely; 1 changes nothing.
    #[serde(alias = "repetition_penalty")]
    pub repeat_penalty: Option<f32>,
    /// Taken from the logits of tokens that have occurred.
    pub presence_penalty: Option<f32>,
    /// Taken from the logits of tokens as often as they have occurred.
    pub frequency_penalty: Option<f32>,
    /// Weakens what would go on with a repetition, by this much; 0 changes nothing.
    pub dry_multiplier: Option<f32>,
    /// How that grows with each further token; 1.75 unless given.
    pub dry_base: Option<f32>,
    /// Repetitions shorter than this are ignored; 2 unless given.
    pub dry_allowed_length: Option<usize>,
    /// How many of the last tokens are looked at; all unless given.
    pub dry_penalty_last_n: Option<usize>,
    /// How often the obvious is excluded.
    pub xtc_probability: Option<f32>,
    /// From which probability on a token is obvious; 0.1 unless given.
    pub xtc_threshold: Option<f32>,
    /// Keep what is within this many standard deviations of the likeliest; 0 keeps all.
    pub top_n_sigma: Option<f32>,
    /// Added to the logits of tokens, by id.
    #[schema(value_type = Option<Object>)]
    pub logit_bias: Option<Map<String, Value>>,
    /// Guessing ahead, which changes how fast a text comes and never what it is: `"none"`, or
    /// `{"len": N}` for at most N guesses in a row.
    pub draft: Option<Value>,
    /// Fewest tokens before the text may end.
    pub min_tokens: Option<u32>,
    /// Choose no token that ends the text: it goes on to `max_tokens` or the end of the context.
    pub ignore_eos: Option<bool>,
    /// Up to sixteen texts that end the answer. None of them is part of it.
    pub stop: Option<Stop>,
}

/// One stop text or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Stop {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// What a stream adds.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// End the stream with a chunk that has `usage` and no choices.
    pub include_usage: Option<bool>,
}

/// Tokens read and written.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the texts, thoughts and calls included, cut at stop texts.
    pub completion_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// Of the prompt's tokens.
    pub prompt_tokens_details: PromptTokens,
    /// Of the texts' tokens.
    pub completion_tokens_details: CompletionTokens,
}

/// Of the prompt's tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PromptTokens {
    /// Found in the cache and not read again.
    pub cached_tokens: u64,
}

/// Of the texts' tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CompletionTokens {
    /// Thoughts, with the tokens that set them and calls apart.
    pub reasoning_tokens: u64,
    /// Guesses of the server's drafter that became text. They are among the tokens written.
    pub accepted_prediction_tokens: u64,
    /// Guesses that did not. They are not.
    pub rejected_prediction_tokens: u64,
}

/// How long a request took, and what its texts can be reproduced with.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Timings {
    /// Tokens of the prompt that were read.
    pub prompt_n: u64,
    /// Tokens of the prompt that were found in the cache.
    pub cache_n: u64,
    /// From the request's arrival to its first token, in milliseconds.
    pub prompt_ms: f64,
    /// Tokens written.
    pub predicted_n: u64,
    /// From the first token to the last, in milliseconds.
    pub predicted_ms: f64,
    /// Tokens per second after the first.
    pub predicted_per_second: f64,
    /// The seed that the texts were drawn with.
    pub seed: u64,
}

/// An error in OpenAI's form.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// One sentence: the thing and the remedy.
    pub message: String,
    /// The kind of error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field at fault.
    pub param: Option<String>,
    /// For programs.
    pub code: String,
}
