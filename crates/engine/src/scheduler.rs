//! Requests in, batches out, outputs in, events out.
//!
//! Methods come in four kinds: commands (`submit`, `cancel`), questions (`is_idle`, `known`,
//! `stats`), `handle_*` for what happened outside, and `poll_*` for what should happen outside.
//! Cache operations must be carried out before the next batch runs; events may be collected at
//! leisure.
//!
//! A slot keeps what it holds after its request has ended, until another request needs it. A driver
//! that asks for admissions lets requests begin where a slot's content ends; one that does not gets
//! emptied slots.
//!
//! One batch is out at a time. While it is, commands are welcome: a cancelled request ends at
//! once, its rows are dropped when the outputs arrive, and only then is its slot free.

use std::collections::VecDeque;

use lapidary_core::{Batch, SlotId, TokenId};
use lapidary_model::Outputs;

use crate::returned::Returned;
use crate::sequence::{Flight, Sequence};
use crate::share::share;
use crate::{
    BadLimits, DraftCall, Event, Finish, Limits, Policy, Refused, Request, RequestId, Seen,
};

/// What the cache must do before the next batch runs. Every span of a batch that ran is answered
/// by one commit, of no rows if its request was cancelled on the way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CacheOp {
    /// Keep these rows of the slot's span and forget the others.
    Commit(SlotId, Vec<usize>),
    /// Empty the slot.
    Clear(SlotId),
}

/// A request is about to get a slot whose first entries are those of its prompt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admission {
    /// Which request.
    pub id: RequestId,
    /// Which slot.
    pub slot: SlotId,
    /// Entries of the slot that the request can use: the cache should forget those after them, or
    /// all if it cannot.
    pub keep: u32,
}

/// What a scheduler has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Batches handed out.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Tokens of prompts that were found in a slot and not read again.
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
    /// Requests that hold a slot.
    pub running: usize,
    /// Requests that wait for one.
    pub waiting: usize,
}

/// The state machine.
pub struct Scheduler {
    limits: Limits,
    policy: Box<dyn Policy>,
    waiting: Vec<Waiting>,
    running: Vec<Sequence>,
    /// Slots without a request, the one that has been so for longest first.
    idle: Vec<Idle>,
    /// Who is about to get which slot.
    admitting: Option<(Waiting, SlotId)>,
    out: Option<Vec<Flight>>,
    events: VecDeque<Event>,
    cache_ops: VecDeque<CacheOp>,
    stats: Stats,
}

struct Waiting {
    arrival: u64,
    request: Request,
}

/// A slot without a request, and the tokens whose entries it still holds.
struct Idle {
    slot: SlotId,
    held: Vec<TokenId>,
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
            waiting: Vec::new(),
            running: Vec::new(),
            idle: (0..limits.slots as u32)
                .map(|slot| Idle { slot: SlotId(slot), held: Vec::new() })
                .collect(),
            admitting: None,
            out: None,
            events: VecDeque::new(),
            cache_ops: VecDeque::new(),
            stats: Stats::default(),
        })
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
        if request.asks_for_nothing() {
            self.finish(request.id, Finish::Length);
        } else {
            self.waiting.push(Waiting { arrival, request });
        }
        Ok(())
    }

    /// Ends a request early; does nothing if there is none of that id.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(i) = self.waiting.iter().position(|waiting| waiting.request.id == id) {
            self.waiting.remove(i);
            self.finish(id, Finish::Cancelled);
        } else if let Some(i) = self.running.iter().position(|sequence| sequence.id == id) {
            self.retire(i, Finish::Cancelled);
        }
    }

    /// Whether nothing is waiting, running or out.
    pub fn is_idle(&self) -> bool {
        let admitted = self.waiting.is_empty() && self.admitting.is_none();
        admitted && self.running.is_empty() && self.out.is_none()
    }

    /// Prompt and text so far of a request that holds a slot.
    pub fn known(&self, id: RequestId) -> Option<&[TokenId]> {
        let sequence = self.running.iter().find(|sequence| sequence.id == id)?;
        Some(&sequence.tokens)
    }

    /// The fixed bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        Stats { running: self.running.len(), waiting: self.waiting.len(), ..self.stats }
    }

    /// The next request to get a slot, with what the slot holds of its prompt. The cache operations
    /// so far must have been carried out. Must be answered by
    /// [`handle_admission`](Self::handle_admission).
    ///
    /// # Panics
    /// If the last admission has not been answered.
    pub fn poll_admission(&mut self) -> Option<Admission> {
        assert!(self.admitting.is_none(), "an admission is answered before the next");
        if self.out.is_some() || self.idle.is_empty() {
            return None;
        }
        let waiting = self.waiting.remove(self.next_in_line()?);
        let (place, keep) = match waiting.request.reads_all() {
            true => (0, 0),
            false => self.warmest(&waiting.request.prompt),
        };
        let Idle { slot, .. } = self.idle.remove(place);
        let id = waiting.request.id;
        self.admitting = Some((waiting, slot));
        Some(Admission { id, slot, keep: keep as u32 })
    }

    /// The cache kept the first `kept` entries of the admitted request's slot and no others.
    ///
    /// # Panics
    /// If no admission was asked for, or more was kept than the prompt has but its last token.
    pub fn handle_admission(&mut self, kept: u32) {
        let (waiting, slot) = self.admitting.take().expect("an admission was asked for");
        if kept > 0 {
            self.stats.cached += u64::from(kept);
            self.events.push_back(Event::Warm { id: waiting.request.id, tokens: kept });
        }
        self.settle_in(waiting, slot, kept as usize);
    }

    /// The next sequence that could use guesses, once per token of its text. A driver that does
    /// not guess need not ask; one that does asks until there are no more, before each batch.
    pub fn poll_draft(&mut self) -> Option<DraftCall> {
        if self.out.is_some() {
            return None;
        }
        self.admit();
        let limits = self.limits;
        let sequence = self.running.iter_mut().find_map(|s| s.asks(&limits).then_some(&*s))?;
        Some(DraftCall { id: sequence.id, slot: sequence.slot, room: sequence.room(&limits) })
    }

    /// Takes guesses for a request. Those that find no room are dropped, and so are all of them
    /// if the request is gone.
    pub fn handle_drafts(&mut self, id: RequestId, drafts: Vec<TokenId>) {
        if let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == id) {
            sequence.guess(drafts);
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
        self.running.sort_by_key(|s| (self.policy.rank(s.seen()), s.arrival));
        let (batch, flights) = self.depart();
        self.stats.steps += 1;
        self.stats.rows += batch.rows().len() as u64;
        self.out = Some(flights);
        Some(batch)
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
        if let Some(i) = self.running.iter().position(|sequence| sequence.slot == slot) {
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
        for Waiting { request, .. } in std::mem::take(&mut self.waiting) {
            self.finish(request.id, Finish::Failed(reason.to_owned()));
        }
        // What a broken device left in the cache is not to be trusted.
        self.idle.iter_mut().for_each(|idle| idle.held.clear());
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
        let (running, waiting) = (self.running.len(), self.waiting.len());
        if tokens == 0 {
            return Err(Refused::EmptyPrompt);
        }
        // A text has at least one token; an embedding has none.
        if tokens + usize::from(request.pool.is_none()) > context as usize {
            return Err(Refused::PromptTooLong { tokens, context });
        }
        request.check()?;
        if self.is_live(request.id) {
            return Err(Refused::IdInUse { id: request.id });
        }
        if waiting >= self.idle.len() + most {
            return Err(Refused::Busy { running, waiting });
        }
        Ok(())
    }

    fn is_live(&self, id: RequestId) -> bool {
        let waits = self.waiting.iter().any(|waiting| waiting.request.id == id);
        waits || self.running.iter().any(|sequence| sequence.id == id)
    }

    /// Gives slots to those whose turn it is, emptied.
    fn admit(&mut self) {
        assert!(self.admitting.is_none(), "an admission is answered before the next batch");
        while !self.idle.is_empty() {
            let Some(next) = self.next_in_line() else { return };
            let waiting = self.waiting.remove(next);
            let Idle { slot, .. } = self.idle.remove(0);
            self.cache_ops.push_back(CacheOp::Clear(slot));
            self.settle_in(waiting, slot, 0);
        }
    }

    fn settle_in(&mut self, waiting: Waiting, slot: SlotId, committed: usize) {
        let Waiting { arrival, request } = waiting;
        self.running.push(Sequence::new(request, arrival, slot, committed));
    }

    /// The idle slot that suits a prompt best, as a place in the list, and how many of the prompt's
    /// tokens it holds. A slot that would lose most of what it holds is left alone while there is
    /// an empty one.
    fn warmest(&self, prompt: &[TokenId]) -> (usize, usize) {
        let usable = &prompt[..prompt.len() - 1];
        let shared = |idle: &Idle| {
            usable.iter().zip(&idle.held).take_while(|(token, held)| token == held).count()
        };
        let oldest_empty = self.idle.iter().position(|idle| idle.held.is_empty());
        let best = (0..self.idle.len()).rev().max_by_key(|&i| shared(&self.idle[i]));
        let best = best.expect("there is an idle slot");
        match (shared(&self.idle[best]), oldest_empty) {
            (0, _) => (oldest_empty.unwrap_or(0), 0),
            (keep, Some(empty)) if 2 * keep < self.idle[best].held.len() => (empty, 0),
            (keep, _) => (best, keep),
        }
    }

    fn next_in_line(&self) -> Option<usize> {
        let rank = |&i: &usize| {
            let Waiting { arrival, request } = &self.waiting[i];
            let Request { id, priority, ref prompt, .. } = *request;
            (self.policy.rank(Seen { id, priority, unread: prompt.len() }), *arrival)
        };
        (0..self.waiting.len()).min_by_key(rank)
    }

    /// Builds the batch of everyone's share.
    fn depart(&mut self) -> (Batch, Vec<Flight>) {
        let claims: Vec<_> = self.running.iter().map(|s| s.claim(&self.limits)).collect();
        let mut batch = Batch::builder();
        let mut flights = Vec::new();
        for (sequence, rows) in self.running.iter().zip(share(&claims, &self.limits)) {
            if rows == 0 {
                continue;
            }
            let first = flights.last().map_or(0, |before: &Flight| before.end);
            let (span, base, flight) = sequence.depart(rows, first);
            let want = |i| sequence.want(&flight, i);
            let longer = batch.chain(sequence.slot, base, &span, want);
            batch = longer.expect("slots are distinct, spans not empty, contexts fit a position");
            self.stats.drafted += flight.choices.saturating_sub(1) as u64;
            flights.push(flight);
        }
        (batch.build(), flights)
    }

    fn land(&mut self, flight: Flight, returned: Returned<'_>) {
        let Some(i) = self.running.iter().position(|sequence| sequence.id == flight.id) else {
            self.cache_ops.push_back(CacheOp::Commit(flight.slot, Vec::new()));
            return self.release(flight.slot, flight.held);
        };
        let step = self.running[i].land(&flight, returned, &self.limits);
        let id = flight.id;
        self.stats.accepted += step.guessed as u64;
        self.stats.tokens += step.text.len() as u64;
        self.events.extend(step.scores.map(|logprobs| Event::Prompt { id, logprobs }));
        self.events.extend(step.embedding.map(|values| Event::Embedding { id, values }));
        let token = |(token, logprobs)| Event::Token { id, sample: 0, token, logprobs };
        self.events.extend(step.text.into_iter().map(token));
        let kept = (0..step.kept).collect();
        self.cache_ops.push_back(CacheOp::Commit(flight.slot, kept));
        if let Some(finish) = step.finish {
            self.retire(i, finish);
        }
    }

    /// Frees the slots of flights whose requests were cancelled on the way.
    fn release_orphans(&mut self, flights: Vec<Flight>) {
        for flight in flights {
            if self.running.iter().all(|sequence| sequence.id != flight.id) {
                self.release(flight.slot, flight.held);
            }
        }
    }

    /// Ends a running request. Its slot stays taken while rows of it are out.
    fn retire(&mut self, i: usize, finish: Finish) {
        let sequence = self.running.remove(i);
        let (id, slot, held) = (sequence.id, sequence.slot, sequence.into_held());
        match self.out.iter_mut().flatten().find(|flight| flight.slot == slot) {
            Some(flight) => flight.held = held,
            None => self.release(slot, held),
        }
        self.finish(id, finish);
    }

    fn release(&mut self, slot: SlotId, held: Vec<TokenId>) {
        self.idle.push(Idle { slot, held });
    }

    fn finish(&mut self, id: RequestId, finish: Finish) {
        self.stats.finished += 1;
        self.events.push_back(Event::Finished { id, sample: 0, finish });
    }
}
