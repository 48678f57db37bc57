//! Where the rows of a batch are written and what they see, for one kind of layer.

use std::ops::Range;

use lapidary_core::{Batch, LayerPlan, Reach, SlotId, Span, View};

/// What layers must share to share a plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sight {
    pub(crate) reach: Reach,
    pub(crate) two_way: bool,
}

/// The writes and views of every row of `batch` on layers with this sight.
pub(crate) fn layer_plan(batch: &Batch, sight: Sight) -> LayerPlan {
    let mut plan = LayerPlan::default();
    for span in batch.spans() {
        for i in 0..span.len {
            let pos = batch.rows()[span.first + i].pos;
            plan.writes.push((span.slot, span.base + i as u32));
            plan.views.push(view(span, i, pos, sight));
        }
    }
    plan
}

fn view(span: &Span, i: usize, pos: u32, sight: Sight) -> View {
    let start = sight.reach.first_visible(pos);
    let (run, lineage) = if span.parents.is_empty() {
        (start..chain_end(span, i, sight), Vec::new())
    } else {
        (start.min(span.base)..span.base, newest_ancestors(span, i, pos + 1 - start))
    };
    View { slot: span.slot, pos, run, lineage }
}

/// One past the last entry that row `i` of a chain sees: itself, or the end of its block.
fn chain_end(span: &Span, i: usize, sight: Sight) -> u32 {
    let block = if sight.two_way { span.block_of(i) } else { None };
    let Range { end, .. } = block.cloned().unwrap_or(i..i + 1);
    span.base + end as u32
}

/// The newest `most` entries of a tree node's lineage.
fn newest_ancestors(span: &Span, i: usize, most: u32) -> Vec<u32> {
    let line = span.lineage(i);
    let skip = line.len().saturating_sub(most as usize);
    line[skip..].iter().map(|&offset| span.base + offset as u32).collect()
}

/// A row that looks at a slot's committed entries from the position after them.
pub(crate) struct Onlooker {
    pub(crate) slot: SlotId,
    /// How many entries there are; at least one.
    pub(crate) committed: u32,
    /// The first entry that no later one has overwritten.
    pub(crate) oldest: u32,
}

/// The views of rows that store nothing. A sliding layer shows one entry more than a row of the
/// sequence itself would see of the past: its own place is not taken.
pub(crate) fn onlook_plan(onlookers: impl Iterator<Item = Onlooker>, reach: Reach) -> LayerPlan {
    let mut plan = LayerPlan::default();
    for Onlooker { slot, committed: pos, oldest } in onlookers {
        let first = reach.first_visible(pos).saturating_sub(2).max(oldest);
        plan.writes.push((slot, pos));
        plan.views.push(View { slot, pos, run: first..pos, lineage: Vec::new() });
    }
    plan
}
