//! [`turn`]: a scheduler, a model and a cache, and what happens when one of them cannot go on.

use std::sync::atomic::Ordering;

use lapidary_core::{SlotId, TokenId};
use lapidary_engine::{
    CacheOp, Draft, DraftCall, Drafter, Event, Finish, FirstCome, Limits, NoDrafts, Request,
    RequestId, Scheduler, Target, turn,
};
use lapidary_model::{StepError, run};

use crate::common::{Fake, FakeCache, FakeModel, NAN, alone};

const LIMITS: Limits = Limits { slots: 3, context: 40, burst: 6, step: 9, waiting: 9 };

struct Bench {
    scheduler: Scheduler,
    ops: Fake,
    cache: FakeCache,
}

impl Bench {
    fn new(requests: &[Request]) -> Self {
        let mut scheduler = Scheduler::new(LIMITS, Box::new(FirstCome)).unwrap();
        for request in requests {
            scheduler.submit(request.clone()).unwrap();
        }
        Self { scheduler, ops: Fake::default(), cache: FakeCache::new(&LIMITS) }
    }

    fn turn(&mut self, drafter: &mut dyn Drafter<Fake>) -> Result<bool, StepError> {
        turn(&mut self.scheduler, &self.ops, &FakeModel, &mut self.cache, drafter)
    }

    /// Text and end of one request, of the events so far.
    fn outcomes(&mut self, requests: &[Request]) -> Vec<(Vec<TokenId>, Option<Finish>)> {
        let mut outcomes = vec![(Vec::new(), None); requests.len()];
        while let Some(event) = self.scheduler.poll_event() {
            let outcome = &mut outcomes[event.id().0 as usize];
            match event {
                Event::Warm { .. } | Event::Prompt { .. } | Event::Embedding { .. } => {}
                Event::Token { token, .. } => outcome.0.push(token),
                Event::Finished { finish, .. } => outcome.1 = Some(finish),
            }
        }
        outcomes
    }
}

fn requests(n: u64) -> Vec<Request> {
    let prompt = |id| (0..=id as u32).map(TokenId).collect();
    (0..n).map(|id| Request::new(RequestId(id), prompt(id))).collect()
}

fn expected(request: &Request) -> (Vec<TokenId>, Option<Finish>) {
    let (text, finish) = alone(request, LIMITS.context);
    (text, Some(finish))
}

#[test]
fn whole_rows_and_candidates_share_one_run_of_the_head() {
    let mut requests = requests(3);
    requests.iter_mut().for_each(|request| request.max_tokens = Some(5));
    requests[0].logprobs = Some(1);
    let mut bench = Bench::new(&requests);
    let mut steps = 0;
    while bench.turn(&mut NoDrafts).unwrap() {
        steps += 1;
    }
    assert_eq!(bench.ops.heads.load(Ordering::Relaxed), steps);
    let expected: Vec<_> = requests.iter().map(expected).collect();
    assert_eq!(bench.outcomes(&requests), expected);
}

/// Guesses the same token over and over.
struct Stutter;

impl Drafter<Fake> for Stutter {
    fn propose(&mut self, _: Target<'_, Fake>, calls: &[DraftCall<'_>]) -> Vec<Draft> {
        calls.iter().map(|call| Draft::chain(vec![call.known[0]; call.room])).collect()
    }
}

#[test]
fn turns_run_until_there_is_nothing_to_do() {
    let requests = requests(5);
    for drafter in [&mut NoDrafts as &mut dyn Drafter<Fake>, &mut Stutter] {
        let mut bench = Bench::new(&requests);
        while bench.turn(drafter).unwrap() {}
        assert!(bench.scheduler.is_idle() && bench.cache.is_settled());
        let expected: Vec<_> = requests.iter().map(expected).collect();
        assert_eq!(bench.outcomes(&requests), expected);
    }
}

#[test]
fn a_conversation_that_reaches_the_context_ends_with_length_and_others_go_on() {
    let mut requests = requests(2);
    requests[0].prompt = vec![TokenId(2); 35];
    let mut bench = Bench::new(&requests);
    while bench.turn(&mut NoDrafts).unwrap() {}
    let outcomes = bench.outcomes(&requests);
    assert_eq!(outcomes[0].1, Some(Finish::Length));
    assert_eq!(outcomes[0].0.len(), 5);
    assert_eq!(outcomes[1], expected(&requests[1]));
}

#[test]
fn a_span_without_room_fails_its_request_alone() {
    let mut requests = requests(3);
    requests[1].prompt = vec![TokenId(2); 25];
    requests[2].max_tokens = Some(8);
    requests[0].max_tokens = Some(8);
    let mut bench = Bench::new(&requests);
    bench.cache.context = 20;
    while bench.turn(&mut NoDrafts).unwrap() {}
    let outcomes = bench.outcomes(&requests);
    let Some(Finish::Failed(reason)) = &outcomes[1].1 else { panic!("{:?}", outcomes[1]) };
    assert!(reason.contains("holds 20 tokens"), "{reason}");
    assert_eq!(outcomes[0], expected(&requests[0]));
    assert_eq!(outcomes[2], expected(&requests[2]));
    assert!(bench.cache.is_settled());
}

#[test]
fn a_request_whose_logits_are_nan_fails_alone() {
    let mut requests = requests(2);
    requests[0].prompt.push(NAN);
    let mut bench = Bench::new(&requests);
    while bench.turn(&mut NoDrafts).unwrap() {}
    let outcomes = bench.outcomes(&requests);
    let Some(Finish::Failed(reason)) = &outcomes[0].1 else { panic!("{:?}", outcomes[0]) };
    assert!(reason.contains("NaN"), "{reason}");
    assert_eq!(outcomes[1], expected(&requests[1]));
}

#[test]
fn a_device_fault_fails_every_request_and_says_why() {
    let requests = requests(5);
    let mut bench = Bench::new(&requests);
    for _ in 0..4 {
        assert_eq!(bench.turn(&mut NoDrafts), Ok(true));
    }
    bench.ops.broken.store(true, Ordering::Relaxed);
    assert!(matches!(bench.turn(&mut NoDrafts), Err(StepError::Device(_))));
    for (request, (text, finish)) in requests.iter().zip(bench.outcomes(&requests)) {
        assert!(expected(request).0.starts_with(&text));
        assert_eq!(finish, Some(Finish::Failed("the device failed: out of smoke".to_owned())));
    }
    assert!(bench.scheduler.is_idle());
}

/// Slots come back, each once, whatever becomes of a batch whose request was cancelled.
#[test]
fn slots_of_requests_cancelled_on_the_way_come_back_when_the_batch_fails() {
    let fail: [fn(&mut Scheduler); 2] = [
        |scheduler| scheduler.handle_failure("smoke"),
        |scheduler| {
            for id in [0, 2] {
                scheduler.cancel(RequestId(id));
            }
            scheduler.handle_no_room(SlotId(1), "no room");
        },
    ];
    for fail in fail {
        let mut scheduler = Bench::new(&requests(3)).scheduler;
        scheduler.poll_batch().unwrap();
        scheduler.cancel(RequestId(1));
        fail(&mut scheduler);
        assert!(scheduler.is_idle());
        while scheduler.poll_cache_op().is_some() {}
        for mut request in requests(3) {
            request.id.0 += 10;
            scheduler.submit(request).unwrap();
        }
        scheduler.poll_batch().unwrap();
        let mut cleared = Vec::new();
        while let Some(op) = scheduler.poll_cache_op() {
            let CacheOp::Clear(slot) = op else { panic!("{op:?}") };
            cleared.push(slot);
        }
        cleared.sort_unstable();
        assert_eq!(cleared, [SlotId(0), SlotId(1), SlotId(2)]);
    }
}

/// The slot of a request cancelled while its rows are out is not given away before they land.
#[test]
fn rows_of_a_request_cancelled_on_the_way_are_dropped() {
    let requests = requests(4);
    let mut bench = Bench::new(&requests);
    let batch = bench.scheduler.poll_batch().unwrap();
    while bench.scheduler.poll_cache_op().is_some() {}
    bench.scheduler.cancel(RequestId(1));
    assert_eq!(bench.scheduler.poll_cache_op(), None, "the slot is not free yet");
    assert!(!bench.scheduler.is_idle());
    let outputs = run(&bench.ops, &FakeModel, &mut bench.cache, &batch).unwrap();
    bench.scheduler.handle_outputs(&outputs);
    while bench.turn(&mut NoDrafts).unwrap() {}
    let outcomes = bench.outcomes(&requests);
    assert_eq!(outcomes[1], (Vec::new(), Some(Finish::Cancelled)));
    for i in [0, 2, 3] {
        assert_eq!(outcomes[i], expected(&requests[i]));
    }
}
