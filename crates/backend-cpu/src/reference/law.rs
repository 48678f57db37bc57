//! The matmul law in its plainest form, straight from stored blocks. Every quantised matrix
//! kernel, on every device, gives these bits; docs/numerics.md states the law in words.

use lapidary_core::BlockType;

use crate::blocks::{BLOCK, block32};

/// Blocks of 32 inputs whose terms are added up before joining the output: a segment is 256 wide.
pub const SEGMENT_BLOCKS: usize = 8;
/// Inputs whose products form one chain for matrices of plain floats.
pub const SEGMENT: usize = SEGMENT_BLOCKS * BLOCK;

/// A row of activations as the law sees it: 8-bit integers and one scale per 32 of them.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantisedRow {
    /// Integers in `-127..=127`.
    pub codes: Vec<i8>,
    /// One per 32 codes. NaN where the block held a NaN or an infinity.
    pub scales: Vec<f32>,
}

/// Blocks whose largest magnitude is below this are zero: `127 / amax` must stay finite.
pub const SMALLEST_AMAX: f32 = f32::from_bits(27 << 23);

/// Rounds activations to 8 bits per block of 32.
pub fn quantise(x: &[f32]) -> QuantisedRow {
    assert!(x.len().is_multiple_of(BLOCK), "{} inputs are not blocks of {BLOCK}", x.len());
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in x.chunks_exact(BLOCK) {
        let poisoned = block.iter().any(|v| !v.is_finite());
        let amax = block.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
        if poisoned {
            scales.push(f32::NAN);
            codes.extend([0; BLOCK]);
        } else if amax < SMALLEST_AMAX {
            scales.push(0.0);
            codes.extend([0; BLOCK]);
        } else {
            let inverse = 127.0 / amax;
            scales.push(amax / 127.0);
            codes.extend(block.iter().map(|v| (v * inverse).round_ties_even() as i8));
        }
    }
    QuantisedRow { codes, scales }
}

/// One output: the stored row `w` times the activations `x`. `None` for types that are no blocks
/// of integers.
pub fn dot(block: BlockType, w: &[u8], x: &QuantisedRow) -> Option<f32> {
    let mut y = 0.0_f32;
    for (j, scales) in x.scales.chunks(SEGMENT_BLOCKS).enumerate() {
        let mut segment = 0.0_f32;
        for (b, &scale) in scales.iter().enumerate() {
            let index = j * SEGMENT_BLOCKS + b;
            let w = block32(block, w, index)?;
            let a = &x.codes[index * BLOCK..][..BLOCK];
            let (mut sum, mut mins) = (0_i32, 0_i32);
            for half in 0..2 {
                let k = 16 * half..16 * (half + 1);
                let products = k.clone().map(|k| i32::from(w.q[k]) * i32::from(a[k]));
                sum += i32::from(w.scale[half]) * products.sum::<i32>();
                mins += i32::from(w.min[half]) * k.map(|k| i32::from(a[k])).sum::<i32>();
            }
            let mut term = w.d * sum as f32;
            if has_mins(block) {
                term = w.m.mul_add(mins as f32, term);
            }
            segment = scale.mul_add(term, segment);
        }
        y += segment;
    }
    Some(y)
}

/// Whether the type's blocks have minimums, whose term is then always added.
fn has_mins(block: BlockType) -> bool {
    use BlockType::{Q2_K, Q4_1, Q4_K, Q5_1, Q5_K};
    matches!(block, Q2_K | Q4_1 | Q4_K | Q5_1 | Q5_K)
}

/// One output of a matrix of plain floats: chains of 256 products, added up in order.
pub fn dot_floats(w: &[f32], x: &[f32]) -> f32 {
    let chain =
        |(w, x): (&[f32], &[f32])| w.iter().zip(x).fold(0.0_f32, |sum, (w, x)| w.mul_add(*x, sum));
    let segments = w.chunks(SEGMENT).zip(x.chunks(SEGMENT));
    segments.map(chain).fold(0.0, |y, segment| y + segment)
}
