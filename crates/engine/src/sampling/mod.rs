//! From logits to a token.
//!
//! A choice is a function of the seed, the sample index, the position, the logits, the sequence's
//! own tokens and the settings. It does not depend on which step or batch the row ran in, nor on
//! the platform: it is made of comparisons and of IEEE 754 additions, multiplications and
//! divisions in a fixed order.
//!
//! # The chain
//!
//! 1. `bias` is added.
//! 2. `repeat_penalty` weakens tokens among the last `repeat_last`, then `presence_penalty` and
//!    `frequency_penalty` are taken from them, then `dry` from what would go on with a repetition.
//! 3. `suppress` forbids.
//! 4. `top_n_sigma` keeps what is close to the highest logit.
//! 5. `top_k` keeps the likeliest.
//! 6. `typical_p` keeps the fewest of those whose surprise is closest to the mean surprise, and whose
//!    probabilities sum to at least `typical_p`.
//! 7. `top_p` keeps the fewest of those whose probabilities sum to at least `top_p`.
//! 8. `min_p` keeps those at least `min_p` times as likely as the likeliest.
//! 9. `xtc` drops the obvious, if a seeded number says so.
//! 10. `temperature` sharpens or flattens what is left, and one is drawn: another seeded number, a
//!     share of the whole, is counted off from the likeliest down, or in order of id if steps 5 to
//!     8 are all off.
//!
//! This is llama.cpp's order. Truncation comes before temperature, so what can be drawn does not
//! depend on how boldly it is drawn; at temperature 1, where the Gemma models ask to be run, the
//! order of Hugging Face's chain gives the same result. At temperature 0 the likeliest token
//! after step 3 is taken.
//!
//! What a grammar forbids, and stop tokens that come too early, are minus infinity before step 1.
//!
//! Of equal logits, the lower token id counts as likelier. NaN counts as minus infinity, and what
//! has minus infinity is never chosen.
//!
//! # Candidates
//!
//! Where the settings allow it, a choice needs only the likeliest few tokens, and they need not be
//! looked for among the whole row here: [`Sampling::reach`] says how many, and
//! [`Sampling::pick_among`] makes the choice that [`Sampling::pick`] makes.

mod adjust;
mod dry;
mod exact;
mod logprobs;
mod random;
mod settings;
mod typical;

use lapidary_core::{Candidate, TokenId, candidates, likeliest};
use thiserror::Error;

pub use logprobs::{Logprobs, logprobs};
pub use settings::{BadSampling, Dry, Sampling, Xtc};

use exact::exp;
use random::{second_uniform, uniform};

/// How many of the likeliest tokens are looked at first when `top_k` does not say.
const FIRST_LOOK: usize = 64;
/// From so many candidates on, a whole row is asked for.
const MOST_CANDIDATES: usize = 1024;

/// There is nothing to choose from.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "no token can be chosen: the model's logits are NaN or minus infinity, or every token is suppressed"
)]
pub struct NoChoice;

impl Sampling {
    /// The same settings for the `number`-th text of a request, with dice of its own.
    pub(crate) fn of_sample(&self, number: u32) -> Self {
        Self { sample: self.sample.wrapping_add(number), ..self.clone() }
    }

    /// The token that follows `tokens`, the sequence's prompt and text so far; its position is
    /// their number. `logits` has one entry per vocabulary entry.
    ///
    /// Expects settings that pass [`check`](Self::check).
    ///
    /// # Errors
    /// [`NoChoice`] if no logit is above minus infinity, or only those of suppressed tokens are.
    pub fn pick(&self, tokens: &[TokenId], logits: &[f32]) -> Result<TokenId, NoChoice> {
        let logits = self.adjust(tokens, logits);
        if self.temperature == 0.0 {
            return likeliest(&logits, 1).first().map(|best| best.token).ok_or(NoChoice);
        }
        self.draw(self.truncate(&logits), tokens.len())
    }

    /// How many of the likeliest tokens decide the choice; `None` if the whole row does, or so many
    /// of it that nothing is gained by asking for less.
    pub fn reach(&self) -> Option<usize> {
        let adjusts = !self.bias.is_empty() || self.penalises() || self.dry.is_some();
        let decisive = match self {
            Self { temperature: 0.0, .. } => 1,
            Self { top_k: 0, .. } => return None,
            Self { top_n_sigma, .. } if *top_n_sigma > 0.0 => return None,
            Self { top_k, .. } => *top_k,
        };
        let reach = decisive.saturating_add(self.suppress.len());
        (!adjusts && reach <= MOST_CANDIDATES).then_some(reach)
    }

    /// What [`pick`](Self::pick) returns, from the [`reach`](Self::reach) likeliest tokens,
    /// likeliest first, the lower id first among equals; fewer if there are no more.
    ///
    /// # Errors
    /// [`NoChoice`] if there are none, or only suppressed ones.
    ///
    /// # Panics
    /// If the whole row decides.
    pub fn pick_among(
        &self,
        tokens: &[TokenId],
        likeliest: &[Candidate],
    ) -> Result<TokenId, NoChoice> {
        assert!(self.reach().is_some(), "the likeliest tokens do not decide under {self:?}");
        let mut allowed = likeliest.iter().filter(|c| !self.suppress.contains(&c.token)).copied();
        if self.temperature == 0.0 {
            return allowed.next().map(|best| best.token).ok_or(NoChoice);
        }
        self.draw(self.cut(allowed.take(self.top_k).collect()), tokens.len())
    }

    /// The candidates that `top_k`, `typical_p`, `top_p` and `min_p` leave. All but `typical_p` keep
    /// a first part of the tokens in order of likelihood, so without it only as many as needed are
    /// put in order.
    fn truncate(&self, logits: &[f32]) -> Vec<Candidate> {
        if self.top_k > 0 {
            return self.cut(likeliest(logits, self.top_k));
        }
        if self.typical_p < 1.0 {
            return self.cut(likeliest(logits, logits.len()));
        }
        if self.top_p >= 1.0 && self.min_p <= 0.0 {
            return candidates(logits);
        }
        let total = if self.top_p < 1.0 { total_mass(&candidates(logits)) } else { 0.0 };
        let mut look = FIRST_LOOK;
        loop {
            let ranked = likeliest(logits, look);
            if let Some(kept) = self.boundary(&ranked, total) {
                return shortened(ranked, kept);
            }
            if ranked.len() < look {
                return ranked;
            }
            look *= 8;
        }
    }

    /// What `typical_p`, `top_p` and `min_p` leave of all that `top_k` kept.
    fn cut(&self, ranked: Vec<Candidate>) -> Vec<Candidate> {
        let ranked =
            if self.typical_p < 1.0 { typical::of(ranked, self.typical_p) } else { ranked };
        let total = total_mass(&ranked);
        let kept = self.boundary(&ranked, total).unwrap_or(ranked.len());
        shortened(ranked, kept)
    }

    /// How many of the ranked candidates `top_p` and `min_p` keep, if the limit lies among them.
    /// `total` is the mass of which `top_p` is a share; it is not looked at if `top_p` keeps all.
    fn boundary(&self, ranked: &[Candidate], total: f64) -> Option<usize> {
        let (top_p, min_p) = (f64::from(self.top_p), f64::from(self.min_p));
        let top = ranked.first()?.logit;
        let mut sum = 0.0;
        for (i, candidate) in ranked.iter().enumerate() {
            let mass = relative_mass(candidate.logit, top, 1.0);
            if mass < min_p {
                return Some(i);
            }
            sum += mass;
            if top_p < 1.0 && sum >= top_p * total {
                return Some(i + 1);
            }
        }
        None
    }

    /// Draws the token at `position` from what the truncation has left.
    fn draw(&self, kept: Vec<Candidate>, position: usize) -> Result<TokenId, NoChoice> {
        let position = position as u32;
        let kept = match self.xtc {
            Some(xtc)
                if second_uniform(self.seed, self.sample, position)
                    < f64::from(xtc.probability) =>
            {
                xtc.without_the_obvious(kept)
            }
            _ => kept,
        };
        let dice = uniform(self.seed, self.sample, position);
        walk(&kept, self.temperature, dice).ok_or(NoChoice)
    }
}

impl Xtc {
    /// Drops the tokens that are likely enough, but for the least likely of them.
    fn without_the_obvious(self, kept: Vec<Candidate>) -> Vec<Candidate> {
        let bar = f64::from(self.threshold) * total_mass(&kept);
        let top = top_logit(&kept);
        let is_obvious = |c: &Candidate| relative_mass(c.logit, top, 1.0) >= bar;
        let obvious = kept.iter().filter(|c| is_obvious(c));
        // Of equal ones the higher id is the less likely.
        let spared = obvious.min_by(|a, b| {
            a.logit
                .partial_cmp(&b.logit)
                .expect("a candidate is not NaN")
                .then(b.token.cmp(&a.token))
        });
        let Some(&spared) = spared else { return kept };
        kept.into_iter().filter(|c| c.token == spared.token || !is_obvious(c)).collect()
    }
}

/// Walks the candidates until their mass exceeds `dice`, in `0..1`, of the total.
fn walk(candidates: &[Candidate], temperature: f32, dice: f64) -> Option<TokenId> {
    let masses = masses(candidates, top_logit(candidates), temperature);
    let target = dice * sum_in_order(&masses);
    let mut sum = 0.0;
    let reached = masses.iter().position(|mass| {
        sum += mass;
        sum > target
    });
    // The last sum is the total, and a double below 1 times the total is below the total.
    reached.map(|i| candidates[i].token)
}

fn shortened(mut ranked: Vec<Candidate>, len: usize) -> Vec<Candidate> {
    ranked.truncate(len);
    ranked
}

fn total_mass(candidates: &[Candidate]) -> f64 {
    let top = top_logit(candidates);
    sum_in_order(&masses(candidates, top, 1.0))
}

/// The candidates' relative masses: a loop of its own, which runs in vectors.
fn masses(candidates: &[Candidate], top: f32, temperature: f32) -> Vec<f64> {
    candidates.iter().map(|c| relative_mass(c.logit, top, temperature)).collect()
}

fn sum_in_order(masses: &[f64]) -> f64 {
    masses.iter().fold(0.0, |sum, mass| sum + mass)
}

fn top_logit(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
}

/// `exp((logit - top) / temperature)`, where `top` is the highest logit: 1 for the top itself.
fn relative_mass(logit: f32, top: f32, temperature: f32) -> f64 {
    let mass = exp((f64::from(logit) - f64::from(top)) / f64::from(temperature));
    // Not `exp(0)` if both are infinite.
    if logit == top { 1.0 } else { mass }
}
