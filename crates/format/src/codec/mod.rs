//! Block types to numbers and back: the naive twins of every fast kernel.
//!
//! [`decode`] is the definition of what stored bytes mean. Its code is obvious and stays so.

use lapidary_core::BlockType;
use thiserror::Error;

mod iq4;
mod k;
mod mxfp4;
mod plain;
mod q32;

/// Bytes could not be turned into numbers, or numbers into bytes.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CodecError {
    /// Room for another number of elements than the bytes hold.
    #[error("{bytes} bytes of {block} do not hold {elements} elements")]
    Length {
        /// The type.
        block: BlockType,
        /// Bytes given.
        bytes: usize,
        /// Elements asked for.
        elements: usize,
    },
    /// Numbers that do not fill their last block.
    #[error("{elements} elements are not a whole number of {block} blocks")]
    Ragged {
        /// The type.
        block: BlockType,
        /// Elements given.
        elements: usize,
    },
    /// A number that the type cannot hold.
    #[error("element {index}, {value}, is outside the range of {block}")]
    Range {
        /// The type.
        block: BlockType,
        /// Which element.
        index: usize,
        /// The element.
        value: f32,
    },
    /// A type without an encoder.
    #[error("{0} cannot be encoded: F32, F16, BF16 and Q8_0 can")]
    NoEncoder(BlockType),
}

/// Turns stored bytes into numbers.
///
/// All arithmetic is in `f32`, each operation rounded to nearest: a scale times its sub-scale
/// first, then times the code, then minus or plus the minimum.
///
/// # Errors
/// [`CodecError::Length`] unless `bytes` are whole blocks with exactly `out.len()` elements.
pub fn decode(block: BlockType, bytes: &[u8], out: &mut [f32]) -> Result<(), CodecError> {
    let elements = out.len();
    if block.row_bytes(elements) != Some(bytes.len()) {
        return Err(CodecError::Length { block, bytes: bytes.len(), elements });
    }
    let decode_block = decoder(block);
    let blocks = bytes.chunks_exact(block.block_bytes());
    for (stored, out) in blocks.zip(out.chunks_exact_mut(block.block_len())) {
        decode_block(stored, out);
    }
    Ok(())
}

/// Turns numbers into stored bytes, rounding to nearest.
///
/// # Errors
/// [`CodecError::NoEncoder`] for a type that can only be decoded, [`CodecError::Ragged`] unless
/// `values` fill whole blocks, and [`CodecError::Range`] for a finite number that would become
/// infinite, or a number that is not finite in a quantised type.
pub fn encode(block: BlockType, values: &[f32]) -> Result<Vec<u8>, CodecError> {
    let encode_block = encoder(block)?;
    let elements = values.len();
    let size = block.row_bytes(elements).ok_or(CodecError::Ragged { block, elements })?;
    let mut out = Vec::with_capacity(size);
    for (i, chunk) in values.chunks_exact(block.block_len()).enumerate() {
        encode_block(chunk, &mut out).map_err(|within| CodecError::Range {
            block,
            index: i * block.block_len() + within,
            value: chunk[within],
        })?;
    }
    Ok(out)
}

/// The nearest 16-bit float, as its bits.
pub fn half_bits(x: f32) -> u16 {
    half::f16::from_f32(x).to_bits()
}

/// The value of a 16-bit float.
pub fn half_value(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// Decodes one block.
type Decoder = fn(&[u8], &mut [f32]);

/// Appends one block, or says which of its elements is out of range.
type Encoder = fn(&[f32], &mut Vec<u8>) -> Result<(), usize>;

fn decoder(block: BlockType) -> Decoder {
    match block {
        BlockType::BF16 => plain::bf16,
        BlockType::F16 => plain::f16,
        BlockType::F32 => plain::f32,
        BlockType::IQ4_NL => iq4::iq4_nl,
        BlockType::IQ4_XS => iq4::iq4_xs,
        BlockType::MXFP4 => mxfp4::mxfp4,
        BlockType::Q2_K => k::q2_k,
        BlockType::Q3_K => k::q3_k,
        BlockType::Q4_0 => q32::q4_0,
        BlockType::Q4_1 => q32::q4_1,
        BlockType::Q4_K => k::q4_k,
        BlockType::Q5_0 => q32::q5_0,
        BlockType::Q5_1 => q32::q5_1,
        BlockType::Q5_K => k::q5_k,
        BlockType::Q6_K => k::q6_k,
        BlockType::Q8_0 => q32::q8_0,
    }
}

fn encoder(block: BlockType) -> Result<Encoder, CodecError> {
    match block {
        BlockType::BF16 => Ok(plain::encode_bf16),
        BlockType::F16 => Ok(plain::encode_f16),
        BlockType::F32 => Ok(plain::encode_f32),
        BlockType::Q8_0 => Ok(q32::encode_q8_0),
        other => Err(CodecError::NoEncoder(other)),
    }
}

/// The 16-bit float at byte `at` of a block.
fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Code `i` of bytes that hold two each, where the low halves come first: codes `0..n` are the
/// low halves of `n` bytes, codes `n..2 * n` the high ones.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    let n = bytes.len();
    if i < n { bytes[i] & 0x0F } else { bytes[i - n] >> 4 }
}
