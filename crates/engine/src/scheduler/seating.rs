//! Who gets a slot next, and who loses one.

use lapidary_core::SlotId;

use super::{CacheOp, Scheduler, Seated};
use crate::admission::{Idle, ways};
use crate::sequence::Sequence;
use crate::{Admission, Event, Policy, Swap};

impl Scheduler {
    /// The next text to get a slot, with what slots hold of its tokens. Before the cache goes one
    /// of its ways, it must have carried out the cache operations so far. Must be answered by
    /// [`handle_admission`](Self::handle_admission).
    ///
    /// # Panics
    /// If the last admission has not been answered.
    pub fn poll_admission(&mut self) -> Option<Admission> {
        let sequence = self.next_to_seat()?;
        let taken = self.running.iter().map(|s| (s.slot, s.sequence.held()));
        let usable = sequence.usable().to_vec();
        let ways = ways(&usable, sequence.blocks(), &self.idle, taken);
        let blocks = sequence.blocks().ranges().collect();
        let (id, sample) = (sequence.id, sequence.sample);
        let admission = Admission { id, sample, usable, blocks, ways };
        self.admitting = Some(sequence);
        Some(admission)
    }

    /// The admitted text has this slot, in which the cache holds the entries of the first `kept` of
    /// its usable tokens and no others.
    ///
    /// # Panics
    /// If no admission was asked for, the slot is not idle, or more was kept than is usable.
    pub fn handle_admission(&mut self, slot: SlotId, kept: u32) {
        let sequence = self.admitting.take().expect("an admission was asked for");
        if kept > 0 {
            self.stats.cached += u64::from(kept);
            if sequence.sample == 0 && sequence.preempted == 0 {
                self.events.push_back(Event::Warm { id: sequence.id, tokens: kept });
            }
        }
        let place = self.idle.iter().position(|idle| idle.slot == slot);
        self.seat(sequence, place.expect("admissions are to idle slots"), kept as usize);
    }

    /// Gives slots to those whose turn it is, emptied.
    pub(super) fn admit(&mut self) {
        while let Some(sequence) = self.next_to_seat() {
            self.cache_ops.push_back(CacheOp::Clear(self.idle[0].slot));
            self.seat(sequence, 0, 0);
        }
    }

    /// Takes whoever's turn it is out of the queue, if there is a slot or one can be made free.
    fn next_to_seat(&mut self) -> Option<Sequence> {
        assert!(self.admitting.is_none(), "an admission is answered before the next");
        if self.out.is_some() {
            return None;
        }
        let next = self.next_in_line()?;
        if self.idle.is_empty() {
            self.preempt_for(next)?;
        }
        Some(self.waiting.remove(next))
    }

    fn next_in_line(&self) -> Option<usize> {
        // Further texts of a request wait while one of them still reads the prompt for all.
        let reads = |s: &Seated, id| s.sequence.id == id && !s.sequence.has_read();
        let ready = |&i: &usize| !self.running.iter().any(|s| reads(s, self.waiting[i].id));
        (0..self.waiting.len()).filter(ready).min_by_key(|&i| rank(&*self.policy, &self.waiting[i]))
    }

    /// Takes the slot of the last in rank whom the policy lets the waiting text preempt. `None` if
    /// there is none such.
    fn preempt_for(&mut self, waiting: usize) -> Option<()> {
        let waiting = self.waiting[waiting].seen();
        let swap = |s: &Seated| self.policy.preempts(waiting, s.sequence.seen());
        let may = (0..self.running.len()).filter(|&i| swap(&self.running[i]).is_some());
        let i = may.max_by_key(|&i| rank(&*self.policy, &self.running[i].sequence))?;
        let swap = swap(&self.running[i])?;
        let Seated { slot, mut sequence } = self.running.remove(i);
        let held = sequence.held().to_vec();
        if swap == Swap::Save && !held.is_empty() {
            self.cache_ops.push_back(CacheOp::Save(slot, held.clone()));
        }
        self.idle.push(Idle { slot, held });
        sequence.pause();
        self.stats.preempted += 1;
        self.waiting.push(sequence);
        Some(())
    }

    fn seat(&mut self, mut sequence: Sequence, place: usize, committed: usize) {
        let Idle { slot, .. } = self.idle.remove(place);
        sequence.begin(committed);
        self.running.push(Seated { slot, sequence });
    }
}

/// Who goes first, and first among equals: by policy, then in order of arrival.
pub(super) fn rank(policy: &dyn Policy, sequence: &Sequence) -> (i64, u64, u32) {
    (policy.rank(sequence.seen()), sequence.arrival, sequence.sample)
}
