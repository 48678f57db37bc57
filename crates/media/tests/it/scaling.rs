//! Scaled pictures against stored ones of the library that towers were trained with.

use lapidary_media::{Budget, Pixels, patches, resize};
use proptest::prelude::*;

use crate::stored;

/// Reads `width, height, 0` in 32 bits each and the bytes of a picture.
fn take(bytes: &mut &[u8]) -> Option<Pixels> {
    let (head, rest) = bytes.split_at_checked(12)?;
    let number = |i: usize| u32::from_le_bytes(head[4 * i..4 * i + 4].try_into().expect("four"));
    let (width, height) = (number(0) as usize, number(1) as usize);
    let (rgb, rest) = rest.split_at(width * height * 3);
    *bytes = rest;
    Some(Pixels::new(width, height, rgb.to_vec()))
}

#[test]
fn scaled_pixels_are_those_of_the_original() {
    let bytes = stored("scaled.bin");
    let mut rest = bytes.as_slice();
    let original = take(&mut rest).expect("the first is the original");
    let mut compared = 0;
    while let Some(expected) = take(&mut rest) {
        let (width, height) = (expected.width(), expected.height());
        assert_eq!(resize(&original, width, height), expected, "{width} × {height}");
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn a_patch_is_a_square_of_the_picture_in_reading_order() {
    let (width, height) = (384, 384);
    let rgb: Vec<u8> = (0..width * height)
        .flat_map(|i| [(i % width / 16) as u8, (i / width / 16) as u8, (i % 251) as u8])
        .collect();
    let cut = patches(&Pixels::new(width, height, rgb), Budget::new(70).expect("in range"));
    assert_eq!((cut.columns, cut.rows, cut.side), (24, 24, 16));
    for (i, patch) in cut.values.chunks_exact(768).enumerate() {
        assert!(patch.chunks_exact(3).all(|p| p[..2] == [(i % 24) as u8, (i / 24) as u8]), "{i}");
    }
    let second_line = 26 * 768 + 16 * 3 + 2;
    assert_eq!(usize::from(cut.values[second_line]), ((16 + 1) * width + 2 * 16) % 251);
}

proptest! {
    #[test]
    fn patches_fill_a_grid_of_whole_tokens(width in 1_usize..300, height in 1_usize..300) {
        let picture = Pixels::new(width, height, vec![9; width * height * 3]);
        let cut = patches(&picture, Budget::new(70).expect("in range"));
        prop_assert!(cut.columns.is_multiple_of(3) && cut.rows.is_multiple_of(3));
        prop_assert!(cut.count() / 9 <= 70);
        prop_assert_eq!(cut.values.len(), cut.count() * 768);
        prop_assert!(cut.values.iter().all(|byte| *byte == 9));
    }
}
