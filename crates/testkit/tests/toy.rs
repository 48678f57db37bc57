//! The toy's logits against an independent forward pass in double precision, made by
//! `data/toy/forward.py`: the golden of the whole decoder that needs no fixture.

use lapidary_backend_cpu::{Cpu, Reference};
use lapidary_cache::Extent;
use lapidary_core::{Regime, SlotId, TokenId, Want};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{
    Device, GOLDEN_TOY, Loaded, TOY_VOCABULARY, largest_difference, repository, toy, toy_bytes,
};

/// Single-precision sums through six layers, on logits of size thirty.
const TOLERANCE: f32 = 1e-3;

/// The stored logits, position by position.
fn golden() -> Vec<Vec<f32>> {
    let path = repository("crates/testkit/tests/data/toy/logits.bin");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (sum, rest) = bytes.split_first_chunk().expect("a sum of bytes");
    let ours: u64 = toy_bytes(GOLDEN_TOY).into_iter().map(u64::from).sum();
    assert_eq!(u64::from_le_bytes(*sum), ours, "the toy has changed: run data/toy/forward.py");
    let (_, rest) = rest.split_first_chunk::<4>().expect("a number of tokens");
    let logits: Vec<f32> = rest.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    logits.chunks_exact(TOY_VOCABULARY as usize).map(<[f32]>::to_vec).collect()
}

/// The tokens of the script.
fn tokens(count: usize) -> Vec<TokenId> {
    let token = |i: usize| TokenId((7 * i * i + 3 * i) as u32 % TOY_VOCABULARY);
    (0..count).map(token).collect()
}

fn check<B: Device>(chunk: usize) {
    let golden = golden();
    let tokens = tokens(golden.len());
    let extent = Extent { slots: 2, context: 64, burst: 8 };
    let source = toy(GOLDEN_TOY);
    let mut loaded = Loaded::of(B::device(), &source, Precision::F32, extent, Regime::F32);
    let out = loaded.read(SlotId(1), &tokens, chunk, 0, Want::LOGITS, &mut NoHooks);
    assert_eq!(out.logits.len(), golden.len());
    for ((pos, ours), golden) in out.logits.iter().zip(&golden) {
        let off = largest_difference(ours, golden);
        assert!(off <= TOLERANCE, "position {pos} is off by {off}");
    }
}

#[test]
fn logits_by_definition() {
    check::<Reference>(8);
}

#[test]
fn logits_by_kernels() {
    check::<Cpu>(7);
}
