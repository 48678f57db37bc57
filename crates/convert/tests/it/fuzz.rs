//! The fuzz targets over their kept inputs, and over damaged ones.

use std::fs;

use lapidary_convert::fuzz;
use lapidary_testkit::{Rng, repository};

/// One to four damages: bits, bytes and numbers changed, pieces dropped or doubled.
fn damage(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(data.len());
        let end = (at + rng.below(12)).min(data.len());
        match rng.below(5) {
            0 => drop(data.drain(at..end)),
            1 => data.truncate(at),
            2 => data.extend_from_within(at..end),
            3 => data[at..end].fill([0, 1, 0x7F, 0x80, 0xFF][rng.below(5)]),
            _ => data.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
        }
        if data.is_empty() {
            break;
        }
    }
    data
}

/// Gives a target its kept inputs, which it must take, and what damage makes of them.
fn attack(corpus: &str, target: fn(&[u8]) -> bool) {
    let folder = repository(&format!("crates/convert/tests/corpus/{corpus}"));
    let (mut taken, mut rng) = (0, Rng(3));
    for entry in fs::read_dir(folder).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        assert!(target(&seed), "a kept input of {corpus}");
        taken += (0..10_000).filter(|_| target(&damage(&seed, &mut rng))).count();
    }
    assert!(
        (100..9_900).contains(&taken),
        "{corpus}: damage is neither harmless nor total: {taken}"
    );
}

#[test]
fn damaged_importance_is_refused_or_sound() {
    attack("imatrix", fuzz::imatrix);
}

#[test]
fn damaged_vocabularies_are_refused_or_sound() {
    attack("sentencepiece", fuzz::sentencepiece);
}

// The reader divides by the number of counts; that there is one is GGUF's rule that no dimension is
// zero.
#[test]
fn importance_without_a_count_is_refused() {
    let seed = fs::read(repository("crates/convert/tests/corpus/imatrix/experts.gguf")).unwrap();
    let name = b"a.weight.counts";
    let at = seed.windows(name.len()).position(|window| window == name).unwrap();
    let shape = at + name.len() + 4;
    for dimension in [shape, shape + 8] {
        let mut data = seed.clone();
        data[dimension..dimension + 8].fill(0);
        assert!(!fuzz::imatrix(&data));
    }
}
