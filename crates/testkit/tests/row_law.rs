//! The row law: 500 random schedules of a model with every structure of the family, and schedules
//! of a real one, bit for bit against rows that were alone.

use lapidary_backend_cpu::{Cpu, Isa, Reference};
use lapidary_core::{Code, KvKernels, Regime, TensorSource};
use lapidary_model::Precision;
use lapidary_testkit::row_law::{Schedule, Solo, Stage, Stories, Tally};
use lapidary_testkit::{TOY_VOCABULARY, repository, toy};

const SCHEDULES: u64 = 500;
const CONTEXT: u32 = 96;
const ROTATED: Regime = Regime { keys: Code::Rotated(6), values: Code::Rotated(5) };
const HYBRID: Regime = Regime { keys: Code::F16, values: Code::Rotated(4) };
const REGIMES: [Regime; 4] = [Regime::F32, Regime::F16, ROTATED, HYBRID];
const THREADS: [usize; 3] = [1, 2, 3];

/// Runs schedule `seed` on `devices[which]` for every `(seed, which)` of `work`.
fn check<B: KvKernels>(
    devices: &[Stage<B>],
    regime: Regime,
    stories: &Stories,
    schedule: Schedule,
    work: impl Iterator<Item = (u64, usize)>,
) -> Tally {
    let mut solo = Solo::new(&devices[0], schedule.context, regime);
    let mut tally = Tally::default();
    for (seed, which) in work {
        let stage = &devices[which];
        if let Err(e) = schedule.run(stage, &mut solo, stories, seed, &mut tally) {
            panic!("{} with a {regime} cache, {e}", stage.ops.name());
        }
    }
    tally
}

fn small(regime: Regime) -> Schedule {
    Schedule { context: CONTEXT, widest: 33, regime, steps: 8, prompt: 0 }
}

/// An instruction set with a number of threads.
type Which = (Isa, usize);

/// The most capable instruction set with one thread first; then every other.
fn every_cpu() -> Vec<Which> {
    let isas = Isa::ALL.into_iter().rev().filter(|isa| isa.is_here());
    isas.flat_map(|isa| THREADS.map(|threads| (isa, threads))).collect()
}

fn stage(&(isa, threads): &Which, source: &dyn TensorSource) -> Stage<Cpu> {
    let cpu = Cpu::new(isa, threads).expect("the instruction set is here");
    Stage::new(cpu, source, Precision::AsStored)
}

/// Whether an everyday run takes schedule `seed` to a device. Every schedule goes to every
/// instruction set, with one number of threads and one regime in turn; but `plain`, which is forty
/// times slower, gets every twentieth.
fn is_everyday(seed: u64, (isa, threads): Which, regime: usize) -> bool {
    let every = if isa == Isa::Plain { 20 } else { 1 };
    let turn = (seed / every) as usize;
    let of_threads = turn / REGIMES.len() % THREADS.len() == threads - 1;
    seed.is_multiple_of(every) && turn % REGIMES.len() == regime && of_threads
}

/// The tally of a whole run shows that nothing of the law was left out.
fn is_worth_something(tally: &Tally) {
    println!("{tally:?}");
    assert!((1..=33).all(|rows| tally.widths.contains_key(&rows)), "{:?}", tally.widths);
    let Tally { mixes, trees, rejected, images, cuts, forks, saves, .. } = tally;
    let moves = [cuts.0, cuts.1, forks.0, forks.1, saves.0, saves.1];
    let counts = [&[*mixes, trees.0, trees.1, *rejected, *images], &moves[..]].concat();
    assert!(counts.iter().all(|&count| count >= 20), "{tally:?}");
}

/// With the feature `slow`, every schedule goes to every device with every regime.
#[test]
fn schedules_on_every_instruction_set() {
    let source = toy(1);
    let which = every_cpu();
    let devices: Vec<_> = which.iter().map(|which| stage(which, &source)).collect();
    let stories = Stories::new(8, CONTEXT as usize, TOY_VOCABULARY, 1);
    let mut whole = Tally::default();
    for (i, regime) in REGIMES.into_iter().enumerate() {
        let all = (0..SCHEDULES).flat_map(|seed| (0..which.len()).map(move |d| (seed, d)));
        let everyday = |&(seed, d): &(u64, usize)| is_everyday(seed, which[d], i);
        let work = all.filter(|work| cfg!(feature = "slow") || everyday(work));
        whole.add(check(&devices, regime, &stories, small(regime), work));
    }
    is_worth_something(&whole);
}

/// The definition of the ops keeps the law too: one regime per schedule, or both if slow.
#[test]
fn schedules_by_definition() {
    let source = toy(2);
    let devices = [Stage::new(Reference, &source, Precision::F32)];
    let stories = Stories::new(4, CONTEXT as usize, TOY_VOCABULARY, 2);
    for (first, regime) in (0..).zip(REGIMES) {
        let (first, step) = if cfg!(feature = "slow") { (0, 1) } else { (4 * first, 16) };
        let seeds = (first..SCHEDULES).step_by(step);
        let tally = check(&devices, regime, &stories, small(regime), seeds.map(|seed| (seed, 0)));
        assert!(tally.rows > 1_000, "{tally:?}");
    }
}

/// Weights decoded to floats take other kernels: the same law.
#[test]
fn schedules_over_plain_floats() {
    let source = toy(3);
    let isas = Isa::ALL.into_iter().rev().filter(|isa| isa.is_here() && *isa != Isa::Plain);
    let device = |isa| {
        let cpu = Cpu::new(isa, 2).expect("the instruction set is here");
        Stage::new(cpu, &source, Precision::F32)
    };
    let devices: Vec<_> = isas.map(device).collect();
    let stories = Stories::new(4, CONTEXT as usize, TOY_VOCABULARY, 3);
    let schedules = if cfg!(feature = "slow") { SCHEDULES } else { 60 };
    let work = (0..schedules).map(|seed| (seed, seed as usize % devices.len().max(1)));
    if !devices.is_empty() {
        check(&devices, Regime::F32, &stories, small(Regime::F32), work);
    }
}

/// What a row gives alone does not depend on the rows that its slot held before.
#[test]
fn a_warm_slot_gives_what_a_cold_one_gives() {
    let source = toy(1);
    let stage = stage(&every_cpu()[0], &source);
    let stories = Stories::new(3, CONTEXT as usize, TOY_VOCABULARY, 4);
    let mut warm = Solo::new(&stage, CONTEXT, Regime::F16);
    for (story, pieces) in [(0, 40), (1, 30), (0, 20), (2, 9), (0, 41)] {
        let story = stories.beginning(story, pieces);
        let mut cold = Solo::new(&stage, CONTEXT, Regime::F16);
        assert_eq!(warm.last_piece(&story), cold.last_piece(&story));
    }
}

/// Pebble, read past its window of 128 before the schedules begin.
#[test]
fn schedules_of_pebble() {
    let path = repository("models/pebble/pebble-Q8_0.gguf");
    let source = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let slow = cfg!(feature = "slow");
    let is_taken = |&(isa, threads): &Which| slow || (isa != Isa::Plain && threads < 3);
    let which: Vec<_> = every_cpu().into_iter().filter(is_taken).collect();
    let devices: Vec<_> = which.iter().map(|which| stage(which, &source)).collect();
    let stories = Stories::new(2, 260, 5_000, 5);
    for (first, regime) in (0..).zip([Regime::F16, Regime::F32]) {
        let schedule = Schedule { context: 300, widest: 33, regime, steps: 6, prompt: 150 };
        let count = if slow { 40 } else { 3 };
        let seeds = (0..count).map(|i| first + 2 * i);
        let work = seeds.map(|seed| (seed, seed as usize % devices.len()));
        check(&devices, regime, &stories, schedule, work);
    }
}
