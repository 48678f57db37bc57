//! Sines and cosines of rotary angles, on the host. The same steps as on the CPU device, from
//! exactly rounded operations alone: no system library decides a bit.

/// Sine and cosine of the angle by which a row turns a pair of frequency `freq`.
pub(crate) fn turn(row: &[u32; 3], freq: f32, axis: u8) -> (f32, f32) {
    // The published model computes the angle in single precision.
    let angle = row[usize::from(axis)] as f32 * freq;
    let (sin, cos) = sin_cos(f64::from(angle));
    (sin as f32, cos as f32)
}

/// For up to some millions of radians: reduced to an eighth of a turn, then Taylor's series.
fn sin_cos(x: f64) -> (f64, f64) {
    // π/2 in two parts: `n` times the first is exact for |n| below 2²⁰.
    const HALF_PI_HIGH: f64 = 1.570_796_326_734_125_6;
    const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;
    let n = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = n.mul_add(-HALF_PI_LOW, n.mul_add(-HALF_PI_HIGH, x));
    let square = r * r;
    let series = |first: f64, offset: f64| {
        let term = |sum: f64, k: f64| 1.0 - sum * square / ((2.0 * k - offset) * (2.0 * k + 1.0 - offset));
        first * (1..=7).rev().map(f64::from).fold(1.0, term)
    };
    let (sin, cos) = (series(r, 0.0), series(1.0, 1.0));
    match (n as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

#[cfg(test)]
mod tests {
    use super::sin_cos;

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
