//! The row law as a test: whatever schedule brings a row to the model, its hidden state and its
//! logits have the bits that they have alone.
//!
//! [`Solo`] tells stories one piece per step, a piece being a token or a whole image, and
//! remembers what every row gave. [`Schedule`] brings the same stories to another device in random
//! chunks, mixes, trees and drafts, with rejections and rollbacks, and compares every row.

mod schedule;
mod solo;
mod story;

pub use schedule::{Schedule, Tally};
pub use solo::Solo;
pub use story::{Piece, Stories};

use lapidary_cache::{Cache, Extent};
use lapidary_core::{KvKernels, LayerId, Regime, TensorSource};
use lapidary_model::gemma::Gemma;
use lapidary_model::{Model, Precision, load};

use crate::Rng;

/// A model on a device, with the soft rows that images are made of.
pub struct Stage<B: KvKernels> {
    /// The device.
    pub ops: B,
    model: Gemma<B>,
    soft: Vec<B::Act>,
}

impl<B: KvKernels> Stage<B> {
    /// Loads a model onto a device.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn new(ops: B, source: &dyn TensorSource, precision: Precision) -> Self {
        let loaded = load(&ops, source, precision, &mut |_, _| {});
        let (_, model) = loaded.unwrap_or_else(|e| panic!("{}: {e}", source.origin()));
        let mut rng = Rng(77);
        let hidden = Model::<B>::hidden(&model);
        let values: Vec<f32> =
            (0..story::SOFT_ROWS as usize * hidden).map(|_| rng.signed()).collect();
        let soft = vec![ops.upload(&values, hidden)];
        Self { ops, model, soft }
    }

    fn cache(&self, extent: Extent, regime: Regime) -> Cache<B> {
        let owns = |layer: LayerId| Model::<B>::owns_entries(&self.model, layer);
        let specs = Model::<B>::kv_specs(&self.model);
        let cache = Cache::new(&self.ops, specs, extent, owns, |_| regime);
        cache.unwrap_or_else(|e| panic!("{e}"))
    }
}

/// What a row gave.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOutput {
    /// The normed hidden state.
    pub hidden: Vec<f32>,
    /// The next-token logits.
    pub logits: Vec<f32>,
}

/// Where two rows of numbers first differ in bits, if they do.
fn first_difference(ours: &[f32], alone: &[f32]) -> Option<String> {
    if ours.len() != alone.len() {
        return Some(format!("{} numbers, not {}", ours.len(), alone.len()));
    }
    let differ = |i: &usize| ours[*i].to_bits() != alone[*i].to_bits();
    let i = (0..ours.len()).find(differ)?;
    Some(format!("number {i} is {:e}, alone {:e}", ours[i], alone[i]))
}
