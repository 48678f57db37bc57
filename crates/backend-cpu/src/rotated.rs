//! Codes of few bits for keys and values: rotation, rounding to levels, packing.
//!
//! A head is cut into blocks of 256 values (or is one block, if it is a smaller power of two). A
//! packed block is its scale as `f32`, then planes of bits. With 8 bits that is one byte per code.
//! Otherwise 16 bytes hold the low nibbles of 32 codes, the first 16 in the low halves; then each
//! further bit has a plane of its own, 16 codes in two bytes, lowest first.

use lapidary_core::{ROTATED_BLOCK, Unsupported, levels, sign};

/// Bytes in front of a block's codes.
pub(crate) const SCALE_BYTES: usize = 4;
/// Narrowest block: a nibble plane holds codes by 32.
const NARROWEST: usize = 32;

/// Width of the blocks that a head of this width is cut into.
///
/// # Errors
/// The width has no Walsh-Hadamard transform in blocks.
pub(crate) fn block_width(width: usize) -> Result<usize, Unsupported> {
    let block = width.min(ROTATED_BLOCK);
    if block >= NARROWEST && block.is_power_of_two() && width.is_multiple_of(block) {
        return Ok(block);
    }
    Err(Unsupported(format!(
        "heads of width {width} cannot be rotated: that takes multiples of {ROTATED_BLOCK}, or \
         128, 64 or 32; use f16"
    )))
}

/// Bytes of a packed block.
pub(crate) const fn block_bytes(bits: u8, block: usize) -> usize {
    SCALE_BYTES + block * bits as usize / 8
}

/// Rotates each block of `x`: signs, then the transform.
pub(crate) fn rotate(x: &mut [f32], block: usize) {
    for x in x.chunks_exact_mut(block) {
        x.iter_mut().enumerate().for_each(|(i, x)| *x *= sign(i));
        transform(x);
    }
}

/// The inverse of [`rotate`].
pub(crate) fn unrotate(x: &mut [f32], block: usize) {
    for x in x.chunks_exact_mut(block) {
        transform(x);
        x.iter_mut().enumerate().for_each(|(i, x)| *x *= sign(i));
    }
}

/// The orthonormal Walsh-Hadamard transform, its own inverse.
fn transform(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let norm = 1.0 / (x.len() as f32).sqrt();
    x.iter_mut().for_each(|x| *x *= norm);
}

/// Packs a head whose blocks have been rotated.
pub(crate) fn encode(bits: u8, rotated: &[f32], block: usize, out: &mut [u8]) {
    let blocks = rotated.chunks_exact(block).zip(out.chunks_exact_mut(block_bytes(bits, block)));
    for (x, out) in blocks {
        let mut codes = [0_u8; ROTATED_BLOCK];
        let codes = &mut codes[..block];
        let scale = round(bits, x, codes);
        let (head, planes) = out.split_at_mut(SCALE_BYTES);
        head.copy_from_slice(&scale.to_le_bytes());
        pack(bits, codes, planes);
    }
}

/// Rounds a block to levels and returns the scale that brings them closest to it.
fn round(bits: u8, x: &[f32], codes: &mut [u8]) -> f32 {
    let levels = levels(bits);
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let rms = mean.sqrt();
    if !(rms > f32::MIN_POSITIVE && rms.is_finite()) {
        // Zeros, or numbers that no scale can hold: a NaN must not turn into a plausible value.
        codes.fill((levels.len() / 2) as u8);
        return if rms.is_finite() { 0.0 } else { f32::NAN };
    }
    let inverse = 1.0 / rms;
    let (mut dot, mut square) = (0.0_f32, 0.0_f32);
    for (code, x) in codes.iter_mut().zip(x) {
        *code = nearest(levels, x * inverse);
        let level = levels[usize::from(*code)];
        dot += level * x;
        square += level * level;
    }
    dot / square
}

/// The level nearest to `z`; the lower of two equally near.
fn nearest(levels: &[f32], z: f32) -> u8 {
    let (mut low, mut high) = (0, levels.len() - 1);
    while low < high {
        let middle = (low + high) / 2;
        if (levels[middle] + levels[middle + 1]) / 2.0 < z {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low as u8
}

fn pack(bits: u8, codes: &[u8], planes: &mut [u8]) {
    if bits == 8 {
        planes.copy_from_slice(codes);
        return;
    }
    planes.fill(0);
    let (nibbles, rest) = planes.split_at_mut(codes.len() / 2);
    for (i, code) in codes.iter().enumerate() {
        nibbles[i / 32 * 16 + i % 16] |= (code & 15) << (4 * (i / 16 % 2));
    }
    for (bit, plane) in rest.chunks_exact_mut(codes.len() / 8).enumerate() {
        for (i, code) in codes.iter().enumerate() {
            plane[i / 8] |= ((code >> (4 + bit)) & 1) << (i % 8);
        }
    }
}
