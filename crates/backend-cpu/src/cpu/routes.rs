//! Which experts a row goes to.

use crate::act::Act;
use crate::math;

/// For each row, `(expert, weight)` in ascending order of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    pub(crate) k: usize,
    /// `k` per row.
    pub(crate) choices: Vec<(u32, f32)>,
}

impl Routes {
    pub(crate) fn of(logits: &Act, per_expert: &[f32], k: usize) -> Self {
        assert_eq!(logits.cols(), per_expert.len(), "one logit per expert");
        let rows = (0..logits.rows()).flat_map(|i| choose(logits.row(i), per_expert, k));
        Self { k, choices: rows.collect() }
    }

    pub(crate) fn row(&self, i: usize) -> &[(u32, f32)] {
        &self.choices[i * self.k..(i + 1) * self.k]
    }
}

/// The best `k` of a softmax over all, renormalised. The softmax's own denominator cancels.
fn choose(logits: &[f32], per_expert: &[f32], k: usize) -> Vec<(u32, f32)> {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let logit = |e: u32| logits[e as usize];
    order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
    order.truncate(k);
    let most = logit(order[0]);
    order.sort_unstable();
    let shares: Vec<f32> = order.iter().map(|&e| math::exp(logit(e) - most)).collect();
    let sum: f32 = shares.iter().sum();
    let weight = |(&e, share): (&u32, f32)| (e, share / sum * per_expert[e as usize]);
    order.iter().zip(shares).map(weight).collect()
}
