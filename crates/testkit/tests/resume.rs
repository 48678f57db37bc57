//! Reading on from any prefix gives the bits of reading everything at once.

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Batch, Code, KvCache, Regime, SlotId, TokenId, Want};
use lapidary_format::open;
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{Device, Loaded, repository};

const SLOT: SlotId = SlotId(0);
/// Tokens of the prompt: three windows of Pebble's sliding layers.
const PROMPT: usize = 400;
/// Everyday runs try one cut in this many.
const STRIDE: usize = if cfg!(feature = "slow") { 1 } else { 13 };

fn pebble(regime: Regime, burst: u32) -> Loaded<Cpu> {
    let source = open(&repository("models/pebble/pebble-Q8_0.gguf"));
    let source = source.unwrap_or_else(|e| panic!("{e}"));
    let extent = Extent { slots: 1, context: 512, burst };
    Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, regime)
}

fn prompt() -> Vec<TokenId> {
    (0..PROMPT as u32).map(|i| TokenId(300 + i * i % 7000)).collect()
}

/// The bits of the logits after the prompt, read on from what the slot holds.
fn read_on(loaded: &mut Loaded<Cpu>, prompt: &[TokenId]) -> Vec<u32> {
    let mut logits = Vec::new();
    let burst = loaded.cache.extent().burst as usize;
    while (loaded.cache.committed(SLOT) as usize) < prompt.len() {
        let base = loaded.cache.committed(SLOT) as usize;
        let end = prompt.len().min(base + burst);
        let want = |i| if base + i + 1 == prompt.len() { Want::LOGITS } else { Want::NOTHING };
        let batch = Batch::builder().chain(SLOT, base as u32, &prompt[base..end], want);
        let out = loaded.run(&batch.expect("rows are left").build());
        loaded.commit(SLOT, end - base);
        logits.extend(out.logits.into_iter().flat_map(|(_, row)| row));
    }
    logits.into_iter().map(f32::to_bits).collect()
}

fn rotated() -> Regime {
    Regime { keys: Code::Rotated(5), values: Code::Rotated(4) }
}

#[test]
fn every_cut_of_a_prompt_resumes_to_the_same_bits() {
    for regime in [Regime::F16, rotated()] {
        let (prompt, mut loaded) = (prompt(), pebble(regime, 400));
        let whole = read_on(&mut loaded, &prompt);
        for cut in (1..PROMPT).rev().step_by(STRIDE) {
            assert!(loaded.cache.truncate(SLOT, cut as u32), "nothing was overwritten yet");
            assert_eq!(read_on(&mut loaded, &prompt), whole, "{regime}, resumed at {cut}");
        }
    }
}

/// With a small burst the rings move on: going back far is refused and changes nothing.
#[test]
fn a_cut_that_the_rings_have_left_behind_is_refused_and_harmless() {
    let (prompt, mut loaded) = (prompt(), pebble(Regime::F16, 32));
    let whole = read_on(&mut loaded, &prompt);
    assert!(!loaded.cache.truncate(SLOT, 200));
    assert_eq!(loaded.cache.committed(SLOT), PROMPT as u32);
    assert!(loaded.cache.truncate(SLOT, PROMPT as u32 - 20));
    assert_eq!(read_on(&mut loaded, &prompt), whole);
    loaded.read(SLOT, &prompt, 32, PROMPT, Want::NOTHING, &mut NoHooks);
    assert!(loaded.cache.truncate(SLOT, 0));
    assert_eq!(read_on(&mut loaded, &prompt), whole);
}
