//! One picture in every form that people send: four quarters, red, green, blue and white.

use lapidary_media::{Limits, Pixels, decode};

use crate::stored;

const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const BLUE: [u8; 3] = [0, 0, 255];
const WHITE: [u8; 3] = [255; 3];

fn open(name: &str) -> Pixels {
    decode(&stored(name), &Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn pixel(picture: &Pixels, x: usize, y: usize) -> [u8; 3] {
    let first = 3 * (y * picture.width() + x);
    picture.rgb()[first..first + 3].try_into().expect("three bytes")
}

/// The middles of the four quarters.
fn quarters(picture: &Pixels) -> [[u8; 3]; 4] {
    let (w, h) = (picture.width(), picture.height());
    [(1, 1), (3, 1), (1, 3), (3, 3)].map(|(x, y)| pixel(picture, x * w / 4, y * h / 4))
}

fn near(found: [[u8; 3]; 4], expected: [[u8; 3]; 4], most: u8) -> bool {
    let pairs = found.as_flattened().iter().zip(expected.as_flattened());
    pairs.into_iter().all(|(a, b)| a.abs_diff(*b) <= most)
}

#[test]
fn every_form_of_a_picture_shows_the_same() {
    let expected = [RED, GREEN, BLUE, WHITE];
    for (name, most) in [
        ("plain.png", 0),
        ("palette.png", 0),
        ("alpha.png", 0),
        ("lossless.webp", 0),
        ("photo.jpg", 4),
        ("progressive.jpg", 4),
        ("cmyk.jpg", 4),
    ] {
        let picture = open(name);
        assert_eq!((picture.width(), picture.height()), (24, 16), "{name}");
        let found = quarters(&picture);
        assert!(near(found, expected, most), "{name}: {found:?}");
    }
}

#[test]
fn a_camera_held_sideways_takes_upright_pictures() {
    let expected = [RED, GREEN, BLUE, WHITE];
    for name in ["turned6.jpg", "turned3.jpg", "turned6.png", "turned6.webp"] {
        let picture = open(name);
        assert_eq!((picture.width(), picture.height()), (24, 16), "{name}");
        let found = quarters(&picture);
        assert!(near(found, expected, 4), "{name}: {found:?}");
    }
}

#[test]
fn of_an_animation_the_first_picture_is_seen() {
    for name in ["moving.gif", "moving.webp"] {
        let found = quarters(&open(name));
        assert!(near(found, [RED, GREEN, BLUE, WHITE], 0), "{name}: {found:?}");
    }
}

#[test]
fn grey_and_sixteen_bits_become_eight_bits_of_three_colours() {
    let grey = open("grey.png");
    assert_eq!(quarters(&grey), [[76; 3], [150; 3], [29; 3], [255; 3]]);
    let sixteen = open("sixteen.png");
    assert_eq!(quarters(&sixteen), [WHITE, WHITE, [128; 3], [128; 3]]);
}

#[test]
fn what_is_transparent_shows_white_paper() {
    let picture = open("alpha.png");
    assert_eq!(pixel(&picture, 0, 0), WHITE);
    assert_eq!(pixel(&picture, 1, 0), [255, 127, 127]);
    assert_eq!(pixel(&picture, 2, 0), RED);
}
