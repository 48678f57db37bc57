//! Several texts of one request: the prompt is read once, and each text is one of its own.

use std::collections::BTreeMap;

use lapidary_core::TokenId;
use lapidary_engine::{
    Event, Finish, FirstCome, Limits, NoDrafts, Pooling, Refused, Request, RequestId, Scheduler,
    turn,
};

use crate::common::{Fake, FakeCache, FakeModel, alone, of_sample};

const LIMITS: Limits = Limits { slots: 4, context: 60, burst: 16, step: 32, waiting: 2 };
const ID: RequestId = RequestId(5);

/// A request for `samples` warm texts after 13 tokens: the fake cache can copy 12 of them.
fn request(samples: u32) -> Request {
    let prompt = (0..13).map(|i| TokenId(i % 5)).collect();
    let mut request = Request { samples, max_tokens: Some(6), ..Request::new(ID, prompt) };
    (request.sampling.temperature, request.sampling.seed) = (1.0, 3);
    request
}

/// The scheduler after everything is done, and what was told.
fn served(limits: Limits, requests: &[Request]) -> (Scheduler, Vec<Event>) {
    let mut scheduler = Scheduler::new(limits, Box::new(FirstCome)).unwrap();
    requests.iter().for_each(|request| scheduler.submit(request.clone()).unwrap());
    let mut cache = FakeCache::new(&limits);
    while turn(&mut scheduler, &Fake::default(), &FakeModel, &mut cache, &mut NoDrafts).unwrap() {}
    assert!(scheduler.is_idle() && cache.is_settled());
    let events = std::iter::from_fn(|| scheduler.poll_event()).collect();
    (scheduler, events)
}

/// Each text with its end.
fn texts(events: &[Event]) -> BTreeMap<u32, (Vec<TokenId>, Option<Finish>)> {
    let mut texts: BTreeMap<u32, (Vec<TokenId>, Option<Finish>)> = BTreeMap::new();
    for event in events {
        match event {
            Event::Token { sample, token, .. } => texts.entry(*sample).or_default().0.push(*token),
            Event::Finished { sample, finish, .. } => {
                texts.entry(*sample).or_default().1 = Some(finish.clone());
            }
            _ => {}
        }
    }
    texts
}

fn assert_alone(request: &Request, events: &[Event]) {
    let texts = texts(events);
    assert_eq!(texts.len(), request.samples as usize);
    for (sample, (text, finish)) in texts {
        let (expected, end) = alone(&of_sample(request, sample), LIMITS.context);
        assert_eq!((text, finish), (expected, Some(end)), "text {sample}");
    }
}

#[test]
fn a_prompt_is_read_once_for_all_texts() {
    let request = request(4);
    let (scheduler, events) = served(LIMITS, std::slice::from_ref(&request));
    assert_alone(&request, &events);
    // The prompt, its last row for each further text, and five more tokens each.
    assert_eq!(scheduler.stats().rows, 13 + 3 + 4 * 5);
    assert_eq!(scheduler.stats().cached, 3 * 12);
    assert_eq!((scheduler.stats().submitted, scheduler.stats().finished), (1, 1));
}

#[test]
fn texts_differ_only_in_their_dice() {
    let (_, events) = served(LIMITS, &[request(4)]);
    let texts = texts(&events);
    assert!(texts.values().any(|text| *text != texts[&0]));
    let mut greedy = request(4);
    greedy.sampling.temperature = 0.0;
    let (_, events) = served(LIMITS, &[greedy]);
    let texts = self::texts(&events);
    assert!(texts.values().all(|text| *text == texts[&0]));
}

#[test]
fn more_texts_than_slots_run_as_slots_come_free() {
    for slots in 1..4 {
        let request = request(9);
        let (_, events) = served(Limits { slots, ..LIMITS }, std::slice::from_ref(&request));
        assert_alone(&request, &events);
    }
}

#[test]
fn the_further_texts_count_as_no_further_requests() {
    let mut scheduler = Scheduler::new(Limits { slots: 1, ..LIMITS }, Box::new(FirstCome)).unwrap();
    scheduler.submit(request(100)).unwrap();
    scheduler.poll_batch().unwrap();
    for id in [6, 7] {
        scheduler.submit(Request { id: RequestId(id), ..request(1) }).unwrap();
    }
    let refused = scheduler.submit(Request { id: RequestId(9), ..request(1) });
    assert_eq!(refused, Err(Refused::Busy { running: 1, waiting: 2 }));
}

#[test]
fn cancelling_ends_every_text_once() {
    let mut scheduler = Scheduler::new(Limits { slots: 1, ..LIMITS }, Box::new(FirstCome)).unwrap();
    scheduler.submit(request(5)).unwrap();
    scheduler.poll_batch().unwrap();
    scheduler.cancel(ID);
    let events: Vec<_> = std::iter::from_fn(|| scheduler.poll_event()).collect();
    let ends = texts(&events);
    assert!(ends.values().all(|end| *end == (Vec::new(), Some(Finish::Cancelled))), "{ends:?}");
    assert_eq!((ends.len(), scheduler.stats().finished), (5, 1));
}

#[test]
fn a_request_for_no_tokens_ends_each_of_its_texts() {
    let none = Request { max_tokens: Some(0), ..request(3) };
    let (scheduler, events) = served(LIMITS, &[none]);
    assert_eq!((texts(&events).len(), events.len()), (3, 3));
    assert_eq!((scheduler.stats().steps, scheduler.stats().finished), (0, 1));
}

#[test]
fn a_prompt_is_scored_once() {
    let scored = Request { prompt_logprobs: Some(2), ..request(3) };
    let (_, events) = served(LIMITS, std::slice::from_ref(&scored));
    let scores = events.iter().filter(|event| matches!(event, Event::Prompt { .. }));
    assert_eq!(scores.count(), 1);
    assert_alone(&scored, &events);
}

#[test]
fn no_texts_and_very_many_are_refused() {
    let mut scheduler = Scheduler::new(LIMITS, Box::new(FirstCome)).unwrap();
    for samples in [0, 129] {
        let refused = scheduler.submit(request(samples));
        assert_eq!(refused, Err(Refused::Samples { samples, most: 128 }));
    }
    let vector = Request { samples: 2, ..Request::embedding(ID, vec![TokenId(1)], Pooling::Last) };
    assert_eq!(scheduler.submit(vector), Err(Refused::NoText { setting: "samples" }));
}
