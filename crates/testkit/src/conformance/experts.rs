//! The routed branch: who is chosen, with which weight, and what comes of it.

use lapidary_backend_cpu::Reference;
use lapidary_core::{Backend, BlockType};

use super::{FLOATS, MOST, U, assert_bits, assert_within, matrix, quantised, random_rows, read};
use crate::{Rng, random_weights};

const EXPERTS: usize = 7;

/// The routing weights of every row, one per expert, zero for those not chosen.
///
/// They are made visible by experts of which number `e` answers one in column `e`: with a single
/// input of one, a gate of 16, an up of 1/16 and a down of one, every step is exact.
fn visible_weights<B: Backend>(ops: &B, routes: &B::Routes, rows: usize) -> Vec<f32> {
    let floats = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let gate_up: Vec<f32> = (0..EXPERTS).flat_map(|_| [16.0, 1.0 / 16.0]).collect();
    let one_hot = |i: usize| if i / EXPERTS == i % EXPERTS { 1.0 } else { 0.0 };
    let down: Vec<f32> = (0..EXPERTS * EXPERTS).map(one_hot).collect();
    let gate_up = matrix(ops, BlockType::F32, [EXPERTS, 2, 1], &floats(&gate_up));
    let down = matrix(ops, BlockType::F32, [EXPERTS, EXPERTS, 1], &floats(&down));
    let ones = ops.upload(&vec![1.0; rows], 1);
    read(ops, &ops.experts(&ones, routes, &gate_up, &down))
}

/// Routing against its definition. The weights are quotients of exponentials, each within two
/// units of the last place, over a sum of `k`, times a factor: `2 k + 20` roundings are ample.
///
/// # Panics
/// If another expert is chosen, or a weight is further off.
pub fn routes_agree_with_their_definition<B: Backend>(ops: &B) {
    let mut rng = Rng(31);
    let per_expert: Vec<f32> = (0..EXPERTS).map(|_| 1.0 + 0.5 * rng.signed()).collect();
    let mut logits = random_rows(MOST, EXPERTS, &mut rng);
    // Rows of equals: the lower index wins. The last one has a winner beside equals.
    logits[..3 * EXPERTS].fill(0.25);
    logits[2 * EXPERTS + 5] = 1.0;
    for k in 1..=EXPERTS {
        let ours = {
            let logits = ops.upload(&logits, EXPERTS);
            let routes = ops.route(&logits, &ops.vector(&per_expert), k);
            visible_weights(ops, &routes, MOST)
        };
        let twin = {
            let logits = Reference.upload(&logits, EXPERTS);
            let routes = Reference.route(&logits, &Reference.vector(&per_expert), k);
            visible_weights(&Reference, &routes, MOST)
        };
        let chosen = |weights: &[f32]| weights.iter().map(|w| *w > 0.0).collect::<Vec<_>>();
        assert_eq!(chosen(&ours), chosen(&twin), "{}: the best {k}", ops.name());
        let bound = |i: usize| (2 * k + 20) as f32 * U * twin[i];
        assert_within(&ours, &twin, bound, &format!("{}: weights of the best {k}", ops.name()));
        let first = |n: usize| (0..EXPERTS).map(|e| e < n).collect::<Vec<_>>();
        assert_eq!(chosen(&ours[..EXPERTS]), first(k), "the lower index among equals");
    }
}

/// The experts op has the bits of its definition made of single ops: `down[e]` times the gated
/// product of `gate_up[e]`, each times its weight, added in ascending order.
///
/// # Panics
/// If it has not.
pub fn experts_are_their_definition<B: Backend>(ops: &B) {
    let mut rng = Rng(32);
    for (i, block) in quantised().chain(FLOATS).enumerate() {
        let len = block.block_len().max(32);
        let (cols, width) = (2 * len, len);
        let other = [BlockType::Q8_0, BlockType::Q5_1, BlockType::F16, block][i % 4];
        let shapes = [[EXPERTS, 2 * width, cols], [EXPERTS, cols, width]];
        let stored = [(block, shapes[0]), (other, shapes[1])].map(|(block, shape)| {
            random_weights(block, shape.iter().product(), 1.0 / (cols as f32).sqrt(), &mut rng)
        });
        let logits = random_rows(MOST, EXPERTS, &mut rng);
        let x = random_rows(MOST, cols, &mut rng);
        let per_expert: Vec<f32> = (0..EXPERTS).map(|_| 1.0 + 0.5 * rng.signed()).collect();
        for count in [1, 2, 5, MOST] {
            let logits = ops.upload(&logits[..count * EXPERTS], EXPERTS);
            let routes = ops.route(&logits, &ops.vector(&per_expert), 3);
            let weights = visible_weights(ops, &routes, count);
            let x = ops.upload(&x[..count * cols], cols);
            let gate_up = matrix(ops, block, shapes[0], &stored[0]);
            let down = matrix(ops, other, shapes[1], &stored[1]);
            let ours = read(ops, &ops.experts(&x, &routes, &gate_up, &down));

            let mut expected = vec![0.0; count * cols];
            for e in 0..EXPERTS {
                let one = |i: usize| {
                    let [_, rows, cols] = shapes[i];
                    let block = [block, other][i];
                    let size = stored[i].len() / EXPERTS;
                    matrix(ops, block, [1, rows, cols], &stored[i][e * size..(e + 1) * size])
                };
                let both = ops.linear(&x, &one(0));
                let gate = ops.columns(&both, 0..width);
                let up = ops.columns(&both, width..2 * width);
                let term = read(ops, &ops.linear(&ops.gelu_mul(&gate, &up), &one(1)));
                for (row, expected) in expected.chunks_exact_mut(cols).enumerate() {
                    let weight = weights[row * EXPERTS + e];
                    if weight > 0.0 {
                        let term = &term[row * cols..(row + 1) * cols];
                        expected.iter_mut().zip(term).for_each(|(y, t)| *y += weight * t);
                    }
                }
            }
            let what = format!("{}: {count} rows over experts of {block}", ops.name());
            assert_bits(&ours, &expected, &what);
        }
    }
}
