//! Speculation changes no text: every drafter, chains and trees, every regime, any company, greedy
//! and at temperature 1, with the log-probabilities of the text without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapidary_backend_cpu::Cpu;
use lapidary_cache::{Cache, Extent};
use lapidary_core::{Code, Constraint, LayerId, Regime, TensorSource, TokenId};
use lapidary_engine::{
    AssistantDrafter, Drafter, Drafting, Event, Finish, FirstCome, Limits, Logprobs, NgramDrafter,
    NoDrafts, Request, RequestId, Sampling, Scheduler, SmallModelDrafter, Stats, turn,
};
use lapidary_model::{Model, Precision, load, load_assistant};
use lapidary_testkit::{
    Device, Loaded, PEBBLE_END, Rng, answers, pebble_words, repository, shared,
};
use lapidary_text::{Grammars, Rules, Thinking};
use serde_json::json;

const CONTEXT: u32 = 1024;
const BURST: u32 = 64;
#[cfg(not(feature = "slow"))]
const CASES: u64 = 100;
#[cfg(feature = "slow")]
const CASES: u64 = 2_000;

/// What a request got.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    text: Vec<(TokenId, Option<Box<Logprobs>>)>,
    finish: Option<Finish>,
}

/// Pebble, and what is compared on it.
struct Bench {
    loaded: Loaded<Cpu>,
    prompts: Vec<Vec<TokenId>>,
    grammars: Vec<Arc<dyn Constraint>>,
}

/// What some texts must conform to: an object, a list, and one of a few words.
fn grammars() -> Vec<Arc<dyn Constraint>> {
    let grammars = Grammars::new(&pebble_words().0);
    let city = json!({ "type": "object", "required": ["city", "country"], "properties": {
        "city": { "type": "string", "maxLength": 12 }, "country": { "type": "string" } } });
    let list = json!({ "type": "array", "minItems": 2, "maxItems": 5,
        "items": { "enum": ["Paris", "Lima", 7, true] } });
    let rules =
        [Rules::JsonSchema(&city), Rules::JsonSchema(&list), Rules::Regex("(Yes|No|(la )+end)\\.")];
    let guide = |rules| grammars.compile(rules, Thinking::Never).unwrap_or_else(|e| panic!("{e}"));
    rules.into_iter().map(|rules| Arc::new(guide(rules)) as _).collect()
}

impl Bench {
    fn new() -> Self {
        let file = repository("models/pebble/pebble-Q8_0.gguf");
        let source = lapidary_format::open(&file).unwrap_or_else(|e| panic!("{e}"));
        let extent = Extent { slots: 1, context: CONTEXT, burst: BURST };
        let loaded = Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, Regime::F16);
        let stored = answers(&repository("crates/testkit/tests/data/pebble_answers.jsonl"));
        let prompts = stored.into_iter().map(|answer| answer.prompt);
        // Past the window, but not by much: what is read is not what is tested here.
        let prompts = prompts.filter(|prompt| prompt.len() < 250).collect();
        Self { loaded, prompts, grammars: grammars() }
    }

    fn cache(&self, regime: Regime, slots: usize) -> Cache<Cpu> {
        let model = &self.loaded.model;
        let owns = |layer: LayerId| Model::<Cpu>::owns_entries(model, layer);
        let extent = Extent { slots, context: CONTEXT, burst: BURST };
        Cache::new(&self.loaded.ops, model.kv_specs(), extent, owns, |_| regime).unwrap()
    }

    /// Runs the requests together.
    fn run(
        &self,
        requests: &[Request],
        (regime, slots): (Regime, usize),
        drafting: Drafting,
        drafter: &mut dyn Drafter<Cpu>,
    ) -> (Vec<Outcome>, Stats) {
        let limits = Limits {
            slots,
            context: CONTEXT,
            burst: BURST as usize,
            step: 128,
            waiting: requests.len(),
        };
        let scheduler = Scheduler::new(limits, Box::new(FirstCome)).unwrap();
        let mut scheduler = scheduler.drafting(drafting, drafter.wants_hidden());
        requests.iter().for_each(|request| scheduler.submit(request.clone()).unwrap());
        let mut cache = self.cache(regime, slots);
        let (ops, model) = (&self.loaded.ops, &self.loaded.model);
        while turn(&mut scheduler, ops, model, &mut cache, drafter).unwrap() {}
        let mut outcomes = BTreeMap::<RequestId, Outcome>::new();
        while let Some(event) = scheduler.poll_event() {
            let outcome = outcomes.entry(event.id()).or_default();
            match event {
                Event::Token { token, logprobs, .. } => outcome.text.push((token, logprobs)),
                Event::Finished { finish, .. } => outcome.finish = Some(finish),
                _ => {}
            }
        }
        (outcomes.into_values().collect(), scheduler.stats())
    }
}

/// Drafters by name, with the width of what they make.
fn drafters(bench: &Bench) -> Vec<(&'static str, usize, Box<dyn Drafter<Cpu>>)> {
    let mut drafters: Vec<(_, _, Box<dyn Drafter<Cpu>>)> =
        vec![("ngram", 1, Box::new(NgramDrafter::new(3)))];
    let ops = &bench.loaded.ops;
    if let Some(folder) = shared("pebble/drafter_hf") {
        let source = lapidary_format::open(&folder).unwrap();
        for (name, width) in [("chain", 1), ("tree of 2", 2), ("tree of 4", 4)] {
            let config = &bench.loaded.config;
            let loaded = load_assistant(ops, &source, config, Precision::AsStored, &mut |_, _| {});
            let assistant = loaded.unwrap_or_else(|e| panic!("{e}"));
            drafters.push((name, width, Box::new(AssistantDrafter::new(assistant))));
        }
    }
    // The target as its own small model: always right when greedy.
    let file = repository("models/pebble/pebble-Q8_0.gguf");
    let source: &dyn TensorSource = &lapidary_format::open(&file).unwrap();
    let (_, model) = load(ops, source, Precision::AsStored, &mut |_, _| {}).unwrap();
    let cache = bench.cache(Regime::F16, 8);
    let small = SmallModelDrafter::new(Box::new(model), Box::new(cache), 8, BURST as usize);
    drafters.push(("small model", 1, Box::new(small)));
    drafters
}

const REGIMES: [Regime; 5] = [
    Regime::F16,
    Regime::F32,
    Regime { keys: Code::Rotated(5), values: Code::Rotated(5) },
    Regime { keys: Code::Rotated(8), values: Code::Rotated(4) },
    Regime { keys: Code::F16, values: Code::Rotated(4) },
];

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len())].clone()
}

/// Some prompts, greedy or drawn, some with scores, some under a grammar, some with stops that come
/// up within a draft.
fn requests(bench: &Bench, rng: &mut Rng) -> Vec<Request> {
    let mut request = |id| {
        let prompt = pick(rng, &bench.prompts);
        let sampling = Sampling {
            seed: rng.bits(),
            temperature: pick(rng, &[0.0, 1.0]),
            repeat_penalty: pick(rng, &[1.0, 1.1]),
            ..Sampling::default()
        };
        Request {
            max_tokens: Some(pick(rng, &[1, 2, 7, 16])),
            stop: PEBBLE_END.to_vec(),
            sampling,
            logprobs: pick(rng, &[None, Some(2)]),
            grammar: (rng.below(3) == 0).then(|| pick(rng, &bench.grammars)),
            ..Request::new(RequestId(id), prompt)
        }
    };
    (0..3).map(&mut request).collect()
}

#[test]
fn speculated_texts_are_the_plain_ones_bit_for_bit() {
    let bench = Bench::new();
    let mut drafters = drafters(&bench);
    let count = drafters.len();
    let mut accepted = vec![0; count];
    let mut conforming = 0;
    let plain = Drafting { most: 0, width: 1, adaptive: false };
    for case in 0..CASES {
        let mut rng = Rng(case);
        let requests = requests(&bench, &mut rng);
        conforming += requests.iter().filter(|request| request.grammar.is_some()).count() as u64;
        let place = (pick(&mut rng, &REGIMES), pick(&mut rng, &[1, 2, 3, 8]));
        let (expected, _) = bench.run(&requests, place, plain, &mut NoDrafts);
        let (most, adaptive) = (1 + rng.below(8), rng.below(4) == 0);
        let (name, width, drafter) = &mut drafters[case as usize % count];
        let drafting = Drafting { most, width: *width, adaptive };
        let (outcomes, stats) = bench.run(&requests, place, drafting, &mut **drafter);
        assert_eq!(outcomes, expected, "case {case}: {name}, {place:?}, {drafting:?}");
        accepted[case as usize % count] += stats.accepted;
    }
    println!("guesses that came true: {accepted:?}; texts under a grammar: {conforming}");
    assert!(conforming > CASES / 2, "{conforming} texts conform to something");
    assert!(accepted.iter().all(|&times| times > 0), "{accepted:?} guesses came true");
}

/// Mean tokens per step that yields one, of greedy answers, by category.
#[test]
fn three_guesses_of_the_drafter_yield_as_many_tokens_as_the_reference_reports() {
    let bench = Bench::new();
    let Some(answers_file) = shared("pebble/golden/answers.jsonl") else { return };
    let mut drafters = drafters(&bench);
    let chain = drafters.iter_mut().find(|(name, ..)| *name == "chain");
    let Some((_, _, chain)) = chain else { return };
    let stored = answers(&answers_file);
    let every = if cfg!(feature = "slow") { 1 } else { 8 };
    let request = |(id, answer): (u64, &lapidary_measure::Answer)| Request {
        max_tokens: Some(64),
        stop: PEBBLE_END.to_vec(),
        ..Request::new(RequestId(id), answer.prompt.clone())
    };
    let requests: Vec<_> = (0..).zip(stored.iter().step_by(every)).map(request).collect();
    let drafting = Drafting { most: 3, width: 1, adaptive: false };
    let (outcomes, stats) = bench.run(&requests, (Regime::F16, 1), drafting, &mut **chain);
    let tokens: usize = outcomes.iter().map(|outcome| outcome.text.len()).sum();
    // One slot: prompts are read in bursts, and every other step yields at least one token or an
    // end.
    let reading: usize = requests.iter().map(|r| r.prompt.len().div_ceil(BURST as usize) - 1).sum();
    let yielding = stats.steps as f64 - reading as f64;
    let per_step = (tokens + outcomes.len()) as f64 / yielding;
    println!("{per_step:.2} tokens per step, {} of {} guesses", stats.accepted, stats.drafted);
    assert!(per_step >= 2.3, "{per_step} tokens per step");
}
