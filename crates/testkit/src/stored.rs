//! Stored weights without a quantiser: random blocks of every type that are finite and of a given
//! size.

use lapidary_core::BlockType;
use lapidary_format::codec::encode;

use crate::Rng;

/// Where a type keeps a half-float factor, and which number belongs there so that random codes
/// come out with a root mean square near one.
struct Factor {
    at: usize,
    unit: f32,
}

/// The half-float factors of a quantised type: of the codes, and of the minimums.
fn factors(block: BlockType) -> (Option<Factor>, Option<Factor>) {
    let factor = |at, unit| Some(Factor { at, unit });
    match block {
        BlockType::Q4_0 => (factor(0, 1.0 / 4.6), None),
        BlockType::Q4_1 => (factor(0, 1.0 / 4.6), factor(2, -7.5 / 4.6)),
        BlockType::Q5_0 => (factor(0, 1.0 / 9.2), None),
        BlockType::Q5_1 => (factor(0, 1.0 / 9.2), factor(2, -15.5 / 9.2)),
        BlockType::Q8_0 => (factor(0, 1.0 / 74.0), None),
        BlockType::Q2_K => (factor(80, 1.0 / 16.0), factor(82, 1.5 / 16.0)),
        BlockType::Q3_K => (factor(108, 1.0 / 42.0), None),
        BlockType::Q4_K => (factor(0, 1.0 / 320.0), factor(2, 7.5 / 320.0)),
        BlockType::Q5_K => (factor(0, 1.0 / 650.0), factor(2, 15.5 / 650.0)),
        BlockType::Q6_K => (factor(208, 1.0 / 1370.0), None),
        BlockType::IQ4_NL => (factor(0, 1.0 / 70.0), None),
        BlockType::IQ4_XS => (factor(0, 1.0 / 1290.0), None),
        BlockType::MXFP4 | BlockType::BF16 | BlockType::F16 | BlockType::F32 => (None, None),
    }
}

/// `elements` random numbers as `block` stores them, of root mean square near `size`. Codes,
/// scales and minimums take every value that the type has.
///
/// # Panics
/// If the elements are not whole blocks.
pub fn random_weights(block: BlockType, elements: usize, size: f32, rng: &mut Rng) -> Vec<u8> {
    if !block.is_quantised() {
        let values: Vec<f32> = (0..elements).map(|_| 1.7 * size * rng.signed()).collect();
        return encode(block, &values).unwrap_or_else(|e| panic!("{e}"));
    }
    let bytes = block.row_bytes(elements).expect("elements are whole blocks");
    let mut stored: Vec<u8> = (0..bytes).map(|_| rng.bits() as u8).collect();
    for stored in stored.chunks_exact_mut(block.block_bytes()) {
        let (codes, mins) = factors(block);
        for factor in [codes, mins].into_iter().flatten() {
            let value = size * factor.unit * (1.0 + 0.5 * rng.signed());
            let half = encode(BlockType::F16, &[value]).unwrap_or_else(|e| panic!("{e}"));
            stored[factor.at..factor.at + 2].copy_from_slice(&half);
        }
        if block == BlockType::MXFP4 {
            // A power of two; the codes' own root mean square is near six halves.
            stored[0] = (127.0 + (size / 3.0).log2() + rng.signed()) as u8;
        }
    }
    stored
}
