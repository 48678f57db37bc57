//! Files that mean harm, or are broken: a sentence or a right picture, in bounded memory and time.

use std::time::{Duration, Instant};

use lapidary_media::{Budget, ImageError, Limits, decode, patches};

use crate::{all_stored, stored};

/// A PNG that says it is this large, and brings nothing.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    chunk(&mut bytes, b"IHDR", &[&size[..], &[8, 2, 0, 0, 0]].concat());
    chunk(&mut bytes, b"IDAT", &[0x78, 0x9c, 0x03, 0x00, 0x00, 0x00, 0x00, 0x01]);
    chunk(&mut bytes, b"IEND", &[]);
    bytes
}

fn chunk(bytes: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let body = [&kind[..], data].concat();
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes.extend(crc(&body).to_be_bytes());
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// A GIF whose screen is this large, with one dot on it.
fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"GIF89a".to_vec();
    bytes.extend(width.to_le_bytes());
    bytes.extend(height.to_le_bytes());
    bytes.extend([0x80, 0, 0, 0, 0, 0, 255, 255, 255]);
    bytes.extend([0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0, 0x3b]);
    bytes
}

#[test]
fn hostile_files_are_refused_in_a_sentence() {
    let half = |name: &str| stored(name)[..stored(name).len() / 2].to_vec();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", vec![], "neither PNG, JPEG, WebP nor GIF"),
        ("a text", b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(), "neither PNG"),
        ("a bitmap", b"BM\x1e\0\0\0\0\0\0\0\x1a\0\0\0".to_vec(), "neither PNG"),
        ("half a PNG", half("plain.png"), "the PNG image cannot be decoded"),
        ("half a JPEG's head", stored("photo.jpg")[..100].to_vec(), "JPEG image cannot be"),
        ("half a WebP", half("lossless.webp"), "the WebP image cannot be decoded"),
        ("a head alone", b"\x89PNG\r\n\x1a\n".to_vec(), "the PNG image cannot be decoded"),
        ("100,000 × 1", png(100_000, 1), "100000 × 1 pixels and no side may exceed 32768"),
        ("1 × 100,000", png(1, 100_000), "1 × 100000 pixels and no side"),
        ("a bomb", png(30_000, 30_000), "30000 × 30000 pixels and at most 50000000"),
        ("the largest bomb", png(u32::MAX >> 1, u32::MAX >> 1), "Memory limit exceeded"),
        ("a screen of a GIF", gif(65_535, 65_535), "no side may exceed"),
        ("no pixels", png(0, 7), "the PNG image cannot be decoded"),
        ("no pixels in a GIF", gif(0, 0), "the GIF image cannot be decoded"),
        ("a promise without pixels", png(3000, 3000), "the PNG image cannot be decoded"),
    ];
    for (what, bytes, expected) in cases {
        let began = Instant::now();
        let refused = decode(&bytes, &Limits::default()).expect_err(what).to_string();
        assert!(refused.contains(expected), "{what}: {refused}");
        assert!(!refused.contains('\n'), "{what}: {refused}");
        assert!(began.elapsed() < Duration::from_secs(5), "{what} takes {:?}", began.elapsed());
    }
}

#[test]
fn a_file_is_what_it_holds_not_what_it_is_called() {
    // A WebP that somebody called .png, as browsers save them: names are not even asked for.
    assert!(decode(&stored("lossless.webp"), &Limits::default()).is_ok());
}

#[test]
fn limits_are_those_given() {
    let bytes = stored("plain.png");
    let limits = Limits::default();
    let of = |limits| decode(&bytes, &limits).map(|picture| picture.width());
    assert_eq!(of(limits), Ok(24));
    let most = bytes.len() - 1;
    assert_eq!(
        of(Limits { bytes: most, ..limits }),
        Err(ImageError::Bytes { bytes: bytes.len(), most })
    );
    let side = ImageError::Side { width: 24, height: 16, most: 23 };
    assert_eq!(of(Limits { side: 23, ..limits }), Err(side));
    let pixels = ImageError::Pixels { width: 24, height: 16, most: 383 };
    assert_eq!(of(Limits { pixels: 383, ..limits }), Err(pixels));
    assert_eq!(of(Limits { bytes: bytes.len(), side: 24, pixels: 384 }), Ok(24));
}

#[test]
fn a_thin_line_is_a_picture_like_any_other() {
    let limits = Limits { side: 100_000, ..Limits::default() };
    let line = gif(30_000, 1);
    let picture = decode(&line, &limits).expect("it is a picture");
    let cut = patches(&picture, Budget::default());
    assert_eq!((cut.columns, cut.rows), (840, 3));
}

#[test]
fn every_cut_of_every_format_is_refused_or_read() {
    for name in all_stored() {
        let whole = stored(&name);
        for end in 0..whole.len() {
            if let Err(error) = decode(&whole[..end], &Limits::default()) {
                assert!(!error.to_string().contains('\n'), "{name} cut at {end}: {error}");
            }
        }
    }
}
