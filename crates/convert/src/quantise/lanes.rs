//! The searches for all groups at once, one lane each. Twin: `plain`.
//!
//! Bound by arithmetic: some twenty trials of a dozen operations per number. Every loop over lanes
//! is a vector instruction where the machine has one of that width; decisions are selections.

use super::groups::{Error, Fit, Groups, LEVELS, NOTHING, OffsetGrid, Search, nearest};

/// All groups side by side.
pub(super) struct Lanes;

impl Search for Lanes {
    #[inline(always)]
    fn offset<const L: usize, const N: usize>(
        groups: &Groups<L, N>,
        grid: OffsetGrid,
    ) -> Fit<L, N> {
        // The measure is a constant inside the loops.
        match grid.error {
            Error::Absolute => offset(groups, OffsetGrid { error: Error::Absolute, ..grid }),
            Error::Square => offset(groups, OffsetGrid { error: Error::Square, ..grid }),
        }
    }

    #[inline(always)]
    fn symmetric<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
        symmetric(groups, half)
    }

    #[inline(always)]
    fn stepwise<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
        stepwise(groups, half)
    }

    #[inline(always)]
    fn levels<const L: usize, const N: usize>(groups: &Groups<L, N>) -> Fit<L, N> {
        levels(groups)
    }
}

/// One value per lane.
#[inline(always)]
fn lanes<const N: usize>(value: impl Fn(usize) -> f32) -> [f32; N] {
    let mut out = [0.0; N];
    for (n, out) in out.iter_mut().enumerate() {
        *out = value(n);
    }
    out
}

/// `nearest(x)` within bounds, as a float.
#[inline(always)]
fn code(x: f32, least: i32, most: i32) -> f32 {
    nearest(x).max(least).min(most) as f32
}

#[inline(always)]
fn bytes<const L: usize, const N: usize>(
    codes: &[[f32; N]; L],
    add: f32,
    zero: &[bool; N],
) -> [[u8; N]; L] {
    let mut out = [[0; N]; L];
    for i in 0..L {
        for n in 0..N {
            out[i][n] = if zero[n] { 0 } else { (codes[i][n] + add) as i32 as u8 };
        }
    }
    out
}

/// The sums of a line through codes and numbers.
struct Sums<const N: usize> {
    w: [f32; N],
    x: [f32; N],
}

impl<const N: usize> Sums<N> {
    #[inline(always)]
    fn of<const L: usize>(groups: &Groups<L, N>) -> Self {
        let Groups { x, w } = groups;
        let mut sums = Self { w: w[0], x: lanes(|n| w[0][n] * x[0][n]) };
        for i in 1..L {
            for n in 0..N {
                sums.w[n] += w[i][n];
                sums.x[n] += w[i][n] * x[i][n];
            }
        }
        sums
    }

    /// Scale and minimum of least squares in every lane, and whether there are any.
    #[inline(always)]
    fn line(&self, l: &[f32; N], l2: &[f32; N], xl: &[f32; N]) -> ([f32; N], [f32; N], [bool; N]) {
        let (mut scale, mut min, mut sound) = ([0.0; N], [0.0; N], [false; N]);
        for n in 0..N {
            let determinant = self.w[n] * l2[n] - l[n] * l[n];
            let own = (self.w[n] * xl[n] - self.x[n] * l[n]) / determinant;
            let own_min = (l2[n] * self.x[n] - l[n] * xl[n]) / determinant;
            let above = own_min > 0.0;
            scale[n] = if above { xl[n] / l2[n] } else { own };
            min[n] = if above { 0.0 } else { own_min };
            sound[n] = determinant > 0.0;
        }
        (scale, min, sound)
    }
}

#[inline(always)]
fn offset<const L: usize, const N: usize>(groups: &Groups<L, N>, grid: OffsetGrid) -> Fit<L, N> {
    let Groups { x, w } = groups;
    let (most, top) = (f32::from(grid.most), i32::from(grid.most));
    let (mut min, mut max) = (x[0], x[0]);
    for x in x {
        for n in 0..N {
            min[n] = if x[n] < min[n] { x[n] } else { min[n] };
            max[n] = if x[n] > max[n] { x[n] } else { max[n] };
        }
    }
    let mut min: [f32; N] = lanes(|n| if min[n] > 0.0 { 0.0 } else { min[n] });
    let floor = min;
    let sums = Sums::of(groups);
    let inverse: [f32; N] = lanes(|n| most / (max[n] - min[n]));
    let mut scale: [f32; N] = lanes(|n| 1.0 / inverse[n]);
    let mut codes = [[0.0; N]; L];
    let mut best = [0.0; N];
    for i in 0..L {
        for n in 0..N {
            codes[i][n] = code(inverse[n] * (x[i][n] - min[n]), 0, top);
            best[n] += w[i][n] * grid.error.of(scale[n] * codes[i][n] + min[n] - x[i][n]);
        }
    }
    for step in 0..=grid.steps {
        let reach = grid.first + grid.step * f32::from(step) + most;
        let inverse: [f32; N] = lanes(|n| reach / (max[n] - min[n]));
        let mut trial = [[0.0; N]; L];
        let (mut sum_l, mut sum_l2, mut sum_xl) = ([0.0; N], [0.0; N], [0.0; N]);
        for i in 0..L {
            for n in 0..N {
                let l = code(inverse[n] * (x[i][n] - min[n]), 0, top);
                trial[i][n] = l;
                let weighed = w[i][n] * l;
                sum_l[n] += weighed;
                sum_l2[n] += weighed * l;
                sum_xl[n] += weighed * x[i][n];
            }
        }
        let (own, own_min, sound) = sums.line(&sum_l, &sum_l2, &sum_xl);
        let mut error = [0.0; N];
        for i in 0..L {
            for n in 0..N {
                error[n] += w[i][n] * grid.error.of(own[n] * trial[i][n] + own_min[n] - x[i][n]);
            }
        }
        let mut better = [false; N];
        for n in 0..N {
            better[n] = sound[n] & (error[n] < best[n]);
            best[n] = if better[n] { error[n] } else { best[n] };
            scale[n] = if better[n] { own[n] } else { scale[n] };
            min[n] = if better[n] { own_min[n] } else { min[n] };
        }
        for i in 0..L {
            for n in 0..N {
                codes[i][n] = if better[n] { trial[i][n] } else { codes[i][n] };
            }
        }
    }
    let mut flat = [false; N];
    for n in 0..N {
        flat[n] = max[n] == floor[n];
    }
    Fit {
        scale: lanes(|n| if flat[n] { 0.0 } else { scale[n] }),
        min: lanes(|n| if flat[n] { floor[n] } else { min[n] }),
        codes: bytes(&codes, 0.0, &flat),
    }
}

/// The number of largest magnitude in every lane, and whether all are nearly zero.
#[inline(always)]
fn extreme<const L: usize, const N: usize>(x: &[[f32; N]; L]) -> ([f32; N], [bool; N]) {
    let (mut most, mut found) = ([0.0; N], [0.0; N]);
    for x in x {
        for n in 0..N {
            let further = x[n].abs() > most[n];
            most[n] = if further { x[n].abs() } else { most[n] };
            found[n] = if further { x[n] } else { found[n] };
        }
    }
    let mut nothing = [false; N];
    for n in 0..N {
        nothing[n] = most[n] < NOTHING;
    }
    (found, nothing)
}

/// The best scale so far, and what it was found with.
struct Best<const N: usize> {
    scale: [f32; N],
    gain: [f32; N],
    inverse: [f32; N],
}

impl<const N: usize> Best<N> {
    #[inline(always)]
    fn start(
        inverse: [f32; N],
        xl: &[f32; N],
        l2: &[f32; N],
        usable: impl Fn(f32) -> bool,
    ) -> Self {
        let scale = lanes(|n| if usable(l2[n]) { xl[n] / l2[n] } else { 0.0 });
        Self { scale, gain: lanes(|n| scale[n] * xl[n]), inverse }
    }

    #[inline(always)]
    fn consider(&mut self, inverse: &[f32; N], xl: &[f32; N], l2: &[f32; N]) {
        for n in 0..N {
            let better = (l2[n] > 0.0) & (xl[n] * xl[n] > self.gain[n] * l2[n]);
            let scale = xl[n] / l2[n];
            self.scale[n] = if better { scale } else { self.scale[n] };
            self.gain[n] = if better { scale * xl[n] } else { self.gain[n] };
            self.inverse[n] = if better { inverse[n] } else { self.inverse[n] };
        }
    }
}

#[inline(always)]
fn symmetric<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
    let Groups { x, w } = groups;
    let (most, least, top) = (f32::from(half), -i32::from(half), i32::from(half) - 1);
    let (extreme, nothing) = extreme(x);
    let sums = |inverse: &[f32; N]| {
        let (mut xl, mut l2) = ([0.0; N], [0.0; N]);
        for i in 0..L {
            for n in 0..N {
                let l = code(inverse[n] * x[i][n], least, top);
                xl[n] += w[i][n] * x[i][n] * l;
                l2[n] += w[i][n] * l * l;
            }
        }
        (xl, l2)
    };
    let inverse = lanes(|n| -most / extreme[n]);
    let (xl, l2) = sums(&inverse);
    let mut best = Best::start(inverse, &xl, &l2, |l2| l2 != 0.0);
    for step in -9..=9_i8 {
        if step != 0 {
            let reach = most + 0.1 * f32::from(step);
            let inverse = lanes(|n| -reach / extreme[n]);
            let (xl, l2) = sums(&inverse);
            best.consider(&inverse, &xl, &l2);
        }
    }
    let mut codes = [[0.0; N]; L];
    for i in 0..L {
        for n in 0..N {
            codes[i][n] = code(best.inverse[n] * x[i][n], least, top);
        }
    }
    Fit {
        scale: lanes(|n| if nothing[n] { 0.0 } else { best.scale[n] }),
        min: [0.0; N],
        codes: bytes(&codes, most, &nothing),
    }
}

#[inline(always)]
fn stepwise<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
    let x = &groups.x;
    let (most, least, top) = (f32::from(half), -i32::from(half), i32::from(half) - 1);
    let (extreme, nothing) = extreme(x);
    let inverse: [f32; N] = lanes(|n| -most / extreme[n]);
    let mut codes = [[0.0; N]; L];
    let (mut sum_xl, mut sum_l2) = ([0.0; N], [0.0; N]);
    for i in 0..L {
        for n in 0..N {
            let (w, l) = (x[i][n] * x[i][n], code(inverse[n] * x[i][n], least, top));
            codes[i][n] = l;
            sum_xl[n] += w * x[i][n] * l;
            sum_l2[n] += w * l * l;
        }
    }
    for _ in 0..5 {
        // A lane in which nothing moved stays as it is in later rounds too.
        let mut moved = false;
        for i in 0..L {
            let mut better = [false; N];
            for n in 0..N {
                let (x, l) = (x[i][n], codes[i][n]);
                let w = x * x;
                let other_xl = sum_xl[n] - w * x * l;
                let other_l2 = sum_l2[n] - w * l * l;
                let to = code(x * other_l2 / other_xl, least, top);
                let (xl, l2) = (other_xl + w * x * to, other_l2 + w * to * to);
                let gains = xl * xl * sum_l2[n] > sum_xl[n] * sum_xl[n] * l2;
                better[n] = (other_xl > 0.0) & (to != l) & (l2 > 0.0) & gains;
                codes[i][n] = if better[n] { to } else { l };
                sum_xl[n] = if better[n] { xl } else { sum_xl[n] };
                sum_l2[n] = if better[n] { l2 } else { sum_l2[n] };
            }
            moved |= better.iter().any(|&better| better);
        }
        if !moved {
            break;
        }
    }
    let scale = |n: usize| if sum_l2[n] > 0.0 { sum_xl[n] / sum_l2[n] } else { 0.0 };
    Fit {
        scale: lanes(|n| if nothing[n] { 0.0 } else { scale(n) }),
        min: [0.0; N],
        codes: bytes(&codes, most, &nothing),
    }
}

#[inline(always)]
fn levels<const L: usize, const N: usize>(groups: &Groups<L, N>) -> Fit<L, N> {
    let Groups { x, w } = groups;
    let (extreme, nothing) = extreme(x);
    let sums = |inverse: &[f32; N]| {
        let (mut xq, mut q2) = ([0.0; N], [0.0; N]);
        for i in 0..L {
            for n in 0..N {
                let level = level(inverse[n] * x[i][n]);
                let weighed = w[i][n] * level;
                xq[n] += weighed * x[i][n];
                q2[n] += weighed * level;
            }
        }
        (xq, q2)
    };
    let inverse = lanes(|n| 1.0 / (-extreme[n] / LEVELS[0]));
    let (xq, q2) = sums(&inverse);
    let mut best = Best::start(inverse, &xq, &q2, |q2| q2 > 0.0);
    for step in -7..=7_i8 {
        let reach = f32::from(step) + LEVELS[0];
        let inverse = lanes(|n| reach / extreme[n]);
        let (xq, q2) = sums(&inverse);
        best.consider(&inverse, &xq, &q2);
    }
    Fit {
        scale: lanes(|n| if nothing[n] { 0.0 } else { best.scale[n] }),
        min: [0.0; N],
        codes: [[0; N]; L],
    }
}

/// The nearest level, the upper one of two that are equally near: the sum of the steps below it.
#[inline(always)]
fn level(x: f32) -> f32 {
    let mut level = LEVELS[0];
    for k in 1..LEVELS.len() {
        let (below, above) = (LEVELS[k - 1], LEVELS[k]);
        level += if x >= 0.5 * (below + above) { above - below } else { 0.0 };
    }
    level
}
