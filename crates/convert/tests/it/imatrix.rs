//! Importance: what is counted, and that watching changes nothing.

use lapidary_backend_cpu::reference::Rows;
use lapidary_backend_cpu::{Cpu, Isa, Reference};
use lapidary_cache::Extent;
use lapidary_convert::Imatrix;
use lapidary_convert::imatrix::{Observed, collect};
use lapidary_core::{
    Backend, Batch, BlockType, KvKernels, Matrix, Regime, SlotId, TensorSource, TokenId, Want,
};
use lapidary_format::{Gguf, open};
use lapidary_model::Precision;
use lapidary_testkit::{Loaded, Rng, repository, toy};

const EXTENT: Extent = Extent { slots: 1, context: 128, burst: 64 };

fn cpu() -> Cpu {
    Cpu::new(Isa::best(), 2).unwrap()
}

fn loaded<B: KvKernels>(ops: B, source: &dyn TensorSource) -> Loaded<B> {
    Loaded::of(ops, source, Precision::AsStored, EXTENT, Regime::F32)
}

/// Chunks of tokens of a small vocabulary.
fn chunks(count: usize, rows: usize, vocabulary: usize) -> Vec<Vec<TokenId>> {
    let mut rng = Rng(7);
    let mut chunk = || (0..rows).map(|_| TokenId(rng.below(vocabulary) as u32)).collect();
    (0..count).map(|_| chunk()).collect()
}

fn importance(source: &dyn TensorSource, chunks: &[Vec<TokenId>], mut from: Imatrix) -> Imatrix {
    let Loaded { ops, model, mut cache, .. } = loaded(Observed::new(cpu()), source);
    collect(&ops, &model, &mut cache, chunks, &mut from, &mut |_| {}).unwrap();
    from
}

fn pebble() -> lapidary_format::Source {
    open(&repository("models/pebble/pebble-Q8_0.gguf")).unwrap()
}

#[test]
fn watching_changes_no_bit_of_the_logits() {
    let toy = toy(3);
    let tokens = &chunks(1, 24, 50)[0];
    let batch = Batch::builder().chain(SlotId(0), 0, tokens, |_| Want::LOGITS).unwrap().build();
    let plain = loaded(cpu(), &toy).run(&batch);
    let watched = loaded(Observed::new(cpu()), &toy).run(&batch);
    assert_eq!(plain.logits, watched.logits);
}

#[test]
fn every_projection_of_every_layer_is_counted() {
    for (source, vocabulary) in [(&pebble() as &dyn TensorSource, 8192), (&toy(3), 50)] {
        let chunks = chunks(2, 100, vocabulary);
        let made = importance(source, &chunks, Imatrix::new("text".into(), 100));
        assert_eq!(made.chunks, 2);
        for name in source.names() {
            let info = source.info(name).unwrap();
            let tables = ["per_layer_token_embd.weight", "ffn_gate_inp.weight", "_norm"];
            let only_looked_up =
                name == "token_embd.weight" && source.info("output.weight").is_some();
            if info.shape.len() < 2
                || only_looked_up
                || tables.iter().any(|table| name.contains(table))
            {
                continue;
            }
            let weights = made.weights(name).unwrap_or_else(|| panic!("{name} is counted"));
            let stack = if info.shape.len() == 3 { info.shape[0] } else { 1 };
            assert_eq!(weights.len(), stack * info.shape.last().unwrap(), "{name}");
            assert!(weights.iter().all(|w| w.is_finite() && *w >= 0.0), "{name}");
            assert_eq!(made.coverage(name).unwrap().stack, stack, "{name}");
        }
    }
}

#[test]
fn the_first_projections_see_the_normed_embeddings() {
    let source = pebble();
    let chunk = &chunks(1, 100, 8192)[0];
    let made = importance(&source, std::slice::from_ref(chunk), Imatrix::new("t".into(), 100));
    let embedding = source.floats("token_embd.weight").unwrap();
    let norm = source.floats("blk.0.attn_norm.weight").unwrap();
    let mut sums = vec![0.0_f64; 256];
    for token in chunk {
        let row = &embedding[token.index() * 256..][..256];
        let row: Vec<f64> = row.iter().map(|&x| f64::from(x) * 16.0).collect();
        let mean = row.iter().map(|x| x * x).sum::<f64>() / 256.0 + 1e-6;
        for ((sum, x), w) in sums.iter_mut().zip(&row).zip(&norm) {
            *sum += (x * f64::from(*w)).powi(2) / mean;
        }
    }
    for name in ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"] {
        for (found, sum) in made.weights(name).unwrap().iter().zip(&sums) {
            let expected = sum / 100.0;
            // A dozen roundings of floats: mean, root, product, square, a hundred sums in double.
            assert!((f64::from(*found) - expected).abs() <= 2e-6 * expected, "{found} {expected}");
        }
    }
}

#[test]
fn each_row_visits_as_many_experts_as_it_should() {
    let source = pebble();
    let chunks = chunks(3, 100, 8192);
    let made = importance(&source, &chunks, Imatrix::new("text".into(), 100));
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("i.gguf");
    made.write(&path).unwrap();
    let file = Gguf::open(&path).unwrap();
    let dense = |name: &str| source.floats(name).unwrap();
    for layer in 0..6 {
        let counts = |name: &str| {
            let counts = file.floats(&format!("blk.{layer}.{name}.weight.counts")).unwrap();
            counts.iter().sum::<f32>()
        };
        assert_eq!(counts("ffn_gate_up_exps"), 4.0 * 300.0);
        assert_eq!(counts("ffn_down_exps"), 4.0 * 300.0);
        assert_eq!(counts("ffn_down"), 300.0);
        // Experts read the rows that the dense branch reads, normed with another weight.
        let sums = |name: &str| file.floats(&format!("blk.{layer}.{name}.weight.in_sum2")).unwrap();
        let (gate, experts) = (sums("ffn_gate"), sums("ffn_gate_up_exps"));
        let own = dense(&format!("blk.{layer}.ffn_norm.weight"));
        let theirs = dense(&format!("blk.{layer}.pre_ffw_norm_2.weight"));
        for col in 0..256 {
            let all: f64 = (0..16).map(|e| f64::from(experts[e * 256 + col])).sum();
            let ratio = f64::from(theirs[col]) / f64::from(own[col]);
            let expected = 4.0 * f64::from(gate[col]) * ratio * ratio;
            assert!((all - expected).abs() <= 1e-5 * expected, "{layer} {col}: {all} {expected}");
        }
    }
}

#[test]
fn between_an_experts_matrices_its_gated_activations_are_counted() {
    let (experts, hidden, width) = (3, 32, 32);
    let mut rng = Rng(5);
    let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.signed()).collect() };
    let (up, down) = (floats(experts * 2 * width * hidden), floats(experts * hidden * width));
    let (x, logits) = (floats(4 * hidden), floats(4 * experts));
    let matrix = |rows, cols, values: &[f32]| Matrix {
        block: BlockType::F32,
        stack: experts,
        rows,
        cols,
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>().into(),
    };
    let ops = Observed::new(Reference);
    let gate_up = ops.matrix(matrix(2 * width, hidden, &up)).unwrap();
    let down = ops.matrix(matrix(hidden, width, &down)).unwrap();
    let ones = ops.vector(&vec![1.0; experts]);
    let routes = ops.route(&ops.upload(&logits, experts), &ones, 1);
    let _: Rows = ops.experts(&ops.upload(&x, hidden), &routes, &gate_up, &down);

    let mut expected = vec![0.0_f64; experts * width];
    for row in 0..4 {
        let own = &logits[row * experts..][..experts];
        let expert = (0..experts).max_by(|&a, &b| own[a].total_cmp(&own[b])).unwrap();
        let product = |output: usize| -> f64 {
            let weights = &up[(expert * 2 * width + output) * hidden..][..hidden];
            let row = &x[row * hidden..][..hidden];
            weights.iter().zip(row).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
        };
        for col in 0..width {
            let gate = product(col);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044715 * gate.powi(3));
            let mid = 0.5 * gate * (1.0 + inner.tanh()) * product(width + col);
            expected[expert * width + col] += mid * mid;
        }
    }
    let sums = ops.squares(&down);
    let largest = expected.iter().fold(0.0_f64, |most, x| most.max(*x));
    for (found, expected) in sums.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-5 * largest, "{found} {expected}");
    }
}

#[test]
fn stopped_and_continued_is_as_if_never_stopped() {
    let toy = toy(3);
    let chunks = chunks(4, 40, 50);
    let whole = importance(&toy, &chunks, Imatrix::new("text".into(), 40));
    let half = importance(&toy, &chunks[..2], Imatrix::new("text".into(), 40));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.gguf");
    half.write(&path).unwrap();
    assert_eq!(Imatrix::read(&path).unwrap(), half, "a file holds all there is");
    assert_eq!(importance(&toy, &chunks, Imatrix::read(&path).unwrap()), whole);
}

#[test]
fn another_kind_of_file_is_no_importance() {
    let refused = Imatrix::read(&repository("models/pebble/pebble-Q8_0.gguf")).unwrap_err();
    assert!(refused.to_string().contains("holds no importance"), "{refused}");
}
