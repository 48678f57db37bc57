//! The fixed bounds of an engine.

use thiserror::Error;

/// Fixed bounds of an engine. The cache must have been sized for the same `slots`, `context` and
/// `burst`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Sequences held at once.
    pub slots: usize,
    /// Tokens a sequence may grow to, prompt and text together.
    pub context: u32,
    /// Most rows one step may bring for one slot.
    pub burst: usize,
    /// Most rows in a step. Bounds how long a prompt can hold up everyone else's next token.
    pub step: usize,
    /// Requests that may wait while every slot is taken.
    pub waiting: usize,
}

/// Limits under which some request could never move.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BadLimits {
    /// No sequence can be held.
    #[error("an engine needs at least one slot")]
    NoSlots,
    /// No prompt can have a text.
    #[error("a context of {context} leaves no room for a prompt and a token: give at least 2")]
    Context {
        /// Tokens a sequence may grow to.
        context: u32,
    },
    /// No span can have a row.
    #[error("a burst of no rows lets nothing run: give at least 1")]
    NoBurst,
    /// Not every running request could move in every step.
    #[error("a step of {step} rows cannot serve {slots} slots: give at least one row per slot")]
    Step {
        /// Rows in a step.
        step: usize,
        /// Sequences held at once.
        slots: usize,
    },
}

impl Limits {
    /// The most rows of a block, which is read in one step while every other slot moves on.
    pub fn block(&self) -> usize {
        self.burst.min((self.step + 1).saturating_sub(self.slots))
    }

    /// Refuses limits under which some request could never move.
    pub(crate) fn check(&self) -> Result<(), BadLimits> {
        let &Self { slots, context, burst, step, waiting: _ } = self;
        if slots == 0 {
            Err(BadLimits::NoSlots)
        } else if context < 2 {
            Err(BadLimits::Context { context })
        } else if burst == 0 {
            Err(BadLimits::NoBurst)
        } else if step < slots {
            Err(BadLimits::Step { step, slots })
        } else {
            Ok(())
        }
    }
}
