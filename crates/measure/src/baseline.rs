//! What one model says about a text, kept to compare other models with.

use lapidary_core::{Backend, Batch, KvCache, SlotId, TokenId, Want};
use lapidary_model::{Model, StepError, run};

use crate::Divergence;
use crate::divergence::{Position, position, summary};

/// Rows of a step.
const CHUNK: usize = 64;
const SLOT: SlotId = SlotId(0);

/// A model's logits over the second half of every window of a text.
///
/// All of them are kept: four bytes for each entry of the vocabulary, per position.
#[derive(Debug)]
pub struct Baseline {
    windows: Vec<Vec<TokenId>>,
    logits: Vec<Vec<f32>>,
}

/// How far another model is from a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// Over all positions.
    pub whole: Divergence,
    /// `KL(baseline ‖ other)` of every position in nats, in the order of the text.
    pub klds: Vec<f64>,
}

impl Baseline {
    /// Runs every window. The cache is cleared for each, and holds the last one afterwards.
    ///
    /// # Errors
    /// The cache is too small for a window, or the device failed.
    pub fn record<B: Backend>(
        ops: &B,
        model: &dyn Model<B>,
        cache: &mut dyn KvCache<B>,
        windows: Vec<Vec<TokenId>>,
    ) -> Result<Self, StepError> {
        let mut logits = Vec::new();
        for window in &windows {
            each_scored(ops, model, cache, window, &mut |row, _| logits.push(row))?;
        }
        Ok(Self { windows, logits })
    }

    /// Runs the same windows through another model.
    ///
    /// # Errors
    /// The cache is too small for a window, or the device failed.
    pub fn compare<B: Backend>(
        &self,
        ops: &B,
        model: &dyn Model<B>,
        cache: &mut dyn KvCache<B>,
    ) -> Result<Distance, StepError> {
        let mut known = self.logits.iter();
        let mut positions: Vec<Position> = Vec::new();
        for window in &self.windows {
            each_scored(ops, model, cache, window, &mut |row, next| {
                let baseline = known.next().expect("the same windows give the same positions");
                positions.push(position(baseline, &row, next));
            })?;
        }
        let klds = positions.iter().map(|position| position.kld).collect();
        Ok(Distance { whole: summary(positions), klds })
    }
}

/// Hands out the logits of every scored row, and the token that follows it.
fn each_scored<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    window: &[TokenId],
    take: &mut dyn FnMut(Vec<f32>, TokenId),
) -> Result<(), StepError> {
    cache.clear(SLOT);
    let scored = window.len() / 2..window.len() - 1;
    for (i, chunk) in window.chunks(CHUNK).enumerate() {
        let base = i * CHUNK;
        let want = |i| if scored.contains(&(base + i)) { Want::LOGITS } else { Want::NOTHING };
        let batch = Batch::builder().chain(SLOT, base as u32, chunk, want);
        let batch = batch.expect("chunks are not empty and one slot is used").build();
        let out = run(ops, model, cache, &batch)?;
        cache.commit(ops, SLOT, &(0..chunk.len()).collect::<Vec<_>>());
        for (row, logits) in out.logits {
            take(logits, window[base + row + 1]);
        }
    }
    Ok(())
}
