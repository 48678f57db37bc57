//! One step: the only place where a scheduler meets a model.

use std::sync::Arc;

use lapidary_core::{Backend, Batch, CacheFull, KvCache, SlotId};
use lapidary_model::{Hooks, Model, NoHooks, Outputs, Step, StepError, run_step};

use crate::{
    Admission, CacheOp, Drafter, NoWatch, Phase, Prefixes, Scheduler, SoftRows, StepWatch, Target,
    Way,
};

/// What a step makes use of besides the model.
pub struct Aids<'a, B: Backend> {
    /// Who guesses.
    pub drafter: &'a mut dyn Drafter<B>,
    /// What is saved of earlier texts.
    pub prefixes: &'a mut Prefixes,
    /// Who watches the layers.
    pub hooks: &'a mut dyn Hooks<B>,
    /// Who watches the step.
    pub watch: &'a mut dyn StepWatch,
}

/// Runs one step without saved prefixes and unwatched: the common case of [`turn_with`].
///
/// # Errors
/// See [`turn_with`].
pub fn turn<B: Backend>(
    scheduler: &mut Scheduler,
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    drafter: &mut dyn Drafter<B>,
) -> Result<bool, StepError> {
    let (prefixes, hooks, watch) = (&mut Prefixes::none(), &mut NoHooks, &mut NoWatch);
    turn_with(scheduler, Target { ops, model, cache }, Aids { drafter, prefixes, hooks, watch })
}

/// Runs one step, if there is anything to do. Returns whether there was.
///
/// A span that the cache has no room for ends its request and nobody else's.
///
/// # Errors
/// [`StepError::Device`]: every request has failed, and neither the device nor the cache is of
/// further use.
pub fn turn_with<B: Backend>(
    scheduler: &mut Scheduler,
    target: Target<'_, B>,
    aids: Aids<'_, B>,
) -> Result<bool, StepError> {
    let Target { ops, model, cache } = target;
    let Aids { drafter, prefixes, hooks, watch } = aids;
    admit(scheduler, Target { ops, model, cache }, prefixes, watch);
    watch.passed(Phase::Admit);
    propose(scheduler, Target { ops, model, cache }, drafter);
    watch.passed(Phase::Draft);
    let batch = scheduler.poll_batch();
    settle(scheduler, ops, cache, prefixes);
    let Some(batch) = batch else {
        watch.passed(Phase::Commit);
        return Ok(false);
    };
    let upload = |rows: &Arc<SoftRows>| ops.upload(rows.values(), rows.width());
    let soft: Vec<_> = scheduler.soft().iter().map(upload).collect();
    let step = (&batch, soft.as_slice());
    match run(Target { ops, model, cache }, step, hooks, watch) {
        Ok(outputs) => {
            scheduler.handle_outputs(&outputs);
            watch.passed(Phase::Sample);
        }
        Err(StepError::Cache(full)) => scheduler.handle_no_room(slot_of(full), &full.to_string()),
        Err(failure @ StepError::Device(_)) => {
            scheduler.handle_failure(&failure.to_string());
            return Err(failure);
        }
    }
    settle(scheduler, ops, cache, prefixes);
    watch.passed(Phase::Commit);
    Ok(true)
}

/// Plans the batch and runs it, with the soft rows it takes in.
fn run<B: Backend>(
    target: Target<'_, B>,
    (batch, soft): (&Batch, &[B::Act]),
    hooks: &mut dyn Hooks<B>,
    watch: &mut dyn StepWatch,
) -> Result<Outputs, StepError> {
    let Target { ops, model, cache } = target;
    let planned = cache.plan(ops, batch);
    watch.passed(Phase::Plan);
    let step = Step { batch, kv: planned?, soft };
    let outputs = run_step(ops, model, cache, &step, hooks);
    watch.passed(Phase::Run);
    Ok(outputs?)
}

/// Lets texts begin after entries that are there already, as many as there are.
fn admit<B: Backend>(
    scheduler: &mut Scheduler,
    target: Target<'_, B>,
    prefixes: &mut Prefixes,
    watch: &mut dyn StepWatch,
) {
    let Target { ops, cache, .. } = target;
    while let Some(admission) = scheduler.poll_admission() {
        settle(scheduler, ops, cache, prefixes);
        let (slot, kept) = begin(&admission, ops, cache, prefixes);
        watch.admitted(admission.id);
        scheduler.handle_admission(slot, kept);
    }
}

/// Goes the first way that the cache can go, a saved prefix before slots that hold less. Returns
/// the slot and the entries in it.
fn begin<B: Backend>(
    admission: &Admission,
    ops: &B,
    cache: &mut dyn KvCache<B>,
    prefixes: &mut Prefixes,
) -> (SlotId, u32) {
    let ways = &admission.ways;
    let usable = admission.usable_before(prefixes.longest(&admission.usable));
    let fresh = ways.iter().find_map(|way| match way {
        Way::Fresh { slot } => Some(*slot),
        _ => None,
    });
    let fresh = fresh.expect("an admission always has a fresh slot");
    for &way in ways {
        if prefixes.longest(usable) > way.keep() {
            let kept = prefixes.restore(usable, way.keep(), ops, cache, fresh);
            if kept > 0 {
                return (fresh, kept);
            }
        }
        match way {
            Way::Keep { slot, keep } if cache.truncate(slot, keep) => return (slot, keep),
            Way::Fork { from, slot, keep } if cache.fork(ops, from, slot, keep) => {
                return (slot, keep);
            }
            _ => {}
        }
    }
    cache.clear(fresh);
    (fresh, 0)
}

fn propose<B: Backend>(
    scheduler: &mut Scheduler,
    target: Target<'_, B>,
    drafter: &mut dyn Drafter<B>,
) {
    let calls = scheduler.poll_drafts();
    if calls.is_empty() {
        return;
    }
    let texts: Vec<_> = calls.iter().map(|call| (call.id, call.sample)).collect();
    let drafts = drafter.propose(target, &calls);
    for ((id, sample), draft) in texts.into_iter().zip(drafts) {
        scheduler.handle_drafts(id, sample, draft);
    }
}

fn settle<B: Backend>(
    scheduler: &mut Scheduler,
    ops: &B,
    cache: &mut dyn KvCache<B>,
    prefixes: &mut Prefixes,
) {
    while let Some(op) = scheduler.poll_cache_op() {
        match op {
            CacheOp::Commit(slot, kept) => cache.commit(ops, slot, &kept),
            CacheOp::Clear(slot) => cache.clear(slot),
            CacheOp::Save(slot, tokens) => prefixes.save(&tokens, ops, cache, slot),
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
