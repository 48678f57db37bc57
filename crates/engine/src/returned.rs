//! What a step returned, handed out span by span.

use lapidary_core::Candidate;
use lapidary_model::Outputs;

/// The part of a step's outputs that is still to be handed out, or that belongs to one span.
#[derive(Clone, Copy)]
pub(crate) struct Returned<'a> {
    hidden: &'a [(usize, Vec<f32>)],
    logits: &'a [(usize, Vec<f32>)],
    top: &'a [(usize, Vec<Candidate>)],
}

/// What came back for a row from which a token is to be chosen.
#[derive(Clone, Copy)]
pub(crate) enum Choice<'a> {
    /// The whole row.
    Row(&'a [f32]),
    /// The likeliest tokens.
    Likeliest(&'a [Candidate]),
}

impl<'a> Returned<'a> {
    /// Everything.
    pub(crate) fn all(outputs: &'a Outputs) -> Self {
        Self { hidden: &outputs.hidden, logits: &outputs.logits, top: &outputs.top }
    }

    /// Takes off what belongs to rows before `end`.
    pub(crate) fn split_before(&mut self, end: usize) -> Self {
        Self {
            hidden: split(&mut self.hidden, end),
            logits: split(&mut self.logits, end),
            top: split(&mut self.top, end),
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.logits.is_empty() && self.top.is_empty()
    }

    /// The hidden states, row after row.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        self.hidden.iter().map(|(_, state)| state.as_slice())
    }

    /// Whole rows of logits, row after row.
    pub(crate) fn logits(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        self.logits.iter().map(|(_, logits)| logits.as_slice())
    }

    /// What the last `count` rows that yield a token returned: all of them the same kind.
    pub(crate) fn choices(&self, count: usize) -> Vec<Choice<'a>> {
        if self.top.is_empty() {
            let skipped = self.logits.len() - count;
            self.logits().skip(skipped).map(Choice::Row).collect()
        } else {
            assert_eq!(self.top.len(), count, "one list per row that yields a token");
            self.top.iter().map(|(_, top)| Choice::Likeliest(top)).collect()
        }
    }
}

fn split<'a, T>(rest: &mut &'a [(usize, T)], end: usize) -> &'a [(usize, T)] {
    let len = rest.iter().take_while(|(row, _)| *row < end).count();
    let (taken, after) = rest.split_at(len);
    *rest = after;
    taken
}
