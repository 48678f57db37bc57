//! What mixes, importance and the search do to Pebble's answers: divergence from the float32
//! original on conversations that nothing was measured on.

use std::path::Path;

use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_cache::Extent;
use lapidary_convert::imatrix::{Observed, collect};
use lapidary_convert::search::{Budget, Variant, spend};
use lapidary_convert::{Again, ConvertError, Draft, Imatrix, Mix, Recipe, Workers};
use lapidary_core::{Regime, TensorSource, TokenId};
use lapidary_format::{Folder, Gguf};
use lapidary_measure::{Baseline, Distance};
use lapidary_model::Precision;
use lapidary_testkit::{Loaded, Rng, answers, shared};

const WINDOW: usize = 256;
const EXTENT: Extent = Extent { slots: 1, context: WINDOW as u32, burst: 64 };

fn cpu() -> Cpu {
    Cpu::new(Isa::best(), 2).unwrap()
}

/// Conversations end to end, cut into windows: those to learn from, and those to judge by.
fn windows(path: &Path) -> [Vec<Vec<TokenId>>; 2] {
    let mut texts = [Vec::new(), Vec::new()];
    for (i, answer) in answers(path).iter().enumerate() {
        texts[i % 2].extend(answer.prompt.iter().chain(&answer.greedy).copied());
    }
    texts.map(|text| text.chunks_exact(WINDOW).map(<[TokenId]>::to_vec).collect())
}

struct Bench {
    gguf: Gguf,
    /// Windows to search with, fewer than those to judge by.
    search: Baseline,
    judge: Baseline,
    importance: Imatrix,
    workers: Workers,
}

fn baseline(gguf: &Gguf, windows: &[Vec<TokenId>]) -> Baseline {
    let mut own = Loaded::of(cpu(), gguf, Precision::F32, EXTENT, Regime::F32);
    Baseline::record(&own.ops, &own.model, &mut own.cache, windows.to_vec()).unwrap()
}

fn distance(baseline: &Baseline, source: &dyn TensorSource) -> Distance {
    let mut other = Loaded::of(cpu(), source, Precision::F32, EXTENT, Regime::F32);
    baseline.compare(&other.ops, &other.model, &mut other.cache).unwrap()
}

impl Bench {
    fn new() -> Option<Self> {
        let (folder, golden) = (shared("pebble/hf")?, shared("pebble/golden/answers.jsonl")?);
        let folder = Folder::open(&folder).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("bf16.gguf");
        let workers = Workers::new(2).unwrap();
        let draft = Draft::of_folder(&folder, "Pebble").unwrap();
        draft.write(&Recipe::plain(Mix::BF16), &path, &workers, &mut |_| {}).unwrap();
        let gguf = Gguf::open(&path).unwrap();
        let [learn, judge] = windows(&golden);
        let mut importance = Imatrix::new("answers".into(), WINDOW as u32);
        let watched = Observed::new(cpu());
        let mut own = Loaded::of(watched, &gguf, Precision::AsStored, EXTENT, Regime::F32);
        collect(&own.ops, &own.model, &mut own.cache, &learn, &mut importance, &mut |_| {})
            .unwrap();
        let search = baseline(&gguf, &learn[..2]);
        let judge = baseline(&gguf, &judge);
        Some(Self { gguf, search, judge, importance, workers })
    }

    /// Bytes of the weights, and how far they are from the original.
    fn judged(&self, recipe: &Recipe<'_>) -> (u64, Distance) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x.gguf");
        let draft = Draft::of_gguf(&self.gguf).unwrap();
        let written = draft.write(recipe, &path, &self.workers, &mut |_| {}).unwrap();
        let bytes = written.iter().map(lapidary_convert::Written::bytes).sum();
        (bytes, distance(&self.judge, &Gguf::open(&path).unwrap()))
    }

    fn searched(&self, bytes: u64, importance: Option<&Imatrix>) -> Recipe<'_> {
        let draft = Draft::of_gguf(&self.gguf).unwrap();
        let mut measure = |variant: &Variant<'_>| -> Result<f64, ConvertError> {
            Ok(distance(&self.search, variant).whole.mean_kld)
        };
        let found = draft.sensitivities(importance, &self.workers, &mut measure, &mut |_| {});
        let choices = spend(&found.unwrap(), Budget::Bytes(bytes - draft.fixed_bytes()));
        let named = choices.into_iter().map(|choice| (choice.name, choice.block)).collect();
        let importance = importance.map(|_| (&self.importance, "answers"));
        Recipe { mix: Mix::Q4_K_M, named, importance, again: Again::Refuse }
    }
}

/// How often, of a thousand redrawn sets of positions, the first is nearer on average.
fn nearer(first: &[f64], second: &[f64]) -> f64 {
    let mut rng = Rng(11);
    let mut draw = || {
        let picks = (0..first.len()).map(|_| rng.below(first.len()));
        picks.map(|i| first[i] - second[i]).sum::<f64>() < 0.0
    };
    (0..1000).filter(|_| draw()).count() as f64 / 1000.0
}

#[test]
fn importance_and_the_search_bring_answers_nearer_at_the_same_size() {
    let Some(bench) = Bench::new() else { return };
    let line = |name: &str, bytes: u64, distance: &Distance| {
        let whole = &distance.whole;
        eprintln!(
            "{name:<24} {:>7.2} MB   KL {:.5}   same top {:.2} %",
            bytes as f64 / 1e6,
            whole.mean_kld,
            100.0 * whole.same_top
        );
    };
    let (bytes, blind) = bench.judged(&Recipe::plain(Mix::Q4_K_M));
    line("Q4_K_M", bytes, &blind);
    for importance in [None, Some(&bench.importance)] {
        let (own, found) = bench.judged(&bench.searched(bytes, importance));
        let name = importance.map_or("search, that size", |_| "search + importance");
        line(name, own, &found);
        let sure = nearer(&found.klds, &blind.klds);
        eprintln!("  the search is nearer than the mix in {:.1} % of redraws", 100.0 * sure);
        assert!(own <= bytes && sure > 0.95, "{own} of {bytes} bytes, {sure}");
    }
    let mut unsure = Vec::new();
    for mix in Mix::ALL.into_iter().filter(|mix| mix.base().is_quantised() && *mix != Mix::Q2_K_S) {
        let plain = Recipe::plain(mix);
        let weighed = Recipe { importance: Some((&bench.importance, "answers")), ..plain.clone() };
        let (bytes, blind) = bench.judged(&plain);
        let (_, aware) = bench.judged(&weighed);
        line(&mix.to_string(), bytes, &blind);
        line(&format!("{mix} + importance"), bytes, &aware);
        let sure = nearer(&aware.klds, &blind.klds);
        eprintln!("  importance is nearer in {:.1} % of redraws", 100.0 * sure);
        // Q8_0 leaves nothing to choose.
        if mix != Mix::Q8_0 && sure <= 0.95 {
            unsure.push((mix, sure));
        }
    }
    assert!(unsure.is_empty(), "{unsure:?}");
}
