//! One running request: known tokens, of which the first `committed` are in the cache.
//!
//! There is no phase. A prompt half read and a text half written are the same situation: some
//! known tokens are unread, and the row of the last one yields the next.

use lapidary_core::{SlotId, TokenId, Want};

use crate::next::NextToken;
use crate::pooling::Pool;
use crate::returned::{Choice, Returned};
use crate::sampling::{Logprobs, logprobs};
use crate::share::Claim;
use crate::{Finish, Limits, Pooling, Request, RequestId, Seen};

/// The most rows of a prompt that bring back whole rows of logits in one step: with the family's
/// vocabulary, each is a megabyte.
const SCORED_ROWS: usize = 64;

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
    next: NextToken,
    /// What the prompt is read for, besides its continuation.
    reading: Reading,
    priority: i32,
}

/// What a prompt's rows yield.
enum Reading {
    /// Nothing, apart from the last row's next token.
    Plain,
    /// How likely each next token of the prompt was, next to this many of the likeliest.
    Scored { top: usize, scores: Vec<Logprobs> },
    /// A vector.
    Pooled { pooling: Pooling, pool: Pool },
}

/// A sequence's part of the batch that is out.
pub(crate) struct Flight {
    pub(crate) id: RequestId,
    pub(crate) slot: SlotId,
    /// Rows that yield a token: the last known token's, if it came along, and the guesses'.
    pub(crate) choices: usize,
    /// One past the batch's last row of the sequence.
    pub(crate) end: usize,
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
    /// How likely the prompt was, once it has been read.
    pub(crate) scores: Option<Vec<Logprobs>>,
    /// The vector, once the prompt has been read.
    pub(crate) embedding: Option<Vec<f32>>,
    /// New tokens of the text.
    pub(crate) text: Vec<(TokenId, Option<Box<Logprobs>>)>,
    /// Whether the text ended.
    pub(crate) finish: Option<Finish>,
}

impl Sequence {
    /// A request that got a slot, which already holds the first `committed` tokens of its prompt.
    /// At least the last token stays unread: its row yields the first token of the text.
    pub(crate) fn new(request: Request, arrival: u64, slot: SlotId, committed: usize) -> Self {
        let reading = Reading::of(&request);
        let next = NextToken::of(&request);
        let Request { id, prompt: tokens, max_tokens, priority, .. } = request;
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
            next,
            reading,
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
        let useful = self.left(limits).saturating_sub(1);
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
        match self.reading {
            Reading::Scored { .. } if self.unread() > SCORED_ROWS => {
                Claim { unread: SCORED_ROWS, drafts: 0 }
            }
            _ => Claim { unread: self.unread(), drafts: self.drafts.len().min(self.room(limits)) },
        }
    }

    /// Sends `rows` rows off, the batch's `first` and those after it: what they hold, after how
    /// many entries, and the record of it.
    pub(crate) fn depart(&self, rows: usize, first: usize) -> (Vec<TokenId>, u32, Flight) {
        let known = rows.min(self.unread());
        let drafts = self.drafts[..rows - known].to_vec();
        let span = [&self.tokens[self.committed..self.committed + known], &drafts].concat();
        let yields = known == self.unread() && self.continues();
        let choices = if yields { 1 + drafts.len() } else { 0 };
        let (id, slot, end, held) = (self.id, self.slot, first + rows, Vec::new());
        let flight = Flight { id, slot, choices, end, known, drafts, held };
        (span, self.committed as u32, flight)
    }

    /// What row `i` of a span that was just sent off should bring back.
    pub(crate) fn want(&self, flight: &Flight, i: usize) -> Want {
        let row = self.committed + i;
        match &self.reading {
            Reading::Scored { .. } if row + 1 < self.prompt => Want::LOGITS,
            Reading::Pooled { pooling, .. } if pooling.wants(self.prompt - 1 - row) => Want::HIDDEN,
            _ if i + flight.choices < flight.known + flight.drafts.len() => Want::NOTHING,
            _ => self.next.want(),
        }
    }

    /// Takes in what the flight's rows returned. Each choice is the next token of the text, and the
    /// walk goes on while it agrees with the guess that was run.
    pub(crate) fn land(
        &mut self,
        flight: &Flight,
        returned: Returned<'_>,
        limits: &Limits,
    ) -> Advance {
        let mut step = Advance { kept: flight.known, ..Advance::default() };
        let read = self.committed..self.committed + flight.known;
        self.committed = read.end;
        self.take_reading(read.start, returned, &mut step);
        self.walk(flight, &returned.choices(flight.choices), limits, &mut step);
        step
    }

    /// Whether the prompt is followed by a text.
    fn continues(&self) -> bool {
        !matches!(self.reading, Reading::Pooled { .. }) && self.max_tokens != Some(0)
    }

    /// Takes in what the prompt's rows from `first` on yield, and tells of it after the last one.
    /// What an earlier reading said about these rows is forgotten.
    fn take_reading(&mut self, first: usize, returned: Returned<'_>, step: &mut Advance) {
        let whole = self.committed >= self.prompt;
        match &mut self.reading {
            Reading::Plain => return,
            Reading::Scored { top, scores } => {
                scores.truncate(first);
                let followers = self.tokens[..self.prompt].iter().skip(first + 1);
                let scored = followers.zip(returned.logits());
                scores.extend(scored.map(|(&token, logits)| logprobs(logits, token, *top)));
                if whole {
                    step.scores = Some(std::mem::take(scores));
                }
            }
            Reading::Pooled { pool, .. } => {
                if first == 0 {
                    *pool = Pool::default();
                }
                returned.hidden().for_each(|state| pool.add(state));
                if whole {
                    step.embedding = Some(pool.finish());
                    step.finish = Some(Finish::Complete);
                }
            }
        }
        if whole {
            if self.max_tokens == Some(0) {
                step.finish = step.finish.take().or(Some(Finish::Length));
            }
            self.reading = Reading::Plain;
        }
    }

    fn walk(
        &mut self,
        flight: &Flight,
        choices: &[Choice<'_>],
        limits: &Limits,
        step: &mut Advance,
    ) {
        let mut guesses = flight.drafts.iter();
        for choice in choices {
            // A grammar may be complete before the first token.
            step.finish = self.next.end();
            if step.finish.is_some() {
                return;
            }
            let (token, logprobs) = match self.next.choose(&self.tokens, *choice) {
                Ok(chosen) => chosen,
                Err(finish) => {
                    step.finish = Some(finish);
                    return;
                }
            };
            self.tokens.push(token);
            self.drafts.clear();
            step.text.push((token, logprobs));
            let used_up = (self.left(limits) == 0).then_some(Finish::Length);
            step.finish = self.next.end().or(used_up);
            if step.finish.is_some() || guesses.next() != Some(&token) {
                return;
            }
            self.committed += 1;
            step.guessed += 1;
            step.kept += 1;
        }
    }

    fn unread(&self) -> usize {
        self.tokens.len() - self.committed
    }

    /// Tokens that may still be produced.
    fn left(&self, limits: &Limits) -> usize {
        if !self.continues() {
            return 0;
        }
        let context = limits.context as usize - self.tokens.len();
        let produced = self.tokens.len() - self.prompt;
        self.max_tokens.map_or(context, |most| context.min(most as usize - produced))
    }
}

impl Reading {
    fn of(request: &Request) -> Self {
        match (request.pool, request.prompt_logprobs) {
            (Some(pooling), _) => Self::Pooled { pooling, pool: Pool::default() },
            (None, Some(top)) => Self::Scored { top, scores: Vec::new() },
            (None, None) => Self::Plain,
        }
    }
}
