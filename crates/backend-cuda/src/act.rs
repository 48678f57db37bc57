//! Rows of floats on the device, and their rounded form for quantised matrices.

use std::cell::OnceCell;

use crate::pool::Buffer;

/// Rows of `f32` on the device. The 8-bit form that quantised matrices multiply with is made on
/// first use and kept, so that projections of one input share it.
pub struct Act {
    rows: usize,
    cols: usize,
    pub(crate) data: Buffer,
    codes: OnceCell<Codes>,
}

/// Rows rounded to 8 bits per 32 values; see kernels/quantise.cu.
pub(crate) struct Codes {
    pub(crate) codes: Buffer,
    /// `{scale, sum of codes}` of each block.
    pub(crate) marks: Buffer,
}

impl Codes {
    /// Both buffers, or neither.
    pub(crate) fn buffers(codes: Option<&Self>) -> (Option<&Buffer>, Option<&Buffer>) {
        (codes.map(|c| &c.codes), codes.map(|c| &c.marks))
    }
}

impl Act {
    pub(crate) fn new(rows: usize, cols: usize, data: Buffer) -> Self {
        assert!(cols > 0 && rows * cols * 4 <= data.bytes(), "{rows} rows of {cols}");
        Self { rows, cols, data, codes: OnceCell::new() }
    }

    /// The rounded form without the values, for products with quantised matrices and nothing else.
    pub(crate) fn codes_alone(rows: usize, cols: usize, none: Buffer, codes: Codes) -> Self {
        Self { rows, cols, data: none, codes: OnceCell::from(codes) }
    }

    /// The same, with the rounded form if it was made along with the values.
    pub(crate) fn rounded(self, codes: Option<Codes>) -> Self {
        Self { codes: codes.map_or_else(OnceCell::new, OnceCell::from), ..self }
    }

    /// Width of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in all.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// The values, to be changed: forgets the rounded form.
    pub(crate) fn data_mut(&mut self) -> &Buffer {
        self.codes = OnceCell::new();
        &self.data
    }

    /// The rounded form, made by `quantise` if this is the first time.
    pub(crate) fn codes(&self, quantise: impl FnOnce(&Self) -> Codes) -> &Codes {
        self.codes.get_or_init(|| quantise(self))
    }
}
