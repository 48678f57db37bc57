//! Who goes first. The scheduler knows how to share a step; a policy knows the order.

use crate::RequestId;

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen {
    /// Which one.
    pub id: RequestId,
    /// Its [`Request::priority`](crate::Request::priority).
    pub priority: i32,
    /// Known tokens that are not in the cache: what is left of its prompt, or one.
    pub unread: usize,
    /// How often it lost a slot to another.
    pub preempted: u32,
}

/// What becomes of the entries of a request that loses its slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Swap {
    /// They are saved, if there is a place for saved prefixes.
    Save,
    /// They are read again, unless the slot still holds them then.
    Recompute,
}

/// Orders requests: among those waiting for a slot, and among prompts that share a step.
///
/// A policy cannot hold up a text that has begun: sequences that need one row come before those
/// that need many, whatever their ranks.
pub trait Policy: Send {
    /// Lower goes first; equals go in order of arrival.
    fn rank(&self, request: Seen) -> i64;

    /// Whether a waiting request takes a running one's slot when all are taken, and what becomes of
    /// its entries. The running one waits again and goes on where it was.
    ///
    /// A policy that lets this happen says here, too, how often one request may suffer it.
    fn preempts(&self, waiting: Seen, running: Seen) -> Option<Swap> {
        let _ = (waiting, running);
        None
    }
}

/// In order of arrival. Nobody starves.
#[derive(Clone, Copy, Debug)]
pub struct FirstCome;

impl Policy for FirstCome {
    fn rank(&self, _: Seen) -> i64 {
        0
    }
}

/// Least to read first: the best average wait, at the price that a long prompt waits for as long
/// as shorter ones keep coming.
#[derive(Clone, Copy, Debug)]
pub struct ShortestPrompt;

impl Policy for ShortestPrompt {
    fn rank(&self, request: Seen) -> i64 {
        i64::try_from(request.unread).unwrap_or(i64::MAX)
    }
}

/// Highest priority first. Nobody loses a slot to a later arrival; a low priority waits for as
/// long as higher ones keep coming.
#[derive(Clone, Copy, Debug)]
pub struct Priority;

impl Policy for Priority {
    fn rank(&self, request: Seen) -> i64 {
        -i64::from(request.priority)
    }
}

/// Highest priority first, and at once: with all slots taken, a request takes that of a lower
/// priority. A request that has lost its slot `most` times keeps the next one to its end; it still
/// waits for that as under [`Priority`].
#[derive(Clone, Copy, Debug)]
pub struct Preemptive {
    /// How often a request may lose its slot.
    pub most: u32,
    /// What becomes of its entries.
    pub swap: Swap,
}

impl Policy for Preemptive {
    fn rank(&self, request: Seen) -> i64 {
        Priority.rank(request)
    }

    fn preempts(&self, waiting: Seen, running: Seen) -> Option<Swap> {
        let may = waiting.priority > running.priority && running.preempted < self.most;
        may.then_some(self.swap)
    }
}
