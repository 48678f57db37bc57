//! Blocks of codes: the bytes of another implementation, the twin, and errors.

use lapidary_convert::quantise::{QuantiseError, is_written, quantise, quantise_plainly};
use lapidary_core::BlockType;
use lapidary_format::codec::{CodecError, decode};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::known_rows::{COLS, importance, rows};

/// Types with a quantiser of their own.
fn types() -> impl Iterator<Item = BlockType> {
    BlockType::ALL.into_iter().filter(|block| block.is_quantised() && is_written(*block))
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[test]
fn rows_of_every_kind_have_ggmls_bytes_with_and_without_importance() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../data/quantised.json")).unwrap();
    let (rows, importance) = (rows(), importance());
    for block in types() {
        let known = &golden[block.to_string()];
        for quantise in [quantise, quantise_plainly] {
            let plain = digest(&quantise(block, COLS, &rows, None).unwrap());
            assert_eq!(plain, known["plain"].as_str().unwrap(), "{block}");
            let weighed = digest(&quantise(block, COLS, &rows, Some(&importance)).unwrap());
            assert_eq!(weighed, known["weighed"].as_str().unwrap(), "{block} with importance");
        }
    }
}

/// Root of the mean squared error, relative to that of the numbers.
fn error(block: BlockType, x: &[f32], weights: Option<&[f32]>) -> f64 {
    let mut back = vec![0.0; x.len()];
    let bytes = quantise(block, x.len(), x, weights).unwrap();
    decode(block, &bytes, &mut back).unwrap();
    let weight = |i: usize| weights.map_or(1.0, |weights| f64::from(weights[i]));
    let square = |x: f32| f64::from(x) * f64::from(x);
    let off: f64 = (0..x.len()).map(|i| weight(i) * square(x[i] - back[i])).sum();
    let all: f64 = (0..x.len()).map(|i| weight(i) * square(x[i])).sum();
    (off / all).sqrt()
}

#[test]
fn more_bits_are_nearer_and_none_is_far() {
    // Relative errors of normal numbers: one step of b bits over six deviations is 6/2^b wide and
    // off by a twelfth of its square on average; minimums and searches gain, coded scales lose.
    let bounds = [
        (BlockType::Q8_0, 0.007),
        (BlockType::Q6_K, 0.02),
        (BlockType::Q5_1, 0.05),
        (BlockType::Q5_K, 0.05),
        (BlockType::Q5_0, 0.05),
        (BlockType::Q4_K, 0.09),
        (BlockType::Q4_1, 0.09),
        (BlockType::IQ4_NL, 0.09),
        (BlockType::IQ4_XS, 0.09),
        (BlockType::Q4_0, 0.11),
        (BlockType::Q3_K, 0.19),
        (BlockType::Q2_K, 0.37),
    ];
    let rows = rows();
    let normal = &rows[12 * COLS..];
    for (block, bound) in bounds {
        let error = error(block, normal, None);
        assert!(error < bound && error > bound / 4.0, "{block}: {error}");
    }
}

#[test]
fn importance_moves_the_error_to_where_it_counts_less() {
    let rows = rows();
    let normal = &rows[12 * COLS..][..COLS];
    let mut weights = vec![0.01; COLS];
    weights.iter_mut().step_by(4).for_each(|w| *w = 1.0);
    for block in types().filter(|&block| block != BlockType::Q8_0) {
        let blind = quantise(block, COLS, normal, None).unwrap();
        let mut back = vec![0.0; COLS];
        decode(block, &blind, &mut back).unwrap();
        let off: f64 =
            (0..COLS).map(|i| f64::from(weights[i]) * f64::from(normal[i] - back[i]).powi(2)).sum();
        let all: f64 = (0..COLS).map(|i| f64::from(weights[i] * normal[i] * normal[i])).sum();
        let aware = error(block, normal, Some(&weights));
        assert!(aware < (off / all).sqrt(), "{block}: {aware} against {}", (off / all).sqrt());
    }
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let q4 = BlockType::Q4_K;
    for bad in [f32::NAN, f32::INFINITY, 40_000.0] {
        let mut x = vec![0.5; 512];
        x[300] = bad;
        let refused = quantise(q4, 256, &x, None).unwrap_err();
        let QuantiseError::Range { index, block, .. } = refused else { panic!("{refused}") };
        assert_eq!((index, block), (300, q4));
    }
    let ragged = CodecError::Ragged { block: q4, elements: 96 };
    assert_eq!(quantise(q4, 96, &[0.0; 96], None), Err(ragged.into()));
    let narrow = QuantiseError::Importance { found: 32, cols: 256 };
    assert_eq!(quantise(q4, 256, &[0.0; 256], Some(&[1.0; 32])), Err(narrow));
    assert!(quantise(BlockType::MXFP4, 32, &[0.0; 32], None).is_err());
}

/// Rows with everything that real ones have, and more.
fn numbers() -> impl Strategy<Value = Vec<f32>> {
    let number = prop_oneof![
        8 => -1.0_f32..1.0,
        1 => Just(0.0),
        1 => -1e-20_f32..1e-20,
        1 => -30_000.0_f32..30_000.0,
    ];
    prop::collection::vec(number, 512)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn lanes_and_twin_agree_and_what_they_write_can_be_read(
        x in numbers(),
        weights in prop::option::of(prop::collection::vec(0.0_f32..4.0, 256)),
        which in 0..12_usize,
    ) {
        let block = types().nth(which).unwrap();
        let weights = weights.as_deref();
        let bytes = quantise(block, 256, &x, weights).unwrap();
        prop_assert!(bytes == quantise_plainly(block, 256, &x, weights).unwrap(), "{block}");
        let mut back = vec![0.0; 512];
        decode(block, &bytes, &mut back).unwrap();
        prop_assert!(back.iter().all(|x| x.is_finite()), "{block}");
    }

    #[test]
    fn a_row_does_not_depend_on_the_rows_beside_it(x in numbers(), which in 0..12_usize) {
        let block = types().nth(which).unwrap();
        let together = quantise(block, 256, &x, None).unwrap();
        let first = quantise(block, 256, &x[..256], None).unwrap();
        let second = quantise(block, 256, &x[256..], None).unwrap();
        prop_assert!(together == [first, second].concat(), "{block}");
    }
}
