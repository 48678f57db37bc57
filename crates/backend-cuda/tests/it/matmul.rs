//! Products with matrices: the CPU's bits, by every way and for every number of rows.

use crate::common::{QUANTISED, activations, device, read, same_bits, stored};
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_backend_cuda::Method;
use lapidary_core::{Backend, BlockType, TokenId};
use lapidary_testkit::Rng;

const FLOATS: [BlockType; 3] = [BlockType::F32, BlockType::F16, BlockType::BF16];

fn cpu() -> Cpu {
    Cpu::new(Isa::best(), 4).expect("the best instruction set is there")
}

/// Shapes with ragged outputs and, where the type allows them, ragged segments.
fn shapes(block: BlockType) -> Vec<(usize, usize)> {
    if block.block_len() == 256 {
        vec![(33, 256), (100, 768), (352, 2816), (64, 5376)]
    } else {
        vec![(33, 96), (70, 352), (100, 704), (64, 1056), (352, 2112), (96, 4096)]
    }
}

#[test]
fn quantised_products_have_the_bits_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(1));
    for block in QUANTISED {
        for (rows, cols) in shapes(block) {
            let matrix = stored(&mut rng, block, [1, rows, cols]);
            let ours = cuda.matrix(matrix.clone()).expect("the type has kernels");
            let theirs = cpu.matrix(matrix).expect("the type has kernels");
            for m in [1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 65, 130] {
                let x = activations(&mut rng, m * cols);
                let ours = read(&cuda, &cuda.linear(&cuda.upload(&x, cols), &ours));
                let theirs = read(&cpu, &cpu.linear(&cpu.upload(&x, cols), &theirs));
                same_bits(&ours, &theirs, &format!("{block} {rows}x{cols}, {m} rows"));
            }
        }
    }
}

#[test]
fn every_way_has_the_bits_of_the_plain_one() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(2);
    let ways = [
        Method::Rows(1),
        Method::Rows(2),
        Method::Rows(3),
        Method::Rows(4),
        Method::Few(8),
        Method::Few(16),
        Method::Few(32),
        Method::Many(32),
        Method::Many(48),
        Method::Many(64),
    ];
    for block in QUANTISED {
        let (rows, cols) = (416, if block.block_len() == 256 { 2816 } else { 2112 });
        let w = cuda.matrix(stored(&mut rng, block, [1, rows, cols])).expect("it has kernels");
        for m in [1, 7, 32, 75, 200] {
            let x = cuda.upload(&activations(&mut rng, m * cols), cols);
            let plain = read(&cuda, &cuda.linear_by(Method::Plain, &x, &w));
            for way in ways {
                let ours = read(&cuda, &cuda.linear_by(way, &x, &w));
                same_bits(&ours, &plain, &format!("{block} {m} rows by {way:?}"));
            }
        }
    }
}

#[test]
fn odd_activations_have_the_bits_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(3));
    for block in QUANTISED {
        let cols = 512;
        let matrix = stored(&mut rng, block, [1, 64, cols]);
        let ours = cuda.matrix(matrix.clone()).expect("the type has kernels");
        let theirs = cpu.matrix(matrix).expect("the type has kernels");
        let mut x = activations(&mut rng, 9 * cols);
        x[cols..cols + 200].fill(0.0);
        x[2 * cols + 40] = f32::NAN;
        x[3 * cols + 50] = f32::INFINITY;
        x[4 * cols..5 * cols].iter_mut().for_each(|x| *x *= 1e-38);
        x[5 * cols..6 * cols].iter_mut().for_each(|x| *x *= 1e36);
        x[6 * cols..7 * cols].fill(-0.0);
        x[7 * cols..8 * cols].iter_mut().for_each(|x| *x = x.signum() * 127.5);
        for m in [1, 9] {
            let x = &x[..m * cols];
            let ours = read(&cuda, &cuda.linear(&cuda.upload(x, cols), &ours));
            let theirs = read(&cpu, &cpu.linear(&cpu.upload(x, cols), &theirs));
            same_bits(&ours, &theirs, &format!("{block}, {m} rows"));
        }
    }
}

#[test]
fn products_with_floats_have_the_bits_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(4));
    for block in FLOATS {
        for (rows, cols) in [(33, 96), (128, 2816), (70, 250), (32, 5)] {
            let matrix = stored(&mut rng, block, [1, rows, cols]);
            let ours = cuda.matrix(matrix.clone()).expect("the type has kernels");
            let theirs = cpu.matrix(matrix).expect("the type has kernels");
            for m in [1, 4, 8, 19] {
                let x = activations(&mut rng, m * cols);
                let ours = read(&cuda, &cuda.linear(&cuda.upload(&x, cols), &ours));
                let theirs = read(&cpu, &cpu.linear(&cpu.upload(&x, cols), &theirs));
                same_bits(&ours, &theirs, &format!("{block} {rows}x{cols}, {m} rows"));
            }
        }
    }
}

#[test]
fn embedded_rows_have_the_bits_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(5));
    for block in QUANTISED.into_iter().chain(FLOATS) {
        let matrix = stored(&mut rng, block, [1, 77, 768]);
        let tokens: Vec<_> = (0..9).map(|i| TokenId((i * 37 + 3) % 77)).collect();
        let ours = cuda.matrix(matrix.clone()).expect("the type has kernels");
        let theirs = cpu.matrix(matrix).expect("the type has kernels");
        let ours = read(&cuda, &cuda.embed(&ours, &tokens, 1.7));
        let theirs = read(&cpu, &cpu.embed(&theirs, &tokens, 1.7));
        same_bits(&ours, &theirs, &format!("rows of {block}"));
    }
}

/// Routes and experts together: routes have no form of their own outside a device.
fn experts(gate_up: BlockType, down: BlockType, rows: &[usize]) {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(6));
    let (count, k, hidden, width) = (24, 3, 256, 96);
    let up = stored(&mut rng, gate_up, [count, 2 * width, hidden]);
    let down = stored(&mut rng, down, [count, hidden, width]);
    let factors: Vec<f32> = (0..count).map(|e| 1.0 + e as f32 / 7.0).collect();
    let ours = (
        cuda.matrix(up.clone()).expect("it has kernels"),
        cuda.matrix(down.clone()).expect("it has kernels"),
        cuda.vector(&factors),
    );
    let theirs = (
        cpu.matrix(up).expect("it has kernels"),
        cpu.matrix(down).expect("it has kernels"),
        cpu.vector(&factors),
    );
    for &m in rows {
        let x = activations(&mut rng, m * hidden);
        let mut logits = activations(&mut rng, m * count);
        // Equal logits, one expert that everybody takes, and a row of one number.
        logits[3] = logits[7];
        logits.iter_mut().skip(5).step_by(count).for_each(|l| *l = 30.0);
        logits[..count].fill(0.25);
        let (l, a) = (cuda.upload(&logits, count), cuda.upload(&x, hidden));
        let routes = cuda.route(&l, &ours.2, k);
        let ours = read(&cuda, &cuda.experts(&a, &routes, &ours.0, &ours.1));
        let (l, a) = (cpu.upload(&logits, count), cpu.upload(&x, hidden));
        let routes = cpu.route(&l, &theirs.2, k);
        let theirs = read(&cpu, &cpu.experts(&a, &routes, &theirs.0, &theirs.1));
        same_bits(&ours, &theirs, &format!("experts, {m} rows"));
    }
}

#[test]
fn quantised_experts_have_the_bits_of_the_cpu() {
    let rows = [1, 2, 4, 5, 30, 100, 150, 300, 700];
    experts(BlockType::Q4_K, BlockType::Q5_0, &rows);
    experts(BlockType::Q6_K, BlockType::Q8_0, &rows);
    experts(BlockType::Q2_K, BlockType::IQ4_NL, &rows);
    experts(BlockType::IQ4_XS, BlockType::MXFP4, &rows);
    experts(BlockType::Q3_K, BlockType::Q4_1, &rows);
}

#[test]
fn experts_of_floats_have_the_bits_of_the_cpu() {
    experts(BlockType::F32, BlockType::BF16, &[1, 6, 40]);
}

/// Matrices side by side, of one format and of several, give what each gives alone.
#[test]
fn matrices_side_by_side_have_the_bits_of_each_alone() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(8);
    let cols = 512;
    let types = [BlockType::Q4_K, BlockType::Q4_K, BlockType::Q4_K, BlockType::Q4_K]
        .into_iter()
        .zip([100, 352, 33, 64])
        .chain([(BlockType::Q6_K, 70), (BlockType::Q8_0, 96), (BlockType::Q8_0, 40)]);
    let weights: Vec<_> = types
        .map(|(block, rows)| cuda.matrix(stored(&mut rng, block, [1, rows, cols])).expect("fits"))
        .collect();
    let all: Vec<_> = weights.iter().collect();
    for m in [1, 2, 3, 4, 7, 16, 40, 200] {
        let x = cuda.upload(&activations(&mut rng, m * cols), cols);
        let together = cuda.linear_many(&x, &all);
        for (i, (ours, w)) in together.iter().zip(&all).enumerate() {
            let alone = read(&cuda, &cuda.linear(&x, w));
            same_bits(&read(&cuda, ours), &alone, &format!("matrix {i}, {m} rows"));
        }
    }
}
