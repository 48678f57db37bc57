//! The row law, op by op: a row among others has the bits that it has alone.

use lapidary_core::{Backend, BlockType, Rope, TokenId};

use super::{COUNTS, MOST, assert_bits, matrix, random_rows, read};
use crate::{Rng, random_weights};

const COLS: usize = 256;
const EPS: f32 = 1e-6;

/// An op over rows: `(rows of the input, tokens, angles) → rows of the output`.
type Op<'a, B> = Box<dyn Fn(&[f32], &[TokenId], &[[u32; 3]]) -> <B as Backend>::Act + 'a>;

/// Every op, over every number of rows in every order, against each row alone.
///
/// # Panics
/// If a row has other bits in company.
pub fn no_row_feels_its_company<B: Backend>(ops: &B) {
    let mut rng = Rng(61);
    let x = random_rows(MOST, COLS, &mut rng);
    let tokens: Vec<_> = (0..MOST).map(|_| TokenId(rng.below(50) as u32)).collect();
    let angles: Vec<[u32; 3]> = (0..MOST).map(|_| [rng.below(9_000) as u32; 3]).collect();
    let row = |i: usize| &x[i * COLS..(i + 1) * COLS];
    for (name, op) in every_op(ops, &mut rng) {
        let one = |i: usize| read(ops, &op(row(i), &tokens[i..=i], &angles[i..=i]));
        let alone: Vec<_> = (0..MOST).map(one).collect();
        for count in COUNTS {
            let mut order: Vec<_> = (0..MOST).collect();
            rng.shuffle(&mut order);
            order.truncate(count);
            let x: Vec<f32> = order.iter().flat_map(|&i| row(i)).copied().collect();
            let tokens: Vec<_> = order.iter().map(|&i| tokens[i]).collect();
            let angles: Vec<_> = order.iter().map(|&i| angles[i]).collect();
            let ours = read(ops, &op(&x, &tokens, &angles));
            let expected: Vec<f32> = order.iter().flat_map(|&i| &alone[i]).copied().collect();
            assert_bits(&ours, &expected, &format!("{}: {name} of {count} rows", ops.name()));
        }
    }
}

fn every_op<'a, B: Backend>(ops: &'a B, rng: &mut Rng) -> Vec<(&'static str, Op<'a, B>)> {
    // The twin has no codes, so this goes through types that every backend takes.
    let mut weight = |shape: [usize; 3]| {
        let bytes = random_weights(BlockType::F16, shape.iter().product(), 0.06, rng);
        matrix(ops, BlockType::F16, shape, &bytes)
    };
    let (table, wide) = (weight([1, 50, COLS]), weight([1, 37, COLS]));
    let (gate_up, down) = (weight([6, 64, COLS]), weight([6, 40, 32]));
    let factors: Vec<f32> = (0..COLS).map(|_| rng.signed()).collect();
    let (all, some) = (ops.vector(&factors), ops.vector(&factors[..32]));
    let (again, short) = (ops.vector(&factors), ops.vector(&factors[..8]));
    let per_expert = ops.vector(&[1.0, 0.5, 2.0, 1.0, 0.25, 3.0]);
    let rope = Rope { freqs: vec![1.0, 0.3, 0.01, 0.0], axis: vec![0; 4] };
    let turn = rope.clone();
    let up = |x: &[f32]| ops.upload(x, COLS);
    let cut = move |x: &[f32], from: usize| ops.columns(&up(x), from..from + 64);
    vec![
        ("embed", Box::new(move |_, tokens, _| ops.embed(&table, tokens, 3.0))),
        ("linear", Box::new(move |x, _, _| ops.linear(&up(x), &wide))),
        ("rms_norm", Box::new(move |x, _, _| ops.rms_norm(&up(x), &some, EPS))),
        ("unit_norm", Box::new(move |x, _, _| ops.unit_norm(&up(x), 64, EPS))),
        ("rope", Box::new(move |x, _, rows| ops.rope(up(x), &ops.angles(&rope, rows)))),
        ("add", Box::new(move |x, _, _| ops.add(&cut(x, 0), &cut(x, 64)))),
        ("scale", Box::new(move |x, _, _| ops.scale(up(x), &all))),
        ("gelu_mul", Box::new(move |x, _, _| ops.gelu_mul(&cut(x, 9), &cut(x, 80)))),
        ("clamp", Box::new(move |x, _, _| ops.clamp(&up(x), -0.5, 0.25))),
        ("softcap", Box::new(move |x, _, _| ops.softcap(up(x), 30.0))),
        ("add_norm", Box::new(move |x, _, _| ops.add_norm(&up(x), &up(x), &again, EPS))),
        (
            "norm_rope",
            Box::new(move |x, _, rows| {
                ops.norm_rope(&up(x), &short, EPS, &ops.angles(&turn, rows))
            }),
        ),
        (
            "experts",
            Box::new(move |x, _, _| {
                let routes = ops.route(&ops.columns(&up(x), 7..13), &per_expert, 2);
                ops.experts(&up(x), &routes, &gate_up, &down)
            }),
        ),
    ]
}
