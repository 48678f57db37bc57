//! Exponential and logarithm whose bits are the same everywhere.
//!
//! The C library's versions differ between platforms in the last bit, which is enough to change a
//! text. These use only additions, multiplications, divisions and conversions, which IEEE 754
//! defines to the bit, and which the compiler neither reorders nor fuses.

use std::f64::consts::{LOG2_E, SQRT_2};

/// ln 2 to 33 bits, so that its product with a small integer is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
/// The rest of ln 2.
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// `1 / n!` for `n` from 0 to 13.
const INVERSE_FACTORIALS: [f64; 14] = {
    let mut factorial = 1.0;
    let mut inverses = [1.0; 14];
    let mut n = 1;
    while n < inverses.len() {
        factorial *= n as f64;
        inverses[n] = 1.0 / factorial;
        n += 1;
    }
    inverses
};
/// 1.5 · 2⁵²: adding it rounds a small number to an integer, in the mode of all arithmetic, to
/// nearest even.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Below this the result would be no normal number.
const SMALLEST: f64 = -708.0;

/// `eˣ` for `x ≤ 0`, within two units in the last place; 0 below -708 and for NaN.
pub(crate) fn exp(x: f64) -> f64 {
    // Next to `ROUNDER` doubles are integers: the sum rounds, and its low bits are the result.
    let shifted = x * LOG2_E + ROUNDER;
    let power = shifted - ROUNDER;
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let power_of_two = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    // Chosen last, so that a loop over many runs in vectors.
    if x >= SMALLEST { power_of_two * exp_of_small(rest) } else { 0.0 }
}

/// `ln x` for finite normal `x > 0`, within a few units in the last place.
pub(crate) fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let mut power = (x.to_bits() >> 52) as i64 - 1023;
    let mut rest = f64::from_bits(x.to_bits() & FRACTION | 1.0_f64.to_bits());
    if rest > SQRT_2 {
        rest *= 0.5;
        power += 1;
    }
    power as f64 * LN_2_HIGH + (power as f64 * LN_2_LOW + ln_near_one(rest))
}

/// The Taylor polynomial of `eˣ`, for `|x| ≤ ln 2 / 2`: the first term left out is below 2⁻⁵⁷.
fn exp_of_small(x: f64) -> f64 {
    let mut sum = INVERSE_FACTORIALS[13];
    for n in (0..13).rev() {
        sum = INVERSE_FACTORIALS[n] + x * sum;
    }
    sum
}

/// `ln x = 2 artanh((x - 1) / (x + 1))` for `x` in `√½..√2`, as a series.
fn ln_near_one(x: f64) -> f64 {
    let s = (x - 1.0) / (x + 1.0);
    let square = s * s;
    let series = (0..=11).rev().fold(0.0, |sum, n| 1.0 / f64::from(2 * n + 1) + square * sum);
    2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_library_to_the_last_places() {
        for i in 0..=708_000 {
            let x = -f64::from(i) / 1000.0;
            let error = (exp(x) / x.exp() - 1.0).abs();
            assert!(error <= 4.0 * f64::EPSILON, "exp({x}) is off by {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-709.0), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(f64::NAN), 0.0);
    }

    #[test]
    fn ln_agrees_with_the_library_to_the_last_places() {
        for i in 1..200_000 {
            let x = f64::from(i) * f64::from(i) / 1000.0;
            let error = (ln(x) - x.ln()).abs() / x.ln().abs().max(1.0);
            assert!(error <= 4.0 * f64::EPSILON, "ln({x}) is off by {error}");
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn bits_are_these_on_every_platform() {
        let exponentials = [
            (-0.1, 0x3FEC_F46D_99D5_2B3A),
            (-1.0, 0x3FD7_8B56_362C_EF38),
            (-33.7, 0x3CE4_D6A5_A895_FF59),
            (-700.25, 0x00CA_F5FE_9A48_5C8E),
        ];
        for (x, bits) in exponentials {
            assert_eq!(exp(x).to_bits(), bits, "exp({x})");
        }
        assert_eq!(ln(3.0).to_bits(), 0x3FF1_93EA_7AAD_030B);
        assert_eq!(ln(1000.0).to_bits(), 0x401B_A18A_998F_FFA0);
    }
}
