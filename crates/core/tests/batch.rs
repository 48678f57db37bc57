//! The builder refuses every malformed batch, and what it lets through is what was asked for.

use std::ops::Range;

use lapidary_core::{
    Batch, BatchError, Input, Row, RowSpec, SlotId, SoftId, SpanSpec, TokenId, Want,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const SLOT: SlotId = SlotId(3);

fn token(id: u32) -> RowSpec {
    RowSpec { input: Input::Token(TokenId(id)), angle: [id; 3], want: Want::NOTHING }
}

fn rows(count: usize) -> Vec<RowSpec> {
    (0..count as u32).map(token).collect()
}

/// What becomes of one span alone in a batch.
fn alone(base: u32, spec: SpanSpec) -> Result<Batch, BatchError> {
    Ok(Batch::builder().span(SLOT, base, spec)?.build())
}

fn tree(parents: &[Option<usize>]) -> SpanSpec {
    SpanSpec { rows: rows(parents.len()), parents: parents.to_vec(), ..SpanSpec::default() }
}

/// A chain of `count` rows with a two-way block from each `(start, end)`.
fn blocks(count: usize, blocks: &[(usize, usize)]) -> SpanSpec {
    SpanSpec { rows: rows(count), blocks: ranges(blocks), ..SpanSpec::default() }
}

fn ranges(pairs: &[(usize, usize)]) -> Vec<Range<usize>> {
    pairs.iter().map(|&(start, end)| start..end).collect()
}

#[test]
fn a_span_has_rows() {
    assert_eq!(alone(0, SpanSpec::default()).err(), Some(BatchError::Empty { slot: SLOT }));
    let chain = Batch::builder().chain(SLOT, 0, &[], |_| Want::LOGITS);
    assert_eq!(chain.err(), Some(BatchError::Empty { slot: SLOT }));
    let tree = Batch::builder().tree(SLOT, 0, &[], Want::LOGITS);
    assert_eq!(tree.err(), Some(BatchError::Empty { slot: SLOT }));
}

#[test]
fn a_slot_has_one_span() {
    let one = Batch::builder().chain(SLOT, 0, &[TokenId(1)], |_| Want::LOGITS).expect("one span");
    let other = one.clone().chain(SlotId(0), 7, &[TokenId(1)], |_| Want::LOGITS);
    let other = other.expect("another slot");
    for batch in [one, other] {
        let twice = batch.chain(SLOT, 1, &[TokenId(2)], |_| Want::LOGITS);
        assert_eq!(twice.err(), Some(BatchError::SlotTwice { slot: SLOT }));
    }
}

#[test]
fn every_node_has_one_parent_before_it() {
    let short = SpanSpec { rows: rows(3), parents: vec![None, Some(0)], ..SpanSpec::default() };
    let expected = BatchError::Parents { slot: SLOT, rows: 3, parents: 2 };
    assert_eq!(alone(0, short).err(), Some(expected));
    let long = SpanSpec { rows: rows(1), parents: vec![None, Some(0)], ..SpanSpec::default() };
    let expected = BatchError::Parents { slot: SLOT, rows: 1, parents: 2 };
    assert_eq!(alone(0, long).err(), Some(expected));
    for (parents, node) in [(vec![Some(0)], 0), (vec![None, Some(2), None], 1)] {
        let expected = Some(BatchError::ParentAfterChild { slot: SLOT, node });
        assert_eq!(alone(0, tree(&parents)).err(), expected);
        let nodes: Vec<_> = parents.iter().map(|&parent| (TokenId(0), parent)).collect();
        assert_eq!(Batch::builder().tree(SLOT, 0, &nodes, Want::LOGITS).err(), expected);
    }
}

#[test]
fn blocks_lie_in_order_inside_a_chain() {
    const FAR: usize = usize::MAX;
    let misplaced: [&[(usize, usize)]; 8] = [
        &[(2, 2)],
        &[(3, 1)],
        &[(0, 5)],
        &[(4, 6)],
        &[(0, 2), (1, 3)],
        &[(2, 4), (0, 2)],
        &[(0, 2), (0, 2)],
        &[(FAR, FAR)],
    ];
    for list in misplaced {
        let (error, list) = (alone(0, blocks(4, list)).err(), ranges(list));
        let named = matches!(&error, Some(BatchError::Block { block, .. }) if list.contains(block));
        assert!(named, "{list:?}: {error:?}");
    }
    let in_tree = SpanSpec { blocks: ranges(&[(0, 1)]), ..tree(&[None, Some(0)]) };
    let expected = BatchError::Block { slot: SLOT, block: 0..1 };
    assert_eq!(alone(0, in_tree).err(), Some(expected));
    assert!(alone(0, blocks(4, &[(0, 1), (1, 3), (3, 4)])).is_ok(), "blocks may touch");
}

#[test]
fn positions_can_be_counted() {
    assert!(alone(u32::MAX - 2, blocks(2, &[])).is_ok(), "the last position but one");
    for base in [u32::MAX - 1, u32::MAX] {
        let too_long = Some(BatchError::TooLong { slot: SLOT });
        assert_eq!(alone(base, blocks(2, &[])).err(), too_long, "chain at {base}");
        assert_eq!(alone(base, tree(&[None, None])).err(), too_long, "tree at {base}");
        let tokens = [TokenId(0); 2];
        let chain = Batch::builder().chain(SLOT, base, &tokens, |_| Want::NOTHING);
        assert_eq!(chain.err(), too_long, "tokens at {base}");
        let nodes = [(TokenId(0), None), (TokenId(0), Some(0))];
        let nodes = Batch::builder().tree(SLOT, base, &nodes, Want::NOTHING);
        assert_eq!(nodes.err(), too_long, "nodes at {base}");
    }
}

#[test]
fn messages_name_the_slot() {
    let errors = [
        BatchError::SlotTwice { slot: SLOT },
        BatchError::Empty { slot: SLOT },
        BatchError::Parents { slot: SLOT, rows: 1, parents: 2 },
        BatchError::ParentAfterChild { slot: SLOT, node: 1 },
        BatchError::Block { slot: SLOT, block: 1..1 },
        BatchError::TooLong { slot: SLOT },
    ];
    for error in errors {
        assert!(error.to_string().contains("slot 3"), "{error}");
    }
}

#[test]
fn a_chain_asks_for_what_its_offsets_want() {
    let want = |i| if i == 2 { Want::BOTH } else { Want::HIDDEN };
    let tokens: Vec<_> = (10..13).map(TokenId).collect();
    let batch = Batch::builder().chain(SLOT, 5, &tokens, want).expect("three tokens").build();
    let row = |i: u32, want| Row {
        slot: SLOT,
        pos: 5 + i,
        angle: [5 + i; 3],
        input: Input::Token(TokenId(10 + i)),
        want,
    };
    assert_eq!(batch.rows(), [row(0, Want::HIDDEN), row(1, Want::HIDDEN), row(2, Want::BOTH)]);
    assert_eq!(batch.rows_where(|row| row.want.logits), [2]);
    assert_eq!(batch.rows_where(|row| row.want.hidden), [0, 1, 2]);
}

#[test]
fn siblings_share_a_position_and_an_angle() {
    let nodes = [None, Some(0), Some(0), Some(2), None].map(|parent| (TokenId(9), parent));
    let batch = Batch::builder().tree(SLOT, 40, &nodes, Want::LOGITS).expect("a tree").build();
    let positions: Vec<_> = batch.rows().iter().map(|row| row.pos).collect();
    assert_eq!(positions, [40, 41, 41, 42, 40]);
    assert!(batch.rows().iter().all(|row| row.angle == [row.pos; 3]));
    let span = &batch.spans()[0];
    assert_eq!((span.lineage(3), span.lineage(4)), (vec![0, 2, 3], vec![4]));
}

/// A span, well formed or not.
fn any_span() -> impl Strategy<Value = (u32, u32, SpanSpec)> {
    let row = (any::<u32>(), any::<[u32; 3]>(), any::<bool>(), any::<(bool, bool, usize)>());
    let row = row.prop_map(|(id, angle, soft, (hidden, logits, top))| RowSpec {
        input: if soft {
            Input::Soft { source: SoftId(id % 3), row: id }
        } else {
            Input::Token(TokenId(id))
        },
        angle,
        want: Want { hidden, logits, top },
    });
    let base = prop_oneof![4 => 0..1000_u32, 1 => u32::MAX - 12..=u32::MAX];
    let parents = prop_oneof![
        2 => Just(Vec::new()),
        2 => vec(option::weighted(0.8, 0..12_usize), 0..10),
        2 => vec(any::<prop::sample::Index>(), 1..10).prop_map(|picks| earlier_parents(&picks)),
    ];
    let block = (0..12_usize, 0..12_usize).prop_map(|(start, end)| start..end);
    let blocks = prop_oneof![3 => Just(Vec::new()), 2 => vec(block, 1..4)];
    let spec = (vec(row, 0..10), parents, blocks).prop_map(|(mut rows, parents, blocks)| {
        // Half of the trees get as many rows as parents.
        if !parents.is_empty() && rows.first().is_some_and(|row| row.want.hidden) {
            let filler = rows[0];
            rows.resize(parents.len(), filler);
        }
        SpanSpec { rows, parents, blocks }
    });
    (0..4_u32, base, spec)
}

fn earlier_parents(picks: &[prop::sample::Index]) -> Vec<Option<usize>> {
    picks.iter().enumerate().map(|(i, pick)| pick.index(i + 1).checked_sub(1)).collect()
}

/// Whether a span may follow spans of the slots in `taken`, said in another way than the builder
/// says it.
fn is_well_formed(taken: &[u32], slot: u32, base: u32, spec: &SpanSpec) -> bool {
    let len = spec.rows.len();
    let parents_before = |(i, parent): (usize, &Option<usize>)| (*parent).is_none_or(|p| p < i);
    let tree = spec.parents.len() == len && spec.parents.iter().enumerate().all(parents_before);
    let mut members = [0; 16];
    let mut previous = 0;
    let mut blocks = true;
    for block in &spec.blocks {
        blocks &= !block.is_empty() && block.start >= previous && block.end <= len;
        previous = block.start;
        block.clone().for_each(|i| members[i] += 1);
    }
    blocks &= members.iter().all(|&count| count <= 1);
    let shape = if spec.parents.is_empty() { blocks } else { tree && spec.blocks.is_empty() };
    let counted = u64::from(base) + len as u64 <= u64::from(u32::MAX);
    len > 0 && !taken.contains(&slot) && counted && shape
}

proptest! {
    #[test]
    fn exactly_the_well_formed_spans_are_accepted(spans in vec(any_span(), 1..5)) {
        let mut builder = Batch::builder();
        let mut accepted: Vec<(u32, u32, SpanSpec)> = Vec::new();
        for (slot, base, spec) in spans {
            let taken: Vec<_> = accepted.iter().map(|(slot, ..)| *slot).collect();
            let expected = is_well_formed(&taken, slot, base, &spec);
            let next = builder.clone().span(SlotId(slot), base, spec.clone());
            prop_assert_eq!(next.is_ok(), expected, "{:?}: {:?}", &spec, next.err());
            if let Ok(next) = next {
                builder = next;
                accepted.push((slot, base, spec));
            }
        }
        check_contents(&builder.build(), &accepted)?;
    }
}

/// Every row and span is as it was asked for, and rows lie span after span without gaps.
fn check_contents(batch: &Batch, asked: &[(u32, u32, SpanSpec)]) -> Result<(), TestCaseError> {
    prop_assert_eq!(batch.spans().len(), asked.len());
    let mut first = 0;
    for (span, (slot, base, spec)) in batch.spans().iter().zip(asked) {
        prop_assert_eq!((span.slot, span.base), (SlotId(*slot), *base));
        prop_assert_eq!((span.first, span.len), (first, spec.rows.len()));
        for (i, asked) in spec.rows.iter().enumerate() {
            let row = &batch.rows()[first + i];
            let line = span.lineage(i);
            prop_assert_eq!(
                (row.input, row.angle, row.want),
                (asked.input, asked.angle, asked.want)
            );
            prop_assert_eq!((row.slot, row.pos), (span.slot, base + line.len() as u32 - 1));
            prop_assert!(line.is_sorted() && line.last() == Some(&i));
            let parent = line.len().checked_sub(2).map(|before| line[before]);
            let chain = i.checked_sub(1);
            prop_assert_eq!(parent, *spec.parents.get(i).unwrap_or(&chain));
            let block = spec.blocks.iter().find(|block| block.contains(&i));
            prop_assert_eq!(span.block_of(i), block);
        }
        first += span.len;
    }
    prop_assert_eq!(batch.rows().len(), first);
    Ok(())
}
