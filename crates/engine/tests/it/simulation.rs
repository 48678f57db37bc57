//! Thousands of schedules: whatever the company, the limits, the policy and the guesses, every
//! request gets the text it gets alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lapidary_core::TokenId;
use lapidary_engine::{
    Admission, Budget, CacheOp, Draft, Drafting, Event, Finish, FirstCome, HostShelf, Limits,
    Policy, Preemptive, Prefixes, Priority, Refused, Request, RequestId, Sampling, Scheduler,
    ShortestPrompt, Swap, Way,
};
use lapidary_model::run;

use crate::common::{Fake, FakeCache, FakeModel, Rng, alone, of_sample, state};

/// A request's text: which request, and which of its samples.
type TextId = (RequestId, u32);

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
    prefixes: Prefixes,
    asked: BTreeMap<RequestId, Request>,
    texts: BTreeMap<TextId, Vec<TokenId>>,
    finished: BTreeMap<TextId, Finish>,
    cancelled: BTreeSet<RequestId>,
    refused: u64,
    steps: u64,
    rows: u64,
    /// Tokens that were found in a slot or saved.
    warm: u64,
    /// Calls for guesses that came with a hidden state.
    states: u64,
    /// Texts that began in their own slot, in a copy of another, and from a saved prefix.
    begun: [u64; 3],
}

impl World {
    fn new(seed: u64, limits: Limits, policy: Box<dyn Policy>, course: Course) -> Self {
        let mut rng = Rng(seed);
        let checkpoint = *rng.pick(&[0, 1, 4, 9]);
        let bytes = *rng.pick(&[0, 60, 400, 4_000]);
        let budget = Budget { bytes, least: rng.below(1..5) as u32 };
        let drafting =
            Drafting { most: rng.below(1..12), width: rng.below(1..4), adaptive: rng.chance(2) };
        let scheduler = Scheduler::new(limits, policy).unwrap().saving(checkpoint);
        let scheduler = scheduler.drafting(drafting, rng.chance(2));
        Self {
            rng,
            course,
            scheduler,
            cache: FakeCache::new(&limits),
            prefixes: Prefixes::new(Box::new(HostShelf::default()), budget),
            asked: BTreeMap::new(),
            texts: BTreeMap::new(),
            finished: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            refused: 0,
            steps: 0,
            rows: 0,
            warm: 0,
            states: 0,
            begun: [0; 3],
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
        let swap = *rng.pick(&[Swap::Save, Swap::Recompute]);
        let policy: Box<dyn Policy> = match rng.below(0..5) {
            0 => Box::new(FirstCome),
            1 => Box::new(ShortestPrompt),
            2 => Box::new(Priority),
            _ => Box::new(Preemptive { most: rng.below(0..4) as u32, swap }),
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
                self.texts.extend((0..request.samples).map(|sample| ((id, sample), Vec::new())));
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
            samples: if rng.chance(3) { rng.below(1..6) as u32 } else { 1 },
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
            prompt = [self.asked[&id].prompt.as_slice(), &self.texts[&(id, 0)]].concat();
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
            assert!(self.scheduler.poll_drafts().is_empty(), "guesses would come too late");
            let outputs = run(&Fake::default(), &FakeModel, &mut self.cache, &batch).unwrap();
            self.scheduler.handle_outputs(&outputs);
            self.scheduler.handle_step_time(Duration::from_micros(self.rng.below(1..900) as u64));
            self.settle();
        }
        self.listen();
    }

    /// Lets texts begin after what is there, mostly as much as possible.
    fn admit(&mut self) {
        use lapidary_core::KvCache;
        while let Some(Admission { usable, ways, .. }) = self.scheduler.poll_admission() {
            self.settle();
            for way in &ways {
                let (Way::Keep { slot, keep } | Way::Fork { from: slot, keep, .. }) = *way else {
                    continue;
                };
                assert!(keep <= self.cache.committed(slot), "{way:?} promises too much");
            }
            let Some(&Way::Fresh { slot: fresh }) = ways.last() else { panic!("{ways:?}") };
            let saved =
                usable.len().checked_sub(self.rng.below(0..3)).map_or(&[][..], |n| &usable[..n]);
            let kept = match self.rng.below(0..3) {
                0 => self.prefixes.restore(saved, 0, &Fake::default(), &mut self.cache, fresh),
                _ => 0,
            };
            let (slot, kept) = if kept > 0 {
                self.begun[2] += 1;
                (fresh, kept)
            } else {
                let first = self.rng.below(0..ways.len());
                let can = |way: &&Way| match **way {
                    Way::Keep { slot, keep } => self.cache.truncate(slot, keep),
                    Way::Fork { from, slot, keep } => {
                        self.cache.fork(&Fake::default(), from, slot, keep)
                    }
                    Way::Fresh { slot } => {
                        self.cache.clear(slot);
                        true
                    }
                };
                match *ways[first..].iter().find(can).expect("the last can always be gone") {
                    Way::Keep { slot, keep } => {
                        self.begun[0] += 1;
                        (slot, keep)
                    }
                    Way::Fork { slot, keep, .. } => {
                        self.begun[1] += 1;
                        (slot, keep)
                    }
                    Way::Fresh { slot } => (slot, 0),
                }
            };
            assert!(kept as usize <= usable.len(), "one token stays unread");
            self.warm += u64::from(kept);
            self.scheduler.handle_admission(slot, kept);
        }
    }

    fn guess(&mut self) {
        if self.course.guesser == Guesser::Nobody {
            return;
        }
        let Limits { burst, context, .. } = self.scheduler.limits();
        let mut asked = Vec::new();
        for call in self.scheduler.poll_drafts() {
            let depth = call.shape.depth;
            assert!(0 < depth && depth <= call.room && call.room < burst);
            let request = &self.asked[&call.id];
            let end = request.max_tokens.map_or(usize::MAX, |n| request.prompt.len() + n as usize);
            let end = end.min(context as usize);
            assert!(call.known.len() + call.room < end, "the last token is not worth a guess");
            if let Some(hidden) = call.hidden {
                let read = &call.known[..call.known.len() - 1];
                assert_eq!(hidden, state(read.iter().copied()), "the state is another row's");
                self.states += 1;
            }
            asked.push((call.id, call.sample, call.room));
        }
        for (id, sample, room) in asked {
            // A guesser that does not listen is cut short.
            let len = self.rng.below(0..room + 3);
            let line = match self.course.guesser {
                Guesser::Oracle => self.foresee((id, sample), len),
                Guesser::Random | Guesser::Nobody => self.rng.tokens(len),
            };
            let draft = self.branched(line);
            self.scheduler.handle_drafts(id, sample, draft);
        }
    }

    /// The line as it is, or as one branch among others that fork off it.
    fn branched(&mut self, line: Vec<TokenId>) -> Draft {
        if self.rng.chance(2) {
            return Draft::chain(line);
        }
        let (mut nodes, mut last) = (Vec::new(), None);
        for token in line {
            for other in self.rng.tokens(2) {
                let parent = nodes.len().checked_sub(1).map(|most| self.rng.below(0..most + 1));
                let parent = parent.filter(|_| self.rng.chance(2));
                if self.rng.chance(3) && !nodes.contains(&(other, parent)) {
                    nodes.push((other, parent));
                }
            }
            let node = nodes.iter().position(|node| *node == (token, last));
            last = node.or_else(|| {
                nodes.push((token, last));
                Some(nodes.len() - 1)
            });
        }
        Draft::tree(nodes)
    }

    fn foresee(&mut self, (id, sample): TextId, len: usize) -> Vec<TokenId> {
        let request = of_sample(&self.asked[&id], sample);
        let known = self.scheduler.known(id, sample).unwrap().len() - request.prompt.len();
        let (text, _) = alone(&request, self.scheduler.limits().context);
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
                CacheOp::Save(slot, tokens) => {
                    assert_eq!(tokens.len(), self.cache.committed(slot) as usize);
                    self.prefixes.save(&tokens, &Fake::default(), &self.cache, slot);
                }
            }
        }
    }

    fn listen(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            let id = event.id();
            match event {
                Event::Prompt { .. } | Event::Embedding { .. } => panic!("{event:?} was not asked"),
                Event::Warm { .. } => {
                    let of_request = self.texts.range((id, 0)..=(id, u32::MAX));
                    assert!(of_request.into_iter().all(|(_, text)| text.is_empty()), "{event:?}");
                }
                Event::Token { sample, token, .. } => {
                    assert!(!self.finished.contains_key(&(id, sample)), "{event:?} after the end");
                    self.texts.get_mut(&(id, sample)).unwrap().push(token);
                }
                Event::Finished { sample, finish, .. } => {
                    assert!(self.finished.insert((id, sample), finish).is_none());
                }
            }
        }
    }

    /// Every text is the one its request gets alone; everything adds up; nothing is left behind.
    fn check(&self) {
        let context = self.scheduler.limits().context;
        assert_eq!(self.finished.len(), self.texts.len(), "each text ends once");
        for (&(id, sample), got) in &self.texts {
            let (text, finish) = alone(&of_sample(&self.asked[&id], sample), context);
            let ours = &self.finished[&(id, sample)];
            if *ours == Finish::Cancelled {
                assert!(self.cancelled.contains(&id), "{id:?} was not cancelled");
                assert!(text.starts_with(got), "{id:?} got {got:?}, alone {text:?}");
            } else {
                assert_eq!((got, ours), (&text, &finish), "{id:?}, text {sample}");
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

/// Plays that many schedules, all of which must do each thing often: begin texts in their own
/// slots, in copies and from saved prefixes, take slots away, give saved prefixes up.
fn every_text_is_as_if_alone(course: Course, seeds: u64) {
    let (mut done, mut states) = ([0; 5], 0);
    for seed in 0..seeds {
        let mut world = World::any(seed, course);
        world.play();
        world.check();
        states += world.states;
        let [kept, forked, restored] = world.begun;
        let (preempted, evicted) =
            (world.scheduler.stats().preempted, world.prefixes.stats().evicted);
        let all = [kept, forked, restored, preempted, evicted];
        done.iter_mut().zip(all).for_each(|(sum, more)| *sum += more);
    }
    assert!(done.iter().all(|&times| times > seeds / 10), "{done:?} in {seeds} schedules");
    assert!(course.guesser == Guesser::Nobody || states > seeds, "{states} states were given");
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
            let running = |id: &&RequestId| world.scheduler.known(**id, 0).is_some();
            let held: Vec<_> = world.asked.keys().filter(running).copied().collect();
            let open = |id: RequestId, samples| {
                (0..samples).any(|sample| !world.finished.contains_key(&(id, sample)))
            };
            // A request's later texts go before later requests too.
            let rows = |(&id, request): (&RequestId, &Request)| {
                let rows = request.prompt.len() as u64 * u64::from(request.samples);
                if open(id, request.samples) { rows } else { 0 }
            };
            for id in held {
                let ahead: u64 = world.asked.range(..=id).map(rows).sum();
                due.entry(id).or_insert(world.steps + ahead);
            }
            for (id, due) in &due {
                let text = (*id, 0);
                let began = !world.texts[&text].is_empty() || world.finished.contains_key(&text);
                assert!(began || world.steps < *due, "seed {seed}: {id:?} waits beyond step {due}");
            }
            let admitted = due.keys().last().copied();
            let passed_over = |id: &&RequestId| {
                let ended = world.finished.contains_key(&(**id, 0));
                Some(**id) < admitted && !due.contains_key(id) && !ended
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
            world.texts.extend((0..4).map(|id| ((RequestId(id), 0), Vec::new())));
            world.step();
            for id in world.finished.keys().map(|(id, _)| id.0) {
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
