//! Locally typical sampling: what is neither too obvious nor too odd.
//!
//! A token's surprise is `-ln p`; the mean over all tokens, each as often as it comes, is what a
//! text should bring at this place. Kept are the tokens whose surprise is closest to it.

use lapidary_core::Candidate;

use super::exact::ln;
use super::{masses, sum_in_order, top_logit};

/// The fewest of the candidates, in the order they came, that are the most typical and have the
/// `share` of all probability. Of those equally typical, the earlier go first.
pub(super) fn of(ranked: Vec<Candidate>, share: f32) -> Vec<Candidate> {
    let top = top_logit(&ranked);
    let masses = masses(&ranked, top, 1.0);
    let total = sum_in_order(&masses);
    let surprise = |c: &Candidate| ln(total) + (f64::from(top) - f64::from(c.logit));
    let part = |(c, mass): (&Candidate, &f64)| if *mass > 0.0 { mass * surprise(c) } else { 0.0 };
    let mean = sum_in_order(&ranked.iter().zip(&masses).map(part).collect::<Vec<_>>()) / total;
    let mut order: Vec<_> = (0..ranked.len()).collect();
    let distance = |i: usize| (surprise(&ranked[i]) - mean).abs();
    order.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    let (enough, mut sum) = (f64::from(share) * total, 0.0);
    let last = order.iter().position(|&i| {
        sum += masses[i];
        sum >= enough
    });
    order.truncate(last.map_or(ranked.len(), |last| last + 1));
    order.sort_unstable();
    order.into_iter().map(|i| ranked[i]).collect()
}
