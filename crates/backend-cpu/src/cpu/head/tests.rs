//! A head in two planes against the same head in one.

use half::f16;
use lapidary_core::{Backend, BlockType, Matrix};

use super::*;
use crate::Isa;

const COLS: usize = 160;
const ROWS: usize = 1_237;

/// Numbers in −1 … 1 without a pattern.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1 << 23) as f32) - 1.0
    }
}

/// A stored matrix from codes and one factor per block.
fn stored(
    mut code: impl FnMut(usize, usize) -> i8,
    mut factor: impl FnMut(usize) -> f32,
) -> Matrix<'static> {
    let mut bytes = Vec::new();
    for row in 0..ROWS {
        for b in 0..COLS / BLOCK {
            bytes.extend(f16::from_f32(factor(row)).to_le_bytes());
            bytes.extend((0..BLOCK).map(|k| code(row, b * BLOCK + k) as u8));
        }
    }
    Matrix { block: BlockType::Q8_0, stack: 1, rows: ROWS, cols: COLS, bytes: bytes.into() }
}

/// Matrices that a bound may go wrong on.
fn matrices() -> Vec<(&'static str, Matrix<'static>)> {
    let mut noise = Noise(1);
    let mut random = move |_: usize, _: usize| (noise.next() * 128.0) as i8;
    let mut sizes = Noise(2);
    vec![
        ("noise", stored(&mut random, |_| 0.01)),
        (
            "rows of very different lengths",
            stored(&mut random, |_| (sizes.next() * 9.0).exp2() * 0.01),
        ),
        ("equal rows", stored(|row, k| ((row / 300 * 37 + k * 11) % 255) as i8, |_| 0.01)),
        (
            "low bits that all pull one way",
            stored(|row, k| if k % 2 == 0 { (row % 7) as i8 * 8 + 7 } else { 0 }, |_| 0.01),
        ),
        ("the least code", stored(|_, _| -128, |row| 0.001 * (row % 5) as f32)),
        (
            "an infinite factor",
            stored(&mut random, |row| if row == 700 { f32::INFINITY } else { 0.01 }),
        ),
        ("zeros", stored(|_, _| 0, |_| 0.0)),
    ]
}

/// Activations: noise, zeros, signs that agree with the low bits, tiny, huge, poisoned.
fn activations() -> Act {
    let mut noise = Noise(3);
    let mut rows: Vec<Vec<f32>> =
        (0..4).map(|_| (0..COLS).map(|_| noise.next()).collect()).collect();
    rows.push(vec![0.0; COLS]);
    rows.push((0..COLS).map(|k| if k % 2 == 0 { 1.0 } else { -1.0 }).collect());
    rows.push((0..COLS).map(|_| noise.next() * 1e-29).collect());
    rows.push((0..COLS).map(|_| noise.next() * 3e37).collect());
    rows.push((0..COLS).map(|k| if k == 40 { f32::NAN } else { 1.0 }).collect());
    Act::new(COLS, rows.concat())
}

fn devices() -> impl Iterator<Item = Cpu> {
    let here = Isa::ALL.into_iter().filter(|isa| isa.is_here());
    here.map(|isa| Cpu::new(isa, 2).expect("the instruction set is here"))
}

#[test]
fn a_head_in_planes_gives_the_bits_of_one_in_bytes() {
    for cpu in devices() {
        for (what, stored) in matrices() {
            let (planes, bytes) = (
                Weight::pack_planes(&stored, &cpu.pool),
                cpu.matrix(stored).expect("Q8_0 has kernels"),
            );
            let x = activations();
            let bits = |w| cpu.linear(&x, w).data().iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            let nan = |bits: &u32| f32::from_bits(*bits).is_nan();
            let same =
                bits(&planes).iter().zip(&bits(&bytes)).all(|(a, b)| a == b || nan(a) && nan(b));
            assert!(same, "{what} on {}", cpu.name());
            let tokens: Vec<_> = (0..ROWS as u32).map(TokenId).collect();
            let rows = |w| {
                cpu.embed(w, &tokens, 1.0).data().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            assert_eq!(rows(&planes), rows(&bytes), "{what} on {}", cpu.name());
        }
    }
}

#[test]
fn the_likeliest_are_those_of_all_logits() {
    for cpu in devices() {
        for (what, stored) in matrices() {
            let weight = Weight::pack_planes(&stored, &cpu.pool);
            for softcap in [None, Some(30.0), Some(0.5)] {
                let head = Head { weight: &weight, softcap };
                let x = activations();
                for k in [1, 2, 64, ROWS + 1] {
                    let ours = likeliest(
                        &cpu,
                        &x,
                        &head,
                        weight.planes.as_ref().expect("packed in planes"),
                        k,
                    );
                    let all = cpu
                        .top(&head.logits(&cpu, &x), x.rows(), k)
                        .expect("the CPU does not fail");
                    assert_eq!(ours, all, "{what}, {k} of {softcap:?} on {}", cpu.name());
                }
            }
        }
    }
}

#[test]
fn no_logit_is_above_its_bound() {
    for cpu in devices() {
        for (what, stored) in matrices() {
            let weight = Weight::pack_planes(&stored, &cpu.pool);
            let x = activations();
            let search = Search { cpu: &cpu, codes: cpu.codes(&x), w: &weight, softcap: None };
            let bounds = search.bounds(weight.planes.as_ref().expect("packed in planes"));
            let logits = cpu.linear(&x, &weight);
            for (row, bounds) in bounds.chunks_exact(weight.groups()).enumerate() {
                for (logits, bound) in logits.row(row).chunks(LANES).zip(bounds) {
                    let above = logits.iter().any(|logit| logit > bound);
                    assert!(!above, "{what}, row {row}: {logits:?} > {bound} on {}", cpu.name());
                }
            }
        }
    }
}

#[test]
fn most_groups_of_a_decided_row_are_not_read() {
    let cpu = Cpu::new(Isa::best(), 2).expect("the best is here");
    let mut noise = Noise(4);
    let x = Act::new(COLS, (0..COLS).map(|_| noise.next()).collect());
    let likeliest: Vec<_> = x.row(0).iter().map(|x| (x * 127.0) as i8).collect();
    let mut random = Noise(5);
    let stored = stored(
        |row, k| if row == 900 { likeliest[k] } else { (random.next() * 128.0) as i8 },
        |_| 0.01,
    );
    let weight = Weight::pack_planes(&stored, &cpu.pool);
    let search = Search { cpu: &cpu, codes: cpu.codes(&x), w: &weight, softcap: None };
    let bounds = search.bounds(weight.planes.as_ref().expect("packed in planes"));
    let bar = cpu.linear(&x, &weight).row(0)[900];
    let possible = bounds.iter().filter(|bound| **bound >= bar).count();
    assert_eq!(possible, 1, "of {}", bounds.len());
}
