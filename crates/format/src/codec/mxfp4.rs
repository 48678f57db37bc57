//! MXFP4: four-bit floats with a shared power of two.

use super::nibble;

/// Exponent byte `e`, 16 bytes of codes: `2^(e − 128) · level`, where levels are twice the value
/// of the code so that they are whole.
pub(super) fn mxfp4(block: &[u8], out: &mut [f32]) {
    let (scale, codes) = (power_of_two(block[0]), &block[1..17]);
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * f32::from(LEVELS[usize::from(nibble(codes, i))]);
    }
}

/// `2^(e − 128)`. The two smallest are subnormal.
fn power_of_two(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(1 << 21),
        1 => f32::from_bits(1 << 22),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
