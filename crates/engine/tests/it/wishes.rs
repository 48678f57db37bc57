//! What a request may ask for besides a text: log-probabilities, vectors, grammars, a least length.
//! Whatever the company, the chunks and the guesses, each gets what a naive loop gives it.

use lapidary_core::{Constraint, Next, Stuck, TokenId, TokenSet};
use lapidary_engine::{
    Draft, DraftCall, Drafter, Dry, Event, Finish, FirstCome, Limits, Logprobs, NoDrafts, Pooling,
    Refused, Request, RequestId, Sampling, Scheduler, Target, Xtc, logprobs, turn,
};
use std::sync::Arc;

use crate::common::{Fake, FakeCache, FakeModel, Rng, VOCAB, logits, state};

/// Everything that comes of a request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    warm: u32,
    prompt: Option<Vec<Logprobs>>,
    embedding: Option<Vec<f32>>,
    text: Vec<(TokenId, Option<Box<Logprobs>>)>,
    finish: Option<Finish>,
}

/// Up to `longest` tokens; each may be followed by tokens of the other parity and by itself, and
/// the text may end after an even token. After `longest` it must.
#[derive(Clone, Debug)]
struct Alternating {
    last: Option<TokenId>,
    count: usize,
    longest: usize,
}

impl Alternating {
    fn new(longest: usize) -> Self {
        Self { last: None, count: 0, longest }
    }

    fn allows(&self, token: TokenId) -> bool {
        let fits = |last: TokenId| last == token || last.0 % 2 != token.0 % 2;
        self.count < self.longest && self.last.is_none_or(fits)
    }

    fn may_end(&self) -> bool {
        self.count >= self.longest || self.last.is_some_and(|last| last.0.is_multiple_of(2))
    }
}

impl Constraint for Alternating {
    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }

    fn next(&mut self) -> Result<Next, Stuck> {
        let tokens: TokenSet =
            (0..VOCAB as u32).map(TokenId).filter(|token| self.allows(*token)).collect();
        Ok(Next { tokens, end: self.may_end() })
    }

    fn advance(&mut self, token: TokenId) -> Result<(), Stuck> {
        if !self.allows(token) {
            return Err(Stuck(format!("{token:?} after {:?}", self.last)));
        }
        self.last = Some(token);
        self.count += 1;
        Ok(())
    }
}

/// The request served by nobody. `grammar` is the one that the request holds.
fn alone(request: &Request, grammar: Option<&Alternating>, context: u32) -> Outcome {
    let known = |tokens: &[TokenId]| state(tokens.iter().copied());
    let mut outcome = Outcome::default();
    let mut tokens = request.prompt.clone();
    if let Some(pooling) = request.pool {
        let states: Vec<_> = (1..=tokens.len()).map(|n| known(&tokens[..n])).collect();
        let pooled = match pooling {
            Pooling::Last => &states[tokens.len() - 1..],
            Pooling::Mean => &states,
        };
        let mean = |i: usize| {
            let sum: f64 = pooled.iter().map(|state| f64::from(state[i])).sum();
            sum / pooled.len() as f64
        };
        let length = mean(0).hypot(mean(1));
        outcome.embedding = Some(vec![(mean(0) / length) as f32, (mean(1) / length) as f32]);
        outcome.finish = Some(Finish::Complete);
        return outcome;
    }
    if let Some(top) = request.prompt_logprobs {
        let score = |n: usize| logprobs(&logits(known(&tokens[..n])), tokens[n], top);
        outcome.prompt = Some((1..tokens.len()).map(score).collect());
    }
    let mut grammar = grammar.cloned();
    let finish = loop {
        let produced = outcome.text.len();
        let most = request.max_tokens.map_or(usize::MAX, |most| most as usize);
        let complete = |grammar: &Alternating| grammar.count >= grammar.longest;
        if most > 0 && grammar.as_ref().is_some_and(complete) {
            break Finish::Complete;
        }
        if produced == most || tokens.len() == context as usize {
            break Finish::Length;
        }
        let own = logits(known(&tokens));
        let mut row = own.clone();
        let early = produced < request.min_tokens as usize;
        for (id, logit) in row.iter_mut().enumerate() {
            let token = TokenId(id as u32);
            let allowed = if request.stop.contains(&token) {
                !early && grammar.as_ref().is_none_or(Alternating::may_end)
            } else {
                grammar.as_ref().is_none_or(|grammar| grammar.allows(token))
            };
            if !allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
        let token = match request.sampling.pick(&tokens, &row) {
            Ok(token) => token,
            Err(none) => break Finish::Failed(none.to_string()),
        };
        if request.stop.contains(&token) {
            break Finish::Stop { token };
        }
        if let Some(grammar) = &mut grammar {
            grammar.advance(token).unwrap();
        }
        tokens.push(token);
        let report = request.logprobs.map(|top| Box::new(logprobs(&own, token, top)));
        outcome.text.push((token, report));
    };
    outcome.finish = Some(finish);
    outcome
}

/// Guesses at random, so that some come true.
struct Guesses(Rng);

impl Drafter<Fake> for Guesses {
    fn propose(&mut self, _: Target<'_, Fake>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        let mut guess = |call: &DraftCall<'_>| {
            let len = self.0.below(0..call.room + 1);
            Draft::chain(self.0.tokens(len))
        };
        calls.iter().map(&mut guess).collect()
    }
}

/// Runs all requests together, each coming a little later than the one before.
fn together(requests: &[Request], limits: Limits, drafter: &mut dyn Drafter<Fake>) -> Vec<Outcome> {
    let mut scheduler = Scheduler::new(limits, Box::new(FirstCome)).unwrap();
    let (ops, mut cache) = (Fake::default(), FakeCache::new(&limits));
    let mut outcomes = vec![Outcome::default(); requests.len()];
    let mut coming = requests.iter();
    loop {
        let arrived = coming.next().map(|request| scheduler.submit(request.clone()).unwrap());
        let busy = turn(&mut scheduler, &ops, &FakeModel, &mut cache, drafter).unwrap();
        while let Some(event) = scheduler.poll_event() {
            let outcome = &mut outcomes[event.id().0 as usize];
            assert_eq!(outcome.finish, None, "{event:?} after the end");
            match event {
                Event::Warm { tokens, .. } => outcome.warm = tokens,
                Event::Prompt { logprobs, .. } => {
                    assert!(outcome.text.is_empty(), "the prompt comes before the text");
                    assert_eq!(outcome.prompt.replace(logprobs), None);
                }
                Event::Embedding { values, .. } => {
                    assert_eq!(outcome.embedding.replace(values), None);
                }
                Event::Token { token, logprobs, .. } => outcome.text.push((token, logprobs)),
                Event::Finished { finish, .. } => outcome.finish = Some(finish),
            }
        }
        if !busy && arrived.is_none() {
            assert!(scheduler.is_idle() && cache.is_settled());
            return outcomes;
        }
    }
}

fn any_request(rng: &mut Rng, id: u64) -> (Request, Option<Alternating>) {
    let prompt = if rng.chance(2) {
        // Beginnings that later requests share.
        (0..rng.below(1..20) as u32).map(|i| TokenId(i % 7)).collect()
    } else {
        let len = rng.below(1..20);
        rng.tokens(len)
    };
    let id = RequestId(id);
    if rng.chance(4) {
        let pool = *rng.pick(&[Pooling::Last, Pooling::Mean]);
        return (Request::embedding(id, prompt, pool), None);
    }
    let grammar = rng.chance(3).then(|| Alternating::new(rng.below(0..20)));
    let max_tokens = if rng.chance(3) { None } else { Some(rng.below(0..30) as u32) };
    let dry = Dry { multiplier: 1.0, base: 1.5, allowed: 1, range: 30, breakers: Vec::new() };
    let sampling = Sampling {
        seed: rng.next(),
        temperature: *rng.pick(&[0.0, 1.0]),
        top_k: *rng.pick(&[0, 2, 5, 100]),
        top_p: *rng.pick(&[1.0, 0.8]),
        frequency_penalty: *rng.pick(&[0.0, 0.0, 0.4]),
        dry: rng.chance(5).then_some(dry),
        xtc: rng.chance(4).then_some(Xtc { probability: 0.5, threshold: 0.2 }),
        suppress: if rng.chance(4) { vec![TokenId(5)] } else { Vec::new() },
        ..Sampling::default()
    };
    let request = Request {
        max_tokens,
        min_tokens: (rng.below(0..9) as u32).min(max_tokens.unwrap_or(9)),
        stop: if rng.chance(3) { Vec::new() } else { vec![TokenId(4), TokenId(6)] },
        sampling,
        logprobs: rng.chance(3).then_some(rng.below(0..4)),
        prompt_logprobs: rng.chance(4).then_some(rng.below(0..4)),
        grammar: grammar.clone().map(|grammar| Arc::new(grammar) as Arc<dyn Constraint>),
        ..Request::new(id, prompt)
    };
    (request, grammar)
}

#[test]
fn whatever_is_asked_for_comes_as_if_alone() {
    for seed in 0..3_000 {
        let mut rng = Rng(seed);
        let slots = rng.below(1..5);
        let limits = Limits {
            slots,
            context: rng.below(20..60) as u32,
            burst: rng.below(1..13),
            step: rng.below(slots..slots + 20),
            waiting: 99,
        };
        let (requests, grammars): (Vec<_>, Vec<_>) =
            (0..10).map(|id| any_request(&mut rng, id)).unzip();
        let outcomes = together(&requests, limits, &mut Guesses(Rng(seed)));
        for ((request, grammar), mut outcome) in requests.iter().zip(&grammars).zip(outcomes) {
            let whole = request.prompt_logprobs.is_some() || request.pool == Some(Pooling::Mean);
            assert!(outcome.warm == 0 || !whole, "seed {seed}: part of the prompt was not read");
            outcome.warm = 0;
            let expected = alone(request, grammar.as_ref(), limits.context);
            assert_eq!(outcome, expected, "seed {seed}: {request:?}");
        }
    }
}

const LIMITS: Limits = Limits { slots: 2, context: 40, burst: 6, step: 9, waiting: 9 };

fn outcome(request: &Request) -> Outcome {
    together(std::slice::from_ref(request), LIMITS, &mut NoDrafts).remove(0)
}

fn request() -> Request {
    Request { max_tokens: Some(9), ..Request::new(RequestId(0), vec![TokenId(1), TokenId(2)]) }
}

/// llama-cpp-python #1528: log-probabilities missed the token that a limit cut the text after.
#[test]
fn log_probabilities_include_the_final_token() {
    let (stop, open) = (vec![TokenId(0), TokenId(3)], Vec::new());
    let ends =
        [(Some(1), &open), (Some(9), &open), (None, &open), (None, &stop), (Some(30), &stop)];
    for (max_tokens, stop) in ends {
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, seed: 5, ..Sampling::default() };
            let stop = stop.clone();
            let request = Request { logprobs: Some(2), max_tokens, stop, sampling, ..request() };
            let outcome = outcome(&request);
            assert!(!outcome.text.is_empty() && outcome.finish != Some(Finish::Cancelled));
            for (token, report) in &outcome.text {
                let report = report.as_ref().expect("every token has a log-probability");
                assert!(report.token.is_finite() && report.top.len() == 2, "{token:?}: {report:?}");
            }
        }
    }
}

/// A stop token is no part of the text: it has no log-probability and no event.
#[test]
fn log_probabilities_and_usage_end_before_the_stop_token() {
    let plain = Request { logprobs: Some(1), max_tokens: Some(30), ..request() };
    let text: Vec<_> = outcome(&plain).text.into_iter().map(|(token, _)| token).collect();
    for stop in 0..7 {
        let stop = TokenId(stop);
        let before = text.iter().take_while(|token| **token != stop).count();
        let outcome = outcome(&Request { stop: vec![stop], ..plain.clone() });
        assert_eq!(outcome.text.len(), before);
        let ended =
            if before == text.len() { Finish::Length } else { Finish::Stop { token: stop } };
        assert_eq!(outcome.finish, Some(ended));
    }
}

/// Log-probabilities are the model's, whatever the settings make of its distribution.
#[test]
fn settings_do_not_show_in_log_probabilities() {
    let first = |sampling, grammar: Option<Arc<dyn Constraint>>| {
        let request = Request { logprobs: Some(VOCAB), sampling, grammar, ..request() };
        outcome(&request).text.remove(0).1.unwrap().top
    };
    let plain = Sampling::default;
    let expected = first(plain(), None);
    assert!((expected.iter().map(|(_, l)| l.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
    let likeliest = expected[0].0;
    let settings = [
        Sampling { temperature: 3.0, seed: 9, ..plain() },
        Sampling { suppress: vec![likeliest], ..plain() },
        Sampling { bias: vec![(likeliest, -50.0)], ..plain() },
        Sampling { presence_penalty: 5.0, ..plain() },
        Sampling { top_k: 1, temperature: 1.0, ..plain() },
    ];
    for sampling in settings {
        assert_eq!(first(sampling, None), expected);
    }
    assert_eq!(first(plain(), Some(Arc::new(Alternating::new(5)))), expected);
}

#[test]
fn a_prompt_can_be_scored_without_a_text() {
    let prompt: Vec<_> = (0..30).map(|i| TokenId(i % 7)).collect();
    let scored = Request { prompt_logprobs: Some(0), max_tokens: Some(0), prompt, ..request() };
    let outcome = outcome(&scored);
    assert_eq!(outcome, alone(&scored, None, LIMITS.context));
    assert_eq!((outcome.prompt.unwrap().len(), outcome.text.len()), (29, 0));
    assert_eq!(outcome.finish, Some(Finish::Length));
}

/// A scored prompt reports every token, even right after the same prompt was read for its text.
#[test]
fn a_warm_prefix_does_not_swallow_scores_or_vectors() {
    let prompt: Vec<_> = (0..9).map(|i| TokenId(i % 7)).collect();
    let plain = Request { prompt: prompt.clone(), max_tokens: Some(1), ..request() };
    let with_id = |request: &Request, id| Request { id: RequestId(id), ..request.clone() };
    let scored = Request { prompt_logprobs: Some(1), ..with_id(&plain, 1) };
    let mean = Request::embedding(RequestId(2), prompt.clone(), Pooling::Mean);
    let last = Request::embedding(RequestId(3), prompt, Pooling::Last);
    let one_slot = Limits { slots: 1, ..LIMITS };
    let requests = [plain.clone(), scored, mean, last, with_id(&plain, 4)];
    let outcomes = together(&requests, one_slot, &mut NoDrafts);
    assert_eq!(outcomes[1].prompt.as_ref().unwrap().len(), 8);
    assert_eq!(outcomes.iter().map(|o| o.warm).collect::<Vec<_>>(), [0, 0, 0, 8, 8]);
    for (request, outcome) in requests.iter().zip(outcomes) {
        let expected = alone(request, None, LIMITS.context);
        assert_eq!((outcome.embedding, outcome.prompt), (expected.embedding, expected.prompt));
    }
}

#[test]
fn a_vector_has_length_one_and_an_own_end() {
    for pool in [Pooling::Last, Pooling::Mean] {
        let prompt = vec![TokenId(3); LIMITS.context as usize];
        let outcome = outcome(&Request::embedding(RequestId(0), prompt, pool));
        let values = outcome.embedding.unwrap();
        let length: f32 = values.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-6, "{length}");
        assert_eq!(outcome.finish, Some(Finish::Complete));
    }
}

/// vllm #54881: a schema made the model go on after the schema's end.
#[test]
fn a_text_ends_where_its_grammar_ends() {
    for longest in 0..6 {
        for stop in [vec![], vec![TokenId(6)]] {
            let grammar: Arc<dyn Constraint> = Arc::new(Alternating::new(longest));
            let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
            let grammar = Some(grammar);
            let request = Request { stop, grammar, sampling, max_tokens: None, ..request() };
            let outcome = outcome(&request);
            assert!(outcome.text.len() <= longest);
            let ended = matches!(outcome.finish, Some(Finish::Complete | Finish::Stop { .. }));
            assert!(ended, "{outcome:?}");
        }
    }
}

/// ollama #16776: a grammar that cannot be followed fails the request instead of being ignored.
#[test]
fn a_grammar_that_is_stuck_fails_its_request_alone() {
    #[derive(Clone, Debug)]
    struct Stubborn;
    impl Constraint for Stubborn {
        fn fork(&self) -> Box<dyn Constraint> {
            Box::new(Self)
        }
        fn next(&mut self) -> Result<Next, Stuck> {
            Err(Stuck("too hard".to_owned()))
        }
        fn advance(&mut self, _: TokenId) -> Result<(), Stuck> {
            unreachable!("nothing is allowed")
        }
    }
    let other = Request { id: RequestId(1), ..request() };
    let stuck = Request { grammar: Some(Arc::new(Stubborn)), ..request() };
    let outcomes = together(&[stuck, other.clone()], LIMITS, &mut NoDrafts);
    let reason = "the grammar cannot go on: too hard".to_owned();
    assert_eq!(outcomes[0].finish, Some(Finish::Failed(reason)));
    assert_eq!(outcomes[1], alone(&other, None, LIMITS.context));
}

#[test]
fn a_text_has_at_least_the_tokens_asked_for() {
    let text = |min_tokens, stop: &[TokenId]| {
        let stop = stop.to_vec();
        outcome(&Request { min_tokens, stop, max_tokens: Some(30), ..request() }).text.len()
    };
    for stop in 0..7 {
        let stop = [TokenId(stop), TokenId((stop + 2) % 7)];
        let free = text(0, &stop);
        for min in [1, 5, 12, 29, 30] {
            assert!(text(min, &stop) >= min as usize);
            assert!(min as usize > free || text(min, &stop) == free, "an end that may be stays");
        }
    }
}

#[test]
fn contradictory_wishes_are_refused_by_name() {
    let refused =
        |request| Scheduler::new(LIMITS, Box::new(FirstCome)).unwrap().submit(request).unwrap_err();
    let min = Refused::MinTokens { min: 10, max: 9 };
    assert_eq!(refused(Request { min_tokens: 10, ..request() }), min);
    let vector = || Request { pool: Some(Pooling::Last), ..request() };
    let no_text = |setting| Refused::NoText { setting };
    assert_eq!(refused(Request { logprobs: Some(0), ..vector() }), no_text("logprobs"));
    let scored = Request { prompt_logprobs: Some(0), ..vector() };
    assert_eq!(refused(scored), no_text("prompt_logprobs"));
    let guided = Request { grammar: Some(Arc::new(Alternating::new(3))), ..vector() };
    assert_eq!(refused(guided), no_text("grammar"));
    let many = |setting| Refused::Alternatives { setting, asked: 1025, most: 1024 };
    assert_eq!(refused(Request { logprobs: Some(1025), ..request() }), many("logprobs"));
    let scored = Request { prompt_logprobs: Some(1025), ..request() };
    assert_eq!(refused(scored), many("prompt_logprobs"));
    let long = Request { prompt: vec![TokenId(0); 41], ..vector() };
    assert_eq!(refused(long), Refused::PromptTooLong { tokens: 41, context: 40 });
}
