//! Guessing ahead. A draft is only ever a longer span; nothing downstream knows the word.

use lapidary_core::{SlotId, TokenId};

use crate::RequestId;

/// The scheduler could use guesses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DraftCall {
    /// For which request. [`Scheduler::known`](crate::Scheduler::known) has its tokens.
    pub id: RequestId,
    /// For which of its texts.
    pub sample: u32,
    /// Its cache region.
    pub slot: SlotId,
    /// The most guesses that could matter, at least one.
    pub room: usize,
}

/// Proposes continuations. Wrong guesses cost rows, never an answer.
pub trait Drafter {
    /// At most `room` vocabulary entries that may follow the `known` tokens; more are dropped.
    fn propose(&mut self, known: &[TokenId], room: usize) -> Vec<TokenId>;
}

/// Never guesses.
#[derive(Clone, Copy, Debug)]
pub struct NoDrafts;

impl Drafter for NoDrafts {
    fn propose(&mut self, _: &[TokenId], _: usize) -> Vec<TokenId> {
        Vec::new()
    }
}
