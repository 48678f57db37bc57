//! A saved section comes back as it was written, or not at all.

use lapidary_core::{Kept, Section, TokenId};
use lapidary_format::{
    SavedError, SavedHead, decode_head, decode_section, digest, encode_section, fuzz, head_bytes,
};
use proptest::collection::vec;
use proptest::prelude::*;

const OURS: u64 = 0xFEED;

/// A section of `count` entries from `from` on, whose layers keep the newest ones.
pub(crate) fn section(from: u32, count: u32, kept: &[u32], seed: u8) -> (SavedHead, Section) {
    let end = from + count;
    let layer = |&kept: &u32| {
        let entries = end - kept.min(count)..end;
        let bytes = (0..entries.len() * 6).map(|i| (i * i) as u8 ^ seed).collect();
        Kept { entries, bytes }
    };
    let floor = end - count.min(3);
    let section = Section { from, end, floor, layers: kept.iter().map(layer).collect() };
    let parent = (from > 0).then_some(u64::from(from) * 7);
    let tokens = (from..end).map(|i| TokenId(i * 31 + u32::from(seed))).collect();
    let key = u64::from(end) << 8 | u64::from(seed);
    (SavedHead { key, parent, tokens, from, floor, bytes: section.bytes() }, section)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read(
        from in 0..9_u32, count in 1..40_u32, kept in vec(0..50_u32, 0..5), seed: u8, binding: u64,
    ) {
        let (head, section) = section(from, count, &kept, seed);
        let bytes = encode_section(binding, &head, &section);
        let size = bytes.len() as u64;
        let end = head_bytes(&bytes).unwrap() as usize;
        let read = decode_head(binding, &bytes[..end], size);
        prop_assert_eq!(read.as_ref(), Ok(&head));
        prop_assert_eq!(decode_section(binding, &bytes), Ok((head, section)));
        fuzz::saved(&bytes);
    }

    #[test]
    fn any_number_changed_in_a_sealed_head_is_noticed_or_harmless(at in 0..300_usize, to: u8) {
        let (head, section) = section(4, 20, &[20, 7], 3);
        let mut bytes = encode_section(OURS, &head, &section);
        let at = at % bytes.len();
        bytes[at] = to;
        fuzz::saved(&bytes);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (head, section) = section(4, 20, &[20, 7], 3);
    let bytes = encode_section(OURS, &head, &section);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(decode_section(OURS, &flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_file_that_ends_early_or_late_is_noticed() {
    let (head, section) = section(0, 9, &[9, 2], 1);
    let bytes = encode_section(OURS, &head, &section);
    for len in 0..bytes.len() {
        assert!(decode_section(OURS, &bytes[..len]).is_err(), "{len} bytes");
        assert!(decode_head(OURS, &bytes, len as u64).is_err(), "{len} bytes");
    }
    assert_eq!(decode_section(OURS, &[&bytes[..], &[0]].concat()), Err(SavedError::Damaged));
}

#[test]
fn refusals_say_why() {
    let (head, section) = section(0, 9, &[9], 1);
    let bytes = encode_section(OURS, &head, &section);
    assert_eq!(decode_section(OURS + 1, &bytes), Err(SavedError::Foreign));
    assert_eq!(decode_section(OURS, b"GGUF and so on"), Err(SavedError::Magic));
    let mut newer = bytes;
    newer[8] = 2;
    assert_eq!(decode_section(OURS, &newer), Err(SavedError::Version(2)));
}

#[test]
fn digests_tell_lengths_and_single_bits_apart() {
    let mut seen = std::collections::BTreeSet::new();
    for len in 0..130 {
        let mut bytes = vec![0; len];
        assert!(seen.insert(digest(&bytes)), "{len} zeros");
        for at in 0..len {
            bytes[at] = 0x10;
            assert!(seen.insert(digest(&bytes)), "byte {at} of {len}");
            bytes[at] = 0;
        }
    }
}
