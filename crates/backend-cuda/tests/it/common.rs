//! What the tests share: a device or a reason to skip, made-up weights, comparisons.

use std::borrow::Cow;

use half::f16;
use lapidary_backend_cuda::{Cubins, Cuda};
use lapidary_core::{Backend, BlockType, Matrix};
use lapidary_testkit::Rng;

/// Every quantised type.
pub(crate) const QUANTISED: [BlockType; 13] = [
    BlockType::IQ4_NL,
    BlockType::IQ4_XS,
    BlockType::MXFP4,
    BlockType::Q2_K,
    BlockType::Q3_K,
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q4_K,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q5_K,
    BlockType::Q6_K,
    BlockType::Q8_0,
];

/// The first device, or `None`, having said why.
pub(crate) fn device() -> Option<Cuda> {
    let cubins = Cubins::Folder(concat!(env!("CARGO_TARGET_TMPDIR"), "/cubins").into());
    match Cuda::open(0, cubins) {
        Ok(cuda) => Some(cuda),
        Err(reason) => {
            println!("skipped: no CUDA device ({reason})");
            None
        }
    }
}

/// Numbers in `-1..1`.
pub(crate) fn numbers(rng: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.signed()).collect()
}

/// Numbers as activations have them: mostly small, some large.
pub(crate) fn activations(rng: &mut Rng, n: usize) -> Vec<f32> {
    let one = |rng: &mut Rng| {
        let x = rng.signed() * rng.signed();
        if rng.below(50) == 0 { 20.0 * x } else { x }
    };
    (0..n).map(|_| one(rng)).collect()
}

/// Stored rows of random codes and scales, all of them finite.
pub(crate) fn stored(
    rng: &mut Rng,
    block: BlockType,
    [stack, rows, cols]: [usize; 3],
) -> Matrix<'static> {
    let row_bytes = block.row_bytes(cols).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..stack * rows * row_bytes).map(|_| rng.bits() as u8).collect();
    let size = block.block_bytes();
    let factors: &[usize] = match block {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        BlockType::IQ4_NL | BlockType::IQ4_XS => &[0],
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::MXFP4 => {
            bytes.chunks_exact_mut(size).for_each(|b| b[0] = 100 + rng.below(40) as u8);
            &[]
        }
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::Q6_K => &[208],
        BlockType::F32 => {
            let values = numbers(rng, stack * rows * cols);
            bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            &[]
        }
        BlockType::F16 => {
            let values = numbers(rng, stack * rows * cols);
            bytes = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
            &[]
        }
        BlockType::BF16 => {
            let values = numbers(rng, stack * rows * cols);
            bytes = values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect();
            &[]
        }
    };
    for block in bytes.chunks_exact_mut(size) {
        for &at in factors {
            // Now and then the smallest numbers there are, or zero.
            let d = match rng.below(40) {
                0 => f16::from_bits(rng.below(64) as u16),
                1 => f16::from_bits(0x8000 | rng.below(64) as u16),
                _ => f16::from_f32(rng.signed() * 0.05),
            };
            block[at..at + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    Matrix { block, stack, rows, cols, bytes: Cow::Owned(bytes) }
}

/// Asserts that two lists have the same bits, any NaN being equal to any other.
pub(crate) fn same_bits(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}: lengths");
    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    let differ = |(a, b): &(&f32, &f32)| bits(**a) != bits(**b);
    let mut pairs = ours.iter().zip(theirs).enumerate();
    if let Some((i, (a, b))) = pairs.find(|(_, pair)| differ(pair)) {
        let count = ours.iter().zip(theirs).filter(differ).count();
        panic!("{what}: {count} of {} differ, the first at {i}: {a} against {b}", ours.len());
    }
}

/// Asserts that two lists differ by at most `most`.
pub(crate) fn close(ours: &[f32], theirs: &[f32], most: f32, what: &str) {
    let off = lapidary_testkit::largest_difference(ours, theirs);
    assert!(off <= most, "{what}: off by {off}, not {most}");
}

/// Reads an activation of a device that works.
pub(crate) fn read<B: Backend>(ops: &B, x: &B::Act) -> Vec<f32> {
    ops.read(x).unwrap_or_else(|e| panic!("{e}"))
}
