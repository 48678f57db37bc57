//! Decoders and encoders against bytes made by an independent implementation (`data/make.py`).
//!
//! All comparisons are of bits: both sides do the same `f32` operations in the same order.

use std::path::Path;

use lapidary_core::BlockType;
use lapidary_format::codec::{CodecError, decode, encode};

fn known(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

#[test]
fn every_type_decodes_to_known_bits() {
    for block in BlockType::ALL {
        let file = known(&format!("{block}.bin"));
        let blocks = file.len() / (block.block_bytes() + 4 * block.block_len());
        assert!(blocks >= 8, "{block}");
        let (stored, expected) = file.split_at(blocks * block.block_bytes());
        let expected = floats(expected);
        let mut decoded = vec![0.0; blocks * block.block_len()];
        decode(block, stored, &mut decoded).unwrap();
        for (i, (got, want)) in decoded.iter().zip(&expected).enumerate() {
            assert_eq!(got.to_bits(), want.to_bits(), "{block} element {i}: {got} is not {want}");
        }
    }
}

#[test]
fn q8_0_encodes_to_known_bytes() {
    let file = known("q8_0_encode.bin");
    let blocks = file.len() / (34 + 128);
    let (values, expected) = file.split_at(blocks * 128);
    assert_eq!(encode(BlockType::Q8_0, &floats(values)).unwrap(), expected);
}

#[test]
fn plain_types_encode_what_they_decode() {
    for block in [BlockType::F32, BlockType::F16, BlockType::BF16] {
        let file = known(&format!("{block}.bin"));
        let stored = &file[..40 * block.block_bytes()];
        let mut decoded = [0.0; 40];
        decode(block, stored, &mut decoded).unwrap();
        assert_eq!(encode(block, &decoded).unwrap(), stored, "{block}");
    }
}

#[test]
fn sixteen_bit_floats_round_to_nearest_even() {
    let halves = [1.0 + f32::powi(2.0, -11), 1.0 + 3.0 * f32::powi(2.0, -11), 65519.0];
    assert_eq!(encode(BlockType::F16, &halves).unwrap(), [0x00, 0x3c, 0x02, 0x3c, 0xff, 0x7b]);
    let brains = [1.0 + f32::powi(2.0, -8), 1.0 + 3.0 * f32::powi(2.0, -8)];
    assert_eq!(encode(BlockType::BF16, &brains).unwrap(), [0x80, 0x3f, 0x82, 0x3f]);
}

#[test]
fn wrong_lengths_are_refused() {
    for block in BlockType::ALL {
        let (bytes, elements) = (2 * block.block_bytes(), 2 * block.block_len());
        for (bytes, elements) in [(bytes - 1, elements), (bytes, elements + 1), (bytes, 0)] {
            let error = decode(block, &vec![0; bytes], &mut vec![0.0; elements]).unwrap_err();
            assert_eq!(error, CodecError::Length { block, bytes, elements });
        }
        assert_eq!(decode(block, &[], &mut []), Ok(()));
    }
    let ragged = CodecError::Ragged { block: BlockType::Q8_0, elements: 33 };
    assert_eq!(encode(BlockType::Q8_0, &[0.0; 33]).unwrap_err(), ragged);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let index_of = |block, values: &[f32]| match encode(block, values).unwrap_err() {
        CodecError::Range { index, .. } => index,
        other => panic!("{other}"),
    };
    assert_eq!(index_of(BlockType::F16, &[1.0, 65520.0]), 1);
    assert_eq!(index_of(BlockType::BF16, &[f32::MAX]), 0);
    assert!(encode(BlockType::F16, &[f32::INFINITY, f32::NAN]).is_ok());
    let mut values = [1.0; 64];
    values[40] = f32::NAN;
    assert_eq!(index_of(BlockType::Q8_0, &values), 40);
    values[40] = -9e6;
    assert_eq!(index_of(BlockType::Q8_0, &values), 40);
}

#[test]
fn types_without_an_encoder_say_so() {
    let can = [BlockType::F32, BlockType::F16, BlockType::BF16, BlockType::Q8_0];
    for block in BlockType::ALL.into_iter().filter(|block| !can.contains(block)) {
        assert_eq!(encode(block, &[0.0; 256]), Err(CodecError::NoEncoder(block)));
    }
}
