//! Every other op against the CPU: the same bits where the order is the same, close where sums
//! run in another order.

use crate::common::{activations, close, device, numbers, read, same_bits};
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_core::{Backend, Rope};
use lapidary_testkit::Rng;

fn cpu() -> Cpu {
    Cpu::new(Isa::best(), 4).expect("the best instruction set is there")
}

fn rope(width: usize) -> Rope {
    let freq = |j: usize| 10_000_f32.powf(-2.0 * j as f32 / width as f32);
    Rope {
        freqs: (0..width / 2).map(freq).collect(),
        axis: (0..width / 2).map(|j| (j % 3) as u8).collect(),
    }
}

fn angles(rows: usize) -> Vec<[u32; 3]> {
    (0..rows as u32).map(|i| [i, 7 * i + 1, 131_071 - i]).collect()
}

#[test]
fn element_wise_ops_have_the_bits_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(1));
    let (rows, cols) = (7, 320);
    let mut a = activations(&mut rng, rows * cols);
    a[5] = 300.0;
    a[6] = -300.0;
    a[7] = 0.0;
    let b = activations(&mut rng, rows * cols);
    let s = numbers(&mut rng, cols);
    let (ca, cb) = (cuda.upload(&a, cols), cuda.upload(&b, cols));
    let (pa, pb) = (cpu.upload(&a, cols), cpu.upload(&b, cols));
    let check =
        |ours, theirs, what: &str| same_bits(&read(&cuda, &ours), &read(&cpu, &theirs), what);
    check(cuda.add(&ca, &cb), cpu.add(&pa, &pb), "add");
    check(cuda.gelu_mul(&ca, &cb), cpu.gelu_mul(&pa, &pb), "gelu_mul");
    check(cuda.columns(&ca, 33..97), cpu.columns(&pa, 33..97), "columns");
    check(cuda.select(&ca, &[6, 0, 0, 3]), cpu.select(&pa, &[6, 0, 0, 3]), "select");
    let up = |x: &[f32]| (cuda.upload(x, cols), cpu.upload(x, cols));
    let (x, y) = up(&a);
    check(cuda.softcap(x, 30.0), cpu.softcap(y, 30.0), "softcap");
    let (x, y) = up(&a);
    check(cuda.scale(x, &cuda.vector(&s)), cpu.scale(y, &cpu.vector(&s)), "scale by columns");
    let (x, y) = up(&a);
    check(cuda.scale(x, &cuda.vector(&[0.3])), cpu.scale(y, &cpu.vector(&[0.3])), "scale");
    let (x, y) = up(&a);
    let pairs = [(2, 0), (5, 6)];
    check(cuda.replace_rows(x, &cb, &pairs), cpu.replace_rows(y, &pb, &pairs), "replace_rows");
    let (x, y) = up(&a);
    let (rope, angles) = (rope(64), angles(rows));
    let (ours, theirs) = (cuda.angles(&rope, &angles), cpu.angles(&rope, &angles));
    check(cuda.rope(x, &ours), cpu.rope(y, &theirs), "rope");
}

#[test]
fn an_activation_that_is_changed_is_rounded_again() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(2);
    let matrix = crate::common::stored(&mut rng, lapidary_core::BlockType::Q8_0, [1, 40, 64]);
    let w = cuda.matrix(matrix).expect("the type has kernels");
    let x = numbers(&mut rng, 3 * 64);
    let act = cuda.upload(&x, 64);
    let _ = cuda.linear(&act, &w);
    let ours = cuda.linear(&cuda.scale(act, &cuda.vector(&[0.7])), &w);
    let scaled: Vec<f32> = x.iter().map(|x| x * 0.7).collect();
    let fresh = cuda.linear(&cuda.upload(&scaled, 64), &w);
    same_bits(&read(&cuda, &ours), &read(&cuda, &fresh), "linear after scale");
}

#[test]
fn norms_are_close_to_the_cpu() {
    let Some(cuda) = device() else { return };
    let (cpu, mut rng) = (cpu(), Rng(3));
    for width in [16, 48, 64, 256, 512, 640, 2816, 5376] {
        let (rows, cols) = (5, if width <= 512 { 3 * width } else { width });
        let mut x = activations(&mut rng, rows * cols);
        x[..cols].fill(0.0);
        let w = numbers(&mut rng, width);
        let ours = cuda.rms_norm(&cuda.upload(&x, cols), &cuda.vector(&w), 1e-6);
        let theirs = cpu.rms_norm(&cpu.upload(&x, cols), &cpu.vector(&w), 1e-6);
        // The sum of squares has a relative error below (chain + tree) units in the last place,
        // half of which reaches the root; the values reach 30.
        let most = (width as f32 / 16.0 + 16.0) * f32::EPSILON * 30.0;
        close(&read(&cuda, &ours), &read(&cpu, &theirs), most, &format!("norm of {width}"));
        let ours = cuda.unit_norm(&cuda.upload(&x, cols), width, 1e-6);
        let theirs = cpu.unit_norm(&cpu.upload(&x, cols), width, 1e-6);
        close(&read(&cuda, &ours), &read(&cpu, &theirs), most, &format!("unit norm of {width}"));
    }
}

#[test]
fn fused_ops_have_the_bits_of_what_defines_them() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(4);
    for width in [48, 64, 128, 256, 512, 2816] {
        let (rows, cols) = (6, if width <= 512 { 4 * width } else { width });
        let x = cuda.upload(&activations(&mut rng, rows * cols), cols);
        let residual = cuda.upload(&activations(&mut rng, rows * cols), cols);
        let w = cuda.vector(&numbers(&mut rng, width));
        let fused = cuda.add_norm(&residual, &x, &w, 1e-6);
        let apart = cuda.add(&residual, &cuda.rms_norm(&x, &w, 1e-6));
        same_bits(&read(&cuda, &fused), &read(&cuda, &apart), "add_norm");
        let turns = cuda.angles(&rope(width), &angles(rows));
        let fused = cuda.norm_rope(&x, &w, 1e-6, &turns);
        let apart = cuda.rope(cuda.rms_norm(&x, &w, 1e-6), &turns);
        same_bits(&read(&cuda, &fused), &read(&cuda, &apart), "norm_rope");
    }
}

#[test]
fn rows_do_not_see_their_company() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(5);
    let cols = 2816;
    let x = activations(&mut rng, 9 * cols);
    let w = cuda.vector(&numbers(&mut rng, cols));
    let all = read(&cuda, &cuda.rms_norm(&cuda.upload(&x, cols), &w, 1e-6));
    for i in 0..9 {
        let row = i * cols..(i + 1) * cols;
        let alone = read(&cuda, &cuda.rms_norm(&cuda.upload(&x[row.clone()], cols), &w, 1e-6));
        same_bits(&alone, &all[row], "a row's norm");
    }
}

/// Rows as long as vocabularies, short ones, and ones with hardly a candidate.
#[test]
fn the_likeliest_are_those_of_the_definition() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(6);
    for (rows, cols) in [(1, 262_144), (3, 20_001), (5, 3000), (2, 7)] {
        let mut x = numbers(&mut rng, rows * cols);
        // Many equals, zeros of both signs, and numbers that are no candidates.
        x.iter_mut().step_by(3).for_each(|x| *x = (*x * 8.0).round() / 8.0);
        x.iter_mut().skip(1).step_by(97).for_each(|x| *x = -0.0);
        x.iter_mut().skip(2).step_by(89).for_each(|x| *x = f32::NEG_INFINITY);
        x[cols - 1] = f32::NAN;
        x[(rows - 1) * cols..].iter_mut().skip(5).for_each(|x| *x = f32::NEG_INFINITY);
        let act = cuda.upload(&x, cols);
        for k in [1, 2, 40, 64, 500, 1024, 1500] {
            let ours = cuda.top(&act, rows, k).expect("the device works");
            for (i, (ours, row)) in ours.iter().zip(x.chunks_exact(cols)).enumerate() {
                let theirs = lapidary_core::likeliest(row, k);
                let bits = |c: &lapidary_core::Candidate| (c.token, c.logit.to_bits());
                let (ours, theirs): (Vec<_>, Vec<_>) =
                    (ours.iter().map(bits).collect(), theirs.iter().map(bits).collect());
                assert_eq!(ours, theirs, "the best {k} of row {i} of {rows} x {cols}");
            }
        }
    }
}

/// Equal runs of launches become graphs, and buffers come back at the same addresses: results must
/// not depend on how often something was done.
#[test]
fn repeated_work_gives_the_same_bits() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(7);
    let cols = 256;
    let matrix = crate::common::stored(&mut rng, lapidary_core::BlockType::Q4_K, [1, cols, cols]);
    let w = cuda.matrix(matrix).expect("the type has kernels");
    let norm = cuda.vector(&numbers(&mut rng, cols));
    let run = |x: &[f32]| {
        let mut h = cuda.upload(x, cols);
        for _ in 0..70 {
            h = cuda.add_norm(&h, &cuda.linear(&h, &w), &norm, 1e-6);
        }
        read(&cuda, &h)
    };
    let inputs = [numbers(&mut rng, 2 * cols), numbers(&mut rng, 2 * cols)];
    let first = [run(&inputs[0]), run(&inputs[1])];
    for i in 0..8 {
        same_bits(&run(&inputs[i % 2]), &first[i % 2], &format!("round {i}"));
    }
}
