//! Fused ops: a method with a body is defined by that body.

use lapidary_core::{Backend, BlockType, Branch, Head, Heads, Join, Matrix, Rope, likeliest};

use super::{COUNTS, assert_bits, matrix, random_rows, read};
use crate::{Rng, random_weights};

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
    normed_heads(ops, &mut rng);
    joins(ops, &mut rng);
    likeliest_tokens(ops, &mut rng);
}

fn random_vector<B: Backend>(ops: &B, len: usize, rng: &mut Rng) -> B::Vector {
    ops.vector(&(0..len).map(|_| 1.0 + rng.signed()).collect::<Vec<_>>())
}

fn random_act<B: Backend>(ops: &B, rows: usize, cols: usize, rng: &mut Rng) -> B::Act {
    ops.upload(&random_rows(rows, cols, rng), cols)
}

/// Matrices side by side, of one type or several, multiply as each alone. For devices that hold
/// matrices of codes.
///
/// # Panics
/// If one does not.
pub fn matrices_side_by_side_are_each_alone<B: Backend>(ops: &B) {
    let rng = &mut Rng(52);
    let cols = 256;
    let shapes = [(BlockType::Q4_K, 50), (BlockType::Q4_K, 96), (BlockType::Q8_0, 33)];
    let weights = shapes.map(|(block, rows)| {
        matrix(ops, block, [1, rows, cols], &random_weights(block, rows * cols, 0.1, rng))
    });
    for count in COUNTS {
        let x = random_act(ops, count, cols, rng);
        let together = ops.linear_many(&x, &weights.each_ref());
        for (i, (ours, w)) in together.iter().zip(&weights).enumerate() {
            let what = format!("{}: matrix {i} of several, {count} rows", ops.name());
            assert_bits(&read(ops, ours), &read(ops, &ops.linear(&x, w)), &what);
        }
    }
}

/// A head multiplies like the matrix it is, and its likeliest tokens are those of all its logits.
/// One of the heads is as large as those that a device lays out in its own way.
///
/// # Panics
/// If one does not, or are not.
pub fn a_heads_likeliest_are_those_of_its_logits<B: Backend>(ops: &B) {
    let rng = &mut Rng(53);
    for (block, rows, cols) in [(BlockType::Q6_K, 333, 256), (BlockType::Q8_0, 31_003, 544)] {
        let bytes = random_weights(block, rows * cols, 0.1, rng);
        let plain = matrix(ops, block, [1, rows, cols], &bytes);
        let weight = ops.head(Matrix { block, stack: 1, rows, cols, bytes: bytes.into() });
        let weight = weight.unwrap_or_else(|e| panic!("{}: {e}", ops.name()));
        for count in [1, 5] {
            let x = random_act(ops, count, cols, rng);
            let what = format!("{}: a {block} head of {rows}, {count} rows", ops.name());
            let all = read(ops, &ops.linear(&x, &weight));
            assert_bits(&all, &read(ops, &ops.linear(&x, &plain)), &what);
            for (softcap, k) in [(None, 1), (None, 7), (Some(30.0), 1), (Some(30.0), 64)] {
                let head = Head { weight: &weight, softcap };
                let ours = ops.likeliest(&x, count, &head, k);
                let ours = ours.unwrap_or_else(|e| panic!("{what}: {e}"));
                let logits = read(ops, &head.logits(ops, &x));
                let by_body: Vec<_> = logits.chunks(rows).map(|row| likeliest(row, k)).collect();
                assert_eq!(ours, by_body, "{what}, the likeliest {k} under {softcap:?}");
            }
        }
    }
}

fn normed_heads<B: Backend>(ops: &B, rng: &mut Rng) {
    for (heads, query_heads, width) in [(2, 4, 64), (1, 3, 256), (2, 2, 512), (1, 2, 32)] {
        let freqs = (0..width / 2).map(|j| 0.97_f32.powi(j as i32)).collect();
        let rope = Rope { freqs, axis: vec![0; width / 2] };
        let (q_norm, k_norm) = (random_vector(ops, width, rng), random_vector(ops, width, rng));
        for rows in COUNTS {
            let of = |heads: usize, rng: &mut Rng| random_act(ops, rows, heads * width, rng);
            let (q, k, v) = (of(query_heads, rng), of(heads, rng), of(heads, rng));
            let turns: Vec<[u32; 3]> = (0..rows).map(|_| [rng.below(9_000) as u32; 3]).collect();
            let angles = ops.angles(&rope, &turns);
            let ours = ops.norm_heads(&Heads {
                q: &q,
                k: &k,
                v: &v,
                q_norm: &q_norm,
                k_norm: &k_norm,
                width,
                eps: EPS,
                angles: &angles,
            });
            let by_body = [
                ops.norm_rope(&q, &q_norm, EPS, &angles),
                ops.norm_rope(&k, &k_norm, EPS, &angles),
                ops.unit_norm(&v, width, EPS),
            ];
            for (ours, by_body) in ours.iter().zip(&by_body) {
                let what = format!("{}: norm_heads of {width}, {rows} rows", ops.name());
                assert_bits(&read(ops, ours), &read(ops, by_body), &what);
            }
        }
    }
}

fn joins<B: Backend>(ops: &B, rng: &mut Rng) {
    for width in [96, 544, 704, 2816] {
        let norms: Vec<_> = (0..6).map(|_| random_vector(ops, width, rng)).collect();
        let scales = [None, Some(ops.vector(&[0.7])), Some(random_vector(ops, width, rng))];
        for (i, rows) in [1, 2, 5, 33].into_iter().enumerate() {
            let [residual, a, b] = [(); 3].map(|()| random_act(ops, rows, width, rng));
            let next: Vec<_> = norms[3..3 + i].iter().collect();
            for scale in &scales {
                for is_sum in [false, true] {
                    let (branch, plain) = if is_sum {
                        let normed = ops.rms_norm(&a, &norms[0], EPS);
                        let sum = ops.add_norm(&normed, &b, &norms[1], EPS);
                        (Branch::Normed([(&a, &norms[0]), (&b, &norms[1])]), Some(sum))
                    } else {
                        (Branch::One(&a), None)
                    };
                    let (scale, norm) = (scale.as_ref(), &norms[2]);
                    let (y, normed) = ops.join(&Join {
                        residual: &residual,
                        branch,
                        norm,
                        scale,
                        next: &next,
                        eps: EPS,
                    });
                    let sum = ops.add_norm(&residual, plain.as_ref().unwrap_or(&a), norm, EPS);
                    let by_body = match scale {
                        Some(scale) => ops.scale(sum, scale),
                        None => sum,
                    };
                    let what = format!("{}: join of {width}, {rows} rows", ops.name());
                    assert_bits(&read(ops, &y), &read(ops, &by_body), &what);
                    assert_eq!(normed.len(), next.len(), "{what}");
                    for (ours, w) in normed.iter().zip(&next) {
                        let by_body = read(ops, &ops.rms_norm(&by_body, w, EPS));
                        assert_bits(&read(ops, ours), &by_body, &what);
                    }
                }
            }
        }
    }
}

fn likeliest_tokens<B: Backend>(ops: &B, rng: &mut Rng) {
    let (rows, cols) = (3, 9_000);
    let mut logits = random_rows(rows, cols, rng);
    // Equals, zeros of both signs, and numbers that no token has.
    logits.iter_mut().step_by(5).for_each(|x| *x = (*x * 4.0).round() / 4.0);
    logits.iter_mut().skip(1).step_by(50).for_each(|x| *x = -0.0);
    logits[7] = f32::NAN;
    logits[cols..2 * cols - 9].fill(f32::NEG_INFINITY);
    let act = ops.upload(&logits, cols);
    for k in [1, 2, 64, 1024, 2000] {
        let ours = ops.top(&act, rows, k).unwrap_or_else(|e| panic!("{}: {e}", ops.name()));
        let by_body: Vec<_> = logits.chunks_exact(cols).map(|row| likeliest(row, k)).collect();
        let bits = |c: &lapidary_core::Candidate| (c.token, c.logit.to_bits());
        let all = |rows: &[Vec<lapidary_core::Candidate>]| -> Vec<Vec<_>> {
            rows.iter().map(|row| row.iter().map(bits).collect()).collect()
        };
        assert_eq!(all(&ours), all(&by_body), "{}: the likeliest {k}", ops.name());
    }
}
