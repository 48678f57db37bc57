//! The searches one group at a time, as their formulas read: the twin of `lanes`.

use super::groups::{Fit, Groups, LEVELS, NOTHING, OffsetGrid, Search, nearest, nearest_level};

/// One group after the other.
pub(super) struct Plain;

impl Search for Plain {
    fn offset<const L: usize, const N: usize>(
        groups: &Groups<L, N>,
        grid: OffsetGrid,
    ) -> Fit<L, N> {
        each(groups, |x, w| offset(x, w, grid))
    }

    fn symmetric<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
        each(groups, |x, w| symmetric(x, w, half))
    }

    fn stepwise<const L: usize, const N: usize>(groups: &Groups<L, N>, half: u8) -> Fit<L, N> {
        each(groups, |x, _| stepwise(x, half))
    }

    fn levels<const L: usize, const N: usize>(groups: &Groups<L, N>) -> Fit<L, N> {
        each(groups, levels)
    }
}

/// A fit of one group.
pub(super) struct One {
    pub(super) scale: f32,
    min: f32,
    pub(super) codes: Vec<u8>,
}

fn each<const L: usize, const N: usize>(
    groups: &Groups<L, N>,
    fit: impl Fn(&[f32], &[f32]) -> One,
) -> Fit<L, N> {
    let mut all = Fit { scale: [0.0; N], min: [0.0; N], codes: [[0; N]; L] };
    for n in 0..N {
        let x: Vec<f32> = groups.x.iter().map(|x| x[n]).collect();
        let w: Vec<f32> = groups.w.iter().map(|w| w[n]).collect();
        let one = fit(&x, &w);
        (all.scale[n], all.min[n]) = (one.scale, one.min);
        for (codes, code) in all.codes.iter_mut().zip(one.codes) {
            codes[n] = code;
        }
    }
    all
}

/// Starts from the codes that span the group, then tries finer and coarser ones, for each the
/// scale and minimum of least squares.
fn offset(x: &[f32], w: &[f32], grid: OffsetGrid) -> One {
    let most = f32::from(grid.most);
    let max = x.iter().fold(x[0], |max, &x| if x > max { x } else { max });
    let min = x.iter().fold(x[0], |min, &x| if x < min { x } else { min });
    let min = if min > 0.0 { 0.0 } else { min };
    if max == min {
        return One { scale: 0.0, min, codes: vec![0; x.len()] };
    }
    let codes = |inverse: f32, min: f32| -> Vec<u8> {
        let code = |x: &f32| nearest(inverse * (x - min)).clamp(0, grid.most.into()) as u8;
        x.iter().map(code).collect()
    };
    let error = |scale: f32, min: f32, codes: &[u8]| {
        let mut sum = 0.0;
        for ((x, w), &code) in x.iter().zip(w).zip(codes) {
            sum += w * grid.error.of(scale * f32::from(code) + min - x);
        }
        sum
    };
    let inverse = most / (max - min);
    let scale = 1.0 / inverse;
    let first = codes(inverse, min);
    let mut best = error(scale, min, &first);
    let mut found = One { scale, min, codes: first };
    for step in 0..=grid.steps {
        let inverse = (grid.first + grid.step * f32::from(step) + most) / (max - found.min);
        let codes = codes(inverse, found.min);
        let Some((scale, min)) = line(x, w, &codes) else { continue };
        let error = error(scale, min, &codes);
        if error < best {
            best = error;
            found = One { scale, min, codes };
        }
    }
    found
}

/// Scale and minimum of least squares, the minimum not above zero; `None` if the codes do not
/// determine them.
fn line(x: &[f32], w: &[f32], codes: &[u8]) -> Option<(f32, f32)> {
    let (mut sum_w, mut sum_x) = (w[0], w[0] * x[0]);
    for (x, w) in x.iter().zip(w).skip(1) {
        sum_w += w;
        sum_x += w * x;
    }
    let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
    for ((x, w), &code) in x.iter().zip(w).zip(codes) {
        let code = f32::from(code);
        sum_l += w * code;
        sum_l2 += w * code * code;
        sum_xl += w * code * x;
    }
    let determinant = sum_w * sum_l2 - sum_l * sum_l;
    if determinant.is_nan() || determinant <= 0.0 {
        return None;
    }
    let scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    let min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    Some(if min > 0.0 { (sum_xl / sum_l2, 0.0) } else { (scale, min) })
}

/// The number of largest magnitude, the first of equals; zero if all are nearly zero.
fn extreme(x: &[f32]) -> f32 {
    let (mut most, mut found) = (0.0, 0.0);
    for &x in x {
        if x.abs() > most {
            (most, found) = (x.abs(), x);
        }
    }
    if most < NOTHING { 0.0 } else { found }
}

pub(super) fn symmetric(x: &[f32], w: &[f32], half: u8) -> One {
    let most = f32::from(half);
    let extreme = extreme(x);
    if extreme == 0.0 {
        return One { scale: 0.0, min: 0.0, codes: vec![0; x.len()] };
    }
    let signed = |inverse: f32, x: f32| {
        let half = i32::from(half);
        nearest(inverse * x).clamp(-half, half - 1)
    };
    let sums = |inverse: f32| {
        let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(w) {
            let code = signed(inverse, x) as f32;
            sum_xl += w * x * code;
            sum_l2 += w * code * code;
        }
        (sum_xl, sum_l2)
    };
    let mut inverse = -most / extreme;
    let (sum_xl, sum_l2) = sums(inverse);
    let mut scale = if sum_l2 == 0.0 { 0.0 } else { sum_xl / sum_l2 };
    let mut best = scale * sum_xl;
    for step in (-9..=9_i8).filter(|&step| step != 0) {
        let trial = -(most + 0.1 * f32::from(step)) / extreme;
        let (sum_xl, sum_l2) = sums(trial);
        if sum_l2 > 0.0 && sum_xl * sum_xl > best * sum_l2 {
            scale = sum_xl / sum_l2;
            best = scale * sum_xl;
            inverse = trial;
        }
    }
    let code = |&x: &f32| (signed(inverse, x) + i32::from(half)) as u8;
    One { scale, min: 0.0, codes: x.iter().map(code).collect() }
}

fn stepwise(x: &[f32], half: u8) -> One {
    let extreme = extreme(x);
    if extreme == 0.0 {
        return One { scale: 0.0, min: 0.0, codes: vec![0; x.len()] };
    }
    let half = i32::from(half);
    let inverse = -(half as f32) / extreme;
    let mut codes: Vec<i32> =
        x.iter().map(|&x| nearest(inverse * x).clamp(-half, half - 1)).collect();
    let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
    for (&x, &code) in x.iter().zip(&codes) {
        let (w, code) = (x * x, code as f32);
        sum_xl += w * x * code;
        sum_l2 += w * code * code;
    }
    for _ in 0..5 {
        let mut moved = false;
        for (&x, code) in x.iter().zip(&mut codes) {
            let (w, own) = (x * x, *code as f32);
            let mut other_xl = sum_xl - w * x * own;
            if other_xl > 0.0 {
                let mut other_l2 = sum_l2 - w * own * own;
                let moved_to = nearest(x * other_l2 / other_xl).clamp(-half, half - 1);
                if moved_to != *code {
                    other_xl += w * x * moved_to as f32;
                    other_l2 += w * moved_to as f32 * moved_to as f32;
                    let better = other_xl * other_xl * sum_l2 > sum_xl * sum_xl * other_l2;
                    if other_l2 > 0.0 && better {
                        (*code, sum_xl, sum_l2) = (moved_to, other_xl, other_l2);
                        moved = true;
                    }
                }
            }
        }
        if !moved {
            break;
        }
    }
    let scale = if sum_l2 > 0.0 { sum_xl / sum_l2 } else { 0.0 };
    One { scale, min: 0.0, codes: codes.iter().map(|code| (code + half) as u8).collect() }
}

fn levels(x: &[f32], w: &[f32]) -> One {
    let codes = vec![0; x.len()];
    let extreme = extreme(x);
    if extreme == 0.0 {
        return One { scale: 0.0, min: 0.0, codes };
    }
    let sums = |inverse: f32| {
        let (mut sum_xq, mut sum_q2) = (0.0, 0.0);
        for (&x, &w) in x.iter().zip(w) {
            let level = LEVELS[usize::from(nearest_level(inverse * x))];
            sum_xq += w * level * x;
            sum_q2 += w * level * level;
        }
        (sum_xq, sum_q2)
    };
    let (sum_xq, sum_q2) = sums(1.0 / (-extreme / LEVELS[0]));
    let mut scale = if sum_q2 > 0.0 { sum_xq / sum_q2 } else { 0.0 };
    let mut best = scale * sum_xq;
    for step in -7..=7_i8 {
        let (sum_xq, sum_q2) = sums((f32::from(step) + LEVELS[0]) / extreme);
        if sum_q2 > 0.0 && sum_xq * sum_xq > best * sum_q2 {
            scale = sum_xq / sum_q2;
            best = scale * sum_xq;
        }
    }
    One { scale, min: 0.0, codes }
}

/// `scale · code` for numbers that are not negative, such as the scales of a block's groups: tries
/// scales, then moves one code at a time. Codes go up to `most`.
pub(super) fn positive<const N: usize>(x: &[f32; N], w: &[f32; N], most: u8) -> (f32, [u8; N]) {
    let max = x.iter().fold(0.0, |max, &x| if max > x { max } else { x });
    if max < NOTHING {
        return (0.0, [0; N]);
    }
    let top = f32::from(most);
    let capped = |inverse: f32, x: f32| nearest(inverse * x).min(most.into());
    let mut inverse = top / max;
    let mut best = 0.0;
    for (x, w) in x.iter().zip(w) {
        // The first trial is not capped and wraps like the byte that holds it.
        let difference = x - (1.0 / inverse) * f32::from(nearest(inverse * x) as u8);
        best += w * difference * difference;
    }
    for step in (-4..=4_i8).filter(|&step| step != 0) {
        let trial = (0.1 * f32::from(step) + top) / max;
        let scale = 1.0 / trial;
        let mut error = 0.0;
        for (&x, w) in x.iter().zip(w) {
            let difference = x - scale * capped(trial, x) as f32;
            error += w * difference * difference;
        }
        if error < best {
            (best, inverse) = (error, trial);
        }
    }
    let mut codes = [0_u8; N];
    let (mut sum_xl, mut sum_l2) = (0.0, 0.0);
    for ((&x, w), code) in x.iter().zip(w).zip(&mut codes) {
        let own = capped(inverse, x);
        *code = own as u8;
        sum_xl += w * x * own as f32;
        sum_l2 += w * own as f32 * own as f32;
    }
    for _ in 0..5 {
        let mut moved = false;
        for ((&x, w), code) in x.iter().zip(w).zip(&mut codes) {
            let own = f32::from(*code);
            let mut other_xl = sum_xl - w * x * own;
            let mut other_l2 = sum_l2 - w * own * own;
            if other_xl > 0.0 && other_l2 > 0.0 {
                let moved_to = nearest(x * other_l2 / other_xl).min(most.into());
                if moved_to != i32::from(*code) {
                    other_xl += w * x * moved_to as f32;
                    other_l2 += w * moved_to as f32 * moved_to as f32;
                    if other_xl * other_xl * sum_l2 > sum_xl * sum_xl * other_l2 {
                        (*code, sum_xl, sum_l2) = (moved_to as u8, other_xl, other_l2);
                        moved = true;
                    }
                }
            }
        }
        if !moved {
            break;
        }
    }
    (if sum_l2 > 0.0 { sum_xl / sum_l2 } else { 0.0 }, codes)
}
