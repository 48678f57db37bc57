//! A picture as a vision tower reads it.

/// A picture cut into square patches, in reading order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Patches {
    /// Patches in a row.
    pub columns: usize,
    /// Rows of patches.
    pub rows: usize,
    /// Pixels of a side of a patch.
    pub side: usize,
    /// Patch after patch; in each, lines of pixels of red, green and blue: `3 · side²` bytes.
    pub values: Vec<u8>,
}

impl Patches {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.columns * self.rows
    }
}
