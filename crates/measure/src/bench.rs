//! How fast a model runs, next to how fast the machine lets it.

mod guesses;

use std::time::Instant;

use lapidary_core::{Backend, Batch, KvCache, SlotId, TokenId, Want};
use lapidary_engine::Target;
use lapidary_model::{Model, StepError, run};

pub use guesses::{Guessing, Luck};

/// What to time.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Prompt lengths.
    pub prefill: Vec<u32>,
    /// Tokens per decode measurement; zero for none.
    pub decode: u32,
    /// Tokens before the first decoded one.
    pub depths: Vec<u32>,
    /// Sequences decoded at once.
    pub batches: Vec<u32>,
    /// How often each is timed, after one run that is not.
    pub repeats: u32,
}

/// What a machine can do at most, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes read per second.
    pub bytes_per_s: f64,
    /// Multiplications and additions per second.
    pub ops_per_s: f64,
}

/// What a measurement has to move and to compute, whoever does it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes read in the whole measurement.
    pub bytes: f64,
    /// Multiplications and additions of the whole measurement.
    pub ops: f64,
}

/// Which measurement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Test {
    /// One prompt.
    Prefill,
    /// Tokens one after the other.
    Decode,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Which.
    pub test: Test,
    /// Tokens of a prompt, or decoded per sequence.
    pub n: u32,
    /// Tokens before the first one.
    pub depth: u32,
    /// Sequences at once.
    pub batch: u32,
    /// How it was guessed, if it was.
    pub luck: Option<Luck>,
    /// Tokens per second of all sequences together: the median.
    pub tok_s: f64,
    /// Difference of the slowest and fastest repeat, over the median.
    pub spread: f64,
    /// Tokens per second if the machine did nothing but read or multiply at its ceiling, where
    /// that is known.
    pub floor_tok_s: Option<f64>,
    /// What was moved and computed.
    pub cost: Cost,
}

/// Rows that one step of a prompt brings.
const CHUNK: usize = 512;

/// Times everything in the plan; decoding also with guesses, in turns with plain decoding, if there
/// is a drafter. `cost` tells what a measurement needs; `told` hears of each as it is done. Slots
/// `0..batch` of the cache are used and left filled.
///
/// # Errors
/// The cache is too small for the plan, or the device failed.
pub fn bench<B: Backend>(
    target: Target<'_, B>,
    mut guessing: Option<Guessing<'_, B>>,
    plan: &Plan,
    ceilings: Option<Ceilings>,
    cost: &dyn Fn(Test, u32, u32, u32) -> Cost,
    told: &mut dyn FnMut(&Timing),
) -> Result<Vec<Timing>, StepError> {
    let Target { ops, model, cache } = target;
    let mut bench = Bench { ops, model, cache };
    let mut timings = Vec::new();
    let mut note = |test, [n, depth, batch]: [u32; 3], luck, seconds| {
        let cost = cost(test, n, depth, batch);
        let timing = Timing::of(test, [n, depth, batch], luck, seconds, cost, ceilings);
        told(&timing);
        timings.push(timing);
    };
    for &n in &plan.prefill {
        let seconds = repeat(plan.repeats, || bench.prefill(n))?;
        note(Test::Prefill, [n, 0, 1], None, seconds);
    }
    for &batch in plan.batches.iter().filter(|_| plan.decode > 0) {
        for &depth in &plan.depths {
            let mut guessed = Vec::new();
            let plain = repeat(plan.repeats, || {
                if let Some(guessing) = &mut guessing {
                    guessed.push(bench.decode_guessing(guessing, plan.decode, depth, batch)?);
                }
                bench.decode(plan.decode, depth, batch)
            })?;
            note(Test::Decode, [plan.decode, depth, batch], None, plain);
            if let Some(guessing) = &guessing {
                // The first one is for warming up, as with plain decoding.
                guessed.remove(0);
                note(Test::Decode, [plan.decode, depth, batch], Some(guessing.luck), guessed);
            }
        }
    }
    Ok(timings)
}

impl Timing {
    fn of(
        test: Test,
        [n, depth, batch]: [u32; 3],
        luck: Option<Luck>,
        mut seconds: Vec<f64>,
        cost: Cost,
        ceilings: Option<Ceilings>,
    ) -> Self {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        let tokens = f64::from(n) * f64::from(batch);
        let least = |c: Ceilings| (cost.bytes / c.bytes_per_s).max(cost.ops / c.ops_per_s);
        // Guesses lower the floor by as much as they are lucky.
        let floor = ceilings.filter(|_| luck.is_none()).map(|ceilings| tokens / least(ceilings));
        Self {
            test,
            n,
            depth,
            batch,
            luck,
            tok_s: tokens / median,
            spread: (seconds[seconds.len() - 1] - seconds[0]) / median,
            floor_tok_s: floor,
            cost,
        }
    }
}

/// Runs once for nothing, then `times` for the clock.
fn repeat(
    times: u32,
    mut timed: impl FnMut() -> Result<f64, StepError>,
) -> Result<Vec<f64>, StepError> {
    timed()?;
    (0..times.max(1)).map(|_| timed()).collect()
}

struct Bench<'a, B: Backend> {
    ops: &'a B,
    model: &'a dyn Model<B>,
    cache: &'a mut dyn KvCache<B>,
}

impl<B: Backend> Bench<'_, B> {
    /// Seconds to read a prompt and get the likeliest token after it.
    fn prefill(&mut self, n: u32) -> Result<f64, StepError> {
        self.cache.clear(SlotId(0));
        let began = Instant::now();
        self.read(SlotId(0), n)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Seconds to decode `n` tokens in each of `batch` sequences that are `depth` long: each goes on
    /// with its own likeliest token, because how much of a head must be read for that depends on how
    /// sure a model is, and it is sure of nothing after tokens of no meaning.
    fn decode(&mut self, n: u32, depth: u32, batch: u32) -> Result<f64, StepError> {
        for slot in (0..batch).map(SlotId) {
            self.cache.clear(slot);
            self.read(slot, depth)?;
        }
        let mut tokens: Vec<_> = (0..batch).map(|slot| self.token(depth + 31 * slot)).collect();
        let began = Instant::now();
        for i in 0..n {
            let mut step = Batch::builder();
            for (slot, token) in (0..batch).map(SlotId).zip(&tokens) {
                let added = step.chain(slot, depth + i, &[*token], |_| Want::top(1));
                step = added.expect("slots are distinct and spans have a row");
            }
            let outputs = run(self.ops, self.model, self.cache, &step.build())?;
            for (token, (_, likeliest)) in tokens.iter_mut().zip(outputs.top) {
                *token = likeliest.first().map_or(*token, |candidate| candidate.token);
            }
            (0..batch).for_each(|slot| self.cache.commit(self.ops, SlotId(slot), &[0]));
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn read(&mut self, slot: SlotId, n: u32) -> Result<(), StepError> {
        let tokens: Vec<_> = (0..n).map(|i| self.token(i)).collect();
        for (i, chunk) in tokens.chunks(CHUNK).enumerate() {
            let base = i * CHUNK;
            let last = tokens.len() - 1;
            let want = |i| if base + i == last { Want::top(1) } else { Want::NOTHING };
            let step = Batch::builder().chain(slot, base as u32, chunk, want);
            let step = step.expect("chunks have rows").build();
            run(self.ops, self.model, self.cache, &step)?;
            let all: Vec<_> = (0..chunk.len()).collect();
            self.cache.commit(self.ops, slot, &all);
        }
        Ok(())
    }

    /// A token that is no other than the vocabulary has, and seldom the one before.
    fn token(&self, i: u32) -> TokenId {
        TokenId((i.wrapping_mul(2_654_435_761) >> 8) % self.model.vocab() as u32)
    }
}
