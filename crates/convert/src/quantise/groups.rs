//! Groups of numbers that share a scale, side by side: lane `n` of element `i` belongs to group
//! `n`.
//!
//! A group's sums run along its elements, one after the other, and never across lanes. So groups
//! can be fitted together without changing a bit of any of them.

/// `N` groups of `L` numbers, each number with what its error counts.
pub(super) struct Groups<const L: usize, const N: usize> {
    pub(super) x: [[f32; N]; L],
    pub(super) w: [[f32; N]; L],
}

impl<const L: usize, const N: usize> Groups<L, N> {
    /// From `N * L` numbers, group after group. All weights are zero.
    #[inline(always)]
    pub(super) fn of(x: &[f32]) -> Self {
        Self { x: across(x), w: [[0.0; N]; L] }
    }

    /// Sets every weight from its group's number and the number it belongs to.
    #[inline(always)]
    pub(super) fn weigh(&mut self, weight: impl Fn(usize, f32) -> f32) {
        for i in 0..L {
            for n in 0..N {
                self.w[i][n] = weight(n, self.x[i][n]);
            }
        }
    }

    /// Sets every weight from the importance of its place, group after group like the numbers,
    /// and the number.
    #[inline(always)]
    pub(super) fn weigh_by(&mut self, importance: &[f32], weight: impl Fn(f32, f32) -> f32) {
        self.w = across(importance);
        for i in 0..L {
            for n in 0..N {
                self.w[i][n] = weight(self.w[i][n], self.x[i][n]);
            }
        }
    }

    /// The weights' sum, group by group.
    #[inline(always)]
    pub(super) fn total_weights(&self) -> [f32; N] {
        let mut sums = [0.0; N];
        for w in &self.w {
            for n in 0..N {
                sums[n] += w[n];
            }
        }
        sums
    }

    /// The squares' sum, group by group.
    #[inline(always)]
    pub(super) fn total_squares(&self) -> [f32; N] {
        let mut sums = [0.0; N];
        for x in &self.x {
            for n in 0..N {
                sums[n] += x[n] * x[n];
            }
        }
        sums
    }
}

/// What a search found: `scale · code + min` for types with a minimum, `scale · (code − half)` or
/// `scale · level[code]` for the others.
pub(super) struct Fit<const L: usize, const N: usize> {
    pub(super) scale: [f32; N],
    /// Zero or less; zero for types without a minimum.
    pub(super) min: [f32; N],
    pub(super) codes: [[u8; N]; L],
}

impl<const L: usize, const N: usize> Fit<L, N> {
    /// The codes of a group.
    #[inline(always)]
    pub(super) fn codes_of(&self, n: usize) -> [u8; L] {
        std::array::from_fn(|i| self.codes[i][n])
    }
}

/// Group after group to side by side. Numbers that are missing at the end are zero.
#[inline(always)]
pub(super) fn across<const L: usize, const N: usize>(x: &[f32]) -> [[f32; N]; L] {
    let mut out = [[0.0; N]; L];
    for (n, group) in x.chunks_exact(L).enumerate() {
        for (i, &value) in group.iter().enumerate() {
            out[i][n] = value;
        }
    }
    out
}

/// How codes with a minimum are searched for.
#[derive(Clone, Copy)]
pub(super) struct OffsetGrid {
    /// The largest code.
    pub(super) most: u8,
    /// Added to the largest code in the first trial.
    pub(super) first: f32,
    /// Added to that from trial to trial.
    pub(super) step: f32,
    /// Trials after the first.
    pub(super) steps: u8,
    /// What is to be small.
    pub(super) error: Error,
}

/// The measure of a fit.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Error {
    Absolute,
    Square,
}

impl Error {
    #[inline(always)]
    pub(super) fn of(self, difference: f32) -> f32 {
        match self {
            Self::Absolute => difference.abs(),
            Self::Square => difference * difference,
        }
    }
}

/// Fits groups. All implementors find the same bits.
pub(super) trait Search {
    /// `scale · code + min`, codes up to `grid.most`, `min ≤ 0`.
    fn offset<const L: usize, const N: usize>(groups: &Groups<L, N>, grid: OffsetGrid)
    -> Fit<L, N>;

    /// `scale · (code − half)`, codes below `2 · half`, by trying scales around the one that
    /// reaches the largest number.
    fn symmetric<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N>;

    /// Likewise, by moving one code at a time. Numbers count by their squares, whatever the
    /// weights.
    fn stepwise<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N>;

    /// `scale · level[code]`. Codes are left at zero: they are chosen when the scale has been
    /// rounded.
    fn levels<const L: usize, const N: usize>(groups: &Groups<L, N>) -> Fit<L, N>;
}

/// Below this a group counts as all zero.
pub(super) const NOTHING: f32 = 1e-15;

/// The nearest integer, ties to even, for magnitudes below 2²²: adding 1.5 · 2²³ rounds there, and
/// the sum's low bits are the integer.
#[inline(always)]
pub(super) fn nearest(x: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    ((x + SHIFT).to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// The sixteen levels of IQ4 types.
pub(super) const LEVELS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// The code of the nearest level, the upper one of two that are equally near.
#[inline(always)]
pub(super) fn nearest_level(x: f32) -> u8 {
    let mut code = 0;
    for pair in LEVELS.windows(2) {
        code += u8::from(x >= 0.5 * (pair[0] + pair[1]));
    }
    code
}
