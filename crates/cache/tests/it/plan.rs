//! `plan` decides and changes nothing, and refuses what does not fit with the reason.

use lapidary_cache::{Cache, Extent, ReserveError};
use lapidary_core::{
    Batch, BatchBuilder, CacheFull, KvCache, KvPlan, LayerId, Reach, Regime, SlotId, TokenId,
    Unsupported, View, Want,
};

use crate::history::layer;
use crate::ledger::Ledger;

const EXTENT: Extent = Extent { slots: 2, context: 20, burst: 6 };
const LAYERS: [Reach; 4] = [Reach::Window(3), Reach::All, Reach::Window(3), Reach::Window(5)];

fn cache(ops: &Ledger, extent: Extent) -> Result<Cache<Ledger>, ReserveError> {
    let layers = LAYERS.map(|reach| layer(reach, false)).to_vec();
    Cache::new(ops, layers, extent, |_| true, |_| Regime::F16)
}

fn chain(builder: BatchBuilder, slot: u32, base: u32, len: usize) -> BatchBuilder {
    let tokens = vec![TokenId(0); len];
    builder.chain(SlotId(slot), base, &tokens, |_| Want::NOTHING).expect("well formed")
}

/// The error of planning `batch`, after which an honest batch must still fit.
fn refusal(batch: BatchBuilder) -> Option<CacheFull> {
    let ops = Ledger::default();
    let cache = cache(&ops, EXTENT).expect("the extent holds something");
    let refused = cache.plan(&ops, &batch.build()).err();
    let honest = chain(chain(Batch::builder(), 0, 0, 6), 1, 0, 6).build();
    assert!(cache.plan(&ops, &honest).is_ok(), "a refusal changes nothing");
    refused
}

#[test]
fn a_span_must_fit() {
    let start = || chain(Batch::builder(), 0, 0, 1);
    let no_slot = CacheFull::NoSlot { slot: SlotId(2) };
    assert_eq!(refusal(chain(start(), 2, 0, 1)), Some(no_slot));
    let gap = CacheFull::Gap { slot: SlotId(1), committed: 0, base: 3 };
    assert_eq!(refusal(chain(start(), 1, 3, 1)), Some(gap));
    let long = CacheFull::Span { slot: SlotId(1), len: 7, most: 6 };
    assert_eq!(refusal(chain(start(), 1, 0, 7)), Some(long));
}

#[test]
fn a_sequence_may_fill_its_context_and_no_more() {
    let ops = Ledger::default();
    let mut cache = cache(&ops, EXTENT).expect("the extent holds something");
    for base in [0, 6, 12] {
        let batch = chain(Batch::builder(), 1, base, 6).build();
        assert!(cache.plan(&ops, &batch).is_ok(), "at {base}");
        cache.commit(&ops, SlotId(1), &[0, 1, 2, 3, 4, 5]);
    }
    let full = cache.plan(&ops, &chain(Batch::builder(), 1, 18, 3).build()).err();
    let expected = CacheFull::Slot { slot: SlotId(1), needed: 21, context: 20 };
    assert_eq!(full, Some(expected));
    assert!(cache.plan(&ops, &chain(Batch::builder(), 1, 18, 2).build()).is_ok());
}

#[test]
fn layers_of_one_reach_share_a_plan() {
    let ops = Ledger::default();
    let cache = cache(&ops, EXTENT).expect("the extent holds something");
    let plan = cache.plan(&ops, &chain(Batch::builder(), 0, 0, 4).build()).expect("it fits");
    let last = |layer| plan.layer(LayerId(layer)).views[3].clone();
    let view = |run| View { slot: SlotId(0), pos: 3, run, lineage: Vec::new() };
    let views = [view(1..4), view(0..4), view(1..4), view(0..4)];
    assert_eq!([0, 1, 2, 3].map(last), views);
    assert!(std::ptr::eq(plan.layer(LayerId(0)), plan.layer(LayerId(2))));
}

#[test]
fn a_tree_node_sees_its_ancestors_only() {
    let ops = Ledger::default();
    let mut cache = cache(&ops, EXTENT).expect("the extent holds something");
    assert!(cache.plan(&ops, &chain(Batch::builder(), 0, 0, 4).build()).is_ok());
    cache.commit(&ops, SlotId(0), &[0, 1, 2, 3]);
    let nodes = [None, None, Some(0), Some(2), Some(3)].map(|parent| (TokenId(0), parent));
    let tree = Batch::builder().tree(SlotId(0), 4, &nodes, Want::NOTHING);
    let plan = cache.plan(&ops, &tree.expect("a tree").build()).expect("it fits");
    let entries = |plan: &KvPlan<Ledger>, layer, row: usize| {
        plan.layer(LayerId(layer)).views[row].entries().collect::<Vec<_>>()
    };
    assert_eq!(entries(&plan, 0, 1), [(2, 2), (3, 3), (4, 5)], "beside its sibling");
    assert_eq!(entries(&plan, 0, 3), [(4, 4), (5, 6), (6, 7)], "the window cuts the past off");
    assert_eq!(entries(&plan, 0, 4), [(5, 6), (6, 7), (7, 8)], "and then the lineage");
    assert_eq!(entries(&plan, 1, 4)[3..], [(3, 3), (4, 4), (5, 6), (6, 7), (7, 8)]);
}

#[test]
fn a_cache_holds_something() {
    let ops = Ledger::default();
    for extent in [
        Extent { slots: 0, ..EXTENT },
        Extent { context: 0, ..EXTENT },
        Extent { burst: 0, ..EXTENT },
    ] {
        assert_eq!(cache(&ops, extent).err(), Some(ReserveError::Empty));
    }
}

#[test]
fn a_device_that_refuses_a_layer_is_quoted() {
    let ops = Ledger { withheld: 8 };
    let refused = cache(&ops, EXTENT).err();
    let reason = Unsupported("a ring without cells".into());
    assert_eq!(refused, Some(ReserveError::Layer { layer: LayerId(0), reason }));
}

#[test]
fn bytes_are_counted_by_reach() {
    let ops = Ledger::default();
    let cache = cache(&ops, EXTENT).expect("the extent holds something");
    // The ledger counts a cell as one byte.
    assert_eq!(cache.bytes(&ops), (2 * 20, 2 * (8 + 8 + 10)));
}
