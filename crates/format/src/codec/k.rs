//! Q2_K, Q3_K, Q4_K, Q5_K, Q6_K: 256 codes in groups, whose scales are codes too.
//!
//! Codes of two bits lie in runs of 128: byte `l` of a run's 32 bytes holds elements `l`,
//! `l + 32`, `l + 64` and `l + 96`, lowest bits first.

use super::f16_at;

/// 16 bytes of scales and minimums, 64 bytes of codes, scale, scale of the minimums:
/// `(d · s) · q − (dmin · m)` in groups of 16.
pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[0..16], &block[16..80]);
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let packed = scales[i / 16];
        let (scale, min) = (d * f32::from(packed & 0x0F), dmin * f32::from(packed >> 4));
        *out = scale * f32::from(two_bits(codes, i)) - min;
    }
}

/// 32 bytes of third bits, 64 bytes of low bits, 12 bytes of six-bit scales, scale:
/// `(d · (s − 32)) · q` in groups of 16, where a third bit that is *not* set subtracts 4.
pub(super) fn q3_k(block: &[u8], out: &mut [f32]) {
    let (thirds, codes, scales) = (&block[0..32], &block[32..96], &block[96..108]);
    let d = f16_at(block, 108);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * (f32::from(q3_scale(scales, i / 16)) - 32.0);
        let third = thirds[i % 32] >> (i / 32) & 1;
        let offset = if third == 1 { 0.0 } else { 4.0 };
        *out = scale * (f32::from(two_bits(codes, i)) - offset);
    }
}

/// Scale, scale of the minimums, 12 bytes of scales and minimums, 128 bytes of codes:
/// `(d · s) · q − (dmin · m)` in groups of 32.
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..144]);
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        let code = group_nibble(codes, i);
        *out = d * f32::from(scale) * f32::from(code) - dmin * f32::from(min);
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the codes: bit `g` of byte `l` belongs to
/// element `l` of group `g`.
pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, fifths, codes) = (&block[4..16], &block[16..48], &block[48..176]);
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        let fifth = fifths[i % 32] >> (i / 32) & 1;
        let code = group_nibble(codes, i) | fifth << 4;
        *out = d * f32::from(scale) * f32::from(code) - dmin * f32::from(min);
    }
}

/// 128 bytes of low bits, 64 bytes of upper two bits, 16 signed scales, scale:
/// `(d · s) · (q − 32)` in groups of 16.
///
/// Low bits lie in runs of 128: byte `l` of a run's 64 bytes holds elements `l` and `l + 64`.
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[0..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * f32::from(scales[i / 16].cast_signed());
        let four = low[64 * (i / 128) + i % 64] >> (4 * (i % 128 / 64)) & 0x0F;
        let code = four | two_bits(high, i) << 4;
        *out = scale * (f32::from(code) - 32.0);
    }
}

/// Two bits of element `i`.
fn two_bits(bytes: &[u8], i: usize) -> u8 {
    bytes[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 0x03
}

/// Four bits of element `i`, where groups of 32 share bytes in pairs.
fn group_nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[32 * (i / 64) + i % 32] >> (4 * (i % 64 / 32)) & 0x0F
}

/// Scale `g` of sixteen: four low bits in the first eight bytes, two upper bits in the last four.
fn q3_scale(packed: &[u8], g: usize) -> u8 {
    let low = packed[g % 8] >> (4 * (g / 8)) & 0x0F;
    let high = packed[8 + g % 4] >> (2 * (g / 4)) & 0x03;
    low | high << 4
}

/// Scale and minimum `g` of eight, six bits each. Those of the first four groups fill the low six
/// bits of bytes 0 to 3 and 4 to 7; the others have four bits in bytes 8 to 11 and two above the
/// first.
fn scale_and_min(packed: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        return (packed[g] & 0x3F, packed[g + 4] & 0x3F);
    }
    let scale = packed[g + 4] & 0x0F | packed[g - 4] >> 6 << 4;
    let min = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    (scale, min)
}
