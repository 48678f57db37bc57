//! Decoding with guesses whose luck is made up, so that the speed of guessing can be measured without
//! a model that says anything.

use std::mem;
use std::time::Instant;

use lapidary_core::{Backend, Batch, SlotId, TokenId, Want};
use lapidary_engine::{Draft, DraftCall, DraftShape, Drafter, RequestId, Target};
use lapidary_model::{StepError, run};

use super::Bench;

/// How much is guessed and how often it comes true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Luck {
    /// Guesses in a row.
    pub length: u32,
    /// Chance that a guess comes true if those before it did.
    pub accept: f64,
}

/// A drafter and its luck.
pub struct Guessing<'a, B: Backend> {
    /// Guesses chains.
    pub drafter: &'a mut dyn Drafter<B>,
    /// What comes of them.
    pub luck: Luck,
}

/// A sequence on its way.
struct Text {
    slot: SlotId,
    /// What was read, and the token to be read next.
    known: Vec<TokenId>,
    /// The state that yielded the last token.
    hidden: Option<Vec<f32>>,
}

impl Text {
    fn call(&self, most: usize) -> DraftCall<'_> {
        DraftCall {
            id: RequestId(u64::from(self.slot.0)),
            sample: 0,
            slot: self.slot,
            known: &self.known,
            hidden: self.hidden.as_deref(),
            room: most,
            shape: DraftShape { depth: most, width: 1 },
        }
    }
}

impl<B: Backend> Bench<'_, B> {
    /// Seconds that `n` tokens of each of `batch` sequences take from `depth` on, the drafter's time
    /// included. The cache needs room for `depth + n` tokens, two more, and two drafts.
    pub(super) fn decode_guessing(
        &mut self,
        guessing: &mut Guessing<'_, B>,
        n: u32,
        depth: u32,
        batch: u32,
    ) -> Result<f64, StepError> {
        // A drafter continues from a state, so something must have been read.
        let read = depth.max(1);
        let mut texts = Vec::new();
        for slot in (0..batch).map(SlotId) {
            self.cache.clear(slot);
            self.read(slot, read - 1)?;
            let known = (0..read).map(|i| self.token(i)).collect();
            texts.push(Text { slot, known, hidden: None });
        }
        let mut chance = Chance::default();
        self.step(&mut texts, None, &mut chance)?;
        let began = Instant::now();
        let mut decoded = 0;
        let begun = texts[0].known.len();
        // The luckiest text ends it, so that the cache's room is known beforehand.
        while texts.iter().all(|text| text.known.len() < begun + n as usize) {
            decoded += self.step(&mut texts, Some(guessing), &mut chance)?;
        }
        let wanted = f64::from(n) * f64::from(batch);
        Ok(began.elapsed().as_secs_f64() * wanted / decoded as f64)
    }

    /// One step of all texts; how many tokens they gained.
    fn step(
        &mut self,
        texts: &mut [Text],
        guessing: Option<&mut Guessing<'_, B>>,
        chance: &mut Chance,
    ) -> Result<u64, StepError> {
        let accept = guessing.as_ref().map_or(0.0, |guessing| guessing.luck.accept);
        let chains =
            guessing.map_or_else(|| vec![Vec::new(); texts.len()], |g| self.guess(g, texts));
        let mut step = Batch::builder();
        for (text, chain) in texts.iter().zip(&chains) {
            let newest = text.known.last().expect("a text has begun");
            let tokens: Vec<_> = [newest].into_iter().chain(chain).copied().collect();
            let want = |_| Want { hidden: true, ..Want::top(1) };
            let base = text.known.len() as u32 - 1;
            let added = step.chain(text.slot, base, &tokens, want);
            step = added.expect("slots are distinct and spans have a row");
        }
        let mut out = run(self.ops, self.model, self.cache, &step.build())?;
        let mut gained = 0;
        let mut first = 0;
        for (text, chain) in texts.iter_mut().zip(chains) {
            let came_true = chance.next(accept, chain.len());
            let kept: Vec<_> = (0..=came_true).collect();
            self.cache.commit(self.ops, text.slot, &kept);
            text.known.extend(&chain[..came_true]);
            // Every row brings both back, so a row's place is its index.
            let last = first + came_true;
            // The model's own choice, as in plain decoding.
            let own = out.top[last].1.first().map(|candidate| candidate.token);
            text.known.push(own.unwrap_or_else(|| self.token(text.known.len() as u32)));
            text.hidden = Some(mem::take(&mut out.hidden[last].1));
            first += chain.len() + 1;
            gained += kept.len() as u64;
        }
        Ok(gained)
    }

    /// A chain per text.
    fn guess(&mut self, guessing: &mut Guessing<'_, B>, texts: &[Text]) -> Vec<Vec<TokenId>> {
        let most = guessing.luck.length as usize;
        let calls: Vec<_> = texts.iter().map(|text| text.call(most)).collect();
        let target = Target { ops: self.ops, model: self.model, cache: &mut *self.cache };
        let drafts = guessing.drafter.propose(target, &calls);
        let chain = |draft: &Draft| draft.nodes().iter().map(|node| node.0).take(most).collect();
        drafts.iter().map(chain).collect()
    }
}

/// How many guesses come true, step after step: spread so evenly that few steps have the mean of many.
#[derive(Default)]
struct Chance(f64);

impl Chance {
    /// Of `length` guesses in a row, each of which comes true with the chance `accept` if those before
    /// it did.
    fn next(&mut self, accept: f64, length: usize) -> usize {
        const GOLDEN: f64 = 0.618_033_988_749_894_8;
        self.0 = (self.0 + GOLDEN).fract();
        (1..=length).take_while(|&n| self.0 < accept.powi(n as i32)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_steps_are_as_lucky_as_many() {
        for (accept, length) in [(0.0_f64, 3), (0.25, 1), (0.7, 3), (0.9, 8), (1.0, 4)] {
            let expected: f64 = (1..=length).map(|n| accept.powi(n)).sum();
            for steps in [40, 1000] {
                let mut chance = Chance::default();
                let lucky: usize = (0..steps).map(|_| chance.next(accept, length as usize)).sum();
                let mean = lucky as f64 / f64::from(steps);
                assert!((mean - expected).abs() < 0.05, "{mean} for {expected}, {steps} steps");
            }
        }
    }
}
