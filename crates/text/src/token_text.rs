//! The text of tokens as they come, up to a stop string, and how many of them belong to it.

use crate::{Passed, StopStrings, TextStream};

/// Joins [`TextStream`] and [`StopStrings`] and remembers which token brought which text.
///
/// Law: what is passed on, joined, is the text of [`kept`](Self::kept) tokens, cut at the stop
/// string; no fewer tokens have all of it.
#[derive(Clone, Debug)]
pub struct TokenText {
    stream: TextStream,
    stops: StopStrings,
    /// Where the text of each token begins, in bytes of text.
    starts: Vec<usize>,
    /// Bytes of tokens taken in so far.
    taken: usize,
    /// Bytes of text passed on.
    passed: usize,
    stopped: Option<usize>,
}

impl TokenText {
    /// Nothing yet.
    pub fn new(stops: StopStrings) -> Self {
        Self {
            stream: TextStream::default(),
            stops,
            starts: Vec::new(),
            taken: 0,
            passed: 0,
            stopped: None,
        }
    }

    /// Takes in the bytes of the next token.
    pub fn push(&mut self, bytes: &[u8]) -> Passed {
        self.starts.push(self.taken);
        self.taken += bytes.len();
        let passed = self.stops.push(&self.stream.push(bytes));
        self.note(passed)
    }

    /// What was held back, when there is no more to come.
    pub fn finish(&mut self) -> Passed {
        let rest = self.stops.push(&std::mem::take(&mut self.stream).finish());
        let mut passed = self.note(rest);
        if passed.stopped.is_none() {
            let held = self.stops.clone().finish();
            self.passed += held.len();
            passed.text.push_str(&held);
        }
        passed
    }

    /// How many of the tokens belong to the text: all of them, until a stop string cuts it; then
    /// those that begin before the cut.
    pub fn kept(&self) -> usize {
        match self.stopped {
            Some(_) => self.starts.iter().take_while(|start| **start < self.passed).count(),
            None => self.starts.len(),
        }
    }

    fn note(&mut self, passed: Passed) -> Passed {
        self.passed += passed.text.len();
        self.stopped = passed.stopped;
        passed
    }
}
