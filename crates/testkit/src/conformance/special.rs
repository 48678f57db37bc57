//! Inputs at the edges of what numbers can be.

use lapidary_core::{Backend, BlockType};
use lapidary_format::codec::encode;

use super::matmul::{by_law, compare};
use super::{FLOATS, assert_bits, matrix, quantised, random_rows, read};
use crate::{Rng, random_weights};

const COLS: usize = 768;
const HEIGHT: usize = 18;

/// Rows that are zero, tiny, subnormal, huge, or not numbers, in whole or in one block.
fn special_rows(rng: &mut Rng) -> Vec<f32> {
    let row = random_rows(1, COLS, rng);
    let with = |at: usize, values: &[f32]| {
        let mut row = row.clone();
        row[at..at + values.len()].copy_from_slice(values);
        row
    };
    let all = |value: f32| row.iter().map(|x| x * value).collect::<Vec<f32>>();
    let subnormal = f32::from_bits(0x0000_7fff);
    // The smallest largest magnitude that is not taken for zero, and the largest that is.
    let edge = f32::from_bits(27 << 23);
    let below = f32::from_bits((27 << 23) - 1);
    let ties: Vec<f32> = (0..32).map(|i| i as f32 - 15.5).chain([127.0]).collect();
    [
        vec![0.0; COLS],
        vec![-0.0; COLS],
        with(0, &[0.0; 32]),
        with(COLS - 32, &[-0.0; 32]),
        with(256, &[subnormal; 32]),
        with(64, &[below; 32]),
        with(64, &[edge; 32]),
        with(31, &ties),
        all(1e-36),
        all(1e-44),
        all(1e30),
        vec![f32::MAX; COLS],
        with(300, &[f32::MAX, f32::MIN]),
        with(0, &[f32::NAN]),
        with(COLS - 1, &[f32::INFINITY]),
        with(128, &[f32::NEG_INFINITY, f32::INFINITY]),
        with(95, &[-f32::NAN, f32::MAX]),
        row.clone(),
    ]
    .concat()
}

/// Special activations have the law's outputs (any NaN for a NaN), and the ordinary row among them
/// has the bits that it has alone.
///
/// # Panics
/// If an output differs.
pub fn special_inputs_follow_the_law<B: Backend>(ops: &B) {
    let mut rng = Rng(71);
    let x = special_rows(&mut rng);
    for block in quantised() {
        let bytes = random_weights(block, HEIGHT * COLS, 0.05, &mut rng);
        let expected = by_law(block, &bytes, &x, COLS);
        compare(ops, block, [HEIGHT, COLS], &bytes, &x, &expected);
        poisoned_rows_are_poisoned(&x, &expected, block);
    }
    for block in FLOATS {
        let bytes = random_weights(block, HEIGHT * COLS, 0.05, &mut rng);
        let weight = matrix(ops, block, [1, HEIGHT, COLS], &bytes);
        let product = |x: &[f32]| read(ops, &ops.linear(&ops.upload(x, COLS), &weight));
        let alone: Vec<f32> = x.chunks_exact(COLS).flat_map(product).collect();
        assert_bits(&product(&x), &alone, &format!("special rows times {block}"));
        poisoned_rows_are_poisoned(&x, &alone, block);
    }
}

/// A row with a NaN or an infinity has no finite output, any other no NaN.
fn poisoned_rows_are_poisoned(x: &[f32], outputs: &[f32], block: BlockType) {
    for (x, outputs) in x.chunks_exact(COLS).zip(outputs.chunks_exact(HEIGHT)) {
        if x.iter().any(|x| !x.is_finite()) {
            assert!(outputs.iter().all(|y| !y.is_finite()), "{block}: {outputs:?}");
        } else if x.iter().all(|x| x.abs() < 1e30) {
            assert!(outputs.iter().all(|y| y.is_finite()), "{block}: {outputs:?}");
        }
    }
}

/// Blocks whose codes, scales and minimums are at their ends, with activations at theirs: integer
/// sums are as large as they get. Factors of both signs, zero and subnormal.
///
/// # Panics
/// If an output is not the law's.
pub fn extreme_codes_follow_the_law<B: Backend>(ops: &B) {
    let mut rng = Rng(72);
    let signs = |i: usize| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
    let ends: Vec<f32> = (0..COLS).map(signs).collect();
    let same = vec![1.0; COLS];
    let x = [same, ends, random_rows(2, COLS, &mut rng)].concat();
    for block in quantised() {
        let row = block.row_bytes(COLS).expect("three blocks of 256");
        for fill in [0x00, 0xff, 0x80, 0x7f, 0x88] {
            let mut bytes = vec![fill; 5 * row];
            for (i, stored) in bytes.chunks_exact_mut(block.block_bytes()).enumerate() {
                let values = [0.5, -0.25, 0.0, -0.0, 3.0e-7, -6.0e-8, 1.0 / 3.0];
                set_factors(block, stored, values[i % values.len()], i);
            }
            let expected = by_law(block, &bytes, &x, COLS);
            compare(ops, block, [5, COLS], &bytes, &x, &expected);
        }
    }
}

/// Writes a block's half-float factors, or its exponent, without touching codes and scales.
fn set_factors(block: BlockType, stored: &mut [u8], value: f32, i: usize) {
    let places: &[usize] = match block {
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::Q6_K => &[208],
        BlockType::MXFP4 => {
            stored[0] = [0, 1, 127, 140][i % 4];
            return;
        }
        _ => &[0],
    };
    let half = encode(BlockType::F16, &[value]).unwrap_or_else(|e| panic!("{e}"));
    for &at in places {
        stored[at..at + 2].copy_from_slice(&half);
    }
}
