//! Guesses from the text itself: what followed the last few tokens when they came up before.

use lapidary_core::{Backend, TokenId};

use super::{Draft, DraftCall, Drafter, Target};

/// Looks the end of a text up in the text. It keeps nothing between calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NgramDrafter {
    longest: usize,
}

impl NgramDrafter {
    /// Compares the last `longest` tokens first, then fewer.
    ///
    /// # Panics
    /// If `longest` is zero.
    pub fn new(longest: usize) -> Self {
        assert!(longest > 0, "no tokens occur everywhere");
        Self { longest }
    }

    /// Up to `most` tokens that followed the latest earlier occurrence of the longest suffix that
    /// has one.
    fn lookup<'a>(&self, known: &'a [TokenId], most: usize) -> &'a [TokenId] {
        let longest = self.longest.min(known.len().saturating_sub(1));
        for len in (1..=longest).rev() {
            let suffix = &known[known.len() - len..];
            // Not the suffix itself, which nothing follows yet.
            let earlier = &known[..known.len() - 1];
            if let Some(at) = earlier.windows(len).rposition(|window| window == suffix) {
                let follows = &known[at + len..];
                return &follows[..follows.len().min(most)];
            }
        }
        &[]
    }
}

impl<B: Backend> Drafter<B> for NgramDrafter {
    fn propose(&mut self, _: Target<'_, B>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        let chain = |tokens: &[TokenId]| Draft::chain(tokens.iter().copied());
        calls.iter().map(|call| chain(self.lookup(call.known, call.shape.depth))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(longest: usize, known: &[u32], most: usize) -> Vec<u32> {
        let known: Vec<_> = known.iter().copied().map(TokenId).collect();
        NgramDrafter::new(longest).lookup(&known, most).iter().map(|token| token.0).collect()
    }

    #[test]
    fn the_latest_occurrence_of_the_longest_suffix_counts() {
        assert_eq!(guess(3, &[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 2), [4, 9]);
        assert_eq!(guess(2, &[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 2), [5, 1]);
    }

    #[test]
    fn a_repeated_token_is_guessed_to_go_on() {
        assert_eq!(guess(3, &[7, 7, 7, 7], 8), [7]);
        assert_eq!(guess(3, &[1, 2, 1, 2, 1, 2], 8), [1, 2]);
    }

    #[test]
    fn nothing_is_guessed_of_a_text_without_repetition() {
        assert_eq!(guess(3, &[1, 2, 3, 4], 8), []);
        assert_eq!(guess(3, &[1], 8), []);
    }
}
