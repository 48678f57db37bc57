//! The built-in model answers as its float32 original does: the golden test that needs no fixture.
//!
//! Two stored answers of every category but definitions, whose close calls feel the rounding of
//! weights. The longest prompts reach past the sliding window.

use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_cache::Extent;
use lapidary_core::Regime;
use lapidary_measure::Answer;
use lapidary_model::Precision;
use lapidary_testkit::{LONGEST, Loaded, PEBBLE_END, answers, repository};

fn stored() -> Vec<Answer> {
    answers(&repository("crates/testkit/tests/data/pebble_answers.jsonl"))
}

fn check(regime: Regime, slots: usize) {
    let file = repository("models/pebble/pebble-Q8_0.gguf");
    let source = lapidary_format::open(&file).unwrap_or_else(|e| panic!("{e}"));
    let cpu = Cpu::new(Isa::best(), 2).expect("the best instruction set is here");
    let extent = Extent { slots, context: 1024, burst: 96 };
    let mut loaded = Loaded::of(cpu, &source, Precision::AsStored, extent, regime);
    let stored = stored();
    let prompts: Vec<_> = stored.iter().map(|answer| answer.prompt.as_slice()).collect();
    let ours = loaded.greedy(&prompts, LONGEST, &PEBBLE_END);
    for (answer, ours) in stored.iter().zip(ours) {
        assert_eq!(ours, answer.greedy, "{}: {}", answer.category, answer.expected);
    }
}

#[test]
fn answers_are_the_originals() {
    check(Regime::F16, 8);
}

#[test]
fn one_at_a_time_too() {
    check(Regime::F32, 1);
}

#[test]
fn some_prompts_reach_past_the_window() {
    assert!(stored().iter().any(|answer| answer.prompt.len() > 2 * 128));
}
