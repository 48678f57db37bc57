//! Kernels that work along a row: norms and element-wise functions.
//!
//! Contracts: slices of one call have equal lengths. Order: sums run in sixteen lanes, lane `l`
//! taking every sixteenth element, then across lanes as [`Lanes::sum`] says; independent of rows.
//! Bound: memory. Twins: the methods of `reference::Reference`.

use crate::lanes::{LANES, Lanes};
use crate::math;

/// `x / √(mean(x²) + eps)`, times `w` if there is one.
///
/// # Safety
/// The instructions of `L` are enabled in the caller.
#[inline(always)]
pub(crate) unsafe fn norm<L: Lanes>(x: &[f32], w: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    // SAFETY: passed on.
    let mean = unsafe { sum_of_squares::<L>(x) } / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    match w {
        Some(w) => {
            for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
                *out = x * factor * w;
            }
        }
        None => {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x * factor;
            }
        }
    }
}

#[inline(always)]
unsafe fn sum_of_squares<L: Lanes>(x: &[f32]) -> f32 {
    let whole = x.chunks_exact(LANES);
    let rest = whole.remainder();
    // SAFETY: chunks have sixteen elements; instructions by contract.
    unsafe {
        let mut sum = L::splat(0.0);
        for chunk in whole {
            let v = L::load(chunk.as_ptr());
            sum = L::fma(v, v, sum);
        }
        if !rest.is_empty() {
            let mut padded = [0.0; LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let v = L::load(padded.as_ptr());
            sum = L::fma(v, v, sum);
        }
        L::sum(sum)
    }
}

/// `gelu(gate) · up`.
#[inline(always)]
pub(crate) fn gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = math::gelu(*gate) * up;
    }
}

/// `cap · tanh(x / cap)`.
#[inline(always)]
pub(crate) fn softcap(x: &mut [f32], cap: f32) {
    let inverse = 1.0 / cap;
    for x in x {
        *x = cap * math::tanh(*x * inverse);
    }
}

/// Rotates the pairs of each head by the row's sines and cosines.
#[inline(always)]
pub(crate) fn rotate(x: &mut [f32], sin: &[f32], cos: &[f32]) {
    let pairs = sin.len();
    for head in x.chunks_exact_mut(2 * pairs) {
        let (a, b) = head.split_at_mut(pairs);
        for (((a, b), sin), cos) in a.iter_mut().zip(b).zip(sin).zip(cos) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}
