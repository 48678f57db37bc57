//! A higher priority takes a slot at once; what it takes it from goes on later, the same.

use lapidary_core::TokenId;
use lapidary_engine::{
    Aids, Budget, CacheOp, Event, Finish, HostShelf, Limits, NoDrafts, NoWatch, Policy, Preemptive,
    Prefixes, Priority, Request, RequestId, Scheduler, Swap, Target, turn_with,
};
use lapidary_model::NoHooks;

use crate::common::{Fake, FakeCache, FakeModel, alone};

const LIMITS: Limits = Limits { slots: 1, context: 60, burst: 8, step: 8, waiting: 9 };

struct Bench {
    scheduler: Scheduler,
    cache: FakeCache,
    prefixes: Prefixes,
}

impl Bench {
    fn new(policy: impl Policy + 'static) -> Self {
        let budget = Budget { bytes: 10_000, least: 1 };
        Self {
            scheduler: Scheduler::new(LIMITS, Box::new(policy)).unwrap(),
            cache: FakeCache::new(&LIMITS),
            prefixes: Prefixes::new(Box::new(HostShelf::default()), budget),
        }
    }

    fn turn(&mut self) -> bool {
        let Self { scheduler, cache, prefixes } = self;
        let ops = Fake::default();
        let target = Target { ops: &ops, model: &FakeModel, cache };
        let aids =
            Aids { drafter: &mut NoDrafts, prefixes, hooks: &mut NoHooks, watch: &mut NoWatch };
        turn_with(scheduler, target, aids).unwrap()
    }

    /// What was told until nothing is left to do: texts in the order in which they ended.
    fn finish(mut self) -> Vec<(RequestId, Vec<TokenId>, Finish)> {
        while self.turn() {}
        let (mut texts, mut ended) = (vec![Vec::new(); 9], Vec::new());
        while let Some(event) = self.scheduler.poll_event() {
            let id = event.id();
            match event {
                Event::Token { token, .. } => texts[id.0 as usize].push(token),
                Event::Finished { finish, .. } => {
                    ended.push((id, std::mem::take(&mut texts[id.0 as usize]), finish));
                }
                _ => {}
            }
        }
        ended
    }
}

fn request(id: u64, priority: i32) -> Request {
    let prompt = (0..9).map(|i| TokenId((i + id as u32) % 5)).collect();
    let mut request = Request { priority, ..Request::new(RequestId(id), prompt) };
    request.max_tokens = Some(12);
    (request.sampling.temperature, request.sampling.seed) = (1.0, id);
    request
}

fn assert_alone(ended: &[(RequestId, Vec<TokenId>, Finish)], requests: &[Request]) {
    for (id, text, finish) in ended {
        let request = requests.iter().find(|request| request.id == *id).expect("it was asked");
        assert_eq!((text.clone(), finish.clone()), alone(request, LIMITS.context), "{id:?}");
    }
    assert_eq!(ended.len(), requests.len());
}

fn order(ended: &[(RequestId, Vec<TokenId>, Finish)]) -> Vec<u64> {
    ended.iter().map(|(id, ..)| id.0).collect()
}

#[test]
fn a_higher_priority_takes_the_slot_and_the_text_goes_on_afterwards() {
    for swap in [Swap::Save, Swap::Recompute] {
        let mut bench = Bench::new(Preemptive { most: 5, swap });
        let requests = [request(0, 0), request(1, 2), request(2, 1)];
        bench.scheduler.submit(requests[0].clone()).unwrap();
        (0..6).for_each(|_| assert!(bench.turn()));
        requests[1..].iter().for_each(|r| bench.scheduler.submit(r.clone()).unwrap());
        assert!(bench.turn());
        assert!(bench.scheduler.known(RequestId(1), 0).is_some(), "it runs in the next step");
        assert_eq!(bench.scheduler.stats().preempted, 1);
        let ended = bench.finish();
        assert_eq!(order(&ended), [1, 2, 0]);
        assert_alone(&ended, &requests);
    }
}

#[test]
fn saved_entries_spare_the_reading() {
    let rows = |swap| {
        let mut bench = Bench::new(Preemptive { most: 5, swap });
        bench.scheduler.submit(request(0, 0)).unwrap();
        (0..6).for_each(|_| assert!(bench.turn()));
        bench.scheduler.submit(request(1, 1)).unwrap();
        while bench.turn() {}
        bench.scheduler.stats().rows
    };
    // Nine tokens of prompt and eleven of text each; thirteen entries were held.
    assert_eq!(rows(Swap::Save), 2 * 20);
    assert_eq!(rows(Swap::Recompute), 2 * 20 + 13);
}

#[test]
fn equals_and_lower_priorities_wait() {
    let mut bench = Bench::new(Preemptive { most: 5, swap: Swap::Save });
    let requests = [request(0, 1), request(1, 1), request(2, 0)];
    bench.scheduler.submit(requests[0].clone()).unwrap();
    assert!(bench.turn());
    requests[1..].iter().for_each(|r| bench.scheduler.submit(r.clone()).unwrap());
    let ended = bench.finish();
    assert_eq!(order(&ended), [0, 1, 2]);
    assert_alone(&ended, &requests);
}

#[test]
fn plain_priorities_take_nothing_away() {
    let mut bench = Bench::new(Priority);
    bench.scheduler.submit(request(0, 0)).unwrap();
    assert!(bench.turn());
    bench.scheduler.submit(request(1, 9)).unwrap();
    assert_eq!(order(&bench.finish()), [0, 1]);
}

#[test]
fn a_text_loses_its_slot_at_most_so_often() {
    let mut bench = Bench::new(Preemptive { most: 2, swap: Swap::Recompute });
    let requests: Vec<_> = (0..5).map(|id| request(id, i32::from(id > 0))).collect();
    bench.scheduler.submit(requests[0].clone()).unwrap();
    for request in &requests[1..] {
        while bench.scheduler.known(RequestId(0), 0).is_none() {
            assert!(bench.turn());
        }
        (0..3).for_each(|_| assert!(bench.turn()));
        bench.scheduler.submit(request.clone()).unwrap();
        assert!(bench.turn());
    }
    assert_eq!(bench.scheduler.stats().preempted, 2);
    let ended = bench.finish();
    assert_eq!(order(&ended)[..3], [1, 2, 0], "the third has to wait");
    assert_alone(&ended, &requests);
}

/// A driver that does not ask for admissions gets the saving first, then the emptying.
#[test]
fn what_is_taken_is_saved_before_it_is_cleared() {
    let policy = Preemptive { most: 1, swap: Swap::Save };
    let mut bench = Bench::new(policy);
    bench.scheduler.submit(request(0, 0)).unwrap();
    (0..3).for_each(|_| assert!(bench.turn()));
    bench.scheduler.submit(request(1, 1)).unwrap();
    bench.scheduler.poll_batch().unwrap();
    let ops: Vec<_> = std::iter::from_fn(|| bench.scheduler.poll_cache_op()).collect();
    let [CacheOp::Save(saved, tokens), CacheOp::Clear(cleared)] = &ops[..] else {
        panic!("{ops:?}")
    };
    assert_eq!((saved, tokens.len()), (cleared, 10));
}
