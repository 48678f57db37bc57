//! Rows of a prompt that are no tokens: what a tower made of a picture.
//!
//! Each range is a block: its rows go through the model in one step, so that they can see each
//! other both ways, and no prefix ends inside it. Where entries are compared, a block's rows go by
//! names made of their numbers, so that another picture is another text.

use std::ops::Range;
use std::sync::Arc;

use lapidary_core::TokenId;
use thiserror::Error;

/// Rows as wide as a hidden state, taken as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftRows {
    width: usize,
    values: Vec<f32>,
}

impl SoftRows {
    /// Rows of `width` numbers, one after the other.
    ///
    /// # Panics
    /// If `width` is zero.
    pub fn new(values: Vec<f32>, width: usize) -> Self {
        assert!(width > 0, "rows have numbers");
        Self { width, values }
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whole rows that there are.
    pub fn count(&self) -> usize {
        self.values.len() / self.width
    }

    /// Row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Names for the first `count` rows. Rows of the same numbers have the same names; others
    /// share one about as often as two numbers drawn from two thousand million are the same, and
    /// all of a block's about as often as two of 64 bits are.
    fn names(&self, count: usize) -> impl Iterator<Item = TokenId> + use<> {
        let numbers = &self.values[..count * self.width];
        let all = numbers.iter().fold(count as u64, |sum, x| mix(sum, u64::from(x.to_bits())));
        (0..count as u64).map(move |row| TokenId(NO_VOCABULARY | (mix(all, row) >> 33) as u32))
    }
}

/// From here on no vocabulary has ids.
const NO_VOCABULARY: u32 = 1 << 31;

/// Every step is a bijection of the sum.
fn mix(sum: u64, word: u64) -> u64 {
    let mixed = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}

/// A block of a prompt. The tokens it stands over are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct Soft {
    /// Places in the prompt.
    pub range: Range<usize>,
    /// At least as many rows as there are places.
    pub rows: Arc<SoftRows>,
}

/// Blocks that make no sense.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BadSoft {
    /// A block goes on after the prompt.
    #[error(
        "soft range {index} is {range:?}, but the prompt has {prompt} tokens: end it with the prompt"
    )]
    PastTheEnd {
        /// Which of the blocks.
        index: usize,
        /// Its places.
        range: Range<usize>,
        /// Tokens of the prompt.
        prompt: usize,
    },
    /// A block has no places, or ends before it begins.
    #[error("soft range {index} is {range:?}, which holds nothing: leave it out")]
    Empty {
        /// Which of the blocks.
        index: usize,
        /// Its places.
        range: Range<usize>,
    },
    /// A block has fewer numbers than places.
    #[error(
        "soft range {index} has {found} numbers and needs {needed} for {positions} rows of {width}: give all of them"
    )]
    Short {
        /// Which of the blocks.
        index: usize,
        /// Numbers given.
        found: usize,
        /// Numbers needed.
        needed: usize,
        /// Its places.
        positions: usize,
        /// Numbers in a row.
        width: usize,
    },
    /// Two blocks claim the same place.
    #[error("soft ranges {first} and {second} are {a:?} and {b:?}, which overlap: move one")]
    Overlap {
        /// One of the blocks.
        first: usize,
        /// The other.
        second: usize,
        /// The places of the one.
        a: Range<usize>,
        /// The places of the other.
        b: Range<usize>,
    },
    /// A block does not fit into one step.
    #[error(
        "soft range {index} has {rows} rows and a step has room for {most}: use a smaller picture or budget"
    )]
    Large {
        /// Which of the blocks.
        index: usize,
        /// Its rows.
        rows: usize,
        /// The most rows of a block.
        most: usize,
    },
}

/// Refuses blocks that make no sense in a prompt of this many tokens, or have more than `most`
/// rows.
pub(crate) fn check(soft: &[Soft], prompt: usize, most: usize) -> Result<(), BadSoft> {
    for (index, Soft { range, rows }) in soft.iter().enumerate() {
        if range.end > prompt {
            return Err(BadSoft::PastTheEnd { index, range: range.clone(), prompt });
        }
        if range.is_empty() {
            return Err(BadSoft::Empty { index, range: range.clone() });
        }
        let (positions, width, found) = (range.len(), rows.width, rows.values.len());
        let needed = positions.saturating_mul(width);
        if found < needed {
            return Err(BadSoft::Short { index, found, needed, positions, width });
        }
    }
    for (first, a) in soft.iter().enumerate() {
        for (second, b) in soft.iter().enumerate().skip(first + 1) {
            if a.range.start < b.range.end && b.range.start < a.range.end {
                let (a, b) = (a.range.clone(), b.range.clone());
                return Err(BadSoft::Overlap { first, second, a, b });
            }
        }
    }
    let rows = |soft: &Soft| soft.range.len();
    match soft.iter().position(|soft| rows(soft) > most) {
        Some(index) => Err(BadSoft::Large { index, rows: rows(&soft[index]), most }),
        None => Ok(()),
    }
}

/// The blocks of a sequence, checked, in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks(Arc<[Soft]>);

impl Blocks {
    pub(crate) fn new(soft: &[Soft]) -> Self {
        let mut soft = soft.to_vec();
        soft.sort_by_key(|soft| soft.range.start);
        Self(soft.into())
    }

    /// What entries of a prompt are compared by: tokens, and names of soft rows.
    pub(crate) fn named(&self, prompt: &[TokenId]) -> Vec<TokenId> {
        let mut names = prompt.to_vec();
        for Soft { range, rows } in self.0.iter() {
            let places = &mut names[range.clone()];
            places.iter_mut().zip(rows.names(range.len())).for_each(|(to, name)| *to = name);
        }
        names
    }

    /// The block that would be cut in two if a text ended after `len` tokens.
    pub(crate) fn cut_by(&self, len: usize) -> Option<&Range<usize>> {
        let inside = |soft: &&Soft| soft.range.start < len && len < soft.range.end;
        self.0.iter().find(inside).map(|soft| &soft.range)
    }

    /// The most tokens, up to `len`, that end inside no block.
    pub(crate) fn whole(&self, len: usize) -> usize {
        self.cut_by(len).map_or(len, |block| block.start)
    }

    /// The blocks that lie in `places`; none is cut by them.
    pub(crate) fn within(&self, places: Range<usize>) -> impl Iterator<Item = &Soft> {
        let inside =
            move |soft: &&Soft| places.start <= soft.range.start && soft.range.end <= places.end;
        self.0.iter().filter(inside)
    }

    /// All places of blocks.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|soft| soft.range.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soft(range: Range<usize>, numbers: &[f32]) -> Soft {
        Soft { range, rows: Arc::new(SoftRows::new(numbers.to_vec(), 2)) }
    }

    #[test]
    fn rows_are_named_by_all_numbers_of_their_block() {
        let prompt = [TokenId(5); 6];
        let named = |numbers: &[f32]| Blocks::new(&[soft(1..4, numbers)]).named(&prompt);
        let [one, other] = [named(&[1., 2., 3., 4., 5., 6.]), named(&[1., 2., 3., 4., 5., 7.])];
        assert_eq!(named(&[1., 2., 3., 4., 5., 6., 9., 9.]), one, "rows too many mean nothing");
        assert_eq!((one[0], one[4], one[5]), (TokenId(5), TokenId(5), TokenId(5)));
        for place in 1..4 {
            assert_ne!(one[place], other[place]);
            assert!(one[place].0 >= NO_VOCABULARY);
        }
        let shifted = Blocks::new(&[soft(1..3, &[1., 2., 3., 4.])]).named(&prompt);
        assert_ne!(shifted[1], one[1], "the number of rows counts");
    }

    #[test]
    fn a_text_may_end_before_and_after_a_block_but_not_inside() {
        let blocks = Blocks::new(&[soft(6..8, &[0.; 4]), soft(2..6, &[0.; 8])]);
        let whole: Vec<_> = (0..10).map(|len| blocks.whole(len)).collect();
        assert_eq!(whole, [0, 1, 2, 2, 2, 2, 6, 6, 8, 9]);
    }
}
