//! What users of other engines report about batching, reuse and log-probabilities, asked of Pebble
//! and a real cache: one test per report, named for the symptom.

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Code, Regime, TokenId};
use lapidary_engine::{
    Event, Finish, FirstCome, Limits, Logprobs, NoDrafts, Pooling, Request, RequestId, Sampling,
    Scheduler, turn,
};
use lapidary_format::open;
use lapidary_model::Precision;
use lapidary_testkit::{Device, Loaded, repository};

const F16: Regime = Regime::F16;
const TQ4: Regime = Regime { keys: Code::Rotated(4), values: Code::Rotated(4) };
/// Positions that Pebble's sliding layers see.
const WINDOW: u32 = 128;
const CONTEXT: u32 = 400;

/// Everything that came of a request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    warm: u32,
    text: Vec<(TokenId, Option<Box<Logprobs>>)>,
    prompt: Vec<Logprobs>,
    embedding: Vec<f32>,
    finish: Option<Finish>,
}

/// A model, its cache and a scheduler that go on from request to request.
struct Bench {
    loaded: Loaded<Cpu>,
    scheduler: Scheduler,
    asked: u64,
}

impl Bench {
    fn new(regime: Regime, slots: usize, burst: u32) -> Self {
        let source = open(&repository("models/pebble/pebble-Q8_0.gguf"));
        let source = source.unwrap_or_else(|e| panic!("{e}"));
        let extent = Extent { slots, context: CONTEXT, burst };
        let (burst, step) = (burst as usize, 2 * burst as usize);
        let limits = Limits { slots, context: CONTEXT, burst, step, waiting: 99 };
        Self {
            loaded: Loaded::of(Cpu::device(), &source, Precision::AsStored, extent, regime),
            scheduler: Scheduler::new(limits, Box::new(FirstCome)).expect("sound limits"),
            asked: 0,
        }
    }

    /// Runs requests together, to their ends.
    fn together(&mut self, requests: &[Request]) -> Vec<Outcome> {
        let first = self.asked;
        for request in requests {
            let request = Request { id: RequestId(self.asked), ..request.clone() };
            self.scheduler.submit(request).expect("it fits");
            self.asked += 1;
        }
        let mut outcomes = vec![Outcome::default(); requests.len()];
        let Loaded { ops, model, cache, .. } = &mut self.loaded;
        while turn(&mut self.scheduler, ops, model, cache, &mut NoDrafts).expect("it runs") {}
        while let Some(event) = self.scheduler.poll_event() {
            let outcome = &mut outcomes[(event.id().0 - first) as usize];
            match event {
                Event::Warm { tokens, .. } => outcome.warm = tokens,
                Event::Prompt { logprobs, .. } => outcome.prompt = logprobs,
                Event::Embedding { values, .. } => outcome.embedding = values,
                Event::Token { token, logprobs, .. } => outcome.text.push((token, logprobs)),
                Event::Finished { finish, .. } => outcome.finish = Some(finish),
            }
        }
        outcomes
    }

    fn alone(&mut self, request: &Request) -> Outcome {
        self.together(std::slice::from_ref(request)).remove(0)
    }
}

/// A prompt that repeats itself only after thousands of tokens.
fn prompt(len: u32, kind: u32) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(300 + (i * i + 977 * kind) % 7000)).collect()
}

fn request(prompt: Vec<TokenId>) -> Request {
    Request { max_tokens: Some(6), logprobs: Some(3), ..Request::new(RequestId(0), prompt) }
}

/// An outcome without what it was spared.
fn cold(outcome: Outcome) -> Outcome {
    Outcome { warm: 0, ..outcome }
}

/// sglang #34683: 18 of 40 greedy answers changed when the prompt was warm. omlx #3690: with codes of
/// 4 bits the warm answer lost details.
#[test]
fn an_answer_is_the_same_cold_and_warm_to_the_last_bit() {
    for regime in [F16, TQ4] {
        let mut bench = Bench::new(regime, 1, CONTEXT);
        for (kind, temperature) in [(0, 0.0), (1, 0.0), (2, 0.0), (3, 1.0), (4, 1.0)] {
            let sampling = Sampling { temperature, seed: 7, ..Sampling::default() };
            let asked = Request { sampling, ..request(prompt(150 + kind, kind)) };
            let first = bench.alone(&asked);
            assert_eq!(first.warm, 0, "another conversation came before");
            let again = bench.alone(&asked);
            assert_eq!(again.warm, 149 + kind, "all but the last token");
            assert_eq!(cold(again), first, "{regime}, prompt {kind}");
        }
    }
}

/// llama.cpp #21749: every turn of a conversation was read from its beginning.
#[test]
fn a_conversation_is_read_on_from_where_it_diverges() {
    for regime in [F16, TQ4] {
        let mut bench = Bench::new(regime, 1, CONTEXT);
        let mut said = prompt(100, 0);
        bench.alone(&request(said.clone()));
        for turn in 1..6 {
            // Each turn changes the end of the one before, and goes on.
            let shared = said.len() as u32 - turn;
            said.truncate(shared as usize);
            said.extend(prompt(30, 20 + turn));
            let asked = request(said.clone());
            let outcome = bench.alone(&asked);
            assert_eq!(outcome.warm, shared, "{regime}, turn {turn}");
            assert_eq!(cold(outcome), Bench::new(regime, 1, CONTEXT).alone(&asked));
        }
    }
}

/// omlx #572: prompts three tokens longer than the window crashed. mlx-lm #1104: prompts longer than
/// the window could not be batched.
#[test]
fn prompts_around_the_window_answer_the_same_alone_and_together() {
    for regime in [F16, TQ4] {
        let lengths = [WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 3, 2 * WINDOW, 2 * WINDOW + 3, 20];
        let requests: Vec<_> = (0..).zip(lengths).map(|(i, n)| request(prompt(n, i))).collect();
        let expected: Vec<_> = requests
            .iter()
            .map(|request| cold(Bench::new(regime, 1, CONTEXT).alone(request)))
            .collect();
        for (slots, burst) in [(7, 32), (3, 100)] {
            let together = Bench::new(regime, slots, burst).together(&requests);
            let together: Vec<_> = together.into_iter().map(cold).collect();
            assert_eq!(together, expected, "{regime}, {slots} slots, bursts of {burst}");
        }
    }
}

/// ik_llama.cpp #2336: a conversation that reached the context size took the server down.
#[test]
fn a_conversation_that_fills_the_context_ends_with_length_and_others_go_on() {
    let mut bench = Bench::new(F16, 3, 64);
    for length in [CONTEXT - 1, CONTEXT - 2, CONTEXT - 5, CONTEXT - 30, CONTEXT - 64] {
        let full = Request { max_tokens: None, ..request(prompt(length, length)) };
        let others = [request(prompt(40, 1)), request(prompt(90, 2))];
        let outcomes = bench.together(&[full, others[0].clone(), others[1].clone()]);
        assert_eq!(outcomes[0].finish, Some(Finish::Length));
        assert_eq!(outcomes[0].text.len() as u32, CONTEXT - length);
        for (other, outcome) in others.iter().zip(&outcomes[1..]) {
            assert_eq!(outcome.finish, Some(Finish::Length));
            assert_eq!(outcome.text.len(), 6, "{other:?}");
        }
    }
}

/// Log-probabilities moved by 0.62 with the width of the batch: here they keep their bits.
#[test]
fn log_probabilities_and_vectors_do_not_depend_on_company() {
    let scored = |kind| Request { prompt_logprobs: Some(2), ..request(prompt(70 + kind, kind)) };
    let vector = |kind, pool| Request::embedding(RequestId(0), prompt(60, kind), pool);
    let requests = [
        scored(1),
        request(prompt(33, 9)),
        vector(2, Pooling::Mean),
        vector(3, Pooling::Last),
        Request {
            sampling: Sampling { top_k: 9, temperature: 1.0, ..Sampling::default() },
            logprobs: None,
            ..scored(4)
        },
        Request { logprobs: None, ..request(prompt(150, 5)) },
        Request { max_tokens: Some(0), ..scored(6) },
    ];
    let alone: Vec<_> =
        requests.iter().map(|request| Bench::new(F16, 1, CONTEXT).alone(request)).collect();
    assert_eq!(alone[0].prompt.len(), 70);
    for (slots, burst) in [(7, 16), (4, 64), (2, CONTEXT)] {
        let together = Bench::new(F16, slots, burst).together(&requests);
        for ((together, alone), request) in together.into_iter().zip(&alone).zip(&requests) {
            assert_eq!(&cold(together), alone, "{slots} slots, bursts of {burst}: {request:?}");
        }
    }
}

/// A prompt's score is that of the text: what a greedy text's tokens were given when they were
/// chosen, they are given when they are read.
#[test]
fn a_text_scores_as_a_prompt_what_it_scored_when_it_was_written() {
    let mut bench = Bench::new(F16, 1, CONTEXT);
    for kind in 0..5 {
        let asked = request(prompt(20 + kind, kind));
        let written = bench.alone(&asked);
        let text: Vec<_> = written.text.iter().map(|(token, _)| *token).collect();
        let whole = [asked.prompt.clone(), text.clone()].concat();
        let read = bench.alone(&Request {
            prompt_logprobs: Some(3),
            max_tokens: Some(0),
            ..request(whole)
        });
        let scores = &read.prompt[asked.prompt.len() - 1..];
        let given: Vec<_> = written.text.into_iter().filter_map(|(_, l)| l.map(|l| *l)).collect();
        assert_eq!(scores, given, "prompt {kind}");
    }
}
