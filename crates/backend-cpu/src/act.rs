//! Rows of floats on the CPU, and their rounded form for quantised matrices.

use std::sync::OnceLock;

/// Rows of `f32`. The 8-bit form that quantised matrices multiply with is made on first use and
/// kept, so that projections of one input share it.
#[derive(Debug)]
pub struct Act {
    cols: usize,
    data: Vec<f32>,
    codes: OnceLock<Codes>,
}

impl Act {
    /// Rows of `cols` values.
    pub(crate) fn new(cols: usize, data: Vec<f32>) -> Self {
        assert!(cols > 0 && data.len().is_multiple_of(cols), "{} values / {cols}", data.len());
        Self { cols, data, codes: OnceLock::new() }
    }

    /// `rows` rows of zeros.
    pub(crate) fn zeros(rows: usize, cols: usize) -> Self {
        Self::new(cols, vec![0.0; rows * cols])
    }

    /// Width of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.data.len() / self.cols
    }

    /// All values, row after row.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// One row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// The values, to be changed: forgets the rounded form.
    pub(crate) fn data_mut(&mut self) -> &mut [f32] {
        self.codes = OnceLock::new();
        &mut self.data
    }

    /// The rounded form, made by `quantise` if this is the first time.
    pub(crate) fn codes(&self, quantise: impl FnOnce(&Self) -> Codes) -> &Codes {
        self.codes.get_or_init(|| quantise(self))
    }
}

/// Rows rounded to 8 bits per 32 values. Four arrays with one place per block of each row.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Blocks per row.
    pub(crate) blocks: usize,
    /// 32 per block.
    pub(crate) bytes: Vec<i8>,
    /// Value of one unit.
    pub(crate) scales: Vec<f32>,
    /// Sum of the block's first 16 codes.
    pub(crate) first_half: Vec<i32>,
    /// Sum of the block's codes.
    pub(crate) sums: Vec<i32>,
}
