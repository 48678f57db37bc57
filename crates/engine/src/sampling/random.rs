//! Random numbers that are counted, not drawn: no state, any of them at any time.

/// The odd integer next to 2⁶⁴ / φ: multiples of it are spread evenly.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// A number in `0..1`, a multiple of 2⁻⁵³, for the token at `position` of a text.
///
/// It is one entry of the splitmix64 sequence. The seed, mixed, says where the sequence starts;
/// sample and position say how far along to look.
pub(crate) fn uniform(seed: u64, sample: u32, position: u32) -> f64 {
    entry(mix(seed.wrapping_add(STRIDE)), sample, position)
}

/// Another such number for the same token: from the sequence that starts where the first start
/// leads.
pub(crate) fn second_uniform(seed: u64, sample: u32, position: u32) -> f64 {
    entry(mix(mix(seed.wrapping_add(STRIDE))), sample, position)
}

fn entry(start: u64, sample: u32, position: u32) -> f64 {
    let count = u64::from(sample) << 32 | u64::from(position);
    let bits = mix(start.wrapping_add(count.wrapping_mul(STRIDE)));
    (bits >> 11) as f64 * (0.5 * f64::EPSILON)
}

/// The output function of splitmix64: a bijection in which every input bit reaches every output
/// bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that follow each other along one axis fill an 8 × 8 grid evenly.
    fn fills_the_square(number: impl Fn(u32) -> f64) {
        const PAIRS: u32 = 64_000;
        let mut cells = [0_u32; 64];
        for i in 0..PAIRS {
            let (x, y) = (number(i), number(i + 1));
            cells[(x * 8.0) as usize * 8 + (y * 8.0) as usize] += 1;
        }
        let expected = f64::from(PAIRS) / 64.0;
        let term = |&n: &u32| (f64::from(n) - expected).powi(2) / expected;
        let chi_square: f64 = cells.iter().map(term).sum();
        // 63 degrees of freedom: 0.1 % of fair samples lie above 103, 0.1 % below 32.
        assert!((32.0..103.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn neighbours_are_independent_along_every_axis() {
        fills_the_square(|i| uniform(7, 0, i));
        fills_the_square(|i| uniform(7, i, 3));
        fills_the_square(|i| uniform(u64::from(i), 0, 3));
        fills_the_square(|i| uniform(u64::from(i) << 32, 1, 3));
        fills_the_square(|i| second_uniform(7, 0, i));
        fills_the_square(|i| second_uniform(7, i, 3));
    }

    #[test]
    fn both_numbers_of_a_token_are_independent() {
        let both = [uniform, second_uniform];
        fills_the_square(|i| both[i as usize % 2](7, 0, i / 2));
    }

    #[test]
    fn the_range_is_half_open() {
        assert!((u64::MAX >> 11) as f64 * (0.5 * f64::EPSILON) < 1.0);
    }
}
