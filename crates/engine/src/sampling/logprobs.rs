//! How likely the model thought a token was.

use lapidary_core::{TokenId, candidates, likeliest};

use super::exact::{exp, ln};

/// Natural logarithms of probabilities under the model's own distribution: before any bias,
/// penalty, truncation or temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the token asked about; minus infinity if it could not come up.
    pub token: f64,
    /// The likeliest tokens, likeliest first, the lower id first among equals.
    pub top: Vec<(TokenId, f64)>,
}

/// Looks up `token` and the `top` likeliest tokens in a row of logits.
pub fn logprobs(logits: &[f32], token: TokenId, top: usize) -> Logprobs {
    let ranked = likeliest(logits, top.max(1));
    let Some(best) = ranked.first().map(|best| f64::from(best.logit)) else {
        return Logprobs { token: f64::NEG_INFINITY, top: Vec::new() };
    };
    let mass = |logit: f32| exp(f64::from(logit) - best);
    let total = ln(candidates(logits).iter().fold(0.0, |sum, c| sum + mass(c.logit)));
    let of = |logit: f32| f64::from(logit) - best - total;
    let asked = logits.get(token.index()).filter(|logit| !logit.is_nan());
    Logprobs {
        token: asked.map_or(f64::NEG_INFINITY, |&logit| of(logit)),
        top: ranked.iter().take(top).map(|c| (c.token, of(c.logit))).collect(),
    }
}
