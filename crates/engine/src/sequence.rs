//! One running request: known tokens, of which the first `committed` are in the cache.
//!
//! There is no phase. A prompt half read and a text half written are the same situation: some
//! known tokens are unread, and the row of the last one yields the next.

use lapidary_core::{SlotId, TokenId};

use crate::share::Claim;
use crate::{Finish, Limits, Request, RequestId, Sampling, Seen};

pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) slot: SlotId,
    /// How many requests came before it.
    pub(crate) arrival: u64,
    /// Prompt and text.
    pub(crate) tokens: Vec<TokenId>,
    prompt: usize,
    committed: usize,
    /// Guesses that may follow `tokens`.
    drafts: Vec<TokenId>,
    /// How many tokens there were when guesses were last asked for.
    asked: usize,
    max_tokens: Option<u32>,
    stop: Vec<TokenId>,
    sampling: Sampling,
    priority: i32,
}

/// A sequence's part of the batch that is out.
pub(crate) struct Flight {
    pub(crate) id: RequestId,
    pub(crate) slot: SlotId,
    /// Rows that wanted logits: the last known token's, if it came along, and the guesses'.
    pub(crate) choices: usize,
    /// Rows of known tokens.
    known: usize,
    /// What the rows after them guessed.
    drafts: Vec<TokenId>,
    /// Tokens whose entries the slot holds, left here by a request that ended on the way.
    pub(crate) held: Vec<TokenId>,
}

/// What a step did to a sequence.
#[derive(Default)]
pub(crate) struct Advance {
    /// Rows of the span to keep, from its start.
    pub(crate) kept: usize,
    /// How many of them were guesses.
    pub(crate) guessed: usize,
    /// New tokens of the text.
    pub(crate) text: Vec<TokenId>,
    /// Whether the text ended.
    pub(crate) finish: Option<Finish>,
}

impl Sequence {
    /// A request that got a slot, which already holds the first `committed` tokens of its prompt.
    /// At least the last token stays unread: its row yields the first token of the text.
    pub(crate) fn new(request: Request, arrival: u64, slot: SlotId, committed: usize) -> Self {
        let Request { id, prompt: tokens, max_tokens, stop, sampling, priority } = request;
        assert!(committed < tokens.len(), "{committed} of {} tokens are warm", tokens.len());
        Self {
            id,
            slot,
            arrival,
            prompt: tokens.len(),
            tokens,
            committed,
            drafts: Vec::new(),
            asked: 0,
            max_tokens,
            stop,
            sampling,
            priority,
        }
    }

    /// The tokens whose entries its slot holds.
    pub(crate) fn into_held(mut self) -> Vec<TokenId> {
        self.tokens.truncate(self.committed);
        self.tokens
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen { id: self.id, priority: self.priority, unread: self.unread() }
    }

    /// Guesses worth running in the next step.
    pub(crate) fn room(&self, limits: &Limits) -> usize {
        let useful = self.left(limits) - 1;
        useful.min(limits.burst.saturating_sub(self.unread()))
    }

    /// Whether guesses should be asked for; says so once per token.
    pub(crate) fn asks(&mut self, limits: &Limits) -> bool {
        let asks = self.asked < self.tokens.len() && self.room(limits) > 0;
        if asks {
            self.asked = self.tokens.len();
        }
        asks
    }

    pub(crate) fn guess(&mut self, drafts: Vec<TokenId>) {
        self.drafts = drafts;
    }

    pub(crate) fn claim(&self, limits: &Limits) -> Claim {
        Claim { unread: self.unread(), drafts: self.drafts.len().min(self.room(limits)) }
    }

    /// Sends `rows` rows off: what they hold, after how many entries, and the record of it.
    pub(crate) fn depart(&self, rows: usize) -> (Vec<TokenId>, u32, Flight) {
        let known = rows.min(self.unread());
        let drafts = self.drafts[..rows - known].to_vec();
        let span = [&self.tokens[self.committed..self.committed + known], &drafts].concat();
        let reaches_end = known == self.unread();
        let choices = if reaches_end { 1 + drafts.len() } else { 0 };
        let held = Vec::new();
        let flight = Flight { id: self.id, slot: self.slot, choices, known, drafts, held };
        (span, self.committed as u32, flight)
    }

    /// Takes in the logits of the flight's choices. Each choice is the next token of the text,
    /// and the walk goes on while it agrees with the guess that was run.
    pub(crate) fn land(
        &mut self,
        flight: &Flight,
        choices: &[(usize, Vec<f32>)],
        limits: &Limits,
    ) -> Advance {
        let mut step = Advance { kept: flight.known, ..Advance::default() };
        self.committed += flight.known;
        let mut guesses = flight.drafts.iter();
        for (_, logits) in choices {
            let token = match self.choose(logits) {
                Ok(token) => token,
                Err(finish) => {
                    step.finish = Some(finish);
                    break;
                }
            };
            self.tokens.push(token);
            self.drafts.clear();
            step.text.push(token);
            if self.left(limits) == 0 {
                step.finish = Some(Finish::Length);
                break;
            }
            if guesses.next() != Some(&token) {
                break;
            }
            self.committed += 1;
            step.guessed += 1;
            step.kept += 1;
        }
        step
    }

    /// The next token of the text, or why there is none.
    fn choose(&self, logits: &[f32]) -> Result<TokenId, Finish> {
        match self.sampling.pick(&self.tokens, logits) {
            Ok(token) if self.stop.contains(&token) => Err(Finish::Stop { token }),
            Ok(token) => Ok(token),
            Err(none) => Err(Finish::Failed(none.to_string())),
        }
    }

    fn unread(&self) -> usize {
        self.tokens.len() - self.committed
    }

    /// Tokens that may still be produced.
    fn left(&self, limits: &Limits) -> usize {
        let context = limits.context as usize - self.tokens.len();
        let produced = self.tokens.len() - self.prompt;
        self.max_tokens.map_or(context, |most| context.min(most as usize - produced))
    }
}
