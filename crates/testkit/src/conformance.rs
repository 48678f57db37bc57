//! What every backend must do, whoever wrote it: one function per promise, each generic over
//! [`Backend`], so that a backend's test file is one line per promise.
//!
//! Matrices and embeddings have exact bits, which `reference::law` defines. Element-wise ops and
//! attention agree with the naive twins within bounds that are derived where they are used; `U` is
//! half a unit in the last place, the relative error of one rounding.
//!
//! Each function panics with the first thing that differs.

mod attention;
mod company;
mod experts;
mod fused;
mod matmul;
mod rows;
mod special;
mod vectors;

pub use attention::{attention_agrees_with_its_definition, attention_keeps_the_row_law};
pub use company::no_row_feels_its_company;
pub use experts::{experts_are_their_definition, routes_agree_with_their_definition};
pub use fused::{
    a_heads_likeliest_are_those_of_its_logits, fused_ops_are_their_definition,
    matrices_side_by_side_are_each_alone,
};
pub use matmul::{
    embeddings_are_decoded_exactly, float_matrices_follow_the_law, law_is_close_to_the_truth,
    quantised_matrices_follow_the_law,
};
pub use rows::row_ops_agree_with_their_definition;
pub use special::{extreme_codes_follow_the_law, special_inputs_follow_the_law};
pub use vectors::{
    curves_reproduce_the_vectors, matrices_reproduce_the_vectors, norms_reproduce_the_vectors,
};

use lapidary_core::{Backend, BlockType, Matrix};

use crate::Rng;

/// Half a unit in the last place of a number near one.
const U: f32 = 1.0 / (1 << 24) as f32;

/// Numbers of rows: every tile of the kernels, alone and with others.
const COUNTS: [usize; 13] = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31, 33];
/// The largest of [`COUNTS`].
const MOST: usize = 33;

/// Types that consist of blocks of codes.
fn quantised() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.into_iter().filter(|block| block.is_quantised())
}

/// Types that keep every element as a number.
const FLOATS: [BlockType; 3] = [BlockType::F32, BlockType::F16, BlockType::BF16];

/// Numbers between −1 and 1 in rows of `cols`, every row with a magnitude of its own.
fn random_rows(count: usize, cols: usize, rng: &mut Rng) -> Vec<f32> {
    let mut values: Vec<f32> = (0..count * cols).map(|_| rng.signed()).collect();
    for row in values.chunks_exact_mut(cols) {
        let size = 4.0_f32.powf(3.0 * rng.signed());
        row.iter_mut().for_each(|x| *x *= size);
    }
    values
}

/// Brings one matrix onto a device.
fn matrix<B: Backend>(
    ops: &B,
    block: BlockType,
    [stack, rows, cols]: [usize; 3],
    bytes: &[u8],
) -> B::Weight {
    let stored = Matrix { block, stack, rows, cols, bytes: bytes.into() };
    ops.matrix(stored).unwrap_or_else(|e| panic!("{}: {e}", ops.name()))
}

fn read<B: Backend>(ops: &B, x: &B::Act) -> Vec<f32> {
    ops.read(x).unwrap_or_else(|e| panic!("{}: {e}", ops.name()))
}

/// Panics unless the bits are equal. NaN has no bits of its own: any is as good as another.
#[track_caller]
fn assert_bits(ours: &[f32], expected: &[f32], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}: how many");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same, "{what}: number {i} is {a:e}, not {b:e}");
    }
}

/// Panics unless every number is within its bound.
#[track_caller]
fn assert_within(ours: &[f32], expected: &[f32], bound: impl Fn(usize) -> f32, what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}: how many");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        let (off, most) = ((a - b).abs(), bound(i));
        assert!(off <= most, "{what}: number {i} is {a:e}, not {b:e}: off by {off:e} > {most:e}");
    }
}
