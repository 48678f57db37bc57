//! Reading on from any prefix gives the bits of reading everything at once, whether the slot held
//! the prefix all along, got a copy of it, or got it back from a file.

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Batch, Code, KvCache, Regime, Section, SlotId, TokenId, Want};
use lapidary_format::{SavedHead, decode_section, encode_section, open};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{Device, Loaded, repository};

const SLOT: SlotId = SlotId(0);
/// Where copies go.
const OTHER: SlotId = SlotId(1);
/// Tokens of the prompt: three windows of Pebble's sliding layers.
const PROMPT: usize = 400;
/// Everyday runs try one cut in this many.
const STRIDE: usize = if cfg!(feature = "slow") { 1 } else { 13 };

fn pebble(regime: Regime, burst: u32) -> Loaded<Cpu> {
    let source = open(&repository("models/pebble/pebble-Q8_0.gguf"));
    let source = source.unwrap_or_else(|e| panic!("{e}"));
    let extent = Extent { slots: 2, context: 512, burst };
    Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, regime)
}

fn prompt() -> Vec<TokenId> {
    (0..PROMPT as u32).map(|i| TokenId(300 + i * i % 7000)).collect()
}

/// The bits of the logits after the prompt, read on from what the slot holds.
fn read_on(loaded: &mut Loaded<Cpu>, slot: SlotId, prompt: &[TokenId]) -> Vec<u32> {
    let mut logits = Vec::new();
    let burst = loaded.cache.extent().burst as usize;
    while (loaded.cache.committed(slot) as usize) < prompt.len() {
        let base = loaded.cache.committed(slot) as usize;
        let end = prompt.len().min(base + burst);
        let want = |i| if base + i + 1 == prompt.len() { Want::LOGITS } else { Want::NOTHING };
        let batch = Batch::builder().chain(slot, base as u32, &prompt[base..end], want);
        let out = loaded.run(&batch.expect("rows are left").build());
        loaded.commit(slot, end - base);
        logits.extend(out.logits.into_iter().flat_map(|(_, row)| row));
    }
    logits.into_iter().map(f32::to_bits).collect()
}

fn rotated() -> Regime {
    Regime { keys: Code::Rotated(5), values: Code::Rotated(4) }
}

/// Every kind of storage.
fn regimes() -> [Regime; 4] {
    let hybrid = Regime { keys: Code::F16, values: Code::Rotated(6) };
    [Regime::F32, Regime::F16, hybrid, rotated()]
}

/// Cuts of the prompt, for everyday runs another few with each regime.
fn cuts(regime: usize) -> impl Iterator<Item = usize> {
    let (first, stride) = if cfg!(feature = "slow") { (0, 1) } else { (13 * regime, 52) };
    (1..PROMPT).rev().skip(first).step_by(stride)
}

/// A section through a file's bytes and back.
fn reloaded(section: &Section) -> Section {
    let tokens = (section.from..section.end).map(TokenId).collect();
    let (from, floor, bytes) = (section.from, section.floor, section.bytes());
    let head = SavedHead { key: 1, parent: None, tokens, from, floor, bytes };
    decode_section(7, &encode_section(7, &head, section)).expect("it was just written").1
}

#[test]
fn every_cut_of_a_prompt_resumes_to_the_same_bits() {
    for regime in [Regime::F16, rotated()] {
        let (prompt, mut loaded) = (prompt(), pebble(regime, 400));
        let whole = read_on(&mut loaded, SLOT, &prompt);
        for cut in (1..PROMPT).rev().step_by(STRIDE) {
            assert!(loaded.cache.truncate(SLOT, cut as u32), "nothing was overwritten yet");
            assert_eq!(read_on(&mut loaded, SLOT, &prompt), whole, "{regime}, resumed at {cut}");
        }
    }
}

#[test]
fn a_fork_at_every_cut_goes_on_with_the_same_bits() {
    for (i, regime) in regimes().into_iter().enumerate() {
        let (prompt, mut loaded) = (prompt(), pebble(regime, 400));
        let whole = read_on(&mut loaded, SLOT, &prompt);
        for cut in cuts(i) {
            assert!(loaded.cache.fork(&loaded.ops, SLOT, OTHER, cut as u32), "it is all there");
            assert_eq!(read_on(&mut loaded, OTHER, &prompt), whole, "{regime}, forked at {cut}");
        }
        loaded.cache.clear(OTHER);
        assert_eq!(read_on(&mut loaded, SLOT, &prompt), Vec::<u32>::new());
        assert!(loaded.cache.truncate(SLOT, 399));
        assert_eq!(read_on(&mut loaded, SLOT, &prompt), whole, "forks harm nobody");
    }
}

#[test]
fn what_was_saved_at_any_cut_and_reloaded_goes_on_with_the_same_bits() {
    for (i, regime) in regimes().into_iter().enumerate() {
        let (prompt, mut loaded) = (prompt(), pebble(regime, 400));
        let whole = read_on(&mut loaded, SLOT, &prompt);
        for cut in cuts(i) {
            let save = |range| loaded.cache.save(&loaded.ops, SLOT, range).expect("all is there");
            let middle = cut as u32 / 3;
            let begins = (middle > 0).then(|| save(0..middle));
            let sections: Vec<_> = begins
                .into_iter()
                .chain([save(middle..cut as u32)])
                .map(|s| reloaded(&s))
                .collect();
            let path: Vec<_> = sections.iter().collect();
            assert!(loaded.cache.restore(&loaded.ops, OTHER, &path, cut as u32));
            assert_eq!(read_on(&mut loaded, OTHER, &prompt), whole, "{regime}, saved at {cut}");
        }
    }
}

/// With a small burst the rings move on: going back far is refused and changes nothing.
#[test]
fn a_cut_that_the_rings_have_left_behind_is_refused_and_harmless() {
    let (prompt, mut loaded) = (prompt(), pebble(Regime::F16, 32));
    let whole = read_on(&mut loaded, SLOT, &prompt);
    assert!(!loaded.cache.truncate(SLOT, 200));
    assert_eq!(loaded.cache.committed(SLOT), PROMPT as u32);
    assert!(loaded.cache.truncate(SLOT, PROMPT as u32 - 20));
    assert_eq!(read_on(&mut loaded, SLOT, &prompt), whole);
    loaded.read(SLOT, &prompt, 32, PROMPT, Want::NOTHING, &mut NoHooks);
    assert!(loaded.cache.truncate(SLOT, 0));
    assert_eq!(read_on(&mut loaded, SLOT, &prompt), whole);
}
