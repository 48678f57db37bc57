//! The ragged batch: the only shape in which work reaches a model.
//!
//! A batch is a list of rows. A row is one input of one sequence. Consecutive rows of the same
//! sequence form a [`Span`]. What other engines call a mode is a batch shape:
//!
//! | wanted            | spans        | rows per span | [`Want`]                        |
//! |-------------------|--------------|---------------|---------------------------------|
//! | prefill (a chunk) | one          | many          | last row, or none yet           |
//! | batched decode    | one per slot | one           | every row                       |
//! | mixed step        | any          | any           | as each request needs           |
//! | verify            | one per slot | drafts + 1    | every row                       |
//! | tree verify       | one per slot | nodes         | every row; parents given        |
//! | embed             | one per text | many          | last row's hidden state, or all |
//!
//! Three numbers look alike and are not. The *entry* (how many-th thing stored for its slot)
//! decides the cache cell, the *position* (depth in the sequence) decides window and causality,
//! the *angle* is the rotary coordinate.

use std::ops::Range;

use thiserror::Error;

use crate::{SlotId, SoftId, TokenId};

/// What a row feeds into the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// A vocabulary entry, to be embedded and scaled.
    Token(TokenId),
    /// A row of a soft-token matrix, taken as it is.
    Soft {
        /// Which matrix.
        source: SoftId,
        /// Which of its rows.
        row: u32,
    },
}

/// What the caller wants back for a row.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Want {
    /// The final hidden state, after the last norm.
    pub hidden: bool,
    /// The next-token logits.
    pub logits: bool,
    /// How many of the likeliest next tokens; 0 asks for none.
    pub top: usize,
}

impl Want {
    /// Only the row's effect on the cache.
    pub const NOTHING: Self = Self { hidden: false, logits: false, top: 0 };
    /// The final hidden state.
    pub const HIDDEN: Self = Self { hidden: true, logits: false, top: 0 };
    /// The next-token logits.
    pub const LOGITS: Self = Self { hidden: false, logits: true, top: 0 };
    /// Both, as a drafter that continues from hidden states needs them.
    pub const BOTH: Self = Self { hidden: true, logits: true, top: 0 };

    /// The `count` likeliest next tokens with their logits.
    pub const fn top(count: usize) -> Self {
        Self { hidden: false, logits: false, top: count }
    }
}

/// One input of one sequence, placed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// The sequence's cache region.
    pub slot: SlotId,
    /// Depth in the sequence. Siblings in a draft tree share one.
    pub pos: u32,
    /// Rotary coordinates. Text has the position on all three axes.
    pub angle: [u32; 3],
    /// What goes in.
    pub input: Input,
    /// What should come out.
    pub want: Want,
}

/// Rows `first..first + len` belong to one slot and follow its `base` committed entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// The sequence's cache region.
    pub slot: SlotId,
    /// Entries already in the cache.
    pub base: u32,
    /// Index of the first row.
    pub first: usize,
    /// Number of rows.
    pub len: usize,
    /// `parents[i]` is the parent of row `i` within the span; `None` is the committed prefix.
    /// Empty for a chain, where row `i` follows row `i - 1`.
    pub parents: Vec<Option<usize>>,
    /// Offsets of rows that may see each other in both directions on layers that allow it (an
    /// image). Ascending, disjoint; always empty in a tree.
    pub blocks: Vec<Range<usize>>,
}

impl Span {
    /// Offsets within the span that row `i` descends from, itself included, oldest first.
    pub fn lineage(&self, i: usize) -> Vec<usize> {
        if self.parents.is_empty() {
            return (0..=i).collect();
        }
        let mut line: Vec<_> = std::iter::successors(Some(i), |&j| self.parents[j]).collect();
        line.reverse();
        line
    }

    /// The two-way block that row `i` lies in.
    pub fn block_of(&self, i: usize) -> Option<&Range<usize>> {
        self.blocks.iter().find(|block| block.contains(&i))
    }
}

/// One row of a [`SpanSpec`], before it has a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowSpec {
    /// What goes in.
    pub input: Input,
    /// Rotary coordinates.
    pub angle: [u32; 3],
    /// What should come out.
    pub want: Want,
}

/// Everything about a span that its maker decides.
#[derive(Clone, Debug, Default)]
pub struct SpanSpec {
    /// At least one.
    pub rows: Vec<RowSpec>,
    /// See [`Span::parents`].
    pub parents: Vec<Option<usize>>,
    /// See [`Span::blocks`].
    pub blocks: Vec<Range<usize>>,
}

/// Why a batch could not be built.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BatchError {
    /// Two spans name the same slot.
    #[error("slot {} appears in two spans", slot.0)]
    SlotTwice {
        /// The slot.
        slot: SlotId,
    },
    /// A span has no rows.
    #[error("the span of slot {} has no rows", slot.0)]
    Empty {
        /// Whose span.
        slot: SlotId,
    },
    /// A tree does not give one parent per row.
    #[error("the tree of slot {} has {rows} rows but {parents} parents", slot.0)]
    Parents {
        /// Whose span.
        slot: SlotId,
        /// Rows given.
        rows: usize,
        /// Parents given.
        parents: usize,
    },
    /// A tree node names a parent that does not precede it.
    #[error("node {node} of the tree of slot {} comes before its parent", slot.0)]
    ParentAfterChild {
        /// Whose span.
        slot: SlotId,
        /// Which node.
        node: usize,
    },
    /// A two-way block is empty, reversed, overlapping, past the end, or inside a tree.
    #[error("the span of slot {} has a misplaced block {block:?}", slot.0)]
    Block {
        /// Whose span.
        slot: SlotId,
        /// The block.
        block: Range<usize>,
    },
    /// The slot would hold more entries than can be counted.
    #[error("the span of slot {} ends past the largest position", slot.0)]
    TooLong {
        /// Whose span.
        slot: SlotId,
    },
}

/// A validated list of rows.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    spans: Vec<Span>,
}

impl Batch {
    /// Starts an empty batch.
    pub fn builder() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// All rows, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows' grouping by sequence.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Indices of the rows for which `pick` holds, in order.
    pub fn rows_where(&self, pick: impl Fn(&Row) -> bool) -> Vec<usize> {
        (0..self.rows.len()).filter(|&i| pick(&self.rows[i])).collect()
    }
}

/// Collects spans; every invariant of [`Batch`] is checked here and nowhere else.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    batch: Batch,
}

impl BatchBuilder {
    /// Adds `tokens` after the slot's `base` entries. `want` is asked per offset.
    ///
    /// # Errors
    /// See [`span`](Self::span).
    pub fn chain(
        self,
        slot: SlotId,
        base: u32,
        tokens: &[TokenId],
        want: impl Fn(usize) -> Want,
    ) -> Result<Self, BatchError> {
        let row = |(i, &token): (usize, &TokenId)| RowSpec {
            input: Input::Token(token),
            angle: [base.saturating_add(i as u32); 3],
            want: want(i),
        };
        let rows = tokens.iter().enumerate().map(row).collect();
        self.span(slot, base, SpanSpec { rows, ..SpanSpec::default() })
    }

    /// Adds a draft tree whose every row wants `want`. `nodes` are `(token, parent)`, parents
    /// first.
    ///
    /// # Errors
    /// See [`span`](Self::span).
    pub fn tree(
        self,
        slot: SlotId,
        base: u32,
        nodes: &[(TokenId, Option<usize>)],
        want: Want,
    ) -> Result<Self, BatchError> {
        let parents: Vec<_> = nodes.iter().map(|&(_, parent)| parent).collect();
        check_parents(slot, nodes.len(), &parents)?;
        let depths = depths(&parents);
        let row = |(&(token, _), depth): (&(TokenId, Option<usize>), u32)| RowSpec {
            input: Input::Token(token),
            angle: [base.saturating_add(depth); 3],
            want,
        };
        let rows = nodes.iter().zip(depths).map(row).collect();
        self.span(slot, base, SpanSpec { rows, parents, blocks: Vec::new() })
    }

    /// Adds any span.
    ///
    /// # Errors
    /// Every variant of [`BatchError`]; the builder is given up with it.
    pub fn span(mut self, slot: SlotId, base: u32, spec: SpanSpec) -> Result<Self, BatchError> {
        let SpanSpec { rows, parents, blocks } = spec;
        let len = rows.len();
        if len == 0 {
            return Err(BatchError::Empty { slot });
        }
        if self.batch.spans.iter().any(|span| span.slot == slot) {
            return Err(BatchError::SlotTwice { slot });
        }
        if u32::try_from(len).ok().and_then(|len| base.checked_add(len)).is_none() {
            return Err(BatchError::TooLong { slot });
        }
        if !parents.is_empty() {
            check_parents(slot, len, &parents)?;
        }
        check_blocks(slot, len, &parents, &blocks)?;
        let depths = if parents.is_empty() { (0..len as u32).collect() } else { depths(&parents) };
        let first = self.batch.rows.len();
        for (RowSpec { input, angle, want }, depth) in rows.into_iter().zip(depths) {
            self.batch.rows.push(Row { slot, pos: base + depth, angle, input, want });
        }
        self.batch.spans.push(Span { slot, base, first, len, parents, blocks });
        Ok(self)
    }

    /// Hands over the finished batch.
    pub fn build(self) -> Batch {
        self.batch
    }
}

fn check_parents(slot: SlotId, rows: usize, parents: &[Option<usize>]) -> Result<(), BatchError> {
    if parents.len() != rows {
        return Err(BatchError::Parents { slot, rows, parents: parents.len() });
    }
    match (0..rows).find(|&i| parents[i].is_some_and(|parent| parent >= i)) {
        Some(node) => Err(BatchError::ParentAfterChild { slot, node }),
        None => Ok(()),
    }
}

fn check_blocks(
    slot: SlotId,
    rows: usize,
    parents: &[Option<usize>],
    blocks: &[Range<usize>],
) -> Result<(), BatchError> {
    let mut end = 0;
    for block in blocks {
        let placed = end <= block.start && block.start < block.end && block.end <= rows;
        if !placed || !parents.is_empty() {
            return Err(BatchError::Block { slot, block: block.clone() });
        }
        end = block.end;
    }
    Ok(())
}

fn depths(parents: &[Option<usize>]) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(parents.len());
    for parent in parents {
        depths.push(parent.map_or(0, |p| depths[p] + 1));
    }
    depths
}
