//! Stored entries outside a cache: what a prefix is when no slot holds it.

use std::ops::Range;

use crate::SlotId;

/// A stretch of one sequence's entries, exactly as a cache stored them.
///
/// Sections follow one another: the first begins at entry 0, each further one where the one before
/// ends. A layer that looks back over a window keeps only its newest entries, so a sequence can be
/// resumed at lengths from [`floor`](Self::floor) to [`end`](Self::end), given the sections before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Section {
    /// The first entry.
    pub from: u32,
    /// One past the last.
    pub end: u32,
    /// The least length at which a sequence can go on from here; at least `from`.
    pub floor: u32,
    /// What each layer with entries of its own keeps, in the order of layers.
    pub layers: Vec<Kept>,
}

/// What one layer keeps of a section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    /// Which entries.
    pub entries: Range<u32>,
    /// All of them have the same size, in a layout that only the device knows.
    pub bytes: Vec<u8>,
}

impl Section {
    /// Bytes of entries.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|kept| kept.bytes.len() as u64).sum()
    }
}

/// A device that can hand out stored entries and take them back. Never coded anew: what comes back
/// has the bits of what went out.
pub trait Transport<S> {
    /// Names the layout of the bytes. Equal names, equal layouts, whatever machine wrote them.
    fn layout(&self) -> &'static str;
    /// Bytes of one entry, all heads, keys and values.
    fn entry_bytes(&self, store: &S) -> usize;
    /// The entries of a slot, one after the other.
    fn export(&self, store: &S, slot: SlotId, entries: Range<u32>) -> Vec<u8>;
    /// Puts entries from `first` on into a slot. `bytes` are those of whole entries.
    fn import(&self, store: &mut S, slot: SlotId, first: u32, bytes: &[u8]);

    /// Copies entries of slot `from` to slot `to`.
    fn fork(&self, store: &mut S, from: SlotId, to: SlotId, entries: Range<u32>) {
        let bytes = self.export(store, from, entries.clone());
        self.import(store, to, entries.start, &bytes);
    }
}
