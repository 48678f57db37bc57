//! Stored entries, out of a store and back: byte for byte, so that what is read on from them has the
//! bits that it would have had.

use std::ops::Range;

use lapidary_core::{SlotId, Transport};

use crate::cuda::{Cuda, args};
use crate::device::Shape;
use crate::kernels::{ANY, Kernel};
use crate::kv::{Side, Store};
use crate::pool::Buffer;

/// Most bytes of entries that are on their way at once.
const PIECE: usize = 64 << 20;

/// Which way entries go.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Way {
    Out,
    In,
}

/// An entry's bytes are those of its heads in turn, each head's key before its value.
impl Transport<Store> for Cuda {
    fn layout(&self) -> &'static str {
        "cuda-1"
    }

    fn entry_bytes(&self, store: &Store) -> usize {
        store.spec.heads * (store.keys.size + store.values.size)
    }

    fn export(&self, store: &Store, slot: SlotId, entries: Range<u32>) -> Vec<u8> {
        let size = self.entry_bytes(store);
        let mut bytes = Vec::with_capacity(entries.len() * size);
        for piece in pieces(entries, size) {
            let list = self.pool.get(piece.len() * size);
            self.carry(store, slot, &piece, &list, Way::Out);
            bytes.extend(list.read(piece.len() * size / 4).iter().flat_map(|x| x.to_le_bytes()));
        }
        bytes
    }

    fn import(&self, store: &mut Store, slot: SlotId, first: u32, bytes: &[u8]) {
        let size = self.entry_bytes(store);
        assert!(bytes.len().is_multiple_of(size), "{} bytes are no whole entries", bytes.len());
        let count = (bytes.len() / size) as u32;
        for piece in pieces(first..first + count, size) {
            let at = (piece.start - first) as usize * size;
            let list = self.pool.get(piece.len() * size);
            list.write(&bytes[at..at + piece.len() * size]);
            self.carry(store, slot, &piece, &list, Way::In);
        }
    }

    fn fork(&self, store: &mut Store, from: SlotId, to: SlotId, entries: Range<u32>) {
        let (heads, count) = (store.spec.heads, store.cells as u32);
        for side in [&store.keys, &store.values] {
            let words = words_of(side);
            let shape = Shape::each(entries.len() * heads * words as usize);
            let (first, len, heads) = (entries.start, entries.len() as u32, heads as u32);
            let args = args![side.data, from.0, to.0, first, len, heads, words, count];
            // SAFETY: one thread per word; entries are taken modulo the cells, and the cache names
            // no slot that was not reserved.
            unsafe { self.launch(Kernel::KvFork, ANY, shape, &args) };
        }
    }
}

impl Cuda {
    /// Both sides of some entries, between their cells and a list.
    fn carry(&self, store: &Store, slot: SlotId, entries: &Range<u32>, list: &Buffer, way: Way) {
        let (heads, count) = (store.spec.heads, store.cells as u32);
        let (keys, values) = (words_of(&store.keys), words_of(&store.values));
        let head_words = keys + values;
        let entry_words = heads as u32 * head_words;
        for (side, offset) in [(&store.keys, 0), (&store.values, keys)] {
            let words = words_of(side);
            let shape = Shape::each(entries.len() * heads * words as usize);
            let (first, len, heads) = (entries.start, entries.len() as u32, heads as u32);
            let is_import = u32::from(way == Way::In);
            let args = args![
                side.data,
                list,
                slot.0,
                first,
                len,
                heads,
                words,
                count,
                entry_words,
                head_words,
                offset,
                is_import
            ];
            // SAFETY: as in `fork`; the list has room for every entry.
            unsafe { self.launch(Kernel::KvMove, ANY, shape, &args) };
        }
    }
}

/// Four bytes at a time, which cells of every form are whole numbers of.
fn words_of(side: &Side) -> u32 {
    assert!(side.size.is_multiple_of(4), "cells of {} bytes", side.size);
    side.size as u32 / 4
}

/// Ranges of entries of `size` bytes each that are on their way together.
fn pieces(entries: Range<u32>, size: usize) -> impl Iterator<Item = Range<u32>> {
    let step = (PIECE / size).max(1);
    let end = entries.end;
    entries.step_by(step).map(move |first| first..end.min(first.saturating_add(step as u32)))
}

#[cfg(test)]
mod tests {
    use super::{PIECE, pieces};

    #[test]
    fn pieces_cover_every_entry_once() {
        for size in [4, PIECE / 3, PIECE, 2 * PIECE] {
            let all: Vec<_> = pieces(5..12, size).flatten().collect();
            assert_eq!(all, (5..12).collect::<Vec<_>>(), "entries of {size} bytes");
        }
        assert_eq!(pieces(3..3, 4).count(), 0);
    }
}
