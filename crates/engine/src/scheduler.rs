//! Requests in, batches out, outputs in, events out.
//!
//! Methods come in four kinds: commands (`submit`, `cancel`), questions (`is_idle`, `known`,
//! `stats`), `handle_*` for what happened outside, and `poll_*` for what should happen outside.
//! Cache operations must be carried out before the next batch runs; events may be collected at
//! leisure.
//!
//! A slot keeps what it holds after its text has ended, until another needs it. A driver that asks
//! for admissions lets texts begin after what slots hold; one that does not gets emptied slots.
//!
//! A request for several texts is several sequences. Those after the first wait until its prompt
//! has been read, and then begin after it.
//!
//! One batch is out at a time. While it is, commands are welcome: a cancelled request ends at
//! once, its rows are dropped when the outputs arrive, and only then is its slot free.

mod seating;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lapidary_core::{Batch, SlotId, TokenId};
use lapidary_model::Outputs;

use crate::admission::Idle;
use crate::draft::StepCost;
use crate::returned::Returned;
use crate::sequence::{Flight, Sequence};
use crate::share::share;
use crate::soft::Blocks;
use crate::{
    BadLimits, Draft, DraftCall, Drafting, Event, Finish, Guesses, Limits, Policy, Refused,
    Request, RequestId, SoftRows,
};
use seating::rank;

/// What the cache must do before the next batch runs. Every span of a batch that ran is answered
/// by one commit, of no rows if its request was cancelled on the way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CacheOp {
    /// Keep these rows of the slot's span and forget the others.
    Commit(SlotId, Vec<usize>),
    /// Empty the slot.
    Clear(SlotId),
    /// Keep a copy of the slot's entries, which are those of these tokens, if there is a place for
    /// it. Nothing depends on that.
    Save(SlotId, Vec<TokenId>),
}

/// What a scheduler has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Batches handed out.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Tokens whose entries were found, in a slot or saved, and that were not read.
    pub cached: u64,
    /// Tokens of text produced. Stop tokens do not count.
    pub tokens: u64,
    /// Guesses run.
    pub drafted: u64,
    /// Guesses that became text.
    pub accepted: u64,
    /// Requests taken.
    pub submitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests ended, for whatever reason.
    pub finished: u64,
    /// Texts that lost their slot to another, each time.
    pub preempted: u64,
    /// Texts that hold a slot.
    pub running: usize,
    /// Texts that wait for one.
    pub waiting: usize,
}

/// The state machine.
pub struct Scheduler {
    limits: Limits,
    policy: Box<dyn Policy>,
    /// Every how many tokens of a prompt its entries are saved; zero for never.
    checkpoint: u32,
    drafting: Drafting,
    /// Whether rows that yield a token bring back their hidden states.
    hidden: bool,
    cost: StepCost,
    /// Rows of the last step, if it read no more than one known token of each text.
    decoded: Option<usize>,
    waiting: Vec<Sequence>,
    running: Vec<Seated>,
    /// Slots without a request, the one that has been so for longest first.
    idle: Vec<Idle>,
    /// Who is about to get a slot.
    admitting: Option<Sequence>,
    out: Option<Vec<Flight>>,
    /// What the soft rows of the last batch are rows of.
    soft: Vec<Arc<SoftRows>>,
    events: VecDeque<Event>,
    cache_ops: VecDeque<CacheOp>,
    stats: Stats,
}

/// A text and its slot.
struct Seated {
    slot: SlotId,
    sequence: Sequence,
}

impl Scheduler {
    /// An idle scheduler whose cache is empty.
    ///
    /// # Errors
    /// [`BadLimits`] if some request could never move.
    pub fn new(limits: Limits, policy: Box<dyn Policy>) -> Result<Self, BadLimits> {
        limits.check()?;
        Ok(Self {
            limits,
            policy,
            checkpoint: 0,
            drafting: Drafting { most: usize::MAX, width: 1, adaptive: false },
            hidden: false,
            cost: StepCost::default(),
            decoded: None,
            waiting: Vec::new(),
            running: Vec::new(),
            idle: (0..limits.slots as u32)
                .map(|slot| Idle { slot: SlotId(slot), held: Vec::new() })
                .collect(),
            admitting: None,
            out: None,
            soft: Vec::new(),
            events: VecDeque::new(),
            cache_ops: VecDeque::new(),
            stats: Stats::default(),
        })
    }

    /// Asks for saves: of a prompt's entries after every `checkpoint` of its tokens and at its end,
    /// and of a text's when it ends.
    pub fn saving(self, checkpoint: u32) -> Self {
        Self { checkpoint, ..self }
    }

    /// Bounds how much is guessed, and keeps hidden states for a drafter that wants them.
    pub fn drafting(self, drafting: Drafting, hidden: bool) -> Self {
        Self { drafting, hidden, ..self }
    }

    /// Takes a request. A request for no tokens ends at once, unless its prompt is asked about.
    ///
    /// # Errors
    /// [`Refused`], with nothing changed but the count of refusals.
    pub fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if let Err(refused) = self.admissible(&request) {
            self.stats.refused += 1;
            return Err(refused);
        }
        let arrival = self.stats.submitted;
        self.stats.submitted += 1;
        let (over, open): (Vec<_>, Vec<_>) =
            (0..request.samples).partition(|&sample| request.asks_for_nothing(sample));
        // Once for all texts: naming reads every number of every soft row.
        let blocks = Blocks::new(&request.soft);
        let names = blocks.named(&request.prompt);
        let begun = |sample| Sequence::new(&request, (&blocks, &names), arrival, sample);
        self.waiting.extend(open.into_iter().map(begun));
        self.stats.finished += u64::from(!self.is_live(request.id));
        for sample in over {
            self.events.push_back(Event::Finished {
                id: request.id,
                sample,
                finish: Finish::Length,
                guesses: Guesses::default(),
            });
        }
        Ok(())
    }

    /// Ends a request early, with all its texts; does nothing if there is none of that id.
    pub fn cancel(&mut self, id: RequestId) {
        while let Some(i) = self.waiting.iter().position(|sequence| sequence.id == id) {
            let sequence = self.waiting.remove(i);
            self.finish(&sequence, Finish::Cancelled);
        }
        while let Some(i) = self.running.iter().position(|seated| seated.sequence.id == id) {
            self.retire(i, Finish::Cancelled);
        }
    }

    /// Whether nothing is waiting, running or out.
    pub fn is_idle(&self) -> bool {
        let admitted = self.waiting.is_empty() && self.admitting.is_none();
        admitted && self.running.is_empty() && self.out.is_none()
    }

    /// Prompt and text so far of a request's text that holds a slot.
    pub fn known(&self, id: RequestId, sample: u32) -> Option<&[TokenId]> {
        let is_it = |s: &&Seated| (s.sequence.id, s.sequence.sample) == (id, sample);
        Some(&self.running.iter().find(is_it)?.sequence.tokens)
    }

    /// The fixed bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        Stats { running: self.running.len(), waiting: self.waiting.len(), ..self.stats }
    }

    /// The texts that could use guesses, each once per token. A driver that does not guess need not
    /// ask; one that does asks before each batch.
    pub fn poll_drafts(&mut self) -> Vec<DraftCall<'_>> {
        if self.out.is_some() {
            return Vec::new();
        }
        self.admit();
        let (limits, drafting) = (self.limits, self.drafting);
        let cost = self.cost.of_a_row(self.running.len());
        let asks = |seated: &mut Seated| seated.sequence.asks(&limits, drafting, cost);
        let shapes: Vec<_> = self.running.iter_mut().map(asks).collect();
        let mut calls = Vec::new();
        for (Seated { slot, sequence }, shape) in self.running.iter().zip(shapes) {
            calls.extend(shape.map(|shape| sequence.call(*slot, shape, &limits)));
        }
        calls
    }

    /// Takes guesses for a request's text. Those that find no room are dropped, and so are all of
    /// them if the text has no slot any more.
    pub fn handle_drafts(&mut self, id: RequestId, sample: u32, draft: Draft) {
        let is_it = |s: &&mut Seated| (s.sequence.id, s.sequence.sample) == (id, sample);
        if let Some(Seated { sequence, .. }) = self.running.iter_mut().find(is_it) {
            sequence.guess(draft);
        }
    }

    /// How long the last step took, guessing included. How much is guessed depends on it; what the
    /// texts are does not.
    pub fn handle_step_time(&mut self, time: Duration) {
        if let Some(rows) = self.decoded.take() {
            self.cost.note(rows, time);
        }
    }

    /// The next step, if there is anything to do and no batch is out. It must be followed by one
    /// of [`handle_outputs`](Self::handle_outputs), [`handle_no_room`](Self::handle_no_room) and
    /// [`handle_failure`](Self::handle_failure).
    pub fn poll_batch(&mut self) -> Option<Batch> {
        if self.out.is_some() {
            return None;
        }
        self.admit();
        if self.running.is_empty() {
            return None;
        }
        self.running.sort_by_key(|s| rank(&*self.policy, &s.sequence));
        let (batch, flights) = self.depart();
        self.stats.steps += 1;
        let decodes = flights.iter().all(|flight| flight.decodes());
        self.decoded = decodes.then_some(batch.rows().len());
        self.stats.rows += batch.rows().len() as u64;
        self.out = Some(flights);
        Some(batch)
    }

    /// The matrices that soft rows of the last batch come from, by
    /// [`SoftId`](lapidary_core::SoftId).
    pub fn soft(&self) -> &[Arc<SoftRows>] {
        &self.soft
    }

    /// Takes in what the batch produced.
    ///
    /// # Panics
    /// If no batch is out, or the outputs are not those of the batch.
    pub fn handle_outputs(&mut self, outputs: &Outputs) {
        let flights = self.out.take().expect("outputs come after a batch");
        let mut rest = Returned::all(outputs);
        for flight in flights {
            let returned = rest.split_before(flight.end);
            self.land(flight, returned);
        }
        assert!(rest.is_empty(), "outputs belong to rows of the batch");
    }

    /// The cache had no room for the batch's span in `slot`, and nothing was run. The slot's
    /// request fails; the others try again.
    ///
    /// # Panics
    /// If no batch is out.
    pub fn handle_no_room(&mut self, slot: SlotId, reason: &str) {
        let flights = self.out.take().expect("a batch was tried");
        self.release_orphans(flights);
        if let Some(i) = self.running.iter().position(|seated| seated.slot == slot) {
            self.retire(i, Finish::Failed(reason.to_owned()));
        }
    }

    /// Nothing can be run any more: ends every request.
    pub fn handle_failure(&mut self, reason: &str) {
        let flights = self.out.take().unwrap_or_default();
        self.release_orphans(flights);
        while !self.running.is_empty() {
            self.retire(0, Finish::Failed(reason.to_owned()));
        }
        while let Some(sequence) = self.waiting.pop() {
            self.finish(&sequence, Finish::Failed(reason.to_owned()));
        }
        // What a broken device left in the cache is not to be trusted.
        self.idle.iter_mut().for_each(|idle| idle.held.clear());
        self.cache_ops.retain(|op| !matches!(op, CacheOp::Save(..)));
    }

    /// Whether there is nothing that the cache must do.
    pub(crate) fn is_settled(&self) -> bool {
        self.cache_ops.is_empty()
    }

    /// The next thing the cache must do.
    pub fn poll_cache_op(&mut self) -> Option<CacheOp> {
        self.cache_ops.pop_front()
    }

    /// The next thing to tell a request's owner.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn admissible(&self, request: &Request) -> Result<(), Refused> {
        let Limits { context, waiting: most, .. } = self.limits;
        let tokens = request.prompt.len();
        let (running, waiting) = (self.running.len(), self.requests_waiting());
        if tokens == 0 {
            return Err(Refused::EmptyPrompt);
        }
        // A text has at least one token; an embedding has none.
        if tokens + usize::from(request.pool.is_none()) > context as usize {
            return Err(Refused::PromptTooLong { tokens, context });
        }
        request.check(&self.limits)?;
        if self.is_live(request.id) {
            return Err(Refused::IdInUse { id: request.id });
        }
        if waiting >= self.idle.len() + most {
            return Err(Refused::Busy { running, waiting });
        }
        Ok(())
    }

    /// Requests none of whose texts has a slot.
    fn requests_waiting(&self) -> usize {
        let running = |id| self.running.iter().any(|seated| seated.sequence.id == id);
        let mut ids: Vec<_> =
            self.waiting.iter().map(|s| s.id).filter(|id| !running(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    fn is_live(&self, id: RequestId) -> bool {
        let running = self.running.iter().map(|seated| &seated.sequence);
        self.waiting.iter().chain(&self.admitting).chain(running).any(|s| s.id == id)
    }

    /// Builds the batch of everyone's share.
    fn depart(&mut self) -> (Batch, Vec<Flight>) {
        self.soft.clear();
        let claim = |seated: &Seated| seated.sequence.claim(&self.limits);
        let claims: Vec<_> = self.running.iter().map(claim).collect();
        let mut batch = Batch::builder();
        let mut flights = Vec::new();
        let shares = share(&claims, &self.limits);
        for (Seated { slot, sequence }, rows) in self.running.iter().zip(shares) {
            if rows == 0 {
                continue;
            }
            let first = flights.last().map_or(0, |before: &Flight| before.end);
            let flight = sequence.depart(*slot, rows, first);
            let (span, base) = sequence.span(&flight, self.hidden, &mut self.soft);
            let longer = batch.span(*slot, base, span);
            batch = longer.expect("slots are distinct, spans not empty, contexts fit a position");
            self.stats.drafted += flight.choices.saturating_sub(1) as u64;
            flights.push(flight);
        }
        (batch.build(), flights)
    }

    fn land(&mut self, flight: Flight, returned: Returned<'_>) {
        let slot = flight.slot;
        let Some(i) = self.running.iter().position(|seated| seated.slot == slot) else {
            self.cache_ops.push_back(CacheOp::Commit(slot, Vec::new()));
            return self.release(slot, flight.held);
        };
        let sequence = &mut self.running[i].sequence;
        let before = sequence.read();
        let step = sequence.land(&flight, returned, &self.limits);
        let (id, sample, guesses) = (sequence.id, sequence.sample, sequence.guesses);
        self.stats.accepted += step.guessed as u64;
        self.stats.tokens += step.text.len() as u64;
        self.events.extend(step.scores.map(|logprobs| Event::Prompt { id, logprobs }));
        self.events.extend(step.embedding.map(|values| Event::Embedding { id, values }));
        let token = |(token, logprobs)| Event::Token { id, sample, token, logprobs, guesses };
        self.events.extend(step.text.into_iter().map(token));
        self.cache_ops.push_back(CacheOp::Commit(slot, step.kept));
        match step.finish {
            Some(finish) => self.retire(i, finish),
            None => self.save_progress(i, before),
        }
    }

    /// Saves a prompt's entries at checkpoints and at its end, `before` of its tokens having been
    /// read earlier.
    fn save_progress(&mut self, i: usize, before: usize) {
        let Seated { slot, sequence } = &self.running[i];
        let (read, every) = (sequence.read(), self.checkpoint as usize);
        let ended = sequence.has_read() && before < read;
        if every > 0 && (ended || read / every > before / every) {
            self.cache_ops.push_back(CacheOp::Save(*slot, sequence.held().to_vec()));
        }
    }

    /// Frees the slots of flights whose requests were cancelled on the way.
    fn release_orphans(&mut self, flights: Vec<Flight>) {
        for flight in flights {
            if self.running.iter().all(|seated| seated.slot != flight.slot) {
                self.release(flight.slot, flight.held);
            }
        }
    }

    /// Ends a running text. Its slot stays taken while rows of it are out.
    fn retire(&mut self, i: usize, finish: Finish) {
        let Seated { slot, sequence } = self.running.remove(i);
        let held = sequence.held().to_vec();
        match self.out.iter_mut().flatten().find(|flight| flight.slot == slot) {
            Some(flight) => flight.held = held,
            None => self.release(slot, held),
        }
        self.finish(&sequence, finish);
    }

    fn release(&mut self, slot: SlotId, held: Vec<TokenId>) {
        if self.checkpoint > 0 && !held.is_empty() {
            self.cache_ops.push_back(CacheOp::Save(slot, held.clone()));
        }
        self.idle.push(Idle { slot, held });
    }

    /// Tells of a text's end. The request has ended with the last of its texts.
    fn finish(&mut self, sequence: &Sequence, finish: Finish) {
        let (id, sample, guesses) = (sequence.id, sequence.sample, sequence.guesses);
        self.stats.finished += u64::from(!self.is_live(id));
        self.events.push_back(Event::Finished { id, sample, finish, guesses });
    }
}
