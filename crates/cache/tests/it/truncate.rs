//! `truncate` says yes exactly when nothing that is needed was overwritten.

use lapidary_cache::Extent;
use lapidary_core::{KvCache, Reach, SlotId};

use crate::history::{Event, Setting, Shape, World, layer};

const SLOT: SlotId = SlotId(0);

/// A slot of 30 entries behind a ring of eight cells.
fn thirty() -> World {
    let extent = Extent { slots: 1, context: 64, burst: 5 };
    let layers = vec![layer(Reach::Window(4), false), layer(Reach::All, false)];
    let mut world = World::new(&Setting { extent, layers, shared: false }, 0);
    grow(&mut world, 30);
    world
}

fn grow(world: &mut World, tokens: usize) {
    let one = Shape::Chain { rows: 0, accepted: 1 };
    let step = Event::Step { spans: vec![(0, one)], planned: false };
    for _ in 0..tokens {
        assert_eq!(world.live(&step), Ok(()));
    }
}

#[test]
fn a_ring_can_go_back_by_its_burst_and_no_further() {
    // Cells hold entries 22..30. A row at 25 needs 22, 23, 24; one at 24 needs 21 too.
    for (len, possible) in [(30, true), (26, true), (25, true), (24, false), (1, false)] {
        let mut world = thirty();
        assert_eq!(world.cache.truncate(SLOT, len), possible, "to {len}");
        let expected = if possible { len } else { 30 };
        assert_eq!(world.cache.committed(SLOT), expected, "to {len}");
    }
}

#[test]
fn nothing_is_needed_at_the_beginning() {
    let mut world = thirty();
    assert_eq!(world.truncate(SLOT, 0), Ok(()));
    assert_eq!(world.cache.committed(SLOT), 0, "an empty slot needs no entries");
    grow(&mut world, 6);
    assert_eq!(world.truncate(SLOT, 3), Ok(()));
    assert_eq!(world.cache.committed(SLOT), 3, "what was before is forgotten");
}

#[test]
fn what_is_not_there_cannot_be_kept() {
    let mut world = thirty();
    assert!(!world.cache.truncate(SLOT, 31));
    assert_eq!(world.cache.committed(SLOT), 30);
}

#[test]
fn resuming_after_a_cut_sees_the_new_story() {
    let mut world = thirty();
    for len in [27, 28, 26] {
        assert_eq!(world.truncate(SLOT, len), Ok(()));
        grow(&mut world, 5);
    }
}
