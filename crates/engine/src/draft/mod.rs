//! Guessing ahead. A draft only ever makes a span longer, or branch; nothing downstream knows the
//! word.

mod assistant;
mod ngram;
mod pace;
mod small;
mod tree;

use lapidary_core::{Backend, KvCache, SlotId, TokenId};
use lapidary_model::Model;

use crate::RequestId;

pub use assistant::AssistantDrafter;
pub use ngram::NgramDrafter;
pub use pace::{DraftShape, Drafting, Pace};
pub use small::SmallModelDrafter;
pub use tree::Draft;

pub(crate) use pace::StepCost;

/// A text that could use guesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftCall<'a> {
    /// Of which request.
    pub id: RequestId,
    /// Which of its texts.
    pub sample: u32,
    /// Its cache region.
    pub slot: SlotId,
    /// Prompt and text so far. The last token has not been read by the target.
    pub known: &'a [TokenId],
    /// The target's hidden state that yielded the last token, if the drafter wants such and the
    /// token came from a step.
    pub hidden: Option<&'a [f32]>,
    /// The most guesses that could matter, at least one.
    pub room: usize,
    /// What is worth running: at least one guess in a row, and at most `room`.
    pub shape: DraftShape,
}

/// What a drafter may look at: the target and its cache.
pub struct Target<'a, B: Backend> {
    /// The device.
    pub ops: &'a B,
    /// The model that is guessed for.
    pub model: &'a dyn Model<B>,
    /// Its cache.
    pub cache: &'a mut dyn KvCache<B>,
}

/// Proposes continuations. Wrong guesses cost rows, never an answer.
pub trait Drafter<B: Backend> {
    /// Whether calls should come with hidden states of the target.
    fn wants_hidden(&self) -> bool {
        false
    }

    /// One draft per call, of vocabulary entries that may follow what is known; what goes beyond
    /// the call's `room` is dropped. A fault of the device surfaces in the step that follows.
    fn propose(&mut self, target: Target<'_, B>, calls: &[DraftCall<'_>]) -> Vec<Draft>;
}

/// Never guesses.
#[derive(Clone, Copy, Debug)]
pub struct NoDrafts;

impl<B: Backend> Drafter<B> for NoDrafts {
    fn propose(&mut self, _: Target<'_, B>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        vec![Draft::default(); calls.len()]
    }
}
