//! One step: the only place where a scheduler meets a model.

use lapidary_core::{Backend, CacheFull, KvCache, SlotId};
use lapidary_model::{Model, StepError, run};

use crate::{Admission, CacheOp, Drafter, Scheduler};

/// Runs one step, if there is anything to do. Returns whether there was.
///
/// A span that the cache has no room for ends its request and nobody else's.
///
/// # Errors
/// [`StepError::Device`]: every request has failed, and neither the device nor the cache is of
/// further use.
pub fn turn<B: Backend>(
    scheduler: &mut Scheduler,
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    drafter: &mut dyn Drafter,
) -> Result<bool, StepError> {
    admit(scheduler, cache);
    propose(scheduler, drafter);
    let batch = scheduler.poll_batch();
    settle(scheduler, ops, cache);
    let Some(batch) = batch else { return Ok(false) };
    match run(ops, model, cache, &batch) {
        Ok(outputs) => scheduler.handle_outputs(&outputs),
        Err(StepError::Cache(full)) => scheduler.handle_no_room(slot_of(full), &full.to_string()),
        Err(failure @ StepError::Device(_)) => {
            scheduler.handle_failure(&failure.to_string());
            return Err(failure);
        }
    }
    settle(scheduler, ops, cache);
    Ok(true)
}

/// Lets requests begin where a slot's content ends, if the cache can still go back there.
fn admit<B: Backend>(scheduler: &mut Scheduler, cache: &mut dyn KvCache<B>) {
    while let Some(Admission { slot, keep, .. }) = scheduler.poll_admission() {
        let warm = keep > 0 && cache.truncate(slot, keep);
        if !warm {
            cache.clear(slot);
        }
        scheduler.handle_admission(if warm { keep } else { 0 });
    }
}

fn propose(scheduler: &mut Scheduler, drafter: &mut dyn Drafter) {
    while let Some(call) = scheduler.poll_draft() {
        let known = scheduler.known(call.id).expect("only running sequences ask for guesses");
        let drafts = drafter.propose(known, call.room);
        scheduler.handle_drafts(call.id, drafts);
    }
}

fn settle<B: Backend>(scheduler: &mut Scheduler, ops: &B, cache: &mut dyn KvCache<B>) {
    while let Some(op) = scheduler.poll_cache_op() {
        match op {
            CacheOp::Commit(slot, kept) => cache.commit(ops, slot, &kept),
            CacheOp::Clear(slot) => cache.clear(slot),
        }
    }
}

fn slot_of(full: CacheFull) -> SlotId {
    match full {
        CacheFull::NoSlot { slot }
        | CacheFull::Slot { slot, .. }
        | CacheFull::Span { slot, .. }
        | CacheFull::Gap { slot, .. } => slot,
    }
}
