//! A number that tells contents apart: for noticing damage and mistakes, not malice.
//!
//! Four lanes take the words in turn. Every step is a bijection of its lane, and so is every step
//! that puts lanes together: contents of one length that differ in one word differ in their digest.

use lapidary_core::{SourceError, TensorSource};

const LANES: usize = 4;
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The digest of some bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut lanes = [1, 2, 3, 4_u64];
    let (blocks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    let mut last = [0; 8 * LANES];
    last[..rest.len()].copy_from_slice(rest);
    for (lane, word) in lanes.iter_mut().zip(last.as_chunks().0) {
        *lane = step(*lane, u64::from_le_bytes(*word));
    }
    lanes.into_iter().fold(bytes.len() as u64, step)
}

fn step(state: u64, word: u64) -> u64 {
    let mixed = (state ^ word).wrapping_mul(ODD);
    mixed ^ (mixed >> 32)
}

/// The digest of everything that a model is made of: its metadata and every tensor's name, type,
/// shape and bytes.
///
/// # Errors
/// A tensor cannot be had.
pub fn fingerprint(source: &dyn TensorSource) -> Result<u64, SourceError> {
    let mut sum = digest(format!("{:?}", source.meta()).as_bytes());
    for name in source.names() {
        let info = format!("{name} {:?}", source.info(name));
        sum = step(sum, digest(info.as_bytes()));
        sum = step(sum, digest(&source.bytes(name)?));
    }
    Ok(sum)
}
