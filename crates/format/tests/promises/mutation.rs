//! Damaged files are refused or read, but never cause a panic.

use lapidary_format::fuzz;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::raw::small;

/// One change to a file.
#[derive(Clone, Debug)]
enum Damage {
    Byte(Index, u8),
    /// Eight bytes that look like a count, a length or an offset.
    Number(Index, u64),
    Cut(Index),
    Repeat(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let telling = prop_oneof![
        0..20_u64,
        Just(u64::MAX),
        Just(1 << 63),
        Just(1 << 31),
        (0..64_u32).prop_map(|bit| 1 << bit),
    ];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, to)| Damage::Byte(at, to)),
        4 => (any::<Index>(), telling).prop_map(|(at, to)| Damage::Number(at, to)),
        1 => any::<Index>().prop_map(Damage::Cut),
        1 => any::<(Index, Index)>().prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

fn apply(file: &mut Vec<u8>, damage: &[Damage]) {
    for change in damage {
        if file.len() < 8 {
            return;
        }
        match change {
            Damage::Byte(at, to) => *at.get_mut(file) = *to,
            Damage::Number(at, to) => {
                let at = at.index(file.len() - 7);
                file[at..at + 8].copy_from_slice(&to.to_le_bytes());
            }
            Damage::Cut(at) => file.truncate(at.index(file.len())),
            Damage::Repeat(from, to) => {
                let (from, to) = (from.index(file.len()), to.index(file.len()));
                let piece = file[from.min(to)..from.max(to)].to_vec();
                file.splice(to..to, piece);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn gguf(damage in prop::collection::vec(damage(), 1..4)) {
        let mut file = small();
        apply(&mut file, &damage);
        fuzz::gguf(&file);
    }

    #[test]
    fn folder(damage in prop::collection::vec(damage(), 1..4)) {
        let mut file = include_bytes!("../corpus/sharded.folder").to_vec();
        apply(&mut file, &damage);
        fuzz::folder(&file);
    }
}
