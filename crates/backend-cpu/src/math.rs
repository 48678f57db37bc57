//! Functions whose bits must not depend on a system library: built from exactly rounded
//! operations alone, so every instruction set computes the same.

/// `eˣ`, within 2 units in the last place; 0 below −87.3, saturating above 88.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.3;
    const SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with trailing zeros, so that `n` times it is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(LOWEST, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    // Taylor's series; |r| ≤ ln 2 / 2.
    let p = r.mul_add(1.0 / 5040.0, 1.0 / 720.0);
    let p = r.mul_add(p, 1.0 / 120.0);
    let p = r.mul_add(p, 1.0 / 24.0);
    let p = r.mul_add(p, 1.0 / 6.0);
    let p = r.mul_add(p, 0.5);
    let p = r.mul_add(p, 1.0);
    let p = r.mul_add(p, 1.0);
    let power = (shifted.to_bits().wrapping_sub(SHIFT.to_bits()).wrapping_add(127)) << 23;
    if x < LOWEST { 0.0 } else { p * f32::from_bits(power) }
}

/// `tanh x = 1 − 2 / (e²ˣ + 1)`, within 2⁻²³.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x.clamp(-20.0, 20.0)) + 1.0)
}

/// GELU in its tanh form: `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let inner = SQRT_2_OVER_PI * x * (x * x).mul_add(0.044_715, 1.0);
    0.5 * x * (1.0 + tanh(inner))
}

/// Sine and cosine in double precision, for rotary angles of up to some millions of radians.
pub(crate) fn sin_cos(x: f64) -> (f64, f64) {
    // π/2 in two parts: `n` times the first is exact for |n| below 2²⁰.
    const HALF_PI_HIGH: f64 = 1.570_796_326_734_125_6;
    const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;
    let n = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = n.mul_add(-HALF_PI_LOW, n.mul_add(-HALF_PI_HIGH, x));
    let r2 = r * r;
    let mut sin = 1.0;
    let mut cos = 1.0;
    for k in (1..=7).rev() {
        let k = f64::from(k);
        sin = 1.0 - sin * r2 / ((2.0 * k) * (2.0 * k + 1.0));
        cos = 1.0 - cos * r2 / ((2.0 * k - 1.0) * (2.0 * k));
    }
    sin *= r;
    match (n as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_real_one() {
        for i in -8_700..8_800 {
            let x = i as f32 / 100.0 + 0.003;
            let (ours, real) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(((ours - real) / real).abs() < 2.4e-7, "exp({x}) = {ours}, not {real}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn tanh_and_gelu_are_close_to_the_real_ones() {
        for i in -3_000..3_000 {
            let x = i as f32 / 100.0;
            let real = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - real).abs() < 2.4e-7, "tanh({x})");
            let wide = f64::from(x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let real = 0.5 * wide * (1.0 + inner.tanh());
            let error = (f64::from(gelu(x)) - real).abs();
            assert!(error < 3e-7 * (1.0 + wide.abs()), "gelu({x}) is off by {error}");
        }
    }

    #[test]
    fn sine_and_cosine_are_close_to_the_real_ones() {
        for i in -40_000..40_000 {
            let x = f64::from(i) * 7.3;
            let (sin, cos) = sin_cos(x);
            assert!((sin - x.sin()).abs() < 1e-9, "sin({x}) = {sin}");
            assert!((cos - x.cos()).abs() < 1e-9, "cos({x}) = {cos}");
        }
    }
}
