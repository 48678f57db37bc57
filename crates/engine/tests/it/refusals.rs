//! What cannot be served is refused at the door, with the numbers that say why.

use std::ops::Range;
use std::sync::Arc;

use lapidary_core::TokenId;
use lapidary_engine::{
    BadLimits, BadSampling, BadSoft, Dry, Event, Finish, FirstCome, Guesses, Limits, Refused,
    Request, RequestId, Sampling, Scheduler, Soft, SoftRows, Xtc,
};

const LIMITS: Limits = Limits { slots: 2, context: 10, burst: 4, step: 4, waiting: 3 };

fn scheduler() -> Scheduler {
    Scheduler::new(LIMITS, Box::new(FirstCome)).unwrap()
}

fn request(id: u64, len: usize) -> Request {
    Request::new(RequestId(id), vec![TokenId(1); len])
}

#[test]
fn a_prompt_must_have_a_token_and_leave_room_for_one() {
    let mut scheduler = scheduler();
    assert_eq!(scheduler.submit(request(0, 0)), Err(Refused::EmptyPrompt));
    let long = Refused::PromptTooLong { tokens: 10, context: 10 };
    assert_eq!(scheduler.submit(request(0, 10)), Err(long));
    assert_eq!(scheduler.submit(request(0, 9)), Ok(()));
    assert_eq!(scheduler.stats().refused, 2);
}

#[test]
fn the_queue_is_bounded_beyond_the_free_slots() {
    let mut scheduler = scheduler();
    for id in 0..5 {
        assert_eq!(scheduler.submit(request(id, 1)), Ok(()));
    }
    assert_eq!(scheduler.submit(request(5, 1)), Err(Refused::Busy { running: 0, waiting: 5 }));
    assert!(scheduler.poll_batch().is_some());
    assert_eq!(scheduler.submit(request(5, 1)), Err(Refused::Busy { running: 2, waiting: 3 }));
    scheduler.cancel(RequestId(4));
    assert_eq!(scheduler.submit(request(5, 1)), Ok(()));
}

#[test]
fn a_live_id_is_not_given_twice() {
    let mut scheduler = scheduler();
    scheduler.submit(request(3, 1)).unwrap();
    let taken = Err(Refused::IdInUse { id: RequestId(3) });
    assert_eq!(scheduler.submit(request(3, 1)), taken);
    scheduler.poll_batch().unwrap();
    assert_eq!(scheduler.submit(request(3, 1)), taken);
    scheduler.cancel(RequestId(3));
    assert_eq!(scheduler.submit(request(3, 1)), Ok(()));
}

#[test]
fn senseless_sampling_is_refused() {
    let refused = |sampling| match scheduler().submit(Request { sampling, ..request(0, 1) }) {
        Err(Refused::Sampling(BadSampling::OutOfRange { name, .. })) => name,
        Err(Refused::Sampling(BadSampling::Bias { .. })) => "bias",
        other => panic!("{other:?}"),
    };
    let plain = Sampling::default;
    assert_eq!(refused(Sampling { temperature: -1.0, ..plain() }), "temperature");
    assert_eq!(refused(Sampling { temperature: f32::NAN, ..plain() }), "temperature");
    assert_eq!(refused(Sampling { top_p: 1.5, ..plain() }), "top_p");
    assert_eq!(refused(Sampling { min_p: -0.1, ..plain() }), "min_p");
    assert_eq!(refused(Sampling { repeat_penalty: 0.0, ..plain() }), "repeat_penalty");
    assert_eq!(refused(Sampling { presence_penalty: 101.0, ..plain() }), "presence_penalty");
    assert_eq!(refused(Sampling { frequency_penalty: f32::NAN, ..plain() }), "frequency_penalty");
    assert_eq!(refused(Sampling { top_n_sigma: -1.0, ..plain() }), "top_n_sigma");
    let xtc = |probability, threshold| {
        refused(Sampling { xtc: Some(Xtc { probability, threshold }), ..plain() })
    };
    assert_eq!(xtc(1.1, 0.1), "xtc_probability");
    assert_eq!(xtc(0.1, f32::NAN), "xtc_threshold");
    let dry = |multiplier, base, allowed| {
        let dry = Dry { multiplier, base, allowed, range: 9, breakers: Vec::new() };
        refused(Sampling { dry: Some(dry), ..plain() })
    };
    assert_eq!(dry(-1.0, 2.0, 2), "dry_multiplier");
    assert_eq!(dry(1.0, 0.9, 2), "dry_base");
    assert_eq!(dry(1.0, 2.0, 0), "dry_allowed_length");
    let bias = vec![(TokenId(2), f32::INFINITY)];
    assert_eq!(refused(Sampling { bias, ..plain() }), "bias");
}

#[test]
fn a_request_for_no_tokens_ends_without_a_step() {
    let mut scheduler = scheduler();
    scheduler.submit(Request { max_tokens: Some(0), ..request(0, 1) }).unwrap();
    let end = Event::Finished {
        id: RequestId(0),
        sample: 0,
        finish: Finish::Length,
        guesses: Guesses::default(),
    };
    assert_eq!(scheduler.poll_event(), Some(end));
    assert!(scheduler.is_idle() && scheduler.poll_batch().is_none());
}

#[test]
fn limits_under_which_a_request_could_not_move_are_refused() {
    let refused = |limits| Scheduler::new(limits, Box::new(FirstCome)).err();
    assert_eq!(refused(LIMITS), None);
    assert_eq!(refused(Limits { slots: 0, ..LIMITS }), Some(BadLimits::NoSlots));
    assert_eq!(refused(Limits { burst: 0, ..LIMITS }), Some(BadLimits::NoBurst));
    assert_eq!(refused(Limits { context: 1, ..LIMITS }), Some(BadLimits::Context { context: 1 }));
    assert_eq!(refused(Limits { step: 1, ..LIMITS }), Some(BadLimits::Step { step: 1, slots: 2 }));
}

#[test]
fn messages_name_the_thing_and_the_remedy() {
    let long = Refused::PromptTooLong { tokens: 12, context: 10 };
    assert_eq!(
        long.to_string(),
        "the prompt has 12 tokens and a sequence may grow to 10: shorten it or raise the context"
    );
    let busy = Refused::Busy { running: 2, waiting: 3 };
    assert_eq!(busy.to_string(), "2 requests are running and 3 waiting: try again later");
}

/// A prompt of eight tokens with blocks of rows two wide: places, and the numbers given.
fn with_soft(blocks: &[(Range<usize>, usize)]) -> Result<(), BadSoft> {
    let mut scheduler = scheduler();
    let soft = |(range, numbers): &(Range<usize>, usize)| Soft {
        range: range.clone(),
        rows: Arc::new(SoftRows::new(vec![0.5; *numbers], 2)),
    };
    let soft = blocks.iter().map(soft).collect();
    match scheduler.submit(Request { soft, ..request(0, 8) }) {
        Ok(()) => Ok(()),
        Err(Refused::Soft(bad)) => {
            assert!(scheduler.is_idle() && scheduler.poll_batch().is_none(), "nothing was done");
            Err(bad)
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn soft_ranges_lie_in_the_prompt_hold_something_and_have_their_numbers() {
    for fine in [
        &[][..],
        &[(0..3, 6)],
        &[(7..8, 2)],
        &[(0..3, 600)],
        &[(2..5, 6), (5..8, 6)],
        &[(5..8, 6), (0..2, 4)],
    ] {
        assert_eq!(with_soft(fine), Ok(()), "{fine:?}");
    }
    let past = BadSoft::PastTheEnd { index: 1, range: 7..9, prompt: 8 };
    assert_eq!(with_soft(&[(0..1, 2), (7..9, 4)]), Err(past));
    assert_eq!(with_soft(&[(3..3, 0)]), Err(BadSoft::Empty { index: 0, range: 3..3 }));
    let reversed = Range { start: 5, end: 3 };
    let empty = BadSoft::Empty { index: 0, range: reversed.clone() };
    assert_eq!(with_soft(&[(reversed, 9)]), Err(empty));
    let short = BadSoft::Short { index: 0, found: 5, needed: 6, positions: 3, width: 2 };
    assert_eq!(with_soft(&[(1..4, 5)]), Err(short));
    let overlap = BadSoft::Overlap { first: 0, second: 2, a: 4..6, b: 5..7 };
    assert_eq!(with_soft(&[(4..6, 4), (0..1, 2), (5..7, 4)]), Err(overlap));
    // Every range by itself comes first, in their order.
    let short = BadSoft::Short { index: 1, found: 0, needed: 4, positions: 2, width: 2 };
    assert_eq!(with_soft(&[(0..2, 4), (1..3, 0), (9..9, 0)]), Err(short));
}

#[test]
fn a_block_that_no_step_could_hold_is_refused() {
    // Four rows a step, one of them the other slot's.
    assert_eq!(with_soft(&[(1..4, 6)]), Ok(()));
    assert_eq!(with_soft(&[(1..5, 8)]), Err(BadSoft::Large { index: 0, rows: 4, most: 3 }));
}
