//! Comparing a file with its source.

use std::fs;

use lapidary_convert::{Draft, Finding, Mix, Recipe, Workers, verify};
use lapidary_core::TensorSource;
use lapidary_format::{Folder, Gguf};
use lapidary_testkit::Checkpoint;

/// Findings about a made-up checkpoint's file after its bytes have been changed.
fn findings(mix: Mix, change: impl FnOnce(&Gguf, &mut Vec<u8>)) -> Vec<(String, Finding)> {
    let folder = tempfile::tempdir().unwrap();
    Checkpoint { hidden: 256, feed_forward: 256, ..Checkpoint::TINY }.write(folder.path(), 1);
    let folder = Folder::open(folder.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("x.gguf");
    let workers = Workers::new(2).unwrap();
    let draft = || Draft::of_folder(&folder, "x").unwrap();
    draft().write(&Recipe::plain(mix), &to, &workers, &mut |_| {}).unwrap();
    let mut bytes = fs::read(&to).unwrap();
    change(&Gguf::open(&to).unwrap(), &mut bytes);
    let changed = Gguf::from_bytes("changed", bytes).unwrap();
    let compared = verify(&changed, &draft(), &workers, &mut |_| {}).unwrap();
    compared.into_iter().map(|tensor| (tensor.name, tensor.finding)).collect()
}

#[test]
fn a_good_file_is_good_in_every_mix() {
    for mix in Mix::ALL.into_iter().filter(|mix| *mix != Mix::Q2_K_S) {
        for (name, finding) in findings(mix, |_, _| {}) {
            assert!(finding.is_good(), "{mix} {name}: {finding:?}");
            let plain = matches!(mix, Mix::F32 | Mix::F16 | Mix::BF16 | Mix::Q8_0);
            assert!(!plain || matches!(finding, Finding::Exact(_)), "{mix} {name}: {finding:?}");
        }
    }
}

#[test]
fn one_wrong_bit_of_a_plain_tensor_shows() {
    let found = findings(Mix::BF16, |gguf, bytes| {
        let own = gguf.bytes("blk.1.ffn_up.weight").unwrap();
        let at = bytes.windows(own.len()).position(|window| window == &*own).unwrap();
        bytes[at + 1000] ^= 1;
    });
    let bad: Vec<_> = found.iter().filter(|(_, finding)| !finding.is_good()).collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(bad[0].0, "blk.1.ffn_up.weight");
}

#[test]
fn exchanged_tensors_show_in_coarse_types_too() {
    let found = findings(Mix::Q2_K, |gguf, bytes| {
        let place = |name: &str| {
            let own = gguf.bytes(name).unwrap().into_owned();
            (bytes.windows(own.len()).position(|window| window == own).unwrap(), own)
        };
        let (first, gate) = place("blk.0.ffn_gate.weight");
        let (second, up) = place("blk.0.ffn_up.weight");
        bytes[first..first + up.len()].copy_from_slice(&up);
        bytes[second..second + gate.len()].copy_from_slice(&gate);
    });
    let bad: Vec<_> = found.iter().filter(|(_, f)| !f.is_good()).map(|(name, _)| name).collect();
    assert_eq!(bad, ["blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"]);
}
