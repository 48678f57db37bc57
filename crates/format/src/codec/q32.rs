//! Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 codes with one scale, and for `_1` types a minimum.

use half::f16;

use super::{f16_at, nibble};

/// Scale, 16 bytes of codes: `d · (q − 8)`.
pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let (d, codes) = (f16_at(block, 0), &block[2..18]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(nibble(codes, i)) - 8.0);
    }
}

/// Scale, minimum, 16 bytes of codes: `d · q + m`.
pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m, codes) = (f16_at(block, 0), f16_at(block, 2), &block[4..20]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(codes, i)) + m;
    }
}

/// Scale, 32 fifth bits, 16 bytes of low bits: `d · (q − 16)`.
pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let (d, fifths, codes) = (f16_at(block, 0), &block[2..6], &block[6..22]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(five_bits(codes, fifths, i)) - 16.0);
    }
}

/// Scale, minimum, 32 fifth bits, 16 bytes of low bits: `d · q + m`.
pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let (fifths, codes) = (&block[4..8], &block[8..24]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(five_bits(codes, fifths, i)) + m;
    }
}

/// Scale, 32 signed bytes: `d · q`.
pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    for (out, &code) in out.iter_mut().zip(&block[2..34]) {
        *out = d * f32::from(code.cast_signed());
    }
}

/// The scale is the largest magnitude over 127; codes divide by it before it is rounded to 16
/// bits, multiplying by its reciprocal and rounding halves away from zero.
pub(super) fn encode_q8_0(values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
    if let Some(i) = values.iter().position(|value| !value.is_finite()) {
        return Err(i);
    }
    let largest = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let d = largest / 127.0;
    let stored = f16::from_f32(d);
    if stored.is_infinite() {
        return Err(values.iter().position(|value| value.abs() == largest).unwrap_or(0));
    }
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    out.extend(stored.to_le_bytes());
    out.extend(values.iter().map(|value| ((value * inverse).round() as i8).cast_unsigned()));
    Ok(())
}

fn five_bits(codes: &[u8], fifths: &[u8], i: usize) -> u8 {
    let fifth = fifths[i / 8] >> (i % 8) & 1;
    nibble(codes, i) | fifth << 4
}
