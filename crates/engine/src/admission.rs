//! Which slot a sequence gets, and what of its tokens it finds there.

use std::ops::Range;

use lapidary_core::{SlotId, TokenId};

use crate::RequestId;
use crate::prefixes::common;
use crate::soft::Blocks;

/// A text is about to get a slot. The cache takes the first of the `ways` that it can go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admission {
    /// Of which request.
    pub id: RequestId,
    /// Which of its texts.
    pub sample: u32,
    /// The tokens whose entries are of use: a saved prefix of them serves as well as a slot's. Soft
    /// rows go by names that no vocabulary has.
    pub usable: Vec<TokenId>,
    /// Places among them that no prefix may cut in two.
    pub blocks: Vec<Range<usize>>,
    /// At least one, the best first; the last is [`Way::Fresh`].
    pub ways: Vec<Way>,
}

impl Admission {
    /// The usable tokens before the block that a prefix of `len` of them would cut; all of them if
    /// it would cut none.
    pub fn usable_before(&self, len: u32) -> &[TokenId] {
        let len = len as usize;
        let cut = self.blocks.iter().find(|block| block.start < len && len < block.end);
        &self.usable[..cut.map_or(self.usable.len(), |block| block.start)]
    }
}

/// How a text may begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// After the first entries of a slot without a request, which forgets the others.
    Keep {
        /// The slot.
        slot: SlotId,
        /// How many of its entries.
        keep: u32,
    },
    /// After a copy of another slot's first entries.
    Fork {
        /// Whose entries.
        from: SlotId,
        /// The slot that gets them.
        slot: SlotId,
        /// How many.
        keep: u32,
    },
    /// In a slot emptied, or filled with a saved prefix.
    Fresh {
        /// The slot.
        slot: SlotId,
    },
}

impl Way {
    /// The tokens that it saves reading.
    pub fn keep(self) -> u32 {
        match self {
            Self::Keep { keep, .. } | Self::Fork { keep, .. } => keep,
            Self::Fresh { .. } => 0,
        }
    }
}

/// A slot without a request, and the tokens whose entries it still holds.
pub(crate) struct Idle {
    pub(crate) slot: SlotId,
    pub(crate) held: Vec<TokenId>,
}

/// Ways into one of the `idle` slots, the one that has been so for longest first, given the slots
/// that are `taken` and the tokens whose entries those hold. There is at least one idle slot.
///
/// Who finds nothing gets an empty slot, or else the one that has been idle for longest. A slot
/// that would lose most of what it holds is copied instead, where there is an empty one. No way
/// ends inside one of the `blocks`.
pub(crate) fn ways<'a>(
    usable: &[TokenId],
    blocks: &Blocks,
    idle: &[Idle],
    taken: impl Iterator<Item = (SlotId, &'a [TokenId])>,
) -> Vec<Way> {
    let empty = idle.iter().find(|idle| idle.held.is_empty());
    let victim = empty.unwrap_or(&idle[0]).slot;
    let shared = |held: &[TokenId]| blocks.whole(common(usable, held));
    let mut ways = vec![Way::Fresh { slot: victim }];
    for Idle { slot, held } in idle {
        let (slot, keep) = (*slot, shared(held));
        let loses = 2 * keep < held.len() && empty.is_some();
        let keep = keep as u32;
        ways.push(match loses {
            true => Way::Fork { from: slot, slot: victim, keep },
            false => Way::Keep { slot, keep },
        });
    }
    let fork = |(from, held)| Way::Fork { from, slot: victim, keep: shared(held) as u32 };
    ways.extend(taken.map(fork));
    ways.retain(|way| way.keep() > 0 || matches!(way, Way::Fresh { .. }));
    // Of equal ways, one that copies nothing.
    ways.sort_by_key(|way| (std::cmp::Reverse(way.keep()), !matches!(way, Way::Keep { .. })));
    ways
}
