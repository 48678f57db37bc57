//! What may come next: the contract between a grammar and whoever chooses tokens.

use std::fmt::Debug;

use thiserror::Error;

use crate::TokenId;

/// Bits of a word of a [`TokenSet`].
const BITS: usize = u32::BITS as usize;

/// A set of vocabulary entries, a bit each.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokenSet {
    words: Vec<u32>,
}

impl TokenSet {
    /// The entries whose bit is set: entry `i` is bit `i % 32` of word `i / 32`.
    pub fn from_words(words: Vec<u32>) -> Self {
        Self { words }
    }

    /// Every entry of a vocabulary of this size.
    pub fn all(vocab: usize) -> Self {
        let mut words = vec![u32::MAX; vocab / BITS];
        if !vocab.is_multiple_of(BITS) {
            words.push((1 << (vocab % BITS)) - 1);
        }
        Self { words }
    }

    /// Whether `token` is in it.
    pub fn contains(&self, token: TokenId) -> bool {
        let word = self.words.get(token.index() / BITS);
        word.is_some_and(|word| word >> (token.index() % BITS) & 1 == 1)
    }

    /// Adds an entry.
    pub fn insert(&mut self, token: TokenId) {
        let word = token.index() / BITS;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (token.index() % BITS);
    }

    /// Takes an entry out.
    pub fn remove(&mut self, token: TokenId) {
        if let Some(word) = self.words.get_mut(token.index() / BITS) {
            *word &= !(1 << (token.index() % BITS));
        }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

impl FromIterator<TokenId> for TokenSet {
    fn from_iter<I: IntoIterator<Item = TokenId>>(tokens: I) -> Self {
        let mut set = Self::default();
        tokens.into_iter().for_each(|token| set.insert(token));
        set
    }
}

/// What may follow a text under a grammar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Next {
    /// Tokens that may come next. Tokens that end a text are none of them.
    pub tokens: TokenSet,
    /// Whether the text may end here.
    pub end: bool,
}

/// A grammar cannot say what comes next, or does not allow what came.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("the grammar cannot go on: {0}")]
pub struct Stuck(pub String);

/// A grammar and how far a text has got in it.
///
/// # Laws
///
/// What [`next`](Self::next) says depends on the grammar and the tokens advanced over, and changes
/// nothing. [`advance`](Self::advance) succeeds over every token that `next` allows.
pub trait Constraint: Debug + Send + Sync {
    /// The same grammar and text so far, to go on from independently.
    fn fork(&self) -> Box<dyn Constraint>;

    /// What may come next.
    ///
    /// # Errors
    /// The grammar is too hard to follow any further.
    fn next(&mut self) -> Result<Next, Stuck>;

    /// Takes the text one token further.
    ///
    /// # Errors
    /// The token may not come next. Only what is advanced over before a failure counts.
    fn advance(&mut self, token: TokenId) -> Result<(), Stuck>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set: TokenSet = [0, 31, 32, 99].into_iter().map(TokenId).collect();
        set.remove(TokenId(31));
        set.remove(TokenId(5_000));
        let held: Vec<_> = (0..200).filter(|&i| set.contains(TokenId(i))).collect();
        assert_eq!(held, [0, 32, 99]);
        for vocab in [0, 1, 31, 32, 33, 64, 100] {
            let all = TokenSet::all(vocab);
            assert!((0..vocab as u32).all(|i| all.contains(TokenId(i))), "{vocab}");
            assert!((vocab as u32..200).all(|i| !all.contains(TokenId(i))), "{vocab}");
            assert_eq!(all.is_empty(), vocab == 0);
        }
    }
}
