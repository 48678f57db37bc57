//! Thousands of schedules: whatever the company, the limits, the policy and the guesses, every
//! request gets the text it gets alone.

use std::collections::{BTreeMap, BTreeSet};

use lapidary_core::TokenId;
use lapidary_engine::{
    Admission, CacheOp, Event, Finish, FirstCome, Limits, Policy, Priority, Refused, Request,
    RequestId, Sampling, Scheduler, ShortestPrompt,
};
use lapidary_model::run;

use crate::common::{Fake, FakeCache, FakeModel, Rng, alone};

/// Who guesses in a simulation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Guesser {
    Nobody,
    Random,
    /// Right three times out of four.
    Oracle,
}

/// How a simulation goes.
#[derive(Clone, Copy, Debug)]
struct Course {
    guesser: Guesser,
    cancels: bool,
    requests: u64,
}

/// One simulated engine and everything that was asked of it.
struct World {
    rng: Rng,
    course: Course,
    scheduler: Scheduler,
    cache: FakeCache,
    asked: BTreeMap<RequestId, Request>,
    texts: BTreeMap<RequestId, Vec<TokenId>>,
    finished: BTreeMap<RequestId, Finish>,
    cancelled: BTreeSet<RequestId>,
    refused: u64,
    steps: u64,
    rows: u64,
    /// Tokens of prompts that were found in a slot.
    warm: u64,
}

impl World {
    fn new(seed: u64, limits: Limits, policy: Box<dyn Policy>, course: Course) -> Self {
        Self {
            rng: Rng(seed),
            course,
            scheduler: Scheduler::new(limits, policy).unwrap(),
            cache: FakeCache::new(&limits),
            asked: BTreeMap::new(),
            texts: BTreeMap::new(),
            finished: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            refused: 0,
            steps: 0,
            rows: 0,
            warm: 0,
        }
    }

    /// Limits, policy and all that follows from a seed.
    fn any(seed: u64, course: Course) -> Self {
        let mut rng = Rng(seed);
        let slots = rng.below(1..6);
        let limits = Limits {
            slots,
            context: rng.below(8..60) as u32,
            burst: rng.below(1..13),
            step: rng.below(slots..slots + 20),
            waiting: rng.below(0..7),
        };
        let policy: Box<dyn Policy> = match rng.below(0..3) {
            0 => Box::new(FirstCome),
            1 => Box::new(ShortestPrompt),
            _ => Box::new(Priority),
        };
        Self::new(rng.next(), limits, policy, course)
    }

    fn is_over(&self) -> bool {
        self.asked.len() as u64 + self.refused >= self.course.requests && self.scheduler.is_idle()
    }

    fn play(&mut self) {
        while !self.is_over() {
            self.live_a_little();
            self.step();
            assert!(self.steps < 20_000, "the simulation does not end");
        }
    }

    /// Requests come, and some are cancelled.
    fn live_a_little(&mut self) {
        for _ in 0..self.rng.below(0..3) {
            if self.asked.len() as u64 + self.refused < self.course.requests {
                self.submit();
            }
        }
        if self.course.cancels && self.rng.chance(9) {
            let id = RequestId(self.rng.below(0..self.course.requests as usize) as u64);
            self.scheduler.cancel(id);
            self.cancelled.insert(id);
        }
    }

    fn submit(&mut self) {
        let id = RequestId(self.asked.len() as u64 + self.refused);
        let request = self.request(id);
        let Limits { slots, waiting, .. } = self.scheduler.limits();
        match self.scheduler.submit(request.clone()) {
            Ok(()) => {
                self.cancelled.remove(&id);
                self.texts.insert(id, Vec::new());
                self.asked.insert(id, request);
            }
            Err(refused) => {
                let Refused::Busy { running, waiting: queue } = refused else {
                    panic!("{refused}")
                };
                assert!(running <= slots && queue >= waiting, "{refused}");
                self.refused += 1;
            }
        }
    }

    fn request(&mut self, id: RequestId) -> Request {
        let prompt = self.prompt();
        let rng = &mut self.rng;
        let sampling = Sampling {
            seed: rng.next(),
            temperature: *rng.pick(&[0.0, 1.0]),
            top_k: *rng.pick(&[0, 4]),
            top_p: *rng.pick(&[1.0, 0.9]),
            repeat_penalty: *rng.pick(&[1.0, 1.2]),
            repeat_last: 5,
            ..Sampling::default()
        };
        Request {
            max_tokens: if rng.chance(3) { None } else { Some(rng.below(0..40) as u32) },
            stop: if rng.chance(2) { Vec::new() } else { vec![TokenId(4), TokenId(6)] },
            sampling,
            priority: rng.below(0..3) as i32,
            ..Request::new(id, prompt)
        }
    }

    /// A new text, or one that goes on from part of an earlier conversation.
    fn prompt(&mut self) -> Vec<TokenId> {
        let most = (self.scheduler.limits().context as usize).min(30);
        let mut prompt = Vec::new();
        if !self.asked.is_empty() && self.rng.chance(2) {
            let earlier = self.rng.below(0..self.asked.len());
            let mut ids: Vec<_> = self.asked.keys().copied().collect();
            ids.sort_unstable();
            let id = ids[earlier];
            prompt = [self.asked[&id].prompt.as_slice(), &self.texts[&id]].concat();
            prompt.truncate(self.rng.below(0..most));
        }
        let len = self.rng.below(1..most);
        prompt.extend(self.rng.tokens(len));
        prompt.truncate(most - 1);
        prompt
    }

    /// One step, with life going on while the batch is out.
    fn step(&mut self) {
        if self.rng.chance(2) {
            self.admit();
        }
        self.guess();
        let batch = self.scheduler.poll_batch();
        self.settle();
        if let Some(batch) = batch {
            let limits = self.scheduler.limits();
            assert!(!batch.rows().is_empty() && batch.rows().len() <= limits.step);
            self.steps += 1;
            self.rows += batch.rows().len() as u64;
            self.live_a_little();
            assert!(self.scheduler.poll_batch().is_none(), "one batch is out at a time");
            assert!(self.scheduler.poll_draft().is_none(), "guesses would come too late");
            let outputs = run(&Fake::default(), &FakeModel, &mut self.cache, &batch).unwrap();
            self.scheduler.handle_outputs(&outputs);
            self.settle();
        }
        self.listen();
    }

    /// Lets requests begin where a slot's content ends, if the cache can go back there.
    fn admit(&mut self) {
        use lapidary_core::KvCache;
        while let Some(Admission { id, slot, keep }) = self.scheduler.poll_admission() {
            assert!((keep as usize) < self.asked[&id].prompt.len(), "one token stays unread");
            let warm = keep > 0 && self.cache.truncate(slot, keep);
            if !warm {
                self.cache.clear(slot);
            }
            self.warm += u64::from(if warm { keep } else { 0 });
            self.scheduler.handle_admission(if warm { keep } else { 0 });
        }
    }

    fn guess(&mut self) {
        if self.course.guesser == Guesser::Nobody {
            return;
        }
        while let Some(call) = self.scheduler.poll_draft() {
            assert!(call.room > 0 && call.room < self.scheduler.limits().burst);
            let known = self.scheduler.known(call.id).unwrap().len();
            let request = &self.asked[&call.id];
            let end = request.max_tokens.map_or(usize::MAX, |n| request.prompt.len() + n as usize);
            let end = end.min(self.scheduler.limits().context as usize);
            assert!(known + call.room < end, "the last token is not worth a guess");
            // A guesser that does not listen is cut short.
            let len = self.rng.below(0..call.room + 3);
            let drafts = match self.course.guesser {
                Guesser::Oracle => self.foresee(call.id, len),
                Guesser::Random | Guesser::Nobody => self.rng.tokens(len),
            };
            self.scheduler.handle_drafts(call.id, drafts);
        }
    }

    fn foresee(&mut self, id: RequestId, len: usize) -> Vec<TokenId> {
        let request = &self.asked[&id];
        let known = self.scheduler.known(id).unwrap().len() - request.prompt.len();
        let (text, _) = alone(request, self.scheduler.limits().context);
        let mut guesses: Vec<_> = text[known..].iter().copied().take(len).collect();
        if self.rng.chance(4) {
            let wrong = self.rng.tokens(1);
            guesses.splice(guesses.len() / 2.., wrong);
        }
        guesses
    }

    fn settle(&mut self) {
        use lapidary_core::KvCache;
        while let Some(op) = self.scheduler.poll_cache_op() {
            match op {
                CacheOp::Commit(slot, kept) => self.cache.commit(&Fake::default(), slot, &kept),
                CacheOp::Clear(slot) => self.cache.clear(slot),
            }
        }
    }

    fn listen(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            let id = event.id();
            assert!(!self.finished.contains_key(&id), "{event:?} after the end");
            match event {
                Event::Prompt { .. } | Event::Embedding { .. } => panic!("{event:?} was not asked"),
                Event::Warm { .. } => assert!(self.texts[&id].is_empty(), "{event:?} after text"),
                Event::Token { token, .. } => self.texts.get_mut(&id).unwrap().push(token),
                Event::Finished { finish, .. } => {
                    assert!(self.finished.insert(id, finish).is_none())
                }
            }
        }
    }

    /// Every text is the one its request gets alone; everything adds up; nothing is left behind.
    fn check(&self) {
        let context = self.scheduler.limits().context;
        assert_eq!(self.finished.len(), self.asked.len(), "each request ends once");
        for (id, request) in &self.asked {
            let (text, finish) = alone(request, context);
            let got = &self.texts[id];
            if self.finished[id] == Finish::Cancelled {
                assert!(self.cancelled.contains(id), "{id:?} was not cancelled");
                assert!(text.starts_with(got), "{id:?} got {got:?}, alone {text:?}");
            } else {
                assert_eq!((got, &self.finished[id]), (&text, &finish), "{id:?}");
            }
        }
        assert!(self.cache.is_settled(), "every row was kept or dropped");
        self.check_stats();
    }

    fn check_stats(&self) {
        let stats = self.scheduler.stats();
        let tokens: usize = self.texts.values().map(Vec::len).sum();
        assert_eq!((stats.steps, stats.rows), (self.steps, self.rows));
        assert_eq!(stats.tokens, tokens as u64);
        assert_eq!(stats.cached, self.warm);
        assert_eq!(stats.submitted, self.asked.len() as u64);
        assert_eq!(stats.finished, self.asked.len() as u64);
        assert_eq!(stats.refused, self.refused);
        assert_eq!((stats.running, stats.waiting), (0, 0));
        assert!(stats.accepted <= stats.drafted && stats.drafted <= stats.rows);
        assert!(self.course.guesser != Guesser::Nobody || stats.drafted == 0);
    }
}

fn every_text_is_as_if_alone(course: Course, seeds: u64) {
    for seed in 0..seeds {
        let mut world = World::any(seed, course);
        world.play();
        world.check();
    }
}

#[test]
fn company_and_chunking_do_not_change_a_text() {
    every_text_is_as_if_alone(
        Course { guesser: Guesser::Nobody, cancels: false, requests: 14 },
        3_000,
    );
}

#[test]
fn cancellations_do_not_change_the_others_texts() {
    every_text_is_as_if_alone(
        Course { guesser: Guesser::Nobody, cancels: true, requests: 14 },
        3_000,
    );
}

#[test]
fn guesses_do_not_change_a_text() {
    for guesser in [Guesser::Random, Guesser::Oracle] {
        every_text_is_as_if_alone(Course { guesser, cancels: false, requests: 14 }, 2_000);
        every_text_is_as_if_alone(Course { guesser, cancels: true, requests: 14 }, 2_000);
    }
}

#[test]
fn good_guesses_save_steps() {
    let limits = Limits { slots: 2, context: 60, burst: 8, step: 16, waiting: 99 };
    let steps = |guesser| {
        let course = Course { guesser, cancels: false, requests: 30 };
        let mut world = World::new(3, limits, Box::new(FirstCome), course);
        // All at once, so that the requests are the same ones.
        (0..course.requests).for_each(|_| world.submit());
        world.play();
        world.check();
        let stats = world.scheduler.stats();
        (stats.steps, stats.accepted)
    };
    let (plain, none) = steps(Guesser::Nobody);
    let (guessed, accepted) = steps(Guesser::Oracle);
    assert_eq!(none, 0);
    assert!(accepted > 100, "{accepted} guesses came true");
    assert!(guessed * 2 < plain, "{guessed} steps with guesses, {plain} without");
}

/// Under `FirstCome`, requests get slots in the order in which they came, and each step reads at
/// least one more row of the oldest unread prompt: so the wait for a first token, from the step
/// of admission on, is bounded by what there was to read before it.
#[test]
fn nobody_starves_under_first_come() {
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let slots = rng.below(1..6);
        let step = rng.below(slots..slots + 9);
        let limits = Limits { slots, context: 50, burst: rng.below(1..9), step, waiting: 20 };
        let course = Course { guesser: Guesser::Oracle, cancels: false, requests: 20 };
        let mut world = World::new(seed, limits, Box::new(FirstCome), course);
        let mut due: BTreeMap<RequestId, u64> = BTreeMap::new();
        while !world.is_over() {
            world.live_a_little();
            world.step();
            let running = |id: &&RequestId| world.scheduler.known(**id).is_some();
            let held: Vec<_> = world.asked.keys().filter(running).copied().collect();
            let mut ahead = 0;
            for id in held {
                ahead += world.asked[&id].prompt.len() as u64;
                due.entry(id).or_insert(world.steps + ahead);
            }
            for (id, due) in &due {
                let began = !world.texts[id].is_empty() || world.finished.contains_key(id);
                assert!(began || world.steps < *due, "seed {seed}: {id:?} waits beyond step {due}");
            }
            let admitted = due.keys().last().copied();
            let passed_over = |id: &&RequestId| {
                Some(**id) < admitted && !due.contains_key(id) && !world.finished.contains_key(id)
            };
            assert_eq!(world.asked.keys().find(passed_over), None, "seed {seed}");
        }
        world.check();
    }
}

#[test]
fn policies_decide_who_gets_a_slot() {
    let limits = Limits { slots: 1, context: 50, burst: 8, step: 8, waiting: 9 };
    let order = |policy: Box<dyn Policy>| {
        let course = Course { guesser: Guesser::Nobody, cancels: false, requests: 0 };
        let mut world = World::new(0, limits, policy, course);
        for (id, len, priority) in [(0, 9, 1), (1, 3, 0), (2, 6, 2), (3, 3, 2)] {
            let prompt = vec![TokenId(1); len];
            let request = Request { priority, ..Request::new(RequestId(id), prompt) };
            world.scheduler.submit(Request { max_tokens: Some(2), ..request }).unwrap();
        }
        let mut order = Vec::new();
        while !world.scheduler.is_idle() {
            world.texts.extend((0..4).map(|id| (RequestId(id), Vec::new())));
            world.step();
            for id in world.finished.keys().map(|id| id.0) {
                if !order.contains(&id) {
                    order.push(id);
                }
            }
        }
        order
    };
    assert_eq!(order(Box::new(FirstCome)), [0, 1, 2, 3]);
    assert_eq!(order(Box::new(ShortestPrompt)), [1, 3, 2, 0]);
    assert_eq!(order(Box::new(Priority)), [2, 3, 0, 1]);
}
