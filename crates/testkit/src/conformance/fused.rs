//! Fused ops: a method with a body is defined by that body.

use lapidary_core::{Backend, Rope};

use super::{COUNTS, assert_bits, random_rows, read};
use crate::Rng;

const EPS: f32 = 1e-6;

/// Every op that the trait defines by a body has the bits of that body.
///
/// # Panics
/// If a backend's own version has not.
pub fn fused_ops_are_their_definition<B: Backend>(ops: &B) {
    let mut rng = Rng(51);
    for (cols, width) in [(16, 16), (96, 32), (352, 352), (512, 128)] {
        let weights: Vec<f32> = (0..width).map(|_| 1.0 + rng.signed()).collect();
        let weights = ops.vector(&weights);
        let pairs = width / 2;
        let freqs = (0..pairs).map(|j| 0.8_f32.powi(j as i32)).collect();
        let rope = Rope { freqs, axis: vec![0; pairs] };
        for count in COUNTS {
            let x = ops.upload(&random_rows(count, cols, &mut rng), cols);
            let residual = ops.upload(&random_rows(count, cols, &mut rng), cols);
            let rows: Vec<[u32; 3]> = (0..count).map(|_| [rng.below(9_000) as u32; 3]).collect();
            let angles = ops.angles(&rope, &rows);
            let what = |op: &str| format!("{}: {op} of {count} rows of {cols}", ops.name());

            let by_body = ops.add(&residual, &ops.rms_norm(&x, &weights, EPS));
            let ours = ops.add_norm(&residual, &x, &weights, EPS);
            assert_bits(&read(ops, &ours), &read(ops, &by_body), &what("add_norm"));

            let by_body = ops.rope(ops.rms_norm(&x, &weights, EPS), &angles);
            let ours = ops.norm_rope(&x, &weights, EPS, &angles);
            assert_bits(&read(ops, &ours), &read(ops, &by_body), &what("norm_rope"));
        }
    }
}
