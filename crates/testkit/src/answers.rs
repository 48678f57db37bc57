//! Pebble's stored answers: prompts with the greedy continuation of the float32 model.

use std::path::Path;

use lapidary_core::TokenId;
use serde_json::Value;

/// A prompt and what follows it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Kind of question.
    pub category: String,
    /// The rendered prompt.
    pub prompt: String,
    /// Its tokens.
    pub prompt_ids: Vec<TokenId>,
    /// The float32 model's greedy continuation, end token included.
    pub greedy_ids: Vec<TokenId>,
}

/// Tokens that end one of Pebble's answers.
pub const PEBBLE_END: [TokenId; 3] = [TokenId(1), TokenId(6), TokenId(14)];
/// The most tokens of a stored continuation.
pub const LONGEST: usize = 64;

/// Reads a file of answers, one JSON object per line.
///
/// # Panics
/// If it is none.
pub fn answers(path: &Path) -> Vec<Answer> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(answer).collect()
}

fn answer(line: &str) -> Answer {
    let value: Value = serde_json::from_str(line).expect("a line is a JSON object");
    let text = |key: &str| value[key].as_str().expect("a text").to_owned();
    let ids = |key: &str| {
        let ids = value[key].as_array().expect("a list").iter();
        ids.map(|id| TokenId(id.as_u64().expect("a token id") as u32)).collect()
    };
    Answer {
        category: text("category"),
        prompt: text("prompt"),
        prompt_ids: ids("prompt_ids"),
        greedy_ids: ids("greedy_ids"),
    }
}
