//! Q2_K to Q6_K: 256 numbers in groups, whose scales are codes too.
//!
//! Every type goes the same way: fit the groups, round their scales and minimums to codes, then
//! choose the numbers' codes anew for what the rounded scales mean. A group whose scale rounds to
//! zero keeps the codes of its fit.

use super::groups::{Error, Fit, Groups, NOTHING, OffsetGrid, Search, nearest};
use super::plain::{positive, symmetric};
use super::{mean_square, put, stored};

/// Numbers in a block.
pub(super) const LEN: usize = 256;

type Sixteens = Groups<16, 16>;
type ThirtyTwos = Groups<32, 8>;

/// The grid of all types with a minimum when there is importance.
const WEIGHTED: OffsetGrid =
    OffsetGrid { most: 0, first: -0.9, step: 0.05, steps: 36, error: Error::Square };

/// Q2_K.
#[inline(always)]
pub(super) fn q2_k<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const GRID: OffsetGrid =
        OffsetGrid { most: 3, first: -0.5, step: 0.1, steps: 15, error: Error::Absolute };
    let mut groups = Sixteens::of(x);
    let (fit, scales, mins) = match importance {
        None => {
            groups.weigh(|_, x| x.abs());
            let fit = S::offset(&groups, GRID);
            let (scales, mins) = (against_largest(&fit.scale, 15), lowered(&fit, 15));
            (fit, scales, mins)
        }
        Some(importance) => {
            let spread = mean_square(x);
            groups.weigh_by(importance, |q, x| q * (spread + x * x).sqrt());
            weighted_offset::<S, 16, 16>(&groups, OffsetGrid { most: 3, ..WEIGHTED }, 15)
        }
    };
    let codes = requantise(
        x,
        &fit,
        |n| {
            (
                stored(scales.unit) * f32::from(scales.codes[n] & 0x0F),
                -stored(mins.unit) * f32::from(mins.codes[n]),
            )
        },
        0,
        3,
    );
    let packed = scales.codes.iter().zip(&mins.codes).map(|(scale, min)| scale | min << 4);
    out.extend(packed);
    put_two_bits(&codes, out);
    put(scales.unit, out);
    put(mins.unit, out);
}

/// Q3_K.
#[inline(always)]
pub(super) fn q3_k<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let mut groups = Sixteens::of(x);
    let (fit, scales, unit) = match importance {
        None => {
            let fit = S::stepwise(&groups, 4);
            let (scales, unit) = signed_against_largest(&fit.scale);
            (fit, scales, unit)
        }
        Some(importance) => {
            let spread = 2.0 * mean_square(x);
            groups.weigh_by(importance, |q, x| q * (spread + x * x).sqrt());
            let fit = S::symmetric(&groups, 4);
            let whole = symmetric(&fit.scale, &groups.total_weights(), 32);
            let scales = std::array::from_fn(|n| whole.codes[n]);
            (fit, scales, whole.scale)
        }
    };
    let codes = requantise(x, &fit, |n| (stored(unit) * (f32::from(scales[n]) - 32.0), 0.0), 4, 7);
    let mut thirds = [0_u8; 32];
    for (i, code) in codes.iter().enumerate() {
        thirds[i % 32] |= (code >> 2) << (i / 32);
    }
    out.extend_from_slice(&thirds);
    put_two_bits(&codes.map(|code| code & 3), out);
    let mut packed = [0_u8; 12];
    for (n, scale) in scales.iter().enumerate() {
        packed[n % 8] |= (scale & 0x0F) << (4 * (n / 8));
        packed[8 + n % 4] |= scale >> 4 << (2 * (n / 4));
    }
    out.extend_from_slice(&packed);
    put(unit, out);
}

/// Q4_K.
#[inline(always)]
pub(super) fn q4_k<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const GRID: OffsetGrid =
        OffsetGrid { most: 15, first: -1.0, step: 0.1, steps: 20, error: Error::Square };
    let codes = thirty_twos::<S>(x, importance, GRID, out);
    put_nibbles(&codes, out);
}

/// Q5_K.
#[inline(always)]
pub(super) fn q5_k<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const GRID: OffsetGrid =
        OffsetGrid { most: 31, first: -0.5, step: 0.1, steps: 15, error: Error::Square };
    let codes = thirty_twos::<S>(x, importance, GRID, out);
    let mut fifths = [0_u8; 32];
    for (i, code) in codes.iter().enumerate() {
        fifths[i % 32] |= (code >> 4) << (i / 32);
    }
    out.extend_from_slice(&fifths);
    put_nibbles(&codes.map(|code| code & 0x0F), out);
}

/// Q6_K.
#[inline(always)]
pub(super) fn q6_k<S: Search>(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    const BYTES: usize = 210;
    let mut groups = Sixteens::of(x);
    match importance {
        None => groups.weigh(|_, x| x * x),
        Some(importance) => groups.weigh_by(importance, |q, _| q),
    }
    let fit = S::symmetric(&groups, 32);
    let largest = furthest(&fit.scale);
    if largest.abs() < NOTHING {
        out.resize(out.len() + BYTES, 0);
        return;
    }
    let inverse = -128.0 / largest;
    let unit = 1.0 / inverse;
    let scales = fit.scale.map(|scale| nearest(inverse * scale).min(127) as i8);
    let codes = requantise(x, &fit, |n| (stored(unit) * f32::from(scales[n]), 0.0), 32, 63);
    let mut low = [0_u8; 128];
    for (i, code) in codes.iter().enumerate() {
        low[64 * (i / 128) + i % 64] |= (code & 0x0F) << (4 * (i % 128 / 64));
    }
    out.extend_from_slice(&low);
    put_two_bits(&codes.map(|code| code >> 4), out);
    out.extend(scales.iter().map(|scale| scale.cast_unsigned()));
    put(unit, out);
}

/// What Q4_K and Q5_K share: unit of the scales, unit of the minimums, both packed.
#[inline(always)]
fn thirty_twos<S: Search>(
    x: &[f32],
    importance: Option<&[f32]>,
    grid: OffsetGrid,
    out: &mut Vec<u8>,
) -> [u8; LEN] {
    let mut groups = ThirtyTwos::of(x);
    let (fit, scales, mins) = match importance {
        None => {
            let spread = groups.total_squares().map(|sum| (sum / 32.0).sqrt());
            groups.weigh(|n, x| spread[n] + x.abs());
            let fit = S::offset(&groups, grid);
            let (scales, mins) = (against_largest(&fit.scale, 63), lowered(&fit, 63));
            (fit, scales, mins)
        }
        Some(importance) => {
            let spread = 2.0 * mean_square(x);
            groups.weigh_by(importance, |q, x| q * (spread + x * x).sqrt());
            weighted_offset::<S, 32, 8>(&groups, OffsetGrid { most: grid.most, ..WEIGHTED }, 63)
        }
    };
    let codes = requantise(
        x,
        &fit,
        |n| {
            (
                stored(scales.unit) * f32::from(scales.codes[n]),
                -stored(mins.unit) * f32::from(mins.codes[n]),
            )
        },
        0,
        grid.most,
    );
    put(scales.unit, out);
    put(mins.unit, out);
    let mut packed = [0_u8; 12];
    for n in 0..4 {
        packed[n] = scales.codes[n] | scales.codes[n + 4] >> 4 << 6;
        packed[n + 4] = mins.codes[n] | mins.codes[n + 4] >> 4 << 6;
        packed[n + 8] = scales.codes[n + 4] & 0x0F | mins.codes[n + 4] << 4;
    }
    out.extend_from_slice(&packed);
    codes
}

/// Codes of scales or minimums, and what one is worth.
struct Coded<const N: usize> {
    codes: [u8; N],
    unit: f32,
}

/// Codes up to `most`, which stands for the largest.
#[inline(always)]
fn against_largest<const N: usize>(values: &[f32; N], most: u8) -> Coded<N> {
    let largest = values.iter().fold(0.0, |max, &value| if value > max { value } else { max });
    let top = f32::from(most);
    let inverse = if largest > 0.0 { top / largest } else { 0.0 };
    let code = |value: f32| (nearest(inverse * value) as u8).min(most);
    Coded { codes: values.map(code), unit: largest / top }
}

#[inline(always)]
fn lowered<const L: usize, const N: usize>(fit: &Fit<L, N>, most: u8) -> Coded<N> {
    against_largest(&fit.min.map(|min| -min), most)
}

/// Codes from −32 to 31, kept 32 higher, where −32 stands for the value furthest from zero.
#[inline(always)]
fn signed_against_largest(values: &[f32; 16]) -> ([u8; 16], f32) {
    let largest = furthest(values);
    if largest == 0.0 {
        return ([0; 16], 0.0);
    }
    let inverse = -32.0 / largest;
    let code = |value: f32| (nearest(inverse * value).clamp(-32, 31) + 32) as u8;
    (values.map(code), 1.0 / inverse)
}

/// The value furthest from zero, the first of equals.
#[inline(always)]
fn furthest(values: &[f32; 16]) -> f32 {
    let mut found = 0.0_f32;
    for &value in values {
        if value.abs() > found.abs() {
            found = value;
        }
    }
    found
}

/// A fit with importance, whose scales and minimums count by their groups' weights.
#[inline(always)]
fn weighted_offset<S: Search, const L: usize, const N: usize>(
    groups: &Groups<L, N>,
    grid: OffsetGrid,
    most: u8,
) -> (Fit<L, N>, Coded<N>, Coded<N>) {
    let fit = S::offset(groups, grid);
    let totals = groups.total_weights();
    let coded = |values: &[f32; N]| {
        let (unit, codes) = positive(values, &totals, most);
        Coded { codes, unit }
    };
    let (scales, mins) = (coded(&fit.scale), coded(&fit.min.map(|min| -min)));
    (fit, scales, mins)
}

/// Codes for what is stored: `meaning` of a group is its scale and minimum. Codes are `half` above
/// their value and at most `most`.
#[inline(always)]
fn requantise<const L: usize, const N: usize>(
    x: &[f32],
    fit: &Fit<L, N>,
    meaning: impl Fn(usize) -> (f32, f32),
    half: i32,
    most: u8,
) -> [u8; LEN] {
    let mut codes = [0_u8; LEN];
    for (n, (x, codes)) in x.chunks_exact(L).zip(codes.chunks_exact_mut(L)).enumerate() {
        let (scale, min) = meaning(n);
        if scale == 0.0 {
            codes.copy_from_slice(&fit.codes_of(n));
            continue;
        }
        for (code, x) in codes.iter_mut().zip(x) {
            let value = nearest((x - min) / scale);
            *code = value.clamp(-half, i32::from(most) - half).wrapping_add(half) as u8;
        }
    }
    codes
}

/// Codes of two bits: byte `l` of a run's 32 bytes holds elements `l`, `l + 32`, `l + 64` and
/// `l + 96`, lowest bits first.
#[inline(always)]
fn put_two_bits(codes: &[u8; LEN], out: &mut Vec<u8>) {
    let mut packed = [0_u8; 64];
    for (i, code) in codes.iter().enumerate() {
        packed[32 * (i / 128) + i % 32] |= code << (2 * (i % 128 / 32));
    }
    out.extend_from_slice(&packed);
}

/// Codes of four bits, where groups of 32 share bytes in pairs.
#[inline(always)]
fn put_nibbles(codes: &[u8; LEN], out: &mut Vec<u8>) {
    let mut packed = [0_u8; 128];
    for (i, code) in codes.iter().enumerate() {
        packed[32 * (i / 64) + i % 32] |= code << (4 * (i % 64 / 32));
    }
    out.extend_from_slice(&packed);
}
