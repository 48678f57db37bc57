//! What is done to logits before any of them is chosen: bias, penalties, suppression, and the bar
//! of `top_n_sigma`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lapidary_core::TokenId;

use super::settings::Sampling;

impl Sampling {
    /// Whether tokens among the last `repeat_last` are treated in some way of their own.
    pub(super) fn penalises(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Steps 1 to 4 of the chain. Copies the logits only if something changes.
    pub(super) fn adjust<'a>(&self, tokens: &[TokenId], logits: &'a [f32]) -> Cow<'a, [f32]> {
        let mut logits = Cow::Borrowed(logits);
        for &(token, bias) in &self.bias {
            change(&mut logits, token, |logit| logit + bias);
        }
        if self.penalises() {
            self.penalise(&mut logits, tokens);
        }
        if let Some(dry) = &self.dry {
            for (token, loss) in dry.losses(tokens) {
                change(&mut logits, token, |logit| logit - loss);
            }
        }
        for &token in &self.suppress {
            change(&mut logits, token, |_| f32::NEG_INFINITY);
        }
        if self.top_n_sigma > 0.0 {
            self.drop_the_distant(&mut logits);
        }
        logits
    }

    fn penalise(&self, logits: &mut Cow<'_, [f32]>, tokens: &[TokenId]) {
        let recent = &tokens[tokens.len().saturating_sub(self.repeat_last)..];
        for (token, count) in counts(recent) {
            let loss = count as f32 * self.frequency_penalty + self.presence_penalty;
            change(logits, token, |logit| weaken(logit, self.repeat_penalty) - loss);
        }
    }

    /// Forbids logits that are more than `top_n_sigma` standard deviations below the highest.
    fn drop_the_distant(&self, logits: &mut Cow<'_, [f32]>) {
        let finite = || logits.iter().filter(|logit| logit.is_finite()).map(|l| f64::from(*l));
        let count = finite().count() as f64;
        let mean = finite().sum::<f64>() / count;
        let variance = finite().map(|logit| (logit - mean) * (logit - mean)).sum::<f64>() / count;
        let highest = finite().fold(f64::NEG_INFINITY, f64::max);
        let bar = highest - f64::from(self.top_n_sigma) * variance.sqrt();
        if count > 0.0 {
            let distant = |logit: &&mut f32| f64::from(**logit) < bar;
            logits.to_mut().iter_mut().filter(distant).for_each(|l| *l = f32::NEG_INFINITY);
        }
    }
}

fn change(logits: &mut Cow<'_, [f32]>, token: TokenId, to: impl FnOnce(f32) -> f32) {
    if let Some(logit) = logits.to_mut().get_mut(token.index()) {
        *logit = to(*logit);
    }
}

fn weaken(logit: f32, penalty: f32) -> f32 {
    if logit > 0.0 { logit / penalty } else { logit * penalty }
}

fn counts(tokens: &[TokenId]) -> BTreeMap<TokenId, u32> {
    let mut counts = BTreeMap::new();
    for &token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts
}
