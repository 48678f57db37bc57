//! Ops that work along a row, against the naive twins.

use lapidary_backend_cpu::Reference;
use lapidary_core::{Backend, Rope};

use super::{COUNTS, U, assert_bits, assert_within, random_rows, read};
use crate::Rng;

const EPS: f32 = 1e-6;
/// Columns of a row: whole lanes, and a rest; many heads.
const COLS: [usize; 4] = [16, 48, 100, 512];

/// Every row op against its twin, for several widths and numbers of rows.
///
/// # Panics
/// If one is further off than its bound.
pub fn row_ops_agree_with_their_definition<B: Backend>(ops: &B) {
    let mut rng = Rng(41);
    for cols in COLS {
        for count in COUNTS {
            let a = random_rows(count, cols, &mut rng);
            let b = random_rows(count, cols, &mut rng);
            moves(ops, &a, &b, cols);
            sums_and_scales(ops, &a, &b, cols, &mut rng);
            norms(ops, &a, cols, &mut rng);
            curves(ops, &a, &b, cols);
            rotations(ops, &a, cols, &mut rng);
        }
    }
}

/// Selecting, replacing and cutting out change no bits.
fn moves<B: Backend>(ops: &B, a: &[f32], b: &[f32], cols: usize) {
    let count = a.len() / cols;
    let row = |x: &[f32], i: usize| x[i * cols..(i + 1) * cols].to_vec();
    let x = || ops.upload(a, cols);
    assert_bits(&read(ops, &x()), a, "upload and read");

    let chosen = [count - 1, 0, count / 2, 0];
    let expected: Vec<f32> = chosen.iter().flat_map(|&i| row(a, i)).collect();
    assert_bits(&read(ops, &ops.select(&x(), &chosen)), &expected, "select");

    let (first, last) = (cols / 4, cols / 2 + 1);
    let expected: Vec<f32> = a.chunks_exact(cols).flat_map(|x| &x[first..last]).copied().collect();
    assert_bits(&read(ops, &ops.columns(&x(), first..last)), &expected, "columns");

    let pairs = [(0, count - 1), (count / 2, 0)];
    let mut expected = a.to_vec();
    for (to, from) in pairs {
        expected[to * cols..(to + 1) * cols].copy_from_slice(&row(b, from));
    }
    let ours = ops.replace_rows(x(), &ops.upload(b, cols), &pairs);
    assert_bits(&read(ops, &ours), &expected, "replace_rows");
    assert_bits(&read(ops, &ops.replace_rows(x(), &ours, &[])), a, "replacing nothing");
}

/// One rounding per element: exact bits.
fn sums_and_scales<B: Backend>(ops: &B, a: &[f32], b: &[f32], cols: usize, rng: &mut Rng) {
    let expected: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    let ours = ops.add(&ops.upload(a, cols), &ops.upload(b, cols));
    assert_bits(&read(ops, &ours), &expected, "add");

    let factors: Vec<f32> = (0..cols).map(|_| rng.signed()).collect();
    for factors in [&factors[..], &factors[..1]] {
        let expected: Vec<f32> =
            a.iter().enumerate().map(|(i, a)| a * factors[i % cols % factors.len()]).collect();
        let ours = ops.scale(ops.upload(a, cols), &ops.vector(factors));
        assert_bits(&read(ops, &ours), &expected, &format!("scale by {}", factors.len()));
    }
}

/// A sum of `n` squares, which are positive, is off by `n` roundings at most, its root by half of
/// that; mean, root, quotient and products add six. Both sides may be off in opposite ways.
fn norms<B: Backend>(ops: &B, a: &[f32], cols: usize, rng: &mut Rng) {
    let width = cols / 2;
    let weights: Vec<f32> = (0..width).map(|_| 1.0 + rng.signed()).collect();
    let bound = |twin: Vec<f32>| move |i: usize| (width + 12) as f32 * U * twin[i].abs();
    let (x, twin) = (ops.upload(a, cols), Reference.upload(a, cols));

    let expected = Reference.rms_norm(&twin, &weights, EPS).data;
    let ours = read(ops, &ops.rms_norm(&x, &ops.vector(&weights), EPS));
    assert_within(&ours, &expected, bound(expected.clone()), "rms_norm");
    let expected = Reference.unit_norm(&twin, width, EPS).data;
    let ours = read(ops, &ops.unit_norm(&x, width, EPS));
    assert_within(&ours, &expected, bound(expected.clone()), "unit_norm");
}

/// `tanh` is off by 2⁻²³ (two `U`) at most on either side, and by the rounding of its argument:
/// relatively four `U`, where the curve's slope times the argument is below one half.
fn curves<B: Backend>(ops: &B, a: &[f32], b: &[f32], cols: usize) {
    let expected = Reference.gelu_mul(&Reference.upload(a, cols), &Reference.upload(b, cols)).data;
    let ours = read(ops, &ops.gelu_mul(&ops.upload(a, cols), &ops.upload(b, cols)));
    let bound = |i: usize| 8.0 * U * (a[i] * b[i]).abs() + f32::MIN_POSITIVE;
    assert_within(&ours, &expected, bound, "gelu_mul");

    for (least, most) in [(-0.5, 0.25), (f32::NEG_INFINITY, 0.0), (0.1, 0.1)] {
        let expected = Reference.clamp(&Reference.upload(a, cols), least, most).data;
        let ours = read(ops, &ops.clamp(&ops.upload(a, cols), least, most));
        assert_bits(&ours, &expected, "clamp");
    }
    for cap in [30.0, 0.5] {
        let expected = Reference.softcap(Reference.upload(a, cols), cap).data;
        let ours = read(ops, &ops.softcap(ops.upload(a, cols), cap));
        assert_within(&ours, &expected, |_| 8.0 * U * cap, "softcap");
    }
}

/// Sine and cosine are within a unit of the last place on either side (four `U` together); two
/// products and a sum add three roundings.
fn rotations<B: Backend>(ops: &B, a: &[f32], cols: usize, rng: &mut Rng) {
    let pairs = cols / 4;
    let freqs = (0..pairs).map(|j| if j % 5 == 4 { 0.0 } else { 0.7_f32.powi(j as i32 / 3) });
    let rope = Rope { freqs: freqs.collect(), axis: (0..pairs).map(|j| (j % 3) as u8).collect() };
    let any = |_| std::array::from_fn(|_| rng.below(300_000) as u32);
    let angles: Vec<[u32; 3]> = (0..a.len() / cols).map(any).collect();
    let twin = Reference.rope(Reference.upload(a, cols), &Reference.angles(&rope, &angles)).data;
    let ours = read(ops, &ops.rope(ops.upload(a, cols), &ops.angles(&rope, &angles)));
    let bound = |i: usize| {
        let head = i / (2 * pairs) * 2 * pairs;
        let j = (i - head) % pairs;
        8.0 * U * (a[head + j].abs() + a[head + j + pairs].abs())
    };
    assert_within(&ours, &twin, bound, "rope");
}
