//! Sections from elsewhere are believed in nothing that they do not bring.

use lapidary_cache::Extent;
use lapidary_core::{KvCache, Reach, Section, SlotId};

use crate::history::{Event, Setting, Shape, World, layer};

const SLOT: SlotId = SlotId(0);

/// A slot of 30 entries on layers that look back over 4 and over everything, and the entries in
/// two sections.
fn thirty() -> (World, [Section; 2]) {
    let extent = Extent { slots: 2, context: 40, burst: 5 };
    let layers = vec![layer(Reach::Window(4), false), layer(Reach::All, false)];
    let mut world = World::new(&Setting { extent, layers, shared: false }, 0);
    let five = Shape::Chain { rows: 4, accepted: 5 };
    let step = Event::Step { spans: vec![(0, five)], planned: false };
    let grow = |world: &mut World| (0..3).for_each(|_| assert_eq!(world.live(&step), Ok(())));
    grow(&mut world);
    let first = world.cache.save(&world.ops, SLOT, 0..15).expect("everything is there");
    grow(&mut world);
    let second = world.cache.save(&world.ops, SLOT, 15..30).expect("everything is there");
    (world, [first, second])
}

fn restores(world: &mut World, path: &[&Section], len: u32) -> bool {
    let done = world.cache.restore(&world.ops, SlotId(1), path, len);
    let expected = if done { len } else { 0 };
    assert_eq!(world.cache.committed(SlotId(1)), expected);
    world.cache.clear(SlotId(1));
    done
}

#[test]
fn a_window_keeps_its_newest_entries_and_everything_is_kept_once() {
    let (mut world, [first, second]) = thirty();
    let kept = |section: &Section| section.layers.iter().map(|k| k.entries.clone()).collect();
    let (first_kept, second_kept): (Vec<_>, Vec<_>) = (kept(&first), kept(&second));
    // Eight cells: the ring still holds 7..15 and 22..30. A row at 25 needs 22.
    assert_eq!((first_kept, first.floor), (vec![7..15, 0..15], 10));
    assert_eq!((second_kept, second.floor), (vec![22..30, 15..30], 25));
    for (len, possible) in [(30, true), (25, true), (24, false), (15, false), (31, false)] {
        assert_eq!(restores(&mut world, &[&first, &second], len), possible, "at {len}");
    }
    for (len, possible) in [(15, true), (10, true), (9, false), (0, false)] {
        assert_eq!(restores(&mut world, &[&first], len), possible, "at {len}");
    }
}

#[test]
fn sections_that_do_not_fit_together_are_refused() {
    let (mut world, [first, second]) = thirty();
    assert!(!restores(&mut world, &[], 1), "nothing");
    assert!(!restores(&mut world, &[&second], 30), "no beginning");
    assert!(!restores(&mut world, &[&first, &first], 15), "twice the same");
    let fewer = Section { layers: first.layers[..1].to_vec(), ..first.clone() };
    assert!(!restores(&mut world, &[&fewer, &second], 30), "a layer less");
    let mut shorter = first.clone();
    shorter.layers[1].bytes.pop();
    assert!(!restores(&mut world, &[&shorter, &second], 30), "a byte less");
    assert!(restores(&mut world, &[&first, &second], 30));
}

#[test]
fn a_section_that_lies_about_its_floor_is_not_believed() {
    let (mut world, [first, second]) = thirty();
    let lie = Section { floor: 15, ..second };
    assert!(!restores(&mut world, &[&first, &lie], 20));
    assert!(restores(&mut world, &[&first, &lie], 25));
}
