//! The likeliest tokens, without sorting a vocabulary.

use std::cmp::Ordering;

use crate::TokenId;

/// How many logits are compared with the bar at once.
const CHUNK: usize = 64;

/// A token that can be chosen: its logit is above minus infinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub token: TokenId,
    /// What the head gave it.
    pub logit: f32,
}

/// Every candidate, in order of token id.
pub fn candidates(logits: &[f32]) -> Vec<Candidate> {
    candidates_above(f32::NEG_INFINITY, 0, logits).collect()
}

/// The `k` likeliest candidates, likeliest first, the lower id first among equals; fewer if there
/// are fewer. `k` is at least one.
///
/// Takes one pass with a bar that rises: up to `2 k` candidates above the bar are collected, then
/// cut back to the best `k`, the last of which is the new bar. A later token equal to the bar has
/// a higher id than the `k` tokens at or above it, so it is rightly left out.
pub fn likeliest(logits: &[f32], k: usize) -> Vec<Candidate> {
    assert!(k > 0, "at least one candidate is asked for");
    let k = k.min(logits.len());
    let mut best = Vec::with_capacity(2 * k);
    let mut bar = f32::NEG_INFINITY;
    for (i, chunk) in logits.chunks(CHUNK).enumerate() {
        // No early exit: this is the loop that reads the vocabulary, and it runs in vectors.
        if !chunk.iter().fold(false, |any, &logit| any | (logit > bar)) {
            continue;
        }
        for candidate in candidates_above(bar, i * CHUNK, chunk) {
            if candidate.logit > bar {
                best.push(candidate);
            }
            if best.len() == 2 * k {
                best.select_nth_unstable_by(k - 1, by_likelihood);
                best.truncate(k);
                bar = best[k - 1].logit;
            }
        }
    }
    best.sort_unstable_by(by_likelihood);
    best.truncate(k);
    best
}

/// The `k` likeliest of some candidates, in the order of [`likeliest`].
pub fn best(mut found: Vec<Candidate>, k: usize) -> Vec<Candidate> {
    if k < found.len() {
        found.select_nth_unstable_by(k, by_likelihood);
        found.truncate(k);
    }
    found.sort_unstable_by(by_likelihood);
    found
}

/// Candidates among logits whose first belongs to token `first`. NaN is above nothing.
fn candidates_above(bar: f32, first: usize, logits: &[f32]) -> impl Iterator<Item = Candidate> {
    let candidate = |(token, &logit)| Candidate { token: TokenId(token as u32), logit };
    (first..).zip(logits).map(candidate).filter(move |c| c.logit > bar)
}

fn by_likelihood(a: &Candidate, b: &Candidate) -> Ordering {
    let higher_first = b.logit.partial_cmp(&a.logit).expect("a candidate is not NaN");
    higher_first.then(a.token.cmp(&b.token))
}
