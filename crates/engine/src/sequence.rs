//! One text of a request: known tokens, of which the first `committed` are in the cache.
//!
//! There is no phase. A prompt half read and a text half written are the same situation: some
//! known tokens are unread, and the row of the last one yields the next.

use std::ops::Range;
use std::sync::Arc;

use lapidary_core::{Input, RowSpec, SlotId, SoftId, SpanSpec, TokenId, Want};

use crate::next::NextToken;
use crate::pooling::Pool;
use crate::returned::{Choice, Returned};
use crate::sampling::{Logprobs, logprobs};
use crate::share::Claim;
use crate::soft::{Blocks, Soft};
use crate::{
    Draft, DraftCall, DraftShape, Drafting, Finish, Guesses, Limits, Pace, Pooling, Request,
    RequestId, Seen, SoftRows,
};

/// The most rows of a prompt that bring back whole rows of logits in one step: with the family's
/// vocabulary, each is a megabyte.
const SCORED_ROWS: usize = 64;

pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    /// Which of the request's texts.
    pub(crate) sample: u32,
    /// How many requests came before it.
    pub(crate) arrival: u64,
    /// How often it lost its slot.
    pub(crate) preempted: u32,
    /// Prompt and text.
    pub(crate) tokens: Vec<TokenId>,
    /// What their entries are compared by: the same, but for soft rows.
    names: Vec<TokenId>,
    /// Places of the prompt that are soft rows.
    blocks: Blocks,
    prompt: usize,
    committed: usize,
    /// Guesses that may follow `tokens`.
    draft: Draft,
    /// How guesses have fared, recent ones above all.
    pace: Pace,
    /// How many of all did.
    pub(crate) guesses: Guesses,
    /// The most guesses in a row, if fewer than everybody's.
    most_drafts: Option<usize>,
    /// The hidden state that yielded the last token, if it is kept.
    hidden: Option<Vec<f32>>,
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
    /// Whose: no other sequence gets the slot before its rows are back.
    pub(crate) slot: SlotId,
    /// Rows that yield a token: the last known token's, if it came along, and the guesses'.
    pub(crate) choices: usize,
    /// One past the batch's last row of the sequence.
    pub(crate) end: usize,
    /// Rows of known tokens.
    known: usize,
    /// What the rows after them guessed.
    draft: Draft,
    /// Tokens whose entries the slot holds, left here by a request that ended on the way.
    pub(crate) held: Vec<TokenId>,
}

impl Flight {
    /// Whether it reads one known token, whose row yields the next.
    pub(crate) fn decodes(&self) -> bool {
        self.known == 1 && self.choices > 0
    }
}

/// What a step did to a sequence.
#[derive(Default)]
pub(crate) struct Advance {
    /// Rows of the span to keep, in order.
    pub(crate) kept: Vec<usize>,
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
    /// A request's text of this number, not begun. The first reads what the request asks of its
    /// prompt; the others only continue it, each with dice of its own. `blocks` are the request's, and
    /// `names` what they make of its prompt.
    pub(crate) fn new(
        request: &Request,
        (blocks, names): (&Blocks, &[TokenId]),
        arrival: u64,
        sample: u32,
    ) -> Self {
        let reading = if sample == 0 { Reading::of(request) } else { Reading::Plain };
        Self {
            id: request.id,
            sample,
            arrival,
            preempted: 0,
            prompt: request.prompt.len(),
            tokens: request.prompt.clone(),
            names: names.to_vec(),
            blocks: blocks.clone(),
            committed: 0,
            draft: Draft::default(),
            pace: Pace::default(),
            guesses: Guesses::default(),
            most_drafts: request.drafts,
            hidden: None,
            asked: 0,
            max_tokens: request.max_tokens,
            next: NextToken::of(request, sample),
            reading,
            priority: request.priority,
        }
    }

    /// It got a slot, which already holds the first `committed` of its tokens.
    ///
    /// At least the last token stays unread: its row yields the next one.
    pub(crate) fn begin(&mut self, committed: usize) {
        let most = self.usable().len();
        assert!(committed <= most, "{committed} tokens are warm, of {most} that may be");
        self.committed = committed;
    }

    /// It lost its slot. What it knows and what was guessed is not lost.
    pub(crate) fn pause(&mut self) {
        self.committed = 0;
        self.preempted += 1;
    }

    /// Places of its prompt that are read whole.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The tokens whose entries it could make use of, by name.
    pub(crate) fn usable(&self) -> &[TokenId] {
        match self.reading {
            Reading::Scored { .. } | Reading::Pooled { pooling: Pooling::Mean, .. } => &[],
            _ => &self.names[..self.blocks.whole(self.names.len() - 1)],
        }
    }

    /// The tokens whose entries its slot holds, by name.
    pub(crate) fn held(&self) -> &[TokenId] {
        &self.names[..self.committed]
    }

    /// Tokens of the prompt that have been read.
    pub(crate) fn read(&self) -> usize {
        self.committed.min(self.prompt)
    }

    /// Whether all of the prompt has been read.
    pub(crate) fn has_read(&self) -> bool {
        self.committed >= self.prompt
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen {
            id: self.id,
            priority: self.priority,
            unread: self.unread(),
            preempted: self.preempted,
        }
    }

    /// Guesses worth running in the next step.
    pub(crate) fn room(&self, limits: &Limits) -> usize {
        let useful = self.left(limits).saturating_sub(1);
        useful.min(limits.burst.saturating_sub(self.unread()))
    }

    /// What shape of guesses should be asked for, if any; says so once per token.
    pub(crate) fn asks(
        &mut self,
        limits: &Limits,
        drafting: Drafting,
        cost: f64,
    ) -> Option<DraftShape> {
        let most = self.most_drafts.map_or(drafting.most, |most| most.min(drafting.most));
        let shape = self.pace.shape(Drafting { most, ..drafting }, cost);
        let shape = DraftShape { depth: shape.depth.min(self.room(limits)), ..shape };
        let asks = self.asked < self.tokens.len() && shape.depth > 0;
        if asks {
            self.asked = self.tokens.len();
        }
        asks.then_some(shape)
    }

    /// What a drafter gets to know.
    pub(crate) fn call(&self, slot: SlotId, shape: DraftShape, limits: &Limits) -> DraftCall<'_> {
        // The entries before the last token are those that its state goes with.
        let hidden = self.hidden.as_deref().filter(|_| self.unread() == 1);
        DraftCall {
            id: self.id,
            sample: self.sample,
            slot,
            known: &self.tokens,
            hidden,
            room: self.room(limits),
            shape,
        }
    }

    pub(crate) fn guess(&mut self, draft: Draft) {
        self.draft = draft;
    }

    /// Rows that it could use. Guesses wait while blocks are unread: a tree has no blocks.
    pub(crate) fn claim(&self, limits: &Limits) -> Claim {
        let unread = self.unread();
        let places = self.committed..self.tokens.len();
        let blocks: Vec<_> = self.blocks.within(places).map(|soft| self.offsets(soft)).collect();
        match self.reading {
            Reading::Scored { .. } if unread > SCORED_ROWS => {
                let cut = self.blocks.cut_by(self.committed + SCORED_ROWS);
                let unread = cut.map_or(SCORED_ROWS, |block| block.end - self.committed);
                Claim { unread, drafts: 0, blocks }
            }
            _ if blocks.is_empty() => {
                Claim { unread, drafts: self.draft.len().min(self.room(limits)), blocks }
            }
            _ => Claim { unread, drafts: 0, blocks },
        }
    }

    /// A block's places among the unread tokens.
    fn offsets(&self, soft: &Soft) -> Range<usize> {
        soft.range.start - self.committed..soft.range.end - self.committed
    }

    /// Sends `rows` rows of its slot off, the batch's `first` and those after it: what they hold,
    /// after how many entries, and the record of it.
    pub(crate) fn depart(&self, slot: SlotId, rows: usize, first: usize) -> Flight {
        let known = rows.min(self.unread());
        let draft = self.draft.first(rows - known);
        let yields = known == self.unread() && self.continues();
        let choices = if yields { 1 + draft.len() } else { 0 };
        Flight { slot, choices, end: first + rows, known, draft, held: Vec::new() }
    }

    /// The rows that were just sent off, after how many entries. Rows that yield a token bring back
    /// their hidden state too if `hidden`. What soft rows are rows of is added to `soft`.
    pub(crate) fn span(
        &self,
        flight: &Flight,
        hidden: bool,
        soft: &mut Vec<Arc<SoftRows>>,
    ) -> (SpanSpec, u32) {
        let (base, known) = (self.committed as u32, flight.known);
        let (mut rows, mut parents) = (Vec::new(), Vec::new());
        let mut depths = Vec::new();
        for i in 0..known {
            parents.push(i.checked_sub(1));
            depths.push(i as u32);
        }
        for (_, parent) in flight.draft.nodes() {
            let parent = parent.map_or(known - 1, |node| known + node);
            depths.push(depths[parent] + 1);
            parents.push(Some(parent));
        }
        let read = self.committed..self.committed + known;
        let known = self.tokens[read.clone()].iter().copied();
        let tokens = known.chain(flight.draft.nodes().iter().map(|(token, _)| *token));
        let first_choice = parents.len() - flight.choices;
        for (i, token) in tokens.enumerate() {
            let mut want = self.want(flight, i);
            want.hidden |= hidden && i >= first_choice;
            rows.push(RowSpec { input: Input::Token(token), angle: [base + depths[i]; 3], want });
        }
        if flight.draft.is_chain() {
            parents.clear();
        }
        let mut blocks = Vec::new();
        for block in self.blocks.within(read) {
            let source = SoftId(soft.len() as u32);
            soft.push(block.rows.clone());
            let places = self.offsets(block);
            for (row, place) in (0..).zip(&mut rows[places.clone()]) {
                place.input = Input::Soft { source, row };
            }
            blocks.push(places);
        }
        (SpanSpec { rows, parents, blocks }, base)
    }

    /// What row `i` of a span that was just sent off should bring back.
    fn want(&self, flight: &Flight, i: usize) -> Want {
        let row = self.committed + i;
        match &self.reading {
            Reading::Scored { .. } if row + 1 < self.prompt => Want::LOGITS,
            Reading::Pooled { pooling, .. } if pooling.wants(self.prompt - 1 - row) => Want::HIDDEN,
            _ if i + flight.choices < flight.known + flight.draft.len() => Want::NOTHING,
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
        let mut step = Advance { kept: (0..flight.known).collect(), ..Advance::default() };
        let read = self.committed..self.committed + flight.known;
        self.committed = read.end;
        self.take_reading(read.start, returned, &mut step);
        let hidden: Vec<_> = returned.hidden().collect();
        self.walk(flight, &returned.choices(flight.choices), &hidden, limits, &mut step);
        if flight.choices > 0 {
            let guesses = step.kept[flight.known..].iter().map(|row| row - flight.known);
            self.pace.note(&flight.draft.widths(), &flight.draft.ranks(guesses));
            self.guesses.note(flight.draft.len(), step.guessed);
        }
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
        hidden: &[&[f32]],
        limits: &Limits,
        step: &mut Advance,
    ) {
        // The guess that came true last, and the place of its row among those that yield a token.
        let (mut node, mut row) = (None, 0);
        while let Some(&choice) = choices.get(row) {
            // A grammar may be complete before the first token.
            step.finish = self.next.end();
            if step.finish.is_some() {
                return;
            }
            let (token, logprobs) = match self.next.choose(&self.tokens, choice) {
                Ok(chosen) => chosen,
                Err(finish) => {
                    step.finish = Some(finish);
                    return;
                }
            };
            self.tokens.push(token);
            self.names.push(token);
            self.draft = Draft::default();
            self.hidden = hidden.get(row).map(|state| state.to_vec());
            step.text.push((token, logprobs));
            let used_up = (self.left(limits) == 0).then_some(Finish::Length);
            step.finish = self.next.end().or(used_up);
            node = flight.draft.child(node, token);
            let Some(came_true) = node.filter(|_| step.finish.is_none()) else { return };
            self.committed += 1;
            step.guessed += 1;
            step.kept.push(flight.known + came_true);
            row = 1 + came_true;
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
