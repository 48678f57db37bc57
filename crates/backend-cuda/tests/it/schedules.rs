//! The row law over random schedules: chunks, images, drafts, trees, rollbacks, in every regime.

use crate::common::device;
use lapidary_core::{Code, Regime, TensorSource};
use lapidary_model::Precision;
use lapidary_testkit::row_law::{Schedule, Solo, Stage, Stories, Tally};
use lapidary_testkit::{TOY_VOCABULARY, repository, toy};

const fn regime(keys: Code, values: Code) -> Regime {
    Regime { keys, values }
}

const REGIMES: [Regime; 7] = [
    Regime::F16,
    Regime::F32,
    regime(Code::Rotated(8), Code::Rotated(8)),
    regime(Code::Rotated(6), Code::Rotated(5)),
    regime(Code::Rotated(5), Code::Rotated(5)),
    regime(Code::Rotated(4), Code::Rotated(4)),
    regime(Code::F16, Code::Rotated(4)),
];

/// Schedules `0..count`, regimes in turn.
fn check(source: &dyn TensorSource, stories: &Stories, schedule: Schedule, count: u64) {
    let mut whole = Tally::default();
    for (first, regime) in (0..).zip(REGIMES) {
        let Some(cuda) = device() else { return };
        let stage = Stage::new(cuda, source, Precision::AsStored);
        let mut solo = Solo::new(&stage, schedule.context, regime);
        let schedule = Schedule { regime, ..schedule };
        for seed in (first..count).step_by(REGIMES.len()) {
            if let Err(e) = schedule.run(&stage, &mut solo, stories, seed, &mut whole) {
                panic!("schedule {seed} with a {regime} cache, {e}");
            }
        }
    }
    println!("{whole:?}");
    assert!(whole.trees.1 > 0 && whole.images > 0 && whole.rejected > 0, "{whole:?}");
    assert!(whole.forks.0 > 0 && whole.saves.1 > 0, "{whole:?}");
}

/// Every structure of the family, small.
#[test]
fn schedules_of_the_toy() {
    let stories = Stories::new(4, 96, TOY_VOCABULARY, 1);
    let schedule = Schedule { context: 96, widest: 33, regime: Regime::F16, steps: 8, prompt: 0 };
    check(&toy(1), &stories, schedule, 140);
}

/// A real model, past its window before the schedules begin.
#[test]
fn schedules_of_pebble() {
    let path = repository("models/pebble/pebble-Q8_0.gguf");
    let source = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let stories = Stories::new(2, 260, 5_000, 5);
    let schedule =
        Schedule { context: 300, widest: 33, regime: Regime::F16, steps: 8, prompt: 150 };
    check(&source, &stories, schedule, 70);
}
