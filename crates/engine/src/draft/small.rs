//! Guesses by a small model of the same vocabulary, with a cache of its own.

use lapidary_core::{Backend, Batch, KvCache, SlotId, TokenId, Want};
use lapidary_model::{Model, run};

use super::{Draft, DraftCall, Drafter, Target};

/// A model and a cache that follow the target's slots.
pub struct SmallModelDrafter<B: Backend> {
    model: Box<dyn Model<B>>,
    cache: Box<dyn KvCache<B>>,
    /// Most rows that the cache takes for a slot in one step.
    burst: usize,
    /// The tokens whose entries each slot of the cache holds.
    held: Vec<Vec<TokenId>>,
}

/// One call's draft while it grows.
struct Growth<'a> {
    slot: SlotId,
    known: &'a [TokenId],
    depth: usize,
    guesses: Vec<TokenId>,
}

impl<'a> Growth<'a> {
    fn of(call: &DraftCall<'a>) -> Self {
        let &DraftCall { slot, known, shape, .. } = call;
        Self { slot, known, depth: shape.depth, guesses: Vec::new() }
    }

    /// Tokens to be read that lie after the first `held`.
    fn unread(&self, held: usize) -> Vec<TokenId> {
        self.known.iter().chain(&self.guesses).skip(held).copied().collect()
    }
}

impl<B: Backend> SmallModelDrafter<B> {
    /// The cache must have as many `slots` as the target's, take `burst` rows a step, and hold as
    /// much context.
    pub fn new(
        model: Box<dyn Model<B>>,
        cache: Box<dyn KvCache<B>>,
        slots: usize,
        burst: usize,
    ) -> Self {
        Self { model, cache, burst, held: vec![Vec::new(); slots] }
    }

    /// Forgets what the slot holds beyond its common beginning with the known text, of which at
    /// least the last token is to be read.
    fn rewind(&mut self, slot: SlotId, known: &[TokenId]) {
        let held = &mut self.held[slot.index()];
        let usable = &known[..known.len() - 1];
        let common = held.iter().zip(usable).take_while(|(a, b)| a == b).count();
        if common < held.len() {
            let kept = common > 0 && self.cache.truncate(slot, common as u32);
            if !kept {
                self.cache.clear(slot);
            }
            held.truncate(if kept { common } else { 0 });
        }
    }

    /// Reads what is unread of every growing draft, up to a burst of each, and guesses a token for
    /// those read to their end. `None` if the device failed or a cache is full.
    fn step(&mut self, ops: &B, growths: &mut [Growth<'_>]) -> Option<()> {
        let mut batch = Batch::builder();
        let mut spans = Vec::new();
        for (i, growth) in growths.iter().enumerate() {
            let base = self.held[growth.slot.index()].len();
            let mut tokens = growth.unread(base);
            let ends = tokens.len() <= self.burst;
            tokens.truncate(self.burst);
            let last = tokens.len() - 1;
            let want = |row| if ends && row == last { Want::top(1) } else { Want::NOTHING };
            batch = batch.chain(growth.slot, base as u32, &tokens, want).ok()?;
            spans.push((i, tokens, ends));
        }
        let outputs = run(ops, &*self.model, &mut *self.cache, &batch.build()).ok()?;
        let mut top = outputs.top.into_iter();
        for (i, tokens, ends) in spans {
            let slot = growths[i].slot;
            let kept: Vec<_> = (0..tokens.len()).collect();
            self.cache.commit(ops, slot, &kept);
            self.held[slot.index()].extend(tokens);
            if ends {
                let (_, likeliest) = top.next()?;
                growths[i].guesses.push(likeliest.first()?.token);
            }
        }
        Some(())
    }
}

impl<B: Backend> Drafter<B> for SmallModelDrafter<B> {
    fn propose(&mut self, target: Target<'_, B>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        let mut done: Vec<Vec<TokenId>> = vec![Vec::new(); calls.len()];
        calls.iter().for_each(|call| self.rewind(call.slot, call.known));
        let mut growing: Vec<_> = (0..).zip(calls.iter().map(Growth::of)).collect();
        while !growing.is_empty() {
            let (places, mut growths): (Vec<usize>, Vec<_>) = growing.into_iter().unzip();
            let went_on = self.step(target.ops, &mut growths).is_some();
            let all = places.into_iter().zip(growths);
            let ended = |growth: &Growth<'_>| !went_on || growth.guesses.len() >= growth.depth;
            let (over, on): (Vec<_>, Vec<_>) = all.partition(|(_, growth)| ended(growth));
            over.into_iter().for_each(|(i, growth)| done[i] = growth.guesses);
            growing = on;
        }
        done.into_iter().map(Draft::chain).collect()
    }
}
