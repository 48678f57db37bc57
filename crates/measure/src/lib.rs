//! What a setting costs: how far its distributions are from a baseline's, how well it predicts a
//! text, how many stored answers it gives.
//!
//! Knows no file, device or HTTP; texts come in as tokens.
#![forbid(unsafe_code)]

mod answers;
mod divergence;

pub use answers::{Answer, AnswerError, Exam, Score, read_answers};
pub use divergence::{Divergence, divergence, windows};
