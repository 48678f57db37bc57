//! Which tokens would make a repetition longer, and by how much.

use std::collections::BTreeMap;

use lapidary_core::TokenId;

use super::settings::Dry;

impl Dry {
    /// What each token that would go on with a repetition of `tokens` loses.
    ///
    /// A token goes on with a repetition of length `n` if the last `n` tokens have occurred before
    /// and were followed by it. The longest of its repetitions counts.
    pub(super) fn losses(&self, tokens: &[TokenId]) -> BTreeMap<TokenId, f32> {
        let recent = &tokens[tokens.len().saturating_sub(self.range)..];
        let reach = recent.iter().rev().take_while(|token| !self.breakers.contains(token)).count();
        let mut longest = BTreeMap::new();
        // Entry `i` of the backward text is followed, in the text, by entry `i - 1`.
        let backward: Vec<_> = recent.iter().rev().copied().collect();
        for (i, length) in common_beginnings(&backward).into_iter().enumerate().skip(1) {
            let length = length.min(reach);
            let follower = backward[i - 1];
            if length >= self.allowed && !self.breakers.contains(&follower) {
                let known: &mut usize = longest.entry(follower).or_default();
                *known = length.max(*known);
            }
        }
        let loss = |(token, length)| (token, self.loss(length));
        longest.into_iter().map(loss).collect()
    }

    /// Finite, however long the repetition: a token is discouraged, never forbidden.
    fn loss(&self, length: usize) -> f32 {
        let mut loss = f64::from(self.multiplier);
        let most = f64::from(f32::MAX);
        for _ in self.allowed..length {
            loss *= f64::from(self.base);
            if loss > most || self.base == 1.0 {
                break;
            }
        }
        loss.min(most) as f32
    }
}

/// How much of a text's beginning occurs again at each place: the Z function, in linear time.
fn common_beginnings(text: &[TokenId]) -> Vec<usize> {
    let mut lengths = vec![0; text.len()];
    // The stretch that is known to repeat the beginning and reaches furthest.
    let (mut start, mut end) = (0, 0);
    for i in 1..text.len() {
        let mut length = if i < end { lengths[i - start].min(end - i) } else { 0 };
        while i + length < text.len() && text[length] == text[i + length] {
            length += 1;
        }
        if i + length > end {
            (start, end) = (i, i + length);
        }
        lengths[i] = length;
    }
    lengths
}
