//! Conversations about pictures, from files to answers, through an engine's scheduler.

use std::sync::Arc;

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Backend, Constraint, KvCache, Patches, Regime, SlotId, TokenId};
use lapidary_engine::{
    Aids, Budget, Event, FirstCome, HostShelf, Limits, NoDrafts, NoWatch, Prefixes, Request,
    RequestId, Scheduler, Soft, SoftRows, Target, turn_with,
};
use lapidary_model::vision::{Tower, Vision};
use lapidary_model::{NoHooks, Precision};
use lapidary_testkit::{
    Device, LONGEST, Loaded, PEBBLE_END, PictureCase, pebble_words, picture_cases, shared, tower,
};
use lapidary_text::{Control, Grammars, Rules, Thinking, make_room};

const LIMITS: Limits = Limits { slots: 3, context: 512, burst: 280, step: 282, waiting: 99 };

/// Pebble with its tower behind a scheduler.
struct Seeing {
    loaded: Loaded<Cpu>,
    tower: Vision<Cpu>,
    scheduler: Scheduler,
    prefixes: Prefixes,
    next: u64,
}

impl Seeing {
    fn new(regime: Regime, limits: Limits) -> Option<Self> {
        let folder = shared("pebble/hf")?;
        let Limits { slots, context, burst, .. } = limits;
        let extent = Extent { slots, context, burst: burst as u32 };
        let source = lapidary_format::open(&folder).unwrap_or_else(|e| panic!("{e}"));
        let loaded = Loaded::of(Cpu::device(), &source, Precision::F32, extent, regime);
        let tower = tower(&loaded.ops, &folder);
        let scheduler = Scheduler::new(limits, Box::new(FirstCome)).expect("limits are sound");
        Some(Self { loaded, tower, scheduler, prefixes: Prefixes::none(), next: 0 })
    }

    /// Keeps prefixes outside the cache, every few tokens.
    fn saving(self) -> Self {
        let shelf =
            Prefixes::new(Box::new(HostShelf::default()), Budget { bytes: 1 << 30, least: 4 });
        Self { scheduler: self.scheduler.saving(16), prefixes: shelf, ..self }
    }

    fn look(&self, picture: &Patches) -> Arc<SoftRows> {
        let rows = self.tower.look(&self.loaded.ops, picture).unwrap_or_else(|e| panic!("{e}"));
        let values = self.loaded.ops.read(&rows).expect("the device works");
        Arc::new(SoftRows::new(values, self.tower.width()))
    }

    /// The prompt as typed, with room made for the pictures.
    fn request(&mut self, prompt: &str, pictures: &[Arc<SoftRows>]) -> Request {
        let (tokenizer, _) = pebble_words();
        let typed = tokenizer.encode(prompt, Control::Honour);
        let counts: Vec<_> = pictures.iter().map(|rows| rows.count()).collect();
        let roomy = make_room(&typed, tokenizer.specials(), &counts).expect("there is room");
        let soft = roomy.places.into_iter().zip(pictures);
        let soft = soft.map(|(range, rows)| Soft { range, rows: rows.clone() }).collect();
        self.next += 1;
        Request {
            soft,
            max_tokens: Some(LONGEST as u32),
            stop: PEBBLE_END.to_vec(),
            ..Request::new(RequestId(self.next), roomy.tokens)
        }
    }

    fn look_all(&self, case: &PictureCase) -> Vec<Arc<SoftRows>> {
        case.pictures().iter().map(|picture| self.look(picture)).collect()
    }

    /// Runs requests together to their ends: each one's tokens, its end token included, what was
    /// warm, and how likely each token was.
    fn answer(&mut self, requests: Vec<Request>) -> Vec<Answered> {
        let ids: Vec<_> = requests.iter().map(|request| request.id).collect();
        for request in requests {
            self.scheduler.submit(request).unwrap_or_else(|e| panic!("{e}"));
        }
        let mut answers = vec![Answered::default(); ids.len()];
        loop {
            let Loaded { ops, model, cache, .. } = &mut self.loaded;
            let target = Target { ops, model, cache };
            let (drafter, prefixes, hooks) = (&mut NoDrafts, &mut self.prefixes, &mut NoHooks);
            let went_on = turn_with(
                &mut self.scheduler,
                target,
                Aids { drafter, prefixes, hooks, watch: &mut NoWatch },
            );
            while let Some(event) = self.scheduler.poll_event() {
                let at = ids.iter().position(|id| *id == event.id()).expect("ours");
                answers[at].take(event);
            }
            if !went_on.unwrap_or_else(|e| panic!("{e}")) {
                return answers;
            }
        }
    }

    /// Forgets everything that slots hold.
    fn forget(&mut self, limits: Limits) {
        (0..limits.slots as u32).for_each(|slot| self.loaded.cache.clear(SlotId(slot)));
        self.scheduler = Scheduler::new(limits, Box::new(FirstCome)).expect("limits are sound");
        self.prefixes = Prefixes::none();
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Answered {
    tokens: Vec<TokenId>,
    /// Bits of each token's log-probability.
    likelihoods: Vec<u64>,
    warm: u32,
}

impl Answered {
    fn take(&mut self, event: Event) {
        match event {
            Event::Warm { tokens, .. } => self.warm = tokens,
            Event::Token { token, logprobs, .. } => {
                self.tokens.push(token);
                self.likelihoods.extend(logprobs.map(|all| all.token.to_bits()));
            }
            Event::Finished { finish: lapidary_engine::Finish::Stop { token }, .. } => {
                self.tokens.push(token);
            }
            Event::Finished { finish, .. } => {
                assert_eq!(finish, lapidary_engine::Finish::Complete, "answers end by themselves");
            }
            Event::Prompt { .. } | Event::Embedding { .. } => {}
        }
    }

    fn cold(self) -> Self {
        Self { warm: 0, ..self }
    }
}

/// Every stored question about the chosen pictures, several at once: the stored prompt tokens, and
/// the stored answer.
fn stored_answers(chosen: impl Fn(&PictureCase) -> bool) {
    let Some(mut pebble) = Seeing::new(Regime::F32, LIMITS) else { return };
    let (mut requests, mut stored) = (Vec::new(), Vec::new());
    for case in picture_cases().into_iter().filter(chosen) {
        let (index, pictures) = (case.index, pebble.look_all(&case));
        for turn in case.turns {
            let request = pebble.request(&turn.prompt, &pictures);
            assert_eq!(request.prompt, turn.tokens, "case {index}: {}", turn.question);
            requests.push(request);
            stored.push((index, turn));
        }
    }
    let answers = pebble.answer(requests);
    for ((index, turn), answer) in stored.iter().zip(&answers) {
        assert_eq!(answer.tokens, turn.greedy, "case {index}: {}", turn.question);
    }
    eprintln!("{} answers are equal", answers.len());
}

#[test]
fn answers_about_pictures_are_the_stored_ones() {
    stored_answers(|case| [0, 5, 8, 9].contains(&case.index));
}

#[test]
#[cfg(feature = "slow")]
fn every_answer_about_pictures_is_the_stored_one() {
    stored_answers(|_| true);
}

fn case(index: u64) -> PictureCase {
    picture_cases().into_iter().find(|case| case.index == index).expect("it is stored")
}

fn with_likelihoods(request: Request) -> Request {
    Request { logprobs: Some(0), ..request }
}

#[test]
fn a_second_turn_about_a_picture_goes_on_from_the_first_with_the_bits_of_a_cold_one() {
    for saving in [false, true] {
        let Some(mut pebble) = Seeing::new(Regime::F16, LIMITS) else { return };
        if saving {
            pebble = pebble.saving();
        }
        let pictures = case(1).pictures();
        let picture = [pebble.look(&pictures[0])];
        let turn = "<bos><|turn>user\n<|image|>What is in the image?<turn|>\n<|turn>model\n";
        let first = pebble.request(turn, &picture);
        let read = first.prompt.len() as u32;
        let said = pebble.answer(vec![first]).remove(0);
        let (tokenizer, _) = pebble_words();
        let said = tokenizer.decode(&said.tokens);
        let turn =
            format!("{turn}{said}\n<|turn>user\nHow many shapes are there?<turn|>\n<|turn>model\n");
        if saving {
            // Another text takes the slots, so that only the saved prefix is left.
            let others: Vec<_> =
                (0..3).map(|i| pebble.request(&format!("<bos>{i}"), &[])).collect();
            let others =
                others.into_iter().map(|r| Request { max_tokens: Some(1), stop: vec![], ..r });
            let others = others.collect::<Vec<_>>();
            for other in others {
                pebble.scheduler.submit(other).expect("there is room");
            }
            while run_one(&mut pebble) {}
            while pebble.scheduler.poll_event().is_some() {}
        }
        let second = with_likelihoods(pebble.request(&turn, &picture));
        let warm = pebble.answer(vec![second]).remove(0);
        assert!(warm.warm >= read - 1, "{} of {read} tokens were found", warm.warm);
        pebble.forget(LIMITS);
        let second = with_likelihoods(pebble.request(&turn, &picture));
        let cold = pebble.answer(vec![second]).remove(0);
        assert_eq!(cold.warm, 0);
        assert_eq!(warm.cold(), cold);
    }
}

fn run_one(pebble: &mut Seeing) -> bool {
    let Loaded { ops, model, cache, .. } = &mut pebble.loaded;
    let (drafter, prefixes, hooks) = (&mut NoDrafts, &mut pebble.prefixes, &mut NoHooks);
    let target = Target { ops, model, cache };
    let turned = turn_with(
        &mut pebble.scheduler,
        target,
        Aids { drafter, prefixes, hooks, watch: &mut NoWatch },
    );
    turned.unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn another_picture_under_the_same_tokens_is_another_text() {
    for saving in [false, true] {
        let Some(mut pebble) = Seeing::new(Regime::F32, LIMITS) else { return };
        if saving {
            pebble = pebble.saving();
        }
        // Both become 64 soft tokens, so the prompts are equal token by token.
        let [one, other] = [0, 13].map(|index| case(index).pictures().remove(0));
        let [one, other] = [pebble.look(&one), pebble.look(&other)];
        let prompt = "<bos><|turn>user\n<|image|>Describe the image.<turn|>\n<|turn>model\n";
        let first = pebble.request(prompt, std::slice::from_ref(&one));
        let second = pebble.request(prompt, std::slice::from_ref(&other));
        assert_eq!(first.prompt, second.prompt);
        let before = first.soft[0].range.start as u32;
        pebble.answer(vec![first]);
        let after = pebble.answer(vec![with_likelihoods(second)]).remove(0);
        assert_eq!(after.warm, before, "what comes before the picture is shared, and no more");
        let again = pebble.request(prompt, std::slice::from_ref(&one));
        let length = again.prompt.len() as u32;
        assert!(pebble.answer(vec![again])[0].warm >= length - 1, "the same picture is found");
        pebble.forget(LIMITS);
        let alone = with_likelihoods(pebble.request(prompt, &[other]));
        assert_eq!(after.cold(), pebble.answer(vec![alone]).remove(0));
    }
}

#[test]
fn tokens_under_a_picture_are_ignored() {
    let Some(mut pebble) = Seeing::new(Regime::F32, LIMITS) else { return };
    let case = case(4);
    let pictures = pebble.look_all(&case);
    let asked = with_likelihoods(pebble.request(&case.turns[0].prompt, &pictures));
    let mut other = asked.clone();
    other.prompt[asked.soft[0].range.clone()].fill(TokenId(77));
    let expected = pebble.answer(vec![asked]).remove(0);
    pebble.forget(LIMITS);
    assert_eq!(pebble.answer(vec![other]).remove(0), expected);
}

/// Each alone in a large step, then all together in steps that just hold a picture, with texts
/// between them, under several regimes.
#[test]
fn company_changes_no_bit_of_an_answer_about_a_picture() {
    let tight = Limits { slots: 3, context: 512, burst: 67, step: 70, waiting: 99 };
    let code = |bits| lapidary_core::Code::Rotated(bits);
    let tq8 = Regime { keys: code(8), values: code(8) };
    for regime in [Regime::F32, Regime::F16, tq8] {
        let Some(mut pebble) = Seeing::new(regime, LIMITS) else { return };
        let mut prompts: Vec<(String, Vec<Arc<SoftRows>>)> = Vec::new();
        for index in [5, 9, 7] {
            let case = case(index);
            let pictures = pebble.look_all(&case);
            prompts.push((case.turns[1].prompt.clone(), pictures));
            let long = "one two three ".repeat(40);
            let text = format!("<bos><|turn>user\n{long}<turn|>\n<|turn>model\n");
            prompts.push((text, Vec::new()));
        }
        let mut alone = Vec::new();
        for (prompt, pictures) in &prompts {
            pebble.forget(LIMITS);
            let request = pebble.request(prompt, pictures);
            let request = Request { max_tokens: Some(8), stop: vec![], ..request };
            alone.push(pebble.lengthy(vec![with_likelihoods(request)]).remove(0));
        }
        let Some(mut pebble) = Seeing::new(regime, tight) else { return };
        let requests: Vec<_> = prompts
            .iter()
            .map(|(prompt, pictures)| {
                let request = pebble.request(prompt, pictures);
                with_likelihoods(Request { max_tokens: Some(8), stop: vec![], ..request })
            })
            .collect();
        let together = pebble.lengthy(requests);
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone, together, "prompt {i} under {regime}");
        }
    }
}

impl Seeing {
    /// As [`answer`](Self::answer), for texts that end at their length.
    fn lengthy(&mut self, requests: Vec<Request>) -> Vec<Answered> {
        let ids: Vec<_> = requests.iter().map(|request| request.id).collect();
        let mut answers = vec![Answered::default(); ids.len()];
        for request in requests {
            self.scheduler.submit(request).unwrap_or_else(|e| panic!("{e}"));
        }
        while run_one(self) {
            while let Some(event) = self.scheduler.poll_event() {
                let at = ids.iter().position(|id| *id == event.id()).expect("ours");
                if !matches!(event, Event::Finished { .. } | Event::Warm { .. }) {
                    answers[at].take(event);
                }
            }
        }
        answers
    }
}

#[test]
fn an_answer_about_a_picture_keeps_to_a_schema() {
    let Some(mut pebble) = Seeing::new(Regime::F16, LIMITS) else { return };
    let picture = pebble.look(&case(0).pictures()[0]);
    let prompt = "<bos><|turn>user\n<|image|>What is in the image?<turn|>\n<|turn>model\n";
    let request = pebble.request(prompt, &[picture]);
    let (tokenizer, _) = pebble_words();
    let schema = serde_json::json!({
        "type": "object", "required": ["shape"], "additionalProperties": false,
        "properties": { "shape": { "enum": ["circle", "cross", "star"] } },
    });
    let grammar = Grammars::new(&tokenizer).compile(Rules::JsonSchema(&schema), Thinking::Never);
    let grammar: Arc<dyn Constraint> = Arc::new(grammar.unwrap_or_else(|e| panic!("{e}")));
    let answer = pebble.answer(vec![Request { grammar: Some(grammar), ..request }]).remove(0);
    let text = tokenizer.decode(&answer.tokens);
    let json = text.split("<turn|>").next().expect("there is a first part");
    let value: serde_json::Value =
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
    assert!(["circle", "cross", "star"].iter().any(|shape| value["shape"] == *shape), "{value}");
}
