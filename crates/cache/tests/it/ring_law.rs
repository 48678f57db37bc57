//! The ring law: with `window + burst − 1` cells every row sees its story, with one fewer not.

use lapidary_cache::Extent;
use lapidary_core::Reach;
use proptest::prelude::*;

use crate::history::{Event, Setting, Shape, World, any_events, any_setting, layer};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn every_row_sees_its_story(setting in any_setting(), events in any_events()) {
        let mut world = World::new(&setting, 0);
        for (i, event) in events.iter().enumerate() {
            let lived = world.live(event);
            prop_assert!(lived.is_ok(), "event {i}, {event:?}: {}", lived.unwrap_err());
        }
    }
}

/// One windowed layer, filled past its window and then given full steps.
fn full_steps(window: u32, burst: u32, withheld: usize) -> Result<(), String> {
    let extent = Extent { slots: 1, context: 64, burst };
    let layers = vec![layer(Reach::Window(window), false)];
    let mut world = World::new(&Setting { extent, layers, shared: false }, withheld);
    let rows = burst as usize;
    let full = Shape::Chain { rows: rows - 1, accepted: rows };
    let step = Event::Step { spans: vec![(0, full)], planned: false };
    (0..window.div_ceil(burst) + 2).try_for_each(|_| world.live(&step))
}

#[test]
fn the_bound_is_tight() {
    for window in 1..10 {
        for burst in 1..10 {
            let place = format!("window {window}, burst {burst}");
            assert_eq!(full_steps(window, burst, 0), Ok(()), "{place}");
            if window + burst > 2 {
                assert!(full_steps(window, burst, 1).is_err(), "{place}: one cell less");
            }
            if burst > 1 {
                let withheld = burst as usize - 1;
                assert!(full_steps(window, burst, withheld).is_err(), "{place}: window cells");
            }
        }
    }
}

#[test]
fn a_rejected_draft_hides_nothing() {
    let extent = Extent { slots: 1, context: 48, burst: 6 };
    let layers = vec![layer(Reach::Window(5), false)];
    let setting = Setting { extent, layers, shared: false };
    let draft = Shape::Chain { rows: 5, accepted: 1 };
    let step = Event::Step { spans: vec![(0, draft)], planned: false };
    let mut world = World::new(&setting, 0);
    for token in 0..40 {
        assert_eq!(world.live(&step), Ok(()), "token {token}");
    }
    let mut short = World::new(&setting, 1);
    assert!((0..40).any(|_| short.live(&step).is_err()), "one cell less is not enough");
}

#[test]
fn an_image_as_long_as_a_burst_fits() {
    let extent = Extent { slots: 1, context: 48, burst: 9 };
    let layers = vec![layer(Reach::Window(4), true), layer(Reach::Window(4), false)];
    let setting = Setting { extent, layers, shared: false };
    let words =
        Event::Step { spans: vec![(0, Shape::Chain { rows: 6, accepted: 7 })], planned: false };
    let image =
        Event::Step { spans: vec![(0, Shape::Blocks { lengths: vec![9] })], planned: false };
    let mut world = World::new(&setting, 0);
    for event in [&words, &image, &words, &image] {
        assert_eq!(world.live(event), Ok(()));
    }
    let mut short = World::new(&setting, 1);
    assert!([&words, &image].iter().any(|event| short.live(event).is_err()));
}
