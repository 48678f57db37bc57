//! IQ4_NL and IQ4_XS: codes that stand for sixteen levels, denser near zero.

use super::{f16_at, nibble};

/// Scale, 16 bytes of codes: `d · level`.
pub(super) fn iq4_nl(block: &[u8], out: &mut [f32]) {
    levels(f16_at(block, 0), &block[2..18], out);
}

/// Scale, the upper two bits of eight sub-scales, their lower four bits, eight groups of 16 bytes
/// of codes: `d · (s − 32) · level`.
pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    let upper = u16::from_le_bytes([block[2], block[3]]);
    let (lower, codes) = (&block[4..8], &block[8..136]);
    for (g, out) in out.chunks_exact_mut(32).enumerate() {
        let low = lower[g / 2] >> (4 * (g % 2)) & 0x0F;
        let high = (upper >> (2 * g) & 0x03) as u8;
        let scale = f32::from(low | high << 4) - 32.0;
        levels(d * scale, &codes[16 * g..][..16], out);
    }
}

fn levels(d: f32, codes: &[u8], out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(LEVELS[usize::from(nibble(codes, i))]);
    }
}

const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
