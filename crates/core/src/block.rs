//! How matrix rows are cut into blocks of stored numbers.

use std::fmt;

/// A storage type of tensors. Quantised types store rows as blocks of `len` elements.
///
/// The layouts are those of GGUF; `format` decodes them, backends repack them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[expect(non_camel_case_types, reason = "the names people know from files")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum BlockType {
    BF16,
    F16,
    F32,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
}

impl BlockType {
    /// Every type.
    pub const ALL: [Self; 16] = [
        Self::BF16,
        Self::F16,
        Self::F32,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::MXFP4,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q4_K,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q5_K,
        Self::Q6_K,
        Self::Q8_0,
    ];

    /// Elements in a block.
    pub fn block_len(self) -> usize {
        match self {
            Self::BF16 | Self::F16 | Self::F32 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::IQ4_NL | Self::MXFP4 => 32,
            Self::IQ4_XS | Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::BF16 | Self::F16 => 2,
            Self::F32 => 4,
            Self::MXFP4 => 17,
            Self::Q4_0 | Self::IQ4_NL => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::IQ4_XS => 136,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Bytes of a row of `cols` elements, if it is a whole number of blocks that can be counted.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let whole = cols.is_multiple_of(self.block_len());
        whole.then(|| (cols / self.block_len()).checked_mul(self.block_bytes())).flatten()
    }

    /// Whether elements are codes with shared scales, not numbers of their own.
    pub fn is_quantised(self) -> bool {
        self.block_len() > 1
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
