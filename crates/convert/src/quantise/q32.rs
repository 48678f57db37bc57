//! Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL: blocks of 32 with one scale, and for `_1` types a minimum.
//!
//! Without importance a scale reaches the largest number and nothing is searched, except for
//! IQ4_NL.

use super::groups::{Error, Groups, OffsetGrid, Search, nearest_level};
use super::{mean_square, put};

const LEN: usize = 32;
/// Blocks that are fitted together.
const LANES: usize = 16;

/// Q4_0 and Q5_0, whose codes are `half` above their value.
#[inline(always)]
pub(super) fn symmetric<S: Search>(
    row: &[f32],
    importance: Option<&[f32]>,
    half: u8,
    out: &mut Vec<u8>,
) {
    let Some(importance) = importance else {
        row.chunks_exact(LEN).for_each(|block| rounded_symmetric(block, half, out));
        return;
    };
    let spread = mean_square(row);
    for (x, importance) in batches(row, importance) {
        let mut groups = Groups::<LEN, LANES>::of(x);
        groups.weigh_by(importance, |q, x| q * (spread + x * x).sqrt());
        let fit = S::symmetric(&groups, half);
        for n in 0..x.len() / LEN {
            put(fit.scale[n], out);
            put_codes(&fit.codes_of(n), half, out);
        }
    }
}

/// Q4_1 and Q5_1, with codes up to `most`.
#[inline(always)]
pub(super) fn offset<S: Search>(
    row: &[f32],
    importance: Option<&[f32]>,
    most: u8,
    out: &mut Vec<u8>,
) {
    let Some(importance) = importance else {
        row.chunks_exact(LEN).for_each(|block| rounded_offset(block, most, out));
        return;
    };
    let grid = OffsetGrid { most, first: -0.9, step: 0.05, steps: 36, error: Error::Square };
    let spread = mean_square(row);
    for (x, importance) in batches(row, importance) {
        let mut groups = Groups::<LEN, LANES>::of(x);
        groups.weigh_by(importance, |q, x| q * (spread + x * x).sqrt());
        let fit = S::offset(&groups, grid);
        for n in 0..x.len() / LEN {
            put(fit.scale[n], out);
            put(fit.min[n], out);
            put_codes(&fit.codes_of(n), most.div_ceil(2), out);
        }
    }
}

/// Q8_0. Nothing is searched. Twin: `codec::encode`.
#[inline(always)]
pub(super) fn q8_0(row: &[f32], out: &mut Vec<u8>) {
    for block in row.chunks_exact(LEN) {
        // Magnitudes compare like their bits.
        let most = block.iter().fold(0, |most, x| (x.to_bits() & 0x7fff_ffff).max(most));
        let scale = f32::from_bits(most) / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        put(scale, out);
        let codes: [u8; LEN] =
            std::array::from_fn(|i| ((block[i] * inverse).round() as i32 as i8).cast_unsigned());
        out.extend_from_slice(&codes);
    }
}

/// IQ4_NL. The scale is searched, then stored in 16 bits, the codes fit the scale before that.
#[inline(always)]
pub(super) fn levels<S: Search>(row: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    for (x, own) in batches(row, importance.unwrap_or(row)) {
        let mut groups = Groups::<LEN, LANES>::of(x);
        if importance.is_some() {
            let squares = groups.total_squares();
            let spread = squares.map(|sum| sum * (2.0 / LEN as f32));
            groups.w = super::groups::across(own);
            for (w, x) in groups.w.iter_mut().zip(&groups.x) {
                for n in 0..LANES {
                    w[n] *= (spread[n] + x[n] * x[n]).sqrt();
                }
            }
        } else {
            groups.weigh(|_, x| x * x);
        }
        let fit = S::levels(&groups);
        for (n, block) in x.chunks_exact(LEN).enumerate() {
            let inverse = if fit.scale[n] == 0.0 { 0.0 } else { 1.0 / fit.scale[n] };
            put(fit.scale[n], out);
            put_nibbles(block.iter().map(|x| nearest_level(inverse * x)), out);
        }
    }
}

/// Runs of up to [`LANES`] blocks, and what belongs to them.
fn batches<'a>(row: &'a [f32], other: &'a [f32]) -> impl Iterator<Item = (&'a [f32], &'a [f32])> {
    row.chunks(LEN * LANES).zip(other.chunks(LEN * LANES))
}

fn rounded_symmetric(block: &[f32], half: u8, out: &mut Vec<u8>) {
    let (mut most, mut extreme) = (0.0, 0.0);
    for &x in block {
        if x.abs() > most {
            (most, extreme) = (x.abs(), x);
        }
    }
    let middle = f32::from(half);
    let scale = extreme / -middle;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let code = |i: usize| ((block[i] * inverse + (middle + 0.5)) as u8).min(2 * half - 1);
    put(scale, out);
    put_codes(&std::array::from_fn(code), half, out);
}

fn rounded_offset(block: &[f32], most: u8, out: &mut Vec<u8>) {
    let (mut min, mut max) = (f32::MAX, f32::MIN);
    for &x in block {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
    }
    let scale = (max - min) / f32::from(most);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let code = |i: usize| (((block[i] - min) * inverse + 0.5) as u8).min(most);
    put(scale, out);
    put(min, out);
    put_codes(&std::array::from_fn(code), most.div_ceil(2), out);
}

/// Codes of four bits, or below `2 · half = 32` their fifth bits and then the other four.
#[inline(always)]
fn put_codes(codes: &[u8; LEN], half: u8, out: &mut Vec<u8>) {
    if half == 16 {
        let fifths = codes.iter().rev().fold(0_u32, |bits, &code| bits << 1 | u32::from(code >> 4));
        out.extend_from_slice(&fifths.to_le_bytes());
    }
    put_nibbles(codes.iter().map(|code| code & 0x0F), out);
}

/// Thirty-two codes in sixteen bytes, the first half in the low bits.
#[inline(always)]
fn put_nibbles(codes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let mut packed = [0_u8; LEN / 2];
    for (i, code) in codes.enumerate() {
        packed[i % (LEN / 2)] |= code << (4 * (i / (LEN / 2)));
    }
    out.extend_from_slice(&packed);
}
