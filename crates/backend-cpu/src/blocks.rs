//! Stored blocks as the matmul law sees them: small integers and a few factors.
//!
//! Every quantised type is one shape: 32 consecutive weights are integers `q`, in two halves of
//! 16 with an integer factor each, times one float; some types subtract a minimum.
//!
//! ```text
//! w[k] = d · scale[half] · q[k] + m · min[half]
//! ```

use half::f16;
use lapidary_core::BlockType;

/// Weights in a block of the law.
pub(crate) const BLOCK: usize = 32;

/// What the codes of IQ4_NL and IQ4_XS stand for.
pub(crate) const NL_TABLE: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// What the codes of MXFP4 stand for, in halves.
pub(crate) const MX_TABLE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 consecutive weights of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block32 {
    /// The integers.
    pub(crate) q: [i8; BLOCK],
    /// Integer factor of each half.
    pub(crate) scale: [i8; 2],
    /// Integer minimum of each half.
    pub(crate) min: [u8; 2],
    /// Float factor of the integers.
    pub(crate) d: f32,
    /// Float factor of the minimums, sign included.
    pub(crate) m: f32,
}

/// Block `index` (counted in 32s) of a row stored as `block`, or `None` for types that are not
/// made of such blocks.
pub(crate) fn block32(block: BlockType, row: &[u8], index: usize) -> Option<Block32> {
    let first = index * BLOCK / block.block_len() * block.block_bytes();
    let bytes = &row[first..first + block.block_bytes()];
    let part = index % (block.block_len() / BLOCK).max(1);
    Some(match block {
        BlockType::IQ4_NL => iq4_nl(bytes),
        BlockType::IQ4_XS => iq4_xs(bytes, part),
        BlockType::MXFP4 => mxfp4(bytes),
        BlockType::Q2_K => q2_k(bytes, part),
        BlockType::Q3_K => q3_k(bytes, part),
        BlockType::Q8_0 => q8_0(bytes),
        BlockType::Q4_0 => q4_0(bytes),
        BlockType::Q4_1 => q4_1(bytes),
        BlockType::Q5_0 => q5_0(bytes),
        BlockType::Q5_1 => q5_1(bytes),
        BlockType::Q4_K => q4_k(bytes, part),
        BlockType::Q5_K => q5_k(bytes, part),
        BlockType::Q6_K => q6_k(bytes, part),
        _ => return None,
    })
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Nibbles as 32-wide types keep them: low ones first.
fn nibbles(bytes: &[u8]) -> [i8; BLOCK] {
    std::array::from_fn(|k| {
        let byte = bytes[k % 16];
        (if k < 16 { byte & 15 } else { byte >> 4 }) as i8
    })
}

/// The fifth bits of Q5_0 and Q5_1.
fn fifth_bit(bytes: &[u8], k: usize) -> i8 {
    ((bytes[k / 8] >> (k % 8)) & 1) as i8
}

fn plain(q: [i8; BLOCK], d: f32) -> Block32 {
    Block32 { q, scale: [1; 2], min: [0; 2], d, m: 0.0 }
}

fn q8_0(bytes: &[u8]) -> Block32 {
    plain(std::array::from_fn(|k| bytes[2 + k] as i8), half_at(bytes, 0))
}

fn q4_0(bytes: &[u8]) -> Block32 {
    plain(nibbles(&bytes[2..]).map(|q| q - 8), half_at(bytes, 0))
}

fn q4_1(bytes: &[u8]) -> Block32 {
    Block32 { min: [1; 2], m: half_at(bytes, 2), ..plain(nibbles(&bytes[4..]), half_at(bytes, 0)) }
}

fn q5_0(bytes: &[u8]) -> Block32 {
    let low = nibbles(&bytes[6..]);
    let q = std::array::from_fn(|k| low[k] + 16 * fifth_bit(&bytes[2..], k) - 16);
    plain(q, half_at(bytes, 0))
}

fn q5_1(bytes: &[u8]) -> Block32 {
    let low = nibbles(&bytes[8..]);
    let q = std::array::from_fn(|k| low[k] + 16 * fifth_bit(&bytes[4..], k));
    Block32 { min: [1; 2], m: half_at(bytes, 2), ..plain(q, half_at(bytes, 0)) }
}

fn iq4_nl(bytes: &[u8]) -> Block32 {
    plain(nibbles(&bytes[2..]).map(|code| NL_TABLE[code as usize]), half_at(bytes, 0))
}

/// MXFP4: the scale is a power of two; 2⁻¹²⁸ for zero, because the table counts in halves.
fn mxfp4(bytes: &[u8]) -> Block32 {
    let exponent = u32::from(bytes[0]);
    let bits = if exponent < 2 { 0x20_0000 << exponent } else { (exponent - 1) << 23 };
    plain(nibbles(&bytes[1..]).map(|code| MX_TABLE[code as usize]), f32::from_bits(bits))
}

/// IQ4_XS: six-bit scales, four bits in one place and two in another, offset by 32.
fn iq4_xs(bytes: &[u8], part: usize) -> Block32 {
    let high = u16::from_le_bytes([bytes[2], bytes[3]]) >> (2 * part);
    let low = bytes[4 + part / 2] >> (4 * (part % 2));
    let scale = ((low & 15) | ((high as u8 & 3) << 4)) as i8 - 32;
    let q = nibbles(&bytes[8 + 16 * part..]).map(|code| NL_TABLE[code as usize]);
    Block32 { scale: [scale; 2], ..plain(q, half_at(bytes, 0)) }
}

/// Two bits of Q2_K and Q3_K: 128 weights share 32 bytes.
fn two_bits(bytes: &[u8], part: usize, k: usize) -> i8 {
    ((bytes[part / 4 * 32 + k] >> (2 * (part % 4))) & 3) as i8
}

fn q2_k(bytes: &[u8], part: usize) -> Block32 {
    let factors = [bytes[2 * part], bytes[2 * part + 1]];
    Block32 {
        q: std::array::from_fn(|k| two_bits(&bytes[16..], part, k)),
        scale: factors.map(|f| (f & 15) as i8),
        min: factors.map(|f| f >> 4),
        d: half_at(bytes, 80),
        m: -half_at(bytes, 82),
    }
}

/// Q3_K: a set high bit adds four to codes that start at minus four.
fn q3_k(bytes: &[u8], part: usize) -> Block32 {
    let q = std::array::from_fn(|k| {
        let high = (bytes[k] >> part) & 1;
        two_bits(&bytes[32..], part, k) + 4 * high as i8 - 4
    });
    let scales = &bytes[96..108];
    let scale = |j: usize| {
        let low = if j < 8 { scales[j] & 15 } else { scales[j - 8] >> 4 };
        let high = (scales[8 + j % 4] >> (2 * (j / 4))) & 3;
        (low | (high << 4)) as i8 - 32
    };
    Block32 { scale: [scale(2 * part), scale(2 * part + 1)], ..plain(q, half_at(bytes, 108)) }
}

/// The 6-bit scale and minimum of 32-block `j`, from the 12 bytes that Q4_K and Q5_K share.
fn scale_min(bytes: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (bytes[j] & 63, bytes[j + 4] & 63)
    } else {
        let (low, high) = (bytes[j + 4], j - 4);
        ((low & 15) | ((bytes[high] >> 6) << 4), (low >> 4) | ((bytes[high + 4] >> 6) << 4))
    }
}

/// Q4_K and Q5_K: 64 weights share 32 bytes, the low nibbles being the first 32.
fn with_mins(bytes: &[u8], part: usize, q: [i8; BLOCK]) -> Block32 {
    let (scale, min) = scale_min(&bytes[4..16], part);
    Block32 {
        q,
        scale: [scale as i8; 2],
        min: [min; 2],
        d: half_at(bytes, 0),
        m: -half_at(bytes, 2),
    }
}

fn k_nibble(bytes: &[u8], part: usize, k: usize) -> u8 {
    (bytes[part / 2 * 32 + k] >> (4 * (part % 2))) & 15
}

fn q4_k(bytes: &[u8], part: usize) -> Block32 {
    let q = std::array::from_fn(|k| k_nibble(&bytes[16..], part, k) as i8);
    with_mins(bytes, part, q)
}

fn q5_k(bytes: &[u8], part: usize) -> Block32 {
    let (high, low) = (&bytes[16..48], &bytes[48..]);
    let bit = |k: usize| (high[k] >> part) & 1;
    let q = std::array::from_fn(|k| (k_nibble(low, part, k) + 16 * bit(k)) as i8);
    with_mins(bytes, part, q)
}

/// Q6_K: 128 weights share 64 low bytes and 32 high ones.
fn q6_k(bytes: &[u8], part: usize) -> Block32 {
    let (half, quarter) = (part / 4, part % 4);
    let low = &bytes[64 * half + 32 * (quarter % 2)..];
    let high = &bytes[128 + 32 * half..];
    let q = std::array::from_fn(|k| {
        let low = (low[k] >> (4 * (quarter / 2))) & 15;
        let high = (high[k] >> (2 * quarter)) & 3;
        (low | (high << 4)) as i8 - 32
    });
    let scale = [bytes[192 + 2 * part] as i8, bytes[193 + 2 * part] as i8];
    Block32 { q, scale, min: [0; 2], d: half_at(bytes, 208), m: 0.0 }
}
