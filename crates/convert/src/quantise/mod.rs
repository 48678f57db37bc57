//! Numbers to blocks of codes, for every type that can be written.
//!
//! Searches minimise the squared error of each group, every number counted by a weight: its size,
//! or how much its column matters. The bytes
//! are those of llama.cpp's quantisers, on every machine: sums run along a group, never across
//! groups, and nothing is fused.

mod groups;
mod iq4_xs;
mod k;
mod lanes;
mod plain;
mod q32;

use lapidary_core::BlockType;
use lapidary_format::codec::{self, CodecError};
use lapidary_format::wide;
use thiserror::Error;

use groups::Search;

/// Numbers could not be turned into blocks.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum QuantiseError {
    /// A type of plain numbers or Q8_0 refused them.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A number that is not finite, or too large for scales of 16 bits.
    #[error("element {index} is {value}: {block} holds finite numbers up to {}", largest(*.block))]
    Range {
        /// The type.
        block: BlockType,
        /// Which element.
        index: usize,
        /// The element.
        value: f32,
    },
    /// Importance for another number of columns.
    #[error("there is importance for {found} columns, but rows have {cols}")]
    Importance {
        /// Columns with importance.
        found: usize,
        /// Columns of a row.
        cols: usize,
    },
}

/// The largest magnitude that types with 16-bit scales take: scales and minimums may lie beyond
/// the numbers, but never twice as far. Codes of eight bits have scales 127 times smaller than
/// their numbers.
fn largest(block: BlockType) -> f32 {
    if block == BlockType::Q8_0 { 8_000_000.0 } else { 32_752.0 }
}

/// Rows of `cols` numbers as blocks.
///
/// `importance` has one weight per column, zero or more: how much the error of that column's
/// numbers counts. Plain numbers and Q8_0 leave nothing to choose and ignore it.
///
/// # Errors
/// Rows that are no whole blocks, a number that is not finite or too large, importance of another
/// width, or a type that is only read.
pub fn quantise(
    block: BlockType,
    cols: usize,
    values: &[f32],
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, QuantiseError> {
    if let Some(rows) = Rows::check(block, cols, values, importance)? {
        return Ok(wide(|| rows.write::<lanes::Lanes>(block)));
    }
    Ok(codec::encode(block, values)?)
}

/// [`quantise`], group by group as its formulas read: what it is tested against.
///
/// # Errors
/// As [`quantise`].
pub fn quantise_plainly(
    block: BlockType,
    cols: usize,
    values: &[f32],
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, QuantiseError> {
    match Rows::check(block, cols, values, importance)? {
        Some(rows) if block != BlockType::Q8_0 => return Ok(rows.write::<plain::Plain>(block)),
        _ => {}
    }
    Ok(codec::encode(block, values)?)
}

/// Whether [`quantise`] can write a type.
pub fn is_written(block: BlockType) -> bool {
    block != BlockType::MXFP4
}

/// Numbers that can be quantised.
struct Rows<'a> {
    cols: usize,
    values: &'a [f32],
    importance: Option<&'a [f32]>,
}

impl<'a> Rows<'a> {
    /// `None` for types that [`codec::encode`] writes or refuses.
    fn check(
        block: BlockType,
        cols: usize,
        values: &'a [f32],
        importance: Option<&'a [f32]>,
    ) -> Result<Option<Self>, QuantiseError> {
        let ragged = CodecError::Ragged { block, elements: cols };
        if cols == 0 || block.row_bytes(cols).is_none() || !values.len().is_multiple_of(cols) {
            return Err(ragged.into());
        }
        if let Some(found) = importance.map(<[f32]>::len).filter(|&found| found != cols) {
            return Err(QuantiseError::Importance { found, cols });
        }
        if !block.is_quantised() || block == BlockType::MXFP4 {
            return Ok(None);
        }
        // A NaN is not below anything.
        let most = largest(block);
        let fits = |x: &f32| x.abs() <= most;
        match values.iter().position(|x| !fits(x)) {
            Some(index) => Err(QuantiseError::Range { block, index, value: values[index] }),
            None => Ok(Some(Self { cols, values, importance })),
        }
    }

    #[inline(always)]
    fn write<S: Search>(&self, block: BlockType) -> Vec<u8> {
        match block {
            BlockType::Q4_0 => self.by_row(block, |x, q, out| q32::symmetric::<S>(x, q, 8, out)),
            BlockType::Q5_0 => self.by_row(block, |x, q, out| q32::symmetric::<S>(x, q, 16, out)),
            BlockType::Q4_1 => self.by_row(block, |x, q, out| q32::offset::<S>(x, q, 15, out)),
            BlockType::Q5_1 => self.by_row(block, |x, q, out| q32::offset::<S>(x, q, 31, out)),
            BlockType::IQ4_NL => self.by_row(block, |x, q, out| q32::levels::<S>(x, q, out)),
            BlockType::IQ4_XS => self.by_block(block, |x, q, out| iq4_xs::iq4_xs::<S>(x, q, out)),
            BlockType::Q2_K => self.by_block(block, |x, q, out| k::q2_k::<S>(x, q, out)),
            BlockType::Q3_K => self.by_block(block, |x, q, out| k::q3_k::<S>(x, q, out)),
            BlockType::Q4_K => self.by_block(block, |x, q, out| k::q4_k::<S>(x, q, out)),
            BlockType::Q5_K => self.by_block(block, |x, q, out| k::q5_k::<S>(x, q, out)),
            BlockType::Q6_K => self.by_block(block, |x, q, out| k::q6_k::<S>(x, q, out)),
            BlockType::Q8_0 => self.by_row(block, |x, _, out| q32::q8_0(x, out)),
            BlockType::BF16 | BlockType::F16 | BlockType::F32 | BlockType::MXFP4 => {
                unreachable!("{block} was left to the codec")
            }
        }
    }

    #[inline(always)]
    fn by_row(
        &self,
        block: BlockType,
        write: impl Fn(&[f32], Option<&[f32]>, &mut Vec<u8>),
    ) -> Vec<u8> {
        let blocks = self.values.len() / block.block_len();
        let mut out = Vec::with_capacity(blocks * block.block_bytes());
        for row in self.values.chunks_exact(self.cols) {
            write(row, self.importance, &mut out);
        }
        out
    }

    #[inline(always)]
    fn by_block(
        &self,
        block: BlockType,
        write: impl Fn(&[f32], Option<&[f32]>, &mut Vec<u8>),
    ) -> Vec<u8> {
        let len = block.block_len();
        self.by_row(block, |row, importance, out| {
            for (i, x) in row.chunks_exact(len).enumerate() {
                write(x, importance.map(|all| &all[i * len..][..len]), out);
            }
        })
    }
}

/// The mean of the squares, added in order.
#[inline(always)]
fn mean_square(x: &[f32]) -> f32 {
    let mut sum = 0.0;
    for x in x {
        sum += x * x;
    }
    sum / x.len() as f32
}

/// Appends a scale as 16-bit float.
#[inline(always)]
fn put(scale: f32, out: &mut Vec<u8>) {
    out.extend_from_slice(&codec::half_bits(scale).to_le_bytes());
}

/// What is left of a scale that is stored in 16 bits.
#[inline(always)]
fn stored(scale: f32) -> f32 {
    codec::half_value(codec::half_bits(scale))
}
