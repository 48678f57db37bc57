//! Requests on a real model and a real cache, in every kind of company: the tokens and the bits of
//! the log-probabilities that each has alone.
//!
//! A schedule draws limits, a policy and a budget for saved prefixes, then requests that come at
//! any time, ask for several texts, are guessed at, preempted, or cancelled.

use std::collections::HashMap;

use lapidary_backend_cpu::Cpu;
use lapidary_cache::{Cache, Extent};
use lapidary_core::{Code, KvCache, LayerId, Regime, TokenId};
use lapidary_engine::{
    Aids, Budget, Draft, DraftCall, Drafter, Event, Finish, FirstCome, HostShelf, Limits, NoDrafts,
    NoWatch, Policy, Preemptive, Prefixes, Request, RequestId, Sampling, Scheduler, ShortestPrompt,
    Stats, Swap, Target, turn, turn_with,
};
use lapidary_model::{Model, NoHooks, Precision};
use lapidary_testkit::{Device, Loaded, Rng, repository};

const SCHEDULES: u64 = if cfg!(feature = "slow") { 500 } else { 40 };
const CONTEXT: u32 = 240;
/// Prompts that requests are drawn from.
const PROMPTS: usize = 12;
const TQ5: Regime = Regime { keys: Code::Rotated(5), values: Code::Rotated(5) };

/// A token and the bits of its log-probabilities: its own, then those of the likeliest.
type Told = (TokenId, Vec<u64>);

/// A text and how it ended.
#[derive(Clone, Debug, Default, PartialEq)]
struct Text {
    told: Vec<Told>,
    finish: Option<Finish>,
}

struct Subject {
    loaded: Loaded<Cpu>,
    regime: Regime,
    /// What requests give alone, by prompt and sample.
    alone: HashMap<(usize, u32), Text>,
    temperature: f32,
}

impl Subject {
    fn new(regime: Regime, temperature: f32) -> Self {
        let path = repository("models/pebble/pebble-Q8_0.gguf");
        let source = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let extent = Extent { slots: 1, context: CONTEXT, burst: CONTEXT };
        let loaded = Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, regime);
        Self { loaded, regime, alone: HashMap::new(), temperature }
    }

    /// A request after prompt `which`. Prompts share beginnings, some longer than the window.
    fn request(&self, id: u64, which: usize) -> Request {
        let shared = (0..[0, 9, 150][which % 3]).map(|i| TokenId(300 + i * i % 7000));
        let own = (0..5 + 7 * which as u32).map(|i| TokenId(500 + (i * 37 + which as u32) % 6000));
        let prompt = shared.chain(own).collect();
        let mut request = Request::new(RequestId(id), prompt);
        request.max_tokens = Some(6 + 4 * (which as u32 % 5));
        request.sampling = Sampling {
            temperature: self.temperature,
            seed: which as u64,
            repeat_penalty: if which.is_multiple_of(4) { 1.2 } else { 1.0 },
            ..Sampling::default()
        };
        // Half of the requests bring back candidates only, half whole rows.
        request.logprobs = which.is_multiple_of(2).then_some(2);
        request
    }

    fn cache(&self, extent: Extent) -> Cache<Cpu> {
        let Loaded { ops, model, .. } = &self.loaded;
        let owns = |layer: LayerId| Model::<Cpu>::owns_entries(model, layer);
        let specs = Model::<Cpu>::kv_specs(model);
        Cache::new(ops, specs, extent, owns, |_| self.regime).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The text that a request for one gives to nobody else's rows.
    fn alone(&mut self, which: usize, sample: u32) -> &Text {
        if !self.alone.contains_key(&(which, sample)) {
            let mut request = self.request(0, which);
            request.sampling.sample = sample;
            let limits = Limits { slots: 1, context: CONTEXT, burst: 240, step: 240, waiting: 1 };
            let scheduler = Scheduler::new(limits, Box::new(FirstCome));
            let mut scheduler = scheduler.expect("the limits are sound");
            scheduler.submit(request).expect("it fits");
            self.loaded.cache.clear(lapidary_core::SlotId(0));
            let Loaded { ops, model, cache, .. } = &mut self.loaded;
            let mut told = HashMap::new();
            while turn(&mut scheduler, ops, &*model, cache, &mut NoDrafts)
                .expect("the device works")
            {
                listen(&mut scheduler, &mut told);
            }
            let text = told.remove(&(RequestId(0), 0)).expect("it was told");
            self.alone.insert((which, sample), text);
        }
        &self.alone[&(which, sample)]
    }
}

fn listen(scheduler: &mut Scheduler, told: &mut HashMap<(RequestId, u32), Text>) {
    while let Some(event) = scheduler.poll_event() {
        match event {
            Event::Token { id, sample, token, logprobs, .. } => {
                let mut bits = Vec::new();
                if let Some(logprobs) = logprobs {
                    bits.push(logprobs.token.to_bits());
                    let top = logprobs.top.iter();
                    bits.extend(top.flat_map(|(t, p)| [u64::from(t.0), p.to_bits()]));
                }
                told.entry((id, sample)).or_default().told.push((token, bits));
            }
            Event::Finished { id, sample, finish, .. } => {
                told.entry((id, sample)).or_default().finish = Some(finish);
            }
            _ => {}
        }
    }
}

/// Foretells texts that it has been shown, sometimes wrongly.
struct Oracle {
    texts: Vec<Vec<TokenId>>,
    rng: Rng,
}

impl Drafter<Cpu> for Oracle {
    fn propose(&mut self, _: Target<'_, Cpu>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        calls.iter().map(|call| Draft::chain(self.foretell(call.known, call.room))).collect()
    }
}

impl Oracle {
    fn foretell(&mut self, known: &[TokenId], room: usize) -> Vec<TokenId> {
        let text = self.texts.iter().find(|text| text.starts_with(known));
        let next = text.map_or(&[][..], |text| &text[known.len()..]);
        let len = self.rng.below(room.min(6) + 1);
        let mut guesses: Vec<_> = next.iter().copied().take(len).collect();
        if self.rng.below(3) == 0 {
            guesses.push(TokenId(self.rng.below(5000) as u32));
        }
        guesses
    }
}

/// Draws and runs one schedule; returns what was done.
fn play(subject: &mut Subject, seed: u64) -> Stats {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    rng.bits();
    let slots = 1 + rng.below(2);
    let burst = 8 + rng.below(60);
    let limits =
        Limits { slots, context: CONTEXT, burst, step: slots + rng.below(90), waiting: 20 };
    let swap = if rng.below(2) == 0 { Swap::Save } else { Swap::Recompute };
    let policy: Box<dyn Policy> = match rng.below(4) {
        0 => Box::new(FirstCome),
        1 => Box::new(ShortestPrompt),
        _ => Box::new(Preemptive { most: 2, swap }),
    };
    let scheduler = Scheduler::new(limits, policy).expect("the limits are sound");
    let mut scheduler = scheduler.saving([0, 32, 100][rng.below(3)]);
    let budget = Budget { bytes: [0, 200 << 10, 8 << 20][rng.below(3)], least: 4 };
    let mut prefixes = Prefixes::new(Box::new(HostShelf::default()), budget);
    let mut cache = subject.cache(Extent { slots, context: CONTEXT, burst: burst as u32 });

    let asked: Vec<_> = (0..3 + rng.below(4))
        .map(|id| {
            let which = rng.below(PROMPTS);
            let mut request = subject.request(id as u64, which);
            request.samples = [1, 1, 1, 2, 3][rng.below(5)];
            request.priority = rng.below(3) as i32;
            (which, request)
        })
        .collect();
    let mut texts = Vec::new();
    for (which, request) in &asked {
        for sample in 0..request.samples {
            let text = subject.alone(*which, sample).told.iter().map(|(token, _)| *token);
            texts.push(request.prompt.iter().copied().chain(text).collect());
        }
    }
    let mut oracle = Oracle { texts, rng: Rng(seed) };
    let (mut coming, mut cancelled) = (asked.iter(), Vec::new());
    let mut told = HashMap::new();
    loop {
        if rng.below(2) == 0
            && let Some((_, request)) = coming.next()
        {
            scheduler.submit(request.clone()).expect("there is room to wait");
        }
        if rng.below(25) == 0 {
            let id = RequestId(rng.below(asked.len()) as u64);
            scheduler.cancel(id);
            cancelled.push(id);
        }
        let Loaded { ops, model, .. } = &subject.loaded;
        let target = Target { ops, model, cache: &mut cache };
        let aids = Aids {
            drafter: &mut oracle,
            prefixes: &mut prefixes,
            hooks: &mut NoHooks,
            watch: &mut NoWatch,
        };
        let step = turn_with(&mut scheduler, target, aids);
        listen(&mut scheduler, &mut told);
        if !step.expect("the device works") && coming.len() == 0 {
            break;
        }
    }
    for (which, request) in &asked {
        for sample in 0..request.samples {
            let place = format!("seed {seed}: text {sample} of {:?}, prompt {which}", request.id);
            let ours = told.remove(&(request.id, sample)).unwrap_or_else(|| panic!("{place}"));
            let alone = subject.alone(*which, sample);
            if ours.finish == Some(Finish::Cancelled) {
                assert!(cancelled.contains(&request.id), "{place}");
                assert_eq!(ours.told[..], alone.told[..ours.told.len()], "{place}");
            } else {
                assert_eq!(ours, *alone, "{place}");
            }
        }
    }
    assert!(scheduler.is_idle() && told.is_empty());
    let Stats { cached, .. } = scheduler.stats();
    assert!(cached >= prefixes.stats().tokens, "saved prefixes are among what was found");
    scheduler.stats()
}

#[test]
fn company_changes_no_token_and_no_log_probability() {
    let mut sum = Stats::default();
    for (i, regime) in (0..).zip([Regime::F16, TQ5]) {
        for (j, temperature) in (0..).zip([0.0, 1.0]) {
            let mut subject = Subject::new(regime, temperature);
            for seed in (2 * i + j..SCHEDULES).step_by(4) {
                let stats = play(&mut subject, seed);
                sum.cached += stats.cached;
                sum.accepted += stats.accepted;
                sum.drafted += stats.drafted;
                sum.preempted += stats.preempted;
            }
        }
    }
    println!("{sum:?}");
    let rejected = sum.drafted - sum.accepted;
    let counts = [sum.cached, sum.accepted, rejected, sum.preempted];
    assert!(counts.iter().all(|&count| count >= SCHEDULES / 8), "{sum:?}");
}
