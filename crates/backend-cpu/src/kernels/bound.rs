//! bound: for some rows, how large the largest of a group's sixteen products can be, from the five
//! high bits of its weights.
//!
//! With `u` those bits, the codes lie around `8 u − 124.5`, so the products around
//! `Σ 8 s · d · (Σ u · a − 15.5625 Σ a)`, the inner difference being exact; they lie within the group's slack times the activation's
//! length of that, roundings of this kernel and of the product's own order included: see
//! `pack::planes`. Nothing is promised about the bits that come out.
//! Bound: bytes of the high bits. Twin: the product itself, `reference::law::dot`.

use crate::act::Codes;
use crate::blocks::BLOCK;
use crate::kernels::matmul::five_bits;
use crate::lanes::{LANES, Lanes};
use crate::pack::Layout;

/// One group for all rows.
pub(crate) struct BoundJob<'a> {
    /// Records of [`Layout::PLANES`].
    pub(crate) group: &'a [u8],
    /// One per lane.
    pub(crate) slack: &'a [f32],
    pub(crate) x: &'a Codes,
    /// One per row: the length of the activation, rounded up.
    pub(crate) lengths: &'a [f32],
    /// Where the bound of the first row goes; `stride` values further the next one's.
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
}

/// Runs a job.
///
/// # Safety
/// The instructions of `L` exist and are enabled in the caller. The group holds `x.blocks` records,
/// there are sixteen slacks and as many rows as lengths, and nobody else writes these bounds.
#[inline(always)]
pub(crate) unsafe fn bound<L: Lanes>(job: &BoundJob<'_>) {
    let mut row = 0;
    let rows = job.lengths.len();
    // SAFETY: passed on; each tile takes rows that are there.
    unsafe {
        while L::TILE >= 8 && rows - row >= 8 {
            tile::<L, 8>(job, row);
            row += 8;
        }
        while rows - row >= 4 {
            tile::<L, 4>(job, row);
            row += 4;
        }
        while rows - row >= 1 {
            tile::<L, 1>(job, row);
            row += 1;
        }
    }
}

#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize>(job: &BoundJob<'_>, first: usize) {
    let (layout, x) = (Layout::PLANES, job.x);
    // SAFETY: rows `first..first + R` have `x.blocks` places each, and the group as many records.
    unsafe {
        let mut at = job.group.as_ptr();
        let mut sums = [L::splat(0.0); R];
        for b in 0..x.blocks {
            let chunks = five_bits::<L>(at);
            let d = L::load_f16(at.add(layout.bits.bytes()).cast());
            for (r, sum) in sums.iter_mut().enumerate() {
                let place = (first + r) * x.blocks + b;
                let a = x.bytes.as_ptr().add(place * BLOCK).cast::<i32>();
                let mut dot = L::splat_i(0);
                for (i, chunk) in chunks.into_iter().enumerate() {
                    dot = L::dot(dot, chunk, a.add(i).read_unaligned());
                }
                let centre = L::splat(-15.5625 * *x.sums.get_unchecked(place) as f32);
                let term = L::mul(d, L::add(L::to_f(dot), centre));
                *sum = L::fma(term, L::splat(8.0 * *x.scales.get_unchecked(place)), *sum);
            }
            at = at.add(layout.record_bytes());
        }
        let slack = L::load(job.slack.as_ptr());
        for (r, sum) in sums.into_iter().enumerate() {
            let length = L::splat(*job.lengths.get_unchecked(first + r));
            let mut bounds = [0.0_f32; LANES];
            L::store(bounds.as_mut_ptr(), L::fma(slack, length, sum));
            let larger = |most: f32, bound: f32| if bound > most { bound } else { most };
            *job.out.add((first + r) * job.stride) =
                bounds.into_iter().fold(f32::NEG_INFINITY, larger);
        }
    }
}
