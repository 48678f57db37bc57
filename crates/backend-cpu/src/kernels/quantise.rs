//! quantise: activations to 8-bit codes, one scale per 32.
//!
//! `rows × cols` floats, `cols` a multiple of 32. Row-local, no additions of floats.
//! Twin: `reference::law::quantise`.

use crate::blocks::BLOCK;
use crate::reference::law::SMALLEST_AMAX;

/// Where the codes of one row go.
pub(crate) struct RowCodes<'a> {
    pub(crate) bytes: &'a mut [i8],
    pub(crate) scales: &'a mut [f32],
    pub(crate) first_half: &'a mut [i32],
    pub(crate) sums: &'a mut [i32],
}

/// Rounds one row. Instructions come from the caller's target features.
#[inline(always)]
pub(crate) fn quantise(x: &[f32], out: RowCodes<'_>) {
    let RowCodes { bytes, scales, first_half, sums } = out;
    let places = scales.iter_mut().zip(first_half).zip(sums);
    let blocks = x.chunks_exact(BLOCK).zip(bytes.chunks_exact_mut(BLOCK));
    for ((x, codes), ((scale, first), sum)) in blocks.zip(places) {
        let mut most = 0_u32;
        for v in x {
            most = most.max(v.to_bits() & 0x7fff_ffff);
        }
        let inverse;
        (*scale, inverse) = scale_and_inverse(f32::from_bits(most));
        for (code, v) in codes.iter_mut().zip(x) {
            let v = if inverse > 0.0 { *v } else { 0.0 };
            *code = round(v * inverse) as i8;
        }
        let add = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
        *first = add(&codes[..BLOCK / 2]);
        *sum = *first + add(&codes[BLOCK / 2..]);
    }
}

/// The value of one code and what turns values into codes. A block that holds a NaN or an
/// infinity gets a NaN scale, which reaches every output.
#[inline(always)]
fn scale_and_inverse(amax: f32) -> (f32, f32) {
    if !amax.is_finite() {
        (f32::NAN, 0.0)
    } else if amax < SMALLEST_AMAX {
        (0.0, 0.0)
    } else {
        (amax / 127.0, 127.0 / amax)
    }
}

/// The nearest integer, ties to even, for magnitudes below 2²²: adding 1.5 · 2²³ rounds there, and
/// the sum's low bits are the integer.
#[inline(always)]
fn round(x: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}
