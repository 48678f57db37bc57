//! Stories: token by token and image by image, what a sequence tells.

use lapidary_core::{Input, RowSpec, SoftId, TokenId, Want};

use crate::Rng;

/// Rows of the matrix that images are cut from.
pub(crate) const SOFT_ROWS: u32 = 24;
/// The longest image, in rows.
pub(crate) const LONGEST_IMAGE: u32 = 7;

/// What is never cut: one token, or the rows of one image.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Piece {
    /// A token.
    Token(u32),
    /// Rows of the soft matrix that see each other in both directions.
    Image {
        /// The first of them.
        first: u32,
        /// How many.
        rows: u32,
    },
}

impl Piece {
    /// Rows that it takes.
    pub fn rows(self) -> usize {
        match self {
            Self::Token(_) => 1,
            Self::Image { rows, .. } => rows as usize,
        }
    }

    /// Its rows at position `pos` of a sequence, without wants.
    pub(crate) fn specs(self, pos: u32) -> Vec<RowSpec> {
        let spec = |i: u32, input| RowSpec { input, angle: [pos + i; 3], want: Want::NOTHING };
        match self {
            Self::Token(id) => vec![spec(0, Input::Token(TokenId(id)))],
            Self::Image { first, rows } => {
                let soft = |i| Input::Soft { source: SoftId(0), row: first + i };
                (0..rows).map(|i| spec(i, soft(i))).collect()
            }
        }
    }
}

/// Rows of a whole story.
pub(crate) fn rows_of(story: &[Piece]) -> usize {
    story.iter().map(|piece| piece.rows()).sum()
}

/// A few stories that many schedules tell, so that what a row gives alone is worth remembering.
pub struct Stories {
    vocabulary: u32,
    trunks: Vec<Vec<Piece>>,
}

impl Stories {
    /// `count` stories of at least `rows` rows.
    pub fn new(count: usize, rows: usize, vocabulary: u32, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut trunk = || {
            let mut story = Vec::new();
            while rows_of(&story) < rows {
                story.push(if rng.below(12) == 0 {
                    let rows = 2 + rng.below(LONGEST_IMAGE as usize - 1) as u32;
                    let first = rng.below((SOFT_ROWS - rows) as usize) as u32;
                    Piece::Image { first, rows }
                } else {
                    Piece::Token(rng.below(vocabulary as usize) as u32)
                });
            }
            story
        };
        Self { vocabulary, trunks: (0..count).map(|_| trunk()).collect() }
    }

    /// The first pieces of a story.
    pub fn beginning(&self, story: usize, pieces: usize) -> Vec<Piece> {
        self.trunks[story][..pieces].to_vec()
    }

    pub(crate) fn count(&self) -> usize {
        self.trunks.len()
    }

    /// Piece `i` of a story.
    pub(crate) fn piece(&self, story: usize, i: usize) -> Piece {
        self.trunks[story][i % self.trunks[story].len()]
    }

    /// Any token.
    pub(crate) fn token(&self, rng: &mut Rng) -> Piece {
        Piece::Token(rng.below(self.vocabulary as usize) as u32)
    }
}
