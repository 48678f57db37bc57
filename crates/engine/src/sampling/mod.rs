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
//! 2. `repeat_penalty` weakens tokens among the last `repeat_last`.
//! 3. `suppress` forbids.
//! 4. `top_k` keeps the likeliest.
//! 5. `top_p` keeps the fewest of those whose probabilities sum to at least `top_p`.
//! 6. `min_p` keeps those at least `min_p` times as likely as the likeliest.
//! 7. `temperature` sharpens or flattens what is left, and one is drawn: the seeded number, a
//!    share of the whole, is counted off from the likeliest down, or in order of id if steps 4 to
//!    6 are all off.
//!
//! This is llama.cpp's order. Truncation comes before temperature, so what can be drawn does not
//! depend on how boldly it is drawn; at temperature 1, where the Gemma models ask to be run, the
//! order of Hugging Face's chain gives the same result. At temperature 0 the likeliest token
//! after step 3 is taken.
//!
//! Of equal logits, the lower token id counts as likelier. NaN counts as minus infinity, and what
//! has minus infinity is never chosen.

mod exact;
mod logprobs;
mod random;

use std::borrow::Cow;

use lapidary_core::{Candidate, TokenId, candidates, likeliest};
use thiserror::Error;

pub use logprobs::{Logprobs, logprobs};

use exact::exp;
use random::uniform;

/// How many of the likeliest tokens are looked at first when `top_k` does not say.
const FIRST_LOOK: usize = 64;

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Same seed, same text.
    pub seed: u64,
    /// Tells apart several texts for one prompt and seed.
    pub sample: u32,
    /// 0 takes the likeliest token, 1 draws from the model's own distribution.
    pub temperature: f32,
    /// How many tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// How much probability to keep, in `0..=1`; 1 keeps all, and one token is always kept.
    pub top_p: f32,
    /// The least probability to keep, relative to the likeliest token, in `0..=1`; 0 keeps all.
    pub min_p: f32,
    /// Divides positive logits of recent tokens and multiplies negative ones, once however often
    /// the token occurs; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many of the sequence's last tokens, prompt included, are recent.
    pub repeat_last: usize,
    /// Tokens that are never chosen.
    pub suppress: Vec<TokenId>,
    /// Added to the tokens' logits. Minus infinity forbids.
    pub bias: Vec<(TokenId, f32)>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            seed: 0,
            sample: 0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last: 64,
            suppress: Vec::new(),
            bias: Vec::new(),
        }
    }
}

/// Settings that make no sense.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadSampling {
    /// A setting is outside its range.
    #[error("{name} is {value}: give a number {range}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: f32,
        /// What may be given, in words.
        range: &'static str,
    },
    /// A bias would forbid all others, or means nothing.
    #[error("the bias of token {} is {value}: give a finite number or minus infinity", token.0)]
    Bias {
        /// Whose bias.
        token: TokenId,
        /// What was given.
        value: f32,
    },
}

/// There is nothing to choose from.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "no token can be chosen: the model's logits are NaN or minus infinity, or every token is suppressed"
)]
pub struct NoChoice;

impl Sampling {
    /// Refuses settings outside their ranges.
    ///
    /// # Errors
    /// The first such setting.
    pub fn check(&self) -> Result<(), BadSampling> {
        let within = |ok: bool, name, value, range| {
            if ok { Ok(()) } else { Err(BadSampling::OutOfRange { name, value, range }) }
        };
        let Self { temperature, top_p, min_p, repeat_penalty, .. } = *self;
        let positive = |x: f32| x.is_finite() && x > 0.0;
        let share = 0.0..=1.0;
        let warm = temperature == 0.0 || positive(temperature);
        within(warm, "temperature", temperature, "from 0 up")?;
        within(share.contains(&top_p), "top_p", top_p, "from 0 to 1")?;
        within(share.contains(&min_p), "min_p", min_p, "from 0 to 1")?;
        within(positive(repeat_penalty), "repeat_penalty", repeat_penalty, "above 0")?;
        let means_nothing =
            |&&(_, value): &&(TokenId, f32)| value.is_nan() || value == f32::INFINITY;
        match self.bias.iter().find(means_nothing) {
            Some(&(token, value)) => Err(BadSampling::Bias { token, value }),
            None => Ok(()),
        }
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
        let dice = uniform(self.seed, self.sample, tokens.len() as u32);
        self.draw(&self.truncate(&logits), dice).ok_or(NoChoice)
    }

    /// Bias, penalty, suppression.
    fn adjust<'a>(&self, tokens: &[TokenId], logits: &'a [f32]) -> Cow<'a, [f32]> {
        let mut logits = Cow::Borrowed(logits);
        for &(token, bias) in &self.bias {
            change(&mut logits, token, |logit| logit + bias);
        }
        if self.repeat_penalty != 1.0 {
            for token in distinct(&tokens[tokens.len().saturating_sub(self.repeat_last)..]) {
                change(&mut logits, token, |logit| penalise(logit, self.repeat_penalty));
            }
        }
        for &token in &self.suppress {
            change(&mut logits, token, |_| f32::NEG_INFINITY);
        }
        logits
    }

    /// The candidates that `top_k`, `top_p` and `min_p` leave. Each of the three keeps a first
    /// part of the tokens in order of likelihood, so only as many as needed are put in order.
    fn truncate(&self, logits: &[f32]) -> Vec<Candidate> {
        let keeps_all = self.top_k == 0 || self.top_k >= logits.len();
        if keeps_all && self.top_p >= 1.0 && self.min_p <= 0.0 {
            return candidates(logits);
        }
        if !keeps_all {
            let ranked = likeliest(logits, self.top_k);
            let total = total_mass(&ranked);
            let kept = self.boundary(&ranked, total).unwrap_or(ranked.len());
            return shortened(ranked, kept);
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

    /// Walks the candidates until their mass exceeds `dice`, in `0..1`, of the total.
    fn draw(&self, candidates: &[Candidate], dice: f64) -> Option<TokenId> {
        let top = top_logit(candidates);
        let masses = masses(candidates, top, self.temperature);
        let target = dice * sum_in_order(&masses);
        let mut sum = 0.0;
        let reached = masses.iter().position(|mass| {
            sum += mass;
            sum > target
        });
        // The last sum is the total, and a double below 1 times the total is below the total.
        reached.map(|i| candidates[i].token)
    }
}

fn change(logits: &mut Cow<'_, [f32]>, token: TokenId, to: impl FnOnce(f32) -> f32) {
    if let Some(logit) = logits.to_mut().get_mut(token.index()) {
        *logit = to(*logit);
    }
}

fn penalise(logit: f32, penalty: f32) -> f32 {
    if logit > 0.0 { logit / penalty } else { logit * penalty }
}

fn distinct(tokens: &[TokenId]) -> Vec<TokenId> {
    let mut tokens = tokens.to_vec();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
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
