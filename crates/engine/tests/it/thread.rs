//! The engine's thread: tickets, cancellation by dropping, breakdowns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, yield_now};
use std::time::{Duration, Instant};

use lapidary_core::TokenId;
use lapidary_engine::{
    Engine, EngineStats, Event, Finish, FirstCome, Guesses, Health, Limits, NoDrafts, Parts, Phase,
    Prefixes, Refused, Request, RequestId, Scheduler, StartError, SubmitError, Ticket,
};
use lapidary_model::NoHooks;

use crate::common::{Fake, FakeCache, FakeModel, PANIC, VOCAB, alone, of_sample};

/// Long enough that a request without bounds is still running when a test looks.
const LIMITS: Limits = Limits { slots: 2, context: 1_000_000, burst: 8, step: 8, waiting: 2 };
const PATIENCE: Duration = Duration::from_secs(20);

fn parts(limits: Limits, ops: Fake) -> Parts<Fake> {
    Parts {
        ops,
        model: Box::new(FakeModel),
        cache: Box::new(FakeCache::new(&limits)),
        tower: None,
        drafter: Box::new(NoDrafts),
        hooks: Box::new(NoHooks),
        prefixes: Prefixes::none(),
        scheduler: Scheduler::new(limits, Box::new(FirstCome)).unwrap(),
    }
}

fn start_with(limits: Limits, ops: Fake) -> (Engine, JoinHandle<()>) {
    let mut time = Duration::ZERO;
    let clock = move || {
        time += Duration::from_millis(1);
        time
    };
    Engine::start(move || Ok::<_, SubmitError>(parts(limits, ops)), clock).unwrap()
}

fn start(limits: Limits) -> Engine {
    start_with(limits, Fake::default()).0
}

fn request(engine: &Engine, max_tokens: Option<u32>) -> Request {
    Request { max_tokens, ..Request::new(engine.next_id(), vec![TokenId(1), TokenId(2)]) }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        yield_now();
    }
}

fn outcome(ticket: Ticket) -> (Vec<TokenId>, Finish) {
    let mut text = Vec::new();
    for event in ticket {
        match event {
            Event::Warm { .. } | Event::Prompt { .. } | Event::Embedding { .. } => {}
            Event::Token { token, .. } => text.push(token),
            Event::Finished { finish, .. } => return (text, finish),
        }
    }
    panic!("a ticket ends with an end")
}

#[test]
fn many_threads_get_their_texts() {
    let engine = start(Limits { waiting: 100, ..LIMITS });
    let ask = |seed: u32| {
        let mut request = request(&engine, Some(20 + seed));
        request.sampling.temperature = 1.0;
        request.sampling.seed = u64::from(seed);
        let expected = alone(&request, LIMITS.context);
        assert_eq!(outcome(engine.clone().submit(request).unwrap()), expected);
    };
    std::thread::scope(|scope| {
        for seed in 0..16 {
            scope.spawn(move || ask(seed));
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.work.submitted, stats.work.finished), (16, 16));
    assert_eq!(stats.times.queue.count(), 16, "every request waited once");
}

/// The clock handed in ticks once a millisecond each time it is asked.
#[test]
fn every_step_is_timed_phase_by_phase() {
    let engine = start(LIMITS);
    let asked = request(&engine, Some(20));
    assert_eq!(outcome(engine.submit(asked).unwrap()).1, Finish::Length);
    wait_until("the engine rests", || engine.stats().work.running == 0);
    let EngineStats { work, times, .. } = engine.stats();
    assert_eq!((times.step.count(), times.rows.count()), (work.steps, work.steps));
    assert!((times.rows.sum() - work.rows as f64).abs() < 1e-9);
    for phase in Phase::ALL {
        let (time, ms) = (times.of(phase), Duration::from_millis);
        let expected = match phase {
            // The request's admission was told too, and that took a tick.
            Phase::Admit => ms(work.steps + 1)..=ms(work.steps + 1),
            // That of the last step is known only with the next.
            Phase::Deliver => ms(work.steps - 1)..=ms(work.steps),
            _ => ms(work.steps)..=ms(work.steps),
        };
        assert!(expected.contains(&time), "{phase:?} took {time:?}, not {expected:?}");
    }
    let in_steps = times.total() - times.of(Phase::Deliver);
    assert!((times.step.sum() - in_steps.as_secs_f64()).abs() < 1e-9);
}

#[test]
fn a_wait_for_a_slot_is_time_in_the_queue() {
    let engine = start(Limits { slots: 1, ..LIMITS });
    let mut long = engine.submit(request(&engine, None)).unwrap();
    let waits = engine.submit(request(&engine, Some(1))).unwrap();
    let given_up = engine.submit(request(&engine, Some(1))).unwrap();
    drop(given_up);
    wait_until("one has given up", || engine.stats().work.waiting == 1);
    assert_eq!(long.by_ref().take(200).count(), 200);
    drop(long);
    assert_eq!(outcome(waits).1, Finish::Length);
    let queue = engine.stats().times.queue;
    assert_eq!(queue.count(), 2, "who gave up waiting is not counted");
    assert!(queue.sum() > 0.2, "200 tokens, each of some ticks, not {}", queue.sum());
}

#[test]
fn dropping_a_ticket_cancels() {
    let engine = start(Limits { slots: 1, ..LIMITS });
    let mut endless = engine.submit(request(&engine, None)).unwrap();
    assert!(matches!(endless.next(), Some(Event::Token { .. })));
    let waiting = engine.submit(request(&engine, Some(3))).unwrap();
    drop(endless);
    assert_eq!(outcome(waiting).1, Finish::Length);
    wait_until("the slot is free", || engine.stats().work.running == 0);
    assert_eq!(engine.stats().work.finished, 2);
}

#[test]
fn an_old_ticket_does_not_cancel_a_new_request_of_the_same_id() {
    let engine = start(LIMITS);
    let with_id = |max_tokens| Request { id: RequestId(900), ..request(&engine, max_tokens) };
    let old = engine.submit(with_id(Some(1))).unwrap();
    wait_until("the first ends", || engine.stats().work.finished == 1);
    let new = engine.submit(with_id(None)).unwrap();
    drop(old);
    // Commands are taken in order: once this one is, the drop has been seen to.
    let later = engine.submit(request(&engine, None)).unwrap();
    assert_eq!(engine.stats().work.finished, 1);
    drop((new, later));
}

#[test]
fn a_slow_reader_holds_up_nobody() {
    let engine = start(LIMITS);
    let slow = engine.submit(request(&engine, Some(500))).unwrap();
    let quick = engine.submit(request(&engine, Some(600))).unwrap();
    assert_eq!(outcome(quick).0.len(), 600);
    wait_until("both end", || engine.stats().work.finished == 2);
    assert_eq!(outcome(slow).0.len(), 500);
}

#[test]
fn a_full_engine_refuses_with_its_numbers() {
    let engine = start(LIMITS);
    let tickets: Vec<_> = (0..4).map(|_| engine.submit(request(&engine, None)).unwrap()).collect();
    let refused = engine.submit(request(&engine, None)).err();
    let Some(SubmitError::Refused(Refused::Busy { running, waiting })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(running + waiting, 4);
    drop(tickets);
}

#[test]
fn a_token_outside_the_vocabulary_is_refused_and_harms_nobody() {
    let engine = start(LIMITS);
    let token = TokenId(VOCAB as u32);
    let strange = Request { prompt: vec![token], ..request(&engine, Some(1)) };
    let refused = engine.submit(strange).err();
    assert_eq!(refused, Some(SubmitError::UnknownToken { token, vocab: VOCAB }));
    assert_eq!(outcome(engine.submit(request(&engine, Some(1))).unwrap()).1, Finish::Length);
}

#[test]
fn a_panic_in_the_model_fails_everyone_and_shows_in_health() {
    let engine = start(LIMITS);
    let running = engine.submit(request(&engine, None)).unwrap();
    assert_eq!(engine.health(), Health::Ready);
    let deadly = Request { prompt: vec![PANIC], ..request(&engine, None) };
    let deadly = engine.submit(deadly).unwrap();
    let reason = "the engine panicked: a panic in the model".to_owned();
    assert_eq!(outcome(deadly), (Vec::new(), Finish::Failed(reason.clone())));
    assert_eq!(outcome(running).1, Finish::Failed(reason.clone()));
    assert_eq!(engine.health(), Health::Failed(reason.clone()));
    let refused = engine.submit(request(&engine, None)).err();
    assert_eq!(refused, Some(SubmitError::Down { reason }));
}

#[test]
fn a_device_fault_fails_everyone_and_shows_in_health() {
    let ops = Fake::default();
    let (engine, thread) = start_with(Limits { slots: 1, ..LIMITS }, ops.clone());
    let running = engine.submit(request(&engine, None)).unwrap();
    let waiting = engine.submit(request(&engine, None)).unwrap();
    ops.broken.store(true, Ordering::Relaxed);
    let reason = "the device failed: out of smoke".to_owned();
    assert_eq!(outcome(running).1, Finish::Failed(reason.clone()));
    assert_eq!(engine.health(), Health::Failed(reason.clone()), "known before it is told");
    assert_eq!(outcome(waiting), (Vec::new(), Finish::Failed(reason.clone())));
    assert!(thread.join().is_ok());
    let refused = engine.submit(request(&engine, None)).err();
    assert_eq!(refused, Some(SubmitError::Down { reason }));
}

#[test]
fn parts_that_cannot_be_built_are_an_error_of_start() {
    let refused = Engine::start(|| Err::<Parts<Fake>, _>(Refused::EmptyPrompt), || Duration::ZERO);
    assert!(matches!(refused, Err(StartError::Build(Refused::EmptyPrompt))));
    let build = || -> Result<Parts<Fake>, Refused> { panic!("no weights") };
    let panicked = Engine::start(build, || Duration::ZERO);
    let Err(StartError::Panicked(reason)) = panicked else { panic!("it started") };
    assert_eq!(reason, "no weights");
}

#[test]
fn a_ticket_of_several_texts_ends_after_the_last_of_them() {
    let engine = start(LIMITS);
    let mut several = request(&engine, Some(30));
    several.samples = 5;
    several.sampling.temperature = 1.0;
    let (mut texts, mut ended) = (vec![Vec::new(); 5], Vec::new());
    for event in engine.submit(several.clone()).unwrap() {
        match event {
            Event::Token { sample, token, .. } => texts[sample as usize].push(token),
            Event::Finished { sample, .. } => ended.push(sample),
            event => assert!(matches!(event, Event::Warm { .. }), "{event:?}"),
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3, 4]);
    for (sample, text) in (0..).zip(texts) {
        assert_eq!(text, alone(&of_sample(&several, sample), LIMITS.context).0, "text {sample}");
    }
}

#[test]
fn a_breakdown_ends_each_text_of_a_ticket_once() {
    let ops = Fake::default();
    let (engine, _) = start_with(LIMITS, ops.clone());
    let several = Request { samples: 3, ..request(&engine, None) };
    let mut ticket = engine.submit(several).unwrap();
    assert!(matches!(ticket.next(), Some(Event::Token { .. })));
    ops.explosive.store(true, Ordering::Relaxed);
    let finished = ticket.filter_map(|event| match event {
        Event::Finished { sample, finish: Finish::Failed(_), .. } => Some(sample),
        _ => None,
    });
    assert_eq!(finished.collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn the_thread_ends_with_the_last_handle_and_the_last_ticket() {
    let (engine, thread) = start_with(LIMITS, Fake::default());
    let ticket = engine.submit(request(&engine, Some(50))).unwrap();
    drop(engine);
    assert_eq!(outcome(ticket).0.len(), 50);
    assert!(thread.join().is_ok());
}

/// Notes that it was woken.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls as an executor would, again only once woken.
fn poll(ticket: &mut Ticket, while_pending: impl FnOnce()) -> Option<Event> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    if let Poll::Ready(event) = ticket.poll_next(&mut context) {
        return event;
    }
    while_pending();
    wait_until("woken", || bell.0.load(Ordering::SeqCst));
    let Poll::Ready(event) = ticket.poll_next(&mut context) else { panic!("woken for nothing") };
    event
}

#[test]
fn a_ticket_can_be_polled_to_its_end() {
    let engine = start(LIMITS);
    let mut ticket = engine.submit(request(&engine, Some(200))).unwrap();
    for _ in 0..200 {
        assert!(matches!(poll(&mut ticket, || ()), Some(Event::Token { .. })));
    }
    assert!(matches!(poll(&mut ticket, || ()), Some(Event::Finished { .. })));
    assert_eq!(poll(&mut ticket, || ()), None);
}

#[test]
fn a_token_wakes_the_task_that_waits_for_it() {
    let engine = start(Limits { slots: 1, ..LIMITS });
    let running = engine.submit(request(&engine, None)).unwrap();
    let mut waiting = engine.submit(request(&engine, None)).unwrap();
    let event = poll(&mut waiting, || drop(running));
    assert!(matches!(event, Some(Event::Token { .. })));
}

#[test]
fn a_breakdown_wakes_the_task_that_waits() {
    let ops = Fake::default();
    let (engine, _) = start_with(Limits { slots: 1, ..LIMITS }, ops.clone());
    let running = engine.submit(request(&engine, None)).unwrap();
    let mut waiting = engine.submit(request(&engine, None)).unwrap();
    let event = poll(&mut waiting, || ops.explosive.store(true, Ordering::Relaxed));
    let reason = "the engine panicked: a panic on the device".to_owned();
    let finish = Finish::Failed(reason);
    assert_eq!(
        event,
        Some(Event::Finished { id: waiting.id(), sample: 0, finish, guesses: Guesses::default() })
    );
    drop(running);
}

#[test]
fn patience_has_an_end() {
    let engine = start(Limits { slots: 1, ..LIMITS });
    let running = engine.submit(request(&engine, None)).unwrap();
    let mut waiting = engine.submit(request(&engine, Some(1))).unwrap();
    assert_eq!(waiting.next_within(Duration::from_millis(5)), Poll::Pending);
    drop(running);
    assert!(matches!(waiting.next_within(PATIENCE), Poll::Ready(Some(Event::Token { .. }))));
}
