//! Saved prefixes: what is found, what is kept once, what goes when there is no more room.

use std::sync::{Arc, Mutex};

use lapidary_core::{KvCache, Section, SlotId, TokenId};
use lapidary_engine::{
    Aids, Budget, FirstCome, HostShelf, Label, Limits, NoDrafts, NoWatch, PrefixStats, Prefixes,
    Request, RequestId, Scheduler, SectionKey, Shelf, Target, turn_with,
};
use lapidary_model::{NoHooks, run};

use crate::common::{Fake, FakeCache, FakeModel};

const LIMITS: Limits = Limits { slots: 3, context: 90, burst: 64, step: 64, waiting: 9 };
const OPS: fn() -> Fake = Fake::default;
/// Bytes of one entry of the fake cache.
const ENTRY: u64 = 4;

fn text(seed: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| TokenId((i * i + seed * i + seed) % 7)).collect()
}

/// A cache whose first slot holds these tokens.
fn holding(tokens: &[TokenId]) -> FakeCache {
    let mut cache = FakeCache::new(&LIMITS);
    let batch = lapidary_core::Batch::builder();
    let batch = batch.chain(SlotId(0), 0, tokens, |_| lapidary_core::Want::NOTHING);
    // Tokens that make the model panic do not occur.
    run(&OPS(), &FakeModel, &mut cache, &batch.unwrap().build()).unwrap();
    cache.commit(&OPS(), SlotId(0), &(0..tokens.len()).collect::<Vec<_>>());
    cache
}

fn save(prefixes: &mut Prefixes, tokens: &[TokenId]) {
    prefixes.save(tokens, &OPS(), &holding(tokens), SlotId(0));
}

fn kept(bytes: u64) -> Prefixes {
    Prefixes::new(Box::new(HostShelf::default()), Budget { bytes, least: 2 })
}

#[test]
fn the_longest_usable_prefix_is_found_and_given() {
    let mut prefixes = kept(10_000);
    let whole = text(1, 40);
    save(&mut prefixes, &whole[..10]);
    save(&mut prefixes, &whole[..26]);
    // Sections can be resumed at their last three lengths.
    let cases = [(40, 26), (26, 26), (25, 25), (24, 24), (23, 10), (10, 10), (8, 8), (7, 0)];
    for (asked, found) in cases {
        assert_eq!(prefixes.longest(&whole[..asked]), found, "of {asked}");
    }
    assert_eq!(prefixes.longest(&[&whole[..12], &text(3, 9)].concat()), 10, "a text parts ways");
    let mut cache = FakeCache::new(&LIMITS);
    let given = prefixes.restore(&whole, 0, &OPS(), &mut cache, SlotId(2));
    assert_eq!((given, cache.committed(SlotId(2))), (26, 26));
    assert_eq!(prefixes.restore(&whole, 26, &OPS(), &mut cache, SlotId(1)), 0, "no more than 26");
    let PrefixStats { hits, tokens, saved, .. } = prefixes.stats();
    assert_eq!((hits, tokens, saved), (1, 26, 2));
}

#[test]
fn common_beginnings_are_kept_once() {
    let mut prefixes = kept(10_000);
    let system = text(1, 20);
    save(&mut prefixes, &system);
    for seed in 2..7 {
        save(&mut prefixes, &[&system[..], &text(seed, 10)].concat());
        save(&mut prefixes, &[&system[..], &text(seed, 10)].concat());
    }
    assert_eq!(prefixes.stats().bytes, ENTRY * (20 + 5 * 10));
    assert_eq!(prefixes.stats().held, 6);
}

#[test]
fn too_few_tokens_are_not_worth_keeping() {
    let mut prefixes = kept(10_000);
    save(&mut prefixes, &text(1, 20));
    save(&mut prefixes, &text(1, 21));
    assert_eq!(prefixes.stats().held, 1);
}

#[test]
fn the_least_recently_used_goes_first_and_beginnings_stay() {
    let mut prefixes = kept(ENTRY * 60);
    let system = text(1, 20);
    let chat = |seed| [&system[..], &text(seed, 20)].concat();
    save(&mut prefixes, &system);
    save(&mut prefixes, &chat(2));
    save(&mut prefixes, &chat(3));
    let mut cache = FakeCache::new(&LIMITS);
    assert_eq!(prefixes.restore(&chat(2), 0, &OPS(), &mut cache, SlotId(0)), 40);
    save(&mut prefixes, &chat(4));
    assert_eq!(prefixes.longest(&chat(2)), 40, "it was used");
    assert_eq!(prefixes.longest(&chat(3)), 20, "it was not");
    assert_eq!(prefixes.longest(&chat(4)), 40);
    let PrefixStats { evicted, bytes, .. } = prefixes.stats();
    assert_eq!((evicted, bytes), (1, ENTRY * 60));
}

#[test]
fn memory_never_exceeds_the_budget() {
    let mut prefixes = kept(ENTRY * 50);
    for seed in 0..200 {
        let long = text(seed % 40, 20 + seed % 33);
        save(&mut prefixes, &long[..10]);
        save(&mut prefixes, &long);
        assert!(prefixes.stats().bytes <= ENTRY * 50);
    }
    assert!(prefixes.stats().evicted > 50);
}

#[test]
fn what_is_larger_than_the_budget_displaces_nothing() {
    let mut prefixes = kept(ENTRY * 30);
    save(&mut prefixes, &text(1, 20));
    save(&mut prefixes, &text(2, 40));
    assert_eq!((prefixes.longest(&text(1, 20)), prefixes.longest(&text(2, 40))), (20, 0));
}

/// A shelf that others can look into, and that loses what it is told to lose.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<(HostShelf, Vec<Label>)>>);

impl Shelf for Shared {
    fn labels(&mut self) -> Vec<Label> {
        self.0.lock().unwrap().1.clone()
    }

    fn put(&mut self, label: &Label, section: Section) -> bool {
        let (shelf, labels) = &mut *self.0.lock().unwrap();
        labels.push(label.clone());
        shelf.put(label, section)
    }

    fn get(&mut self, key: SectionKey) -> Option<Arc<Section>> {
        self.0.lock().unwrap().0.get(key)
    }

    fn remove(&mut self, key: SectionKey) {
        let (shelf, labels) = &mut *self.0.lock().unwrap();
        labels.retain(|label| label.key != key);
        shelf.remove(key);
    }
}

fn on(shelf: &Shared) -> Prefixes {
    Prefixes::new(Box::new(shelf.clone()), Budget { bytes: ENTRY * 60, least: 2 })
}

#[test]
fn what_lies_on_a_shelf_is_found_again() {
    let shelf = Shared::default();
    let mut first = on(&shelf);
    save(&mut first, &text(1, 10));
    save(&mut first, &text(1, 30));
    let mut second = on(&shelf);
    let mut cache = FakeCache::new(&LIMITS);
    assert_eq!(second.restore(&text(1, 50), 0, &OPS(), &mut cache, SlotId(1)), 30);
    let tight = Prefixes::new(Box::new(shelf.clone()), Budget { bytes: ENTRY * 15, least: 2 });
    assert_eq!((tight.stats().held, tight.longest(&text(1, 50))), (1, 10), "beginnings stay");
}

#[test]
fn what_a_shelf_has_lost_is_given_up_with_all_that_continues_it() {
    let shelf = Shared::default();
    let mut prefixes = on(&shelf);
    save(&mut prefixes, &text(1, 10));
    save(&mut prefixes, &text(1, 20));
    save(&mut prefixes, &text(1, 30));
    shelf.0.lock().unwrap().0.remove(SectionKey::of(&text(1, 20)));
    let mut cache = FakeCache::new(&LIMITS);
    assert_eq!(prefixes.restore(&text(1, 50), 0, &OPS(), &mut cache, SlotId(1)), 10);
    assert_eq!((prefixes.stats().held, prefixes.stats().lost), (1, 2));
}

/// A conversation goes on after others have had the slots, and is not read again.
#[test]
fn a_second_turn_reads_only_what_is_new() {
    let scheduler = Scheduler::new(Limits { slots: 1, ..LIMITS }, Box::new(FirstCome));
    let mut scheduler = scheduler.unwrap().saving(8);
    let (mut cache, mut prefixes) = (FakeCache::new(&LIMITS), kept(10_000));
    let mut ask = |id, prompt: Vec<TokenId>| {
        let request = Request { max_tokens: Some(3), ..Request::new(RequestId(id), prompt) };
        scheduler.submit(request).unwrap();
        let mut step = || {
            let target = Target { ops: &OPS(), model: &FakeModel, cache: &mut cache };
            let (drafter, hooks) = (&mut NoDrafts, &mut NoHooks);
            let aids = Aids { drafter, prefixes: &mut prefixes, hooks, watch: &mut NoWatch };
            turn_with(&mut scheduler, target, aids).unwrap()
        };
        while step() {}
        scheduler.stats().cached
    };
    let first = text(1, 22);
    assert_eq!(ask(0, first.clone()), 0);
    assert_eq!(ask(1, text(4, 30)), 0, "another text takes the only slot");
    assert_eq!(ask(2, [&first[..], &text(5, 9)].concat()), 22);
}
