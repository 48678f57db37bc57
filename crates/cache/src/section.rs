//! Which entries a section keeps, and how sections put together make a prefix.

use std::ops::{Range, RangeInclusive};

use lapidary_core::{KvLayerSpec, Reach, Section};

/// How far back from its end a section can be resumed, if the rings allow it: enough for a prompt
/// that is asked again, whose last token must be read for its logits, and for one that parts ways
/// in its last few tokens.
const SLACK: u32 = 8;

/// The entries that a row after `len` entries needs.
pub(crate) fn needed(spec: &KvLayerSpec, len: u32) -> Range<u32> {
    spec.reach.first_visible(len).min(len)..len
}

/// Lengths that a section of these entries should be resumable at, the best one first.
pub(crate) fn resumable(entries: &Range<u32>) -> RangeInclusive<u32> {
    entries.end.saturating_sub(SLACK).max(entries.start)..=entries.end
}

/// What a layer keeps of a section that is to be resumed at `floor`.
pub(crate) fn kept(spec: &KvLayerSpec, entries: &Range<u32>, floor: u32) -> Range<u32> {
    needed(spec, floor).start.max(entries.start)..entries.end
}

/// The least length at which one can go on from a section of which a layer keeps this much.
pub(crate) fn floor(spec: &KvLayerSpec, from: u32, kept: &Range<u32>) -> u32 {
    match spec.reach {
        Reach::Window(window) if kept.start > from => kept.start + window - 1,
        _ => from,
    }
}

/// Whether sections follow one another from entry 0 on, each of as many layers, and `len` is a
/// length at which the last can be resumed.
pub(crate) fn is_path(path: &[&Section], layers: usize, len: u32) -> bool {
    let mut end = 0;
    for section in path {
        let ordered = section.from == end && section.from < section.end;
        if !ordered || section.layers.len() != layers {
            return false;
        }
        end = section.end;
    }
    path.last().is_some_and(|last| last.floor.max(last.from) <= len && len <= last.end)
}

/// A run of whole entries: the first one's number, and their bytes.
pub(crate) type Piece<'a> = (u32, &'a [u8]);

/// The needed entries of one layer, piece by piece; `None` if some are missing or entries are not
/// of this size.
pub(crate) fn pieces<'a>(
    path: &[&'a Section],
    layer: usize,
    needed: Range<u32>,
    entry_bytes: usize,
) -> Option<Vec<Piece<'a>>> {
    let mut pieces = Vec::new();
    let mut next = needed.start;
    for section in path {
        let kept = &section.layers[layer];
        let Range { start, end } = kept.entries;
        let inside = section.from <= start && start <= end && end == section.end;
        if !inside || kept.bytes.len() != (end - start) as usize * entry_bytes {
            return None;
        }
        let until = end.min(needed.end);
        if next < until {
            let skipped = next.checked_sub(start)? as usize;
            let bytes = skipped * entry_bytes..(until - start) as usize * entry_bytes;
            pieces.push((next, &kept.bytes[bytes]));
            next = until;
        }
    }
    (next == needed.end).then_some(pieces)
}
