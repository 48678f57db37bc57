//! The model as the server needs to know it: its names, its words, its habits.

use lapidary_core::TokenId;
use lapidary_text::{ChatTemplate, Tokenizer};

use crate::images::Images;

/// What stands between a client's words and the engine.
pub struct Model {
    /// What it is called in answers.
    pub name: String,
    /// What clients may call it besides.
    pub aliases: Vec<String>,
    /// Between text and tokens.
    pub tokenizer: Tokenizer,
    /// Absent where the model has none; then there is no chat.
    pub template: Option<ChatTemplate>,
    /// Tokens that end a text.
    pub end: Vec<TokenId>,
    /// Tokens that are never chosen.
    pub suppress: Vec<TokenId>,
    /// How it looks at pictures, if it can.
    pub images: Option<Images>,
    /// Where requests that say nothing start from.
    pub defaults: Defaults,
    /// Tokens that prompt and text may have together.
    pub context: u32,
}

/// How tokens are chosen where a request does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// How many tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// How much probability to keep.
    pub top_p: f32,
    /// The least probability to keep, relative to the likeliest token.
    pub min_p: f32,
    /// Whether the model thinks before it answers.
    pub thinking: bool,
}

impl Model {
    /// Whether it is called `name`.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}
