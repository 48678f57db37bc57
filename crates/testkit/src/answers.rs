//! Pebble's stored answers: prompts with the greedy continuation of the float32 model.

use std::path::Path;

use lapidary_core::TokenId;
use lapidary_measure::{Answer, read_answers};

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
    read_answers(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
