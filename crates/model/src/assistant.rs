//! A drafter that was trained for one target and borrows its eyes: its layers have queries only and
//! read the entries that the target stored.
//!
//! ```text
//! u  = pre(embedding of the target(t) ‖ h)        t: the newest token, not yet read by the target
//! n  = norm(layers(u))                            h: the hidden state that yielded t
//! h' = post(n)          logits = embedding · n
//! ```
//!
//! Its layers are the decoder's own, [`Layer`], tied to layers of the target. A guess of a guess
//! takes `h'` for `h` and stays at the same position: nothing new has been stored.

use lapidary_core::{Backend, KvCache, Rope, SlotId, TokenId};

use crate::Model;
use crate::gemma::{Context, Layer};

/// A drafter with its weights.
pub struct Assistant<B: Backend> {
    /// Added to the mean square inside every norm.
    pub eps: f32,
    /// Token embeddings, `[vocab, width]`: the head.
    pub embedding: B::Weight,
    /// From the target's embedding of a token: `[width, hidden of the target]`.
    pub pre_token: B::Weight,
    /// From the target's hidden state: `[width, hidden of the target]`.
    pub pre_hidden: B::Weight,
    /// Back to the target's width: `[hidden of the target, width]`.
    pub post: B::Weight,
    /// The distinct rotations of the layers.
    pub ropes: Vec<Rope>,
    /// Bottom to top. All of them share entries of the target.
    pub layers: Vec<Layer<B>>,
    /// Before both heads.
    pub final_norm: B::Vector,
}

/// What one guess of every row gives.
pub struct Guess<B: Backend> {
    /// Logits of the guessed token, `[rows, vocab]`.
    pub logits: B::Act,
    /// Stands for the target's hidden state in the next guess, `[rows, hidden of the target]`.
    pub hidden: B::Act,
}

impl<B: Backend> Assistant<B> {
    /// Guesses the token after `tokens[i]`, the newest of `slots[i]`, which the target has not read;
    /// `hidden` has one row per slot. The cache is the target's and is only looked at.
    ///
    /// # Panics
    /// If a slot has no committed entries.
    pub fn guess(
        &self,
        ops: &B,
        target: &dyn Model<B>,
        cache: &mut dyn KvCache<B>,
        slots: &[SlotId],
        tokens: &[TokenId],
        hidden: &B::Act,
    ) -> Guess<B> {
        let positions: Vec<_> = slots.iter().map(|&slot| cache.committed(slot)).collect();
        assert!(positions.iter().all(|&pos| pos > 0), "a drafter continues what has been read");
        let token = ops.linear(&target.embed(ops, tokens), &self.pre_token);
        let mut h = ops.add(&token, &ops.linear(hidden, &self.pre_hidden));
        let plan = cache.onlook(ops, slots);
        let angles = positions.iter().map(|&pos| [pos; 3]);
        let context = Context::new(ops, &plan, angles, &self.ropes, None, self.eps);
        let before =
            |i: usize| self.layers.get(i).map_or(&self.final_norm, |layer| &layer.input_norm);
        let mut n = ops.rms_norm(&h, before(0), self.eps);
        for (i, layer) in self.layers.iter().enumerate() {
            (h, n) = layer.forward(ops, cache, &context, (&h, &n), before(i + 1));
        }
        Guess { logits: ops.linear(&n, &self.embedding), hidden: ops.linear(&n, &self.post) }
    }
}
