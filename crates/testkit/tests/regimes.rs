//! Rotated cache regimes: what comes back, against the definition and the published error.

use lapidary_backend_cpu::{Cpu, Isa, Reference};
use lapidary_core::{
    Backend, Code, KvKernels, KvLayerSpec, LayerPlan, Reach, Regime, SlotId, View,
};
use lapidary_testkit::{Device, Rng, largest_difference};

const WIDTH: usize = 256;

fn spec(heads: usize, width: usize) -> KvLayerSpec {
    KvLayerSpec { heads, width, reach: Reach::All, two_way: false }
}

/// One row per entry, each seeing itself and everything before it.
fn chain(rows: u32) -> LayerPlan {
    let view = |pos| View { slot: SlotId(0), pos, run: 0..pos + 1, lineage: Vec::new() };
    LayerPlan {
        writes: (0..rows).map(|entry| (SlotId(0), entry)).collect(),
        views: (0..rows).map(view).collect(),
    }
}

/// A normally distributed number.
fn normal(rng: &mut Rng) -> f32 {
    (0..12).map(|_| rng.signed()).sum::<f32>() / 2.0
}

fn rotated(bits: u8) -> Regime {
    Regime { keys: Code::Rotated(bits), values: Code::Rotated(bits) }
}

/// The stored form of `rows` vectors: attention over one entry returns its value.
fn round_trip(bits: u8, vectors: &[f32]) -> Vec<f32> {
    let ops = Cpu::device();
    let rows = vectors.len() / WIDTH;
    let mut store = ops.reserve(rotated(bits), spec(1, WIDTH), 1, rows).expect("a regime");
    let alone = |pos| View { slot: SlotId(0), pos, run: pos..pos + 1, lineage: Vec::new() };
    let plan = ops.upload_plan(LayerPlan {
        writes: (0..rows as u32).map(|entry| (SlotId(0), entry)).collect(),
        views: (0..rows as u32).map(alone).collect(),
    });
    let x = ops.upload(vectors, WIDTH);
    ops.write(&mut store, &plan, &x, &x);
    ops.read(&ops.attend(&store, &plan, &x)).expect("the device works")
}

#[test]
fn error_on_normal_data_is_the_quantisers_own() {
    let mut rng = Rng(11);
    let vectors: Vec<f32> = (0..512 * WIDTH).map(|_| normal(&mut rng)).collect();
    for (bits, expected) in [(4, 0.0975), (5, 0.050), (6, 0.0254), (8, 0.0064)] {
        let back = round_trip(bits, &vectors);
        let square = |x: f32| f64::from(x) * f64::from(x);
        let error: f64 = back.iter().zip(&vectors).map(|(a, b)| square(a - b)).sum();
        let relative = (error / vectors.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
        let off = (relative / expected - 1.0).abs();
        assert!(off < 0.1, "{bits} bits: relative error {relative}, not {expected}");
    }
}

#[test]
fn outlier_channels_do_not_use_up_the_levels() {
    let mut rng = Rng(12);
    let mut vectors: Vec<f32> = (0..4096 * WIDTH).map(|_| normal(&mut rng)).collect();
    for vector in vectors.chunks_exact_mut(WIDTH) {
        vector[17] *= 14.0;
        vector[90] *= 9.0;
    }
    for (bits, least) in [(4, 0.9954), (5, 0.9987), (6, 0.9996), (8, 0.99997)] {
        let back = round_trip(bits, &vectors);
        let rows = back.chunks_exact(WIDTH).zip(vectors.chunks_exact(WIDTH));
        let cosine = |(a, b): (&[f32], &[f32])| {
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        };
        let mean = rows.map(cosine).sum::<f64>() / 4096.0;
        assert!(mean >= least, "{bits} bits: mean cosine {mean}, not {least}");
    }
}

/// Attention of random rows on any device.
fn attention<B: KvKernels>(ops: &B, regime: Regime, heads: usize, width: usize) -> Vec<f32> {
    let (rows, groups) = (150, 4);
    let mut rng = Rng(13);
    let mut random =
        |n: usize, size: f32| -> Vec<f32> { (0..n).map(|_| size * normal(&mut rng)).collect() };
    let keys = random(rows * heads * width, 1.0);
    let values = random(rows * heads * width, 1.0);
    let queries = random(rows * heads * groups * width, 0.1);
    let mut store = ops.reserve(regime, spec(heads, width), 1, rows).expect("a regime");
    let plan = ops.upload_plan(chain(rows as u32));
    let (k, v) = (ops.upload(&keys, heads * width), ops.upload(&values, heads * width));
    ops.write(&mut store, &plan, &k, &v);
    let q = ops.upload(&queries, heads * groups * width);
    ops.read(&ops.attend(&store, &plan, &q)).expect("the device works")
}

/// The twin rounds by the definition, in double precision. A value that lies between two levels
/// may go either way; then one coordinate moves by a level's width, which attention spreads over
/// a head. Hence the tolerance: half a level's width of the coarsest code in one coordinate of
/// 256, times the few ties of a head.
#[test]
fn every_regime_attends_as_its_definition_does() {
    for (keys, values) in [(4, 4), (5, 5), (6, 6), (8, 8), (8, 4), (4, 6)] {
        let regime = Regime { keys: Code::Rotated(keys), values: Code::Rotated(values) };
        for (heads, width) in [(1, 512), (2, 256), (1, 128), (1, 64)] {
            let ours = attention(&Cpu::device(), regime, heads, width);
            let twin = attention(&Reference, regime, heads, width);
            let off = largest_difference(&ours, &twin);
            assert!(off < 0.02, "{regime} at width {width} is off by {off}");
        }
    }
}

/// Rotating back spreads rounding evenly: a coordinate's error is normal with the code's relative
/// error as its deviation. Six deviations are passed once in 500 million coordinates; values that
/// are left rotated, rotated twice or scaled wrongly are off by several whole ones.
#[test]
fn rotation_is_undone_exactly_once() {
    let exact = attention(&Cpu::device(), Regime::F32, 2, WIDTH);
    for (bits, deviation) in [(8, 0.0064), (6, 0.0254), (5, 0.050), (4, 0.0975)] {
        let ours = attention(&Cpu::device(), rotated(bits), 2, WIDTH);
        let off = largest_difference(&ours, &exact);
        assert!(off < 6.0 * deviation, "{bits} bits are off by {off}");
    }
    let hybrid = Regime { keys: Code::F16, values: Code::Rotated(8) };
    let off = largest_difference(&attention(&Cpu::device(), hybrid, 2, WIDTH), &exact);
    assert!(off < 6.0 * 0.0064, "hybrid is off by {off}");
}

#[test]
fn every_instruction_set_attends_with_the_same_bits() {
    let here = || Isa::ALL.into_iter().filter(|isa| isa.is_here());
    for regime in [Regime::F32, Regime::F16, rotated(4), rotated(5), rotated(6), rotated(8)] {
        let bits = |isa| {
            let ops = Cpu::new(isa, 2).expect("it is here");
            let out = attention(&ops, regime, 2, WIDTH);
            out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let all: Vec<_> = here().map(bits).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{regime}");
    }
}

#[test]
fn what_cannot_be_rotated_is_refused() {
    let ops = Cpu::device();
    for width in [16, 80, 96, 320] {
        let refused = ops.reserve(rotated(4), spec(1, width), 1, 8).err();
        assert!(refused.is_some_and(|e| e.0.contains("f16")), "width {width}");
    }
    let seven = ops.reserve(rotated(7), spec(1, 256), 1, 8).err().expect("no such code");
    assert!(seven.0.contains("4, 5, 6 or 8"), "{seven}");
}

#[test]
fn four_bits_take_at_most_28_percent_of_f16() {
    let ops = Cpu::device();
    let bytes = |regime| {
        let store = ops.reserve(regime, spec(2, WIDTH), 3, 100).expect("a regime");
        ops.store_bytes(&store)
    };
    assert!(bytes(rotated(4)) * 100 <= bytes(Regime::F16) * 28);
}
