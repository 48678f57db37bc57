//! Matrices: exact bits for every storage type, width, height and number of rows.

use lapidary_backend_cpu::reference::law::{dot, dot_floats, quantise};
use lapidary_core::{Backend, BlockType, TokenId};
use lapidary_format::codec::decode;

use super::{
    COUNTS, FLOATS, MOST, assert_bits, assert_within, matrix, quantised, random_rows, read,
};
use crate::{Rng, random_weights};

/// Inputs of a matrix: one block, less and more than a segment, several segments with a tail.
const WIDTHS: [usize; 8] = [32, 96, 256, 352, 512, 704, 2112, 2816];
/// Outputs: fewer than a group of sixteen, whole groups, whole groups and a rest.
const HEIGHTS: [usize; 3] = [5, 32, 50];

/// Every output of a quantised matrix has the bits of `law::dot`, for every type, width, height
/// and number of rows.
///
/// # Panics
/// If one has not.
pub fn quantised_matrices_follow_the_law<B: Backend>(ops: &B) {
    let mut rng = Rng(21);
    for block in quantised() {
        for (i, cols) in whole_widths(block).enumerate() {
            let height = HEIGHTS[i % HEIGHTS.len()];
            let bytes = random_weights(block, height * cols, 1.0 / (cols as f32).sqrt(), &mut rng);
            let x = random_rows(MOST, cols, &mut rng);
            let expected = by_law(block, &bytes, &x, cols);
            compare(ops, block, [height, cols], &bytes, &x, &expected);
        }
    }
}

/// Likewise of float matrices, whose law is `law::dot_floats`. Their widths need no whole blocks.
///
/// # Panics
/// If one has not.
pub fn float_matrices_follow_the_law<B: Backend>(ops: &B) {
    let mut rng = Rng(22);
    for block in FLOATS {
        for (i, cols) in [1, 16, 33, 256, 300, 704, 2112].into_iter().enumerate() {
            let height = HEIGHTS[i % HEIGHTS.len()];
            let bytes = random_weights(block, height * cols, 1.0 / (cols as f32).sqrt(), &mut rng);
            let x = random_rows(MOST, cols, &mut rng);
            let numbers = decoded(block, &bytes, height * cols);
            let row = |x| numbers.chunks_exact(cols).map(move |w| dot_floats(w, x));
            let expected: Vec<f32> = x.chunks_exact(cols).flat_map(row).collect();
            compare(ops, block, [height, cols], &bytes, &x, &expected);
        }
    }
}

/// An embedding is the stored row as its format defines it, times the scale.
///
/// # Panics
/// If one is not.
pub fn embeddings_are_decoded_exactly<B: Backend>(ops: &B) {
    let mut rng = Rng(23);
    for block in quantised().chain(FLOATS) {
        let cols = whole_widths(block).nth(1).expect("every type has two widths");
        let height = 50;
        let bytes = random_weights(block, height * cols, 0.02, &mut rng);
        let table = matrix(ops, block, [1, height, cols], &bytes);
        let numbers = decoded(block, &bytes, height * cols);
        for scale in [1.0, 53.06] {
            let tokens: Vec<_> = (0..MOST).map(|_| TokenId(rng.below(height) as u32)).collect();
            let row = |t: &TokenId| &numbers[t.index() * cols..(t.index() + 1) * cols];
            let expected: Vec<f32> = tokens.iter().flat_map(row).map(|w| w * scale).collect();
            let ours = read(ops, &ops.embed(&table, &tokens, scale));
            assert_bits(&ours, &expected, &format!("embedding stored as {block}"));
        }
    }
}

/// The law itself against exact arithmetic: it is off by the rounding of the activations, at most
/// half a unit of each block's scale per weight, and by its own roundings, of which a chain has
/// one per block and per segment and three per term.
///
/// # Panics
/// If it is further off.
pub fn law_is_close_to_the_truth() {
    let mut rng = Rng(24);
    for block in quantised() {
        for cols in whole_widths(block) {
            let bytes = random_weights(block, 4 * cols, 1.0 / (cols as f32).sqrt(), &mut rng);
            let x = random_rows(4, cols, &mut rng);
            let ours = by_law(block, &bytes, &x, cols);
            let numbers = decoded(block, &bytes, 4 * cols);
            let pairs = || {
                x.chunks_exact(cols).flat_map(|x| numbers.chunks_exact(cols).map(move |w| (x, w)))
            };
            let exact = |(x, w): (&[f32], &[f32])| {
                x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32
            };
            let expected: Vec<f32> = pairs().map(exact).collect();
            let bounds: Vec<f32> = pairs().map(|(x, w)| bound(block, x, w)).collect();
            assert_within(&ours, &expected, |i| bounds[i], &format!("{block} over {cols}"));
        }
    }
}

/// How far the law may be off. The term of a block with minimums is a difference of two sums that
/// may be some ten times larger than the weights themselves.
fn bound(block: BlockType, x: &[f32], w: &[f32]) -> f32 {
    let scales = quantise(x).scales;
    let size = |w: &[f32]| w.iter().map(|w| w.abs()).sum::<f32>();
    let rounding = w.chunks_exact(32).zip(scales).map(|(w, s)| 0.5001 * s * size(w)).sum::<f32>();
    let products: f32 = x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum();
    let steps = (x.len() / 32 + x.len() / 256 + 4) as f32;
    let cancelling = if block == BlockType::MXFP4 { 1.0 } else { 10.0 };
    rounding + cancelling * steps * super::U * products
}

/// Widths of [`WIDTHS`] that are whole blocks.
fn whole_widths(block: BlockType) -> impl Iterator<Item = usize> {
    WIDTHS.into_iter().filter(move |cols| cols.is_multiple_of(block.block_len()))
}

/// Stored numbers as their format defines them.
pub(super) fn decoded(block: BlockType, bytes: &[u8], elements: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; elements];
    decode(block, bytes, &mut numbers).unwrap_or_else(|e| panic!("{e}"));
    numbers
}

/// Every row of `x` times every stored row, by the law.
pub(super) fn by_law(block: BlockType, bytes: &[u8], x: &[f32], cols: usize) -> Vec<f32> {
    let row_bytes = block.row_bytes(cols).expect("widths are whole blocks");
    let mut outputs = Vec::new();
    for x in x.chunks_exact(cols) {
        let x = quantise(x);
        let output = |w| dot(block, w, &x).unwrap_or_else(|| panic!("{block} has no law"));
        outputs.extend(bytes.chunks_exact(row_bytes).map(output));
    }
    outputs
}

/// Compares products of the first rows of `x`, for every number of rows.
pub(super) fn compare<B: Backend>(
    ops: &B,
    block: BlockType,
    [height, cols]: [usize; 2],
    bytes: &[u8],
    x: &[f32],
    expected: &[f32],
) {
    let weight = matrix(ops, block, [1, height, cols], bytes);
    for count in COUNTS.into_iter().filter(|count| count * cols <= x.len()) {
        let rows = ops.upload(&x[..count * cols], cols);
        let ours = read(ops, &ops.linear(&rows, &weight));
        let what = format!("{}: {count} rows of {cols} times {height} of {block}", ops.name());
        assert_bits(&ours, &expected[..count * height], &what);
    }
}
