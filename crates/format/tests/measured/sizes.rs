//! Every length, count and offset of a file replaced, and files that are cheap to write and dear to
//! hold.

use lapidary_format::{Gguf, fuzz};

use crate::counting::{ROOM, alone, peak};
use crate::raw::{Raw, array, small, string};

/// Checks what opening holds beyond the file itself, which is in memory already.
#[track_caller]
fn check(what: &str, file: &[u8]) {
    let owned = file.to_vec();
    let held = peak(|| drop(Gguf::from_bytes("m.gguf", owned)));
    assert!(held <= file.len() + ROOM, "{what}: {held} for {}", file.len());
    let held = peak(|| {
        fuzz::folder(file);
    });
    assert!(held <= file.len() + ROOM, "{what} as a folder: {held} for {}", file.len());
}

#[test]
fn no_number_makes_opening_hold_more_than_the_file_and_64_mib() {
    let _turn = alone();
    every_number_replaced("gguf", &small());
    every_number_replaced("folder", include_bytes!("../corpus/sharded.folder"));
    every_byte_replaced("gguf", &small());
    for (what, file) in greedy() {
        check(what, &file);
    }
}

/// Puts telling values wherever a count, a length, a dimension or an offset may be.
fn every_number_replaced(what: &str, file: &[u8]) {
    for at in 0..file.len() - 8 {
        for bits in [u64::MAX, 1 << 63, 1 << 62, 1 << 40, 1 << 32, 1 << 31, 1 << 28, 1 << 20] {
            let mut file = file.to_vec();
            file[at..at + 8].copy_from_slice(&bits.to_le_bytes());
            check(what, &file);
        }
    }
}

fn every_byte_replaced(what: &str, file: &[u8]) {
    for at in 0..file.len() {
        for byte in [0, 1, 7, 9, 10, 12, 127, 255] {
            let mut file = file.to_vec();
            file[at] = byte;
            check(what, &file);
        }
    }
}

/// Files that are cheap to write and would be dear to hold.
fn greedy() -> Vec<(&'static str, Vec<u8>)> {
    let mib = 1 << 20;
    let list = |id, count, bytes: usize| {
        Raw::new().key("k", 9, &array(id, count as u64, &vec![0; bytes])).build()
    };
    let nested = array(9, mib as u64 / 4, &array(4, 0, &[]).repeat(mib / 4));
    let keys = (0..20_000).fold(Raw::new(), |raw, i| raw.key(&i.to_string(), 0, &[0]));
    let tensors = (0..20_000)
        .fold(Raw::new().data(32 * 20_000), |raw, i| raw.tensor(&i.to_string(), &[1], 0, 32 * i));
    vec![
        ("truth values", list(7, 32 * mib, 32 * mib)),
        ("bytes", list(0, 32 * mib, 32 * mib)),
        ("just enough truth values", list(7, mib, mib)),
        ("strings", list(8, mib, 8 * mib)),
        ("doubles", list(12, mib / 2, 4 * mib)),
        ("arrays", Raw::new().key("k", 9, &nested).build()),
        ("one string", Raw::new().key("k", 8, &string(&"x".repeat(32 * mib))).build()),
        ("keys", keys.build()),
        ("tensors", tensors.build()),
    ]
}
