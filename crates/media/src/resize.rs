//! Bicubic scaling that looks at every pixel it covers: when a picture shrinks, the curve widens with
//! it.
//!
//! Vision towers were trained on what one widely used library makes of pictures, so its numbers are
//! the contract: weights in 22 bits, sums in integers, each direction rounded to 8 bits, rows
//! first. Stored pixels of that library are the test.

use crate::Pixels;

/// Bits of a weight after the point.
const WEIGHT_BITS: u32 = 22;
/// How far the curve reaches at full size, in pixels.
const REACH: f64 = 2.0;
/// Steepness of the curve at its first zero.
const SLOPE: f64 = -0.5;

/// The picture at another size.
pub fn resize(picture: &Pixels, width: usize, height: usize) -> Pixels {
    assert!(width > 0 && height > 0, "a picture of {width} × {height}");
    let across = (width != picture.width()).then(|| Taps::all(picture.width(), width));
    let down = (height != picture.height()).then(|| Taps::all(picture.height(), height));
    let wide = across.map(|taps| horizontally(picture, &taps));
    let wide = wide.as_ref().unwrap_or(picture);
    match down {
        Some(taps) => vertically(wide, &taps),
        None => wide.clone(),
    }
}

/// Where one output pixel's inputs begin, and the weight of each.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

impl Taps {
    /// Of every output along one side.
    fn all(from: usize, to: usize) -> Vec<Self> {
        let scale = from as f64 / to as f64;
        (0..to).map(|i| Self::at((i as f64 + 0.5) * scale, scale.max(1.0), from)).collect()
    }

    fn at(centre: f64, widening: f64, inputs: usize) -> Self {
        let reach = REACH * widening;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(inputs);
        let weight = |i: usize| cubic((i as f64 - centre + 0.5) / widening);
        let weights: Vec<_> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let unit = f64::from(1 << WEIGHT_BITS);
        let weights = weights.iter().map(|w| (w / sum * unit).round() as i32).collect();
        Self { first, weights }
    }
}

fn cubic(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((SLOPE + 2.0) * x - (SLOPE + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * SLOPE
    } else {
        0.0
    }
}

/// A sum of weighted bytes as a byte.
fn rounded(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (WEIGHT_BITS - 1);

fn horizontally(picture: &Pixels, taps: &[Taps]) -> Pixels {
    let mut rgb = Vec::with_capacity(picture.height() * taps.len() * 3);
    for row in picture.rgb().chunks_exact(picture.width() * 3) {
        for Taps { first, weights } in taps {
            let mut sums = [HALF; 3];
            for (pixel, weight) in row[first * 3..].chunks_exact(3).zip(weights) {
                for (sum, byte) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*byte) * weight;
                }
            }
            rgb.extend(sums.map(rounded));
        }
    }
    Pixels::new(taps.len(), picture.height(), rgb)
}

fn vertically(picture: &Pixels, taps: &[Taps]) -> Pixels {
    let bytes = picture.width() * 3;
    let mut rgb = Vec::with_capacity(taps.len() * bytes);
    for Taps { first, weights } in taps {
        let mut sums = vec![HALF; bytes];
        for (row, weight) in picture.rgb()[first * bytes..].chunks_exact(bytes).zip(weights) {
            for (sum, byte) in sums.iter_mut().zip(row) {
                *sum += i32::from(*byte) * weight;
            }
        }
        rgb.extend(sums.into_iter().map(rounded));
    }
    Pixels::new(picture.width(), taps.len(), rgb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_colour_stays_that_colour_at_every_size() {
        let plain = Pixels::new(7, 5, [3, 200, 255].repeat(35));
        for (width, height) in [(1, 1), (7, 5), (3, 11), (40, 2)] {
            let scaled = resize(&plain, width, height);
            assert!(scaled.rgb().chunks(3).all(|pixel| pixel == [3, 200, 255]), "{width}×{height}");
        }
    }

    #[test]
    fn shrinking_looks_at_every_pixel() {
        let stripes: Vec<u8> =
            (0..64).flat_map(|x| [if x % 2 == 0 { 255 } else { 0 }; 3]).collect();
        let small = resize(&Pixels::new(64, 1, stripes), 8, 1);
        let middle = &small.rgb()[6..18];
        assert!(middle.iter().all(|byte| (126..=129).contains(byte)), "{middle:?}");
    }
}
