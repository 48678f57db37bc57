//! attend: softmax(q · kᵀ) · v for the query heads that share a key-value head, over a fixed
//! stretch of positions.
//!
//! Head width a multiple of sixteen. Keys are taken in blocks of 64 aligned to absolute positions
//! and in stretches of 512; within a block, scores are exponentiated together and values added in
//! ascending order; blocks, then stretches, are merged in ascending order. What a row sees alone
//! decides the order, so its bits do not depend on chunking, slot or company.
//! Bound: stored bytes. Twin: `reference::kv`.

use crate::lanes::{LANES, Lanes};
use crate::math;

/// Positions whose scores are exponentiated together.
pub(crate) const KEYS: usize = 64;
/// Positions of one partial result.
pub(crate) const STRETCH: usize = 512;

/// How a store keeps its numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Element {
    F32,
    F16,
}

/// One side of the cells of one head, for one slot.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) element: Element,
    /// `cells × width` elements.
    pub(crate) bytes: &'a [u8],
}

/// What is to be attended: `(position, cell)` of everything visible in the stretch, ascending.
pub(crate) struct Stretch<'a> {
    pub(crate) keys: Side<'a>,
    pub(crate) values: Side<'a>,
    pub(crate) visible: &'a [(u32, u32)],
    /// Head after head.
    pub(crate) q: &'a [f32],
    pub(crate) width: usize,
}

/// The attention of one head over part of the positions, not yet divided.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    most: f32,
    sum: f32,
    acc: Vec<f32>,
}

impl Partial {
    /// Over no positions at all.
    pub(crate) fn empty(width: usize) -> Self {
        Self { most: f32::NEG_INFINITY, sum: 0.0, acc: vec![0.0; width] }
    }

    /// Adds later positions.
    pub(crate) fn merge(&mut self, later: &Self) {
        let most = self.most.max(later.most);
        let (ours, theirs) = (math::exp(self.most - most), math::exp(later.most - most));
        self.sum = self.sum * ours + later.sum * theirs;
        for (a, b) in self.acc.iter_mut().zip(&later.acc) {
            *a = *a * ours + b * theirs;
        }
        self.most = most;
    }

    /// The weighted mean of the values.
    pub(crate) fn write(&self, out: &mut [f32]) {
        for (out, acc) in out.iter_mut().zip(&self.acc) {
            *out = acc / self.sum;
        }
    }
}

/// The partial results of the stretch, one per query head.
///
/// # Safety
/// The instructions of `L` are enabled in the caller; every cell lies inside both sides; `width`
/// is a multiple of sixteen.
#[inline(always)]
pub(crate) unsafe fn attend<L: Lanes>(stretch: &Stretch<'_>) -> Vec<Partial> {
    let width = stretch.width;
    let heads = stretch.q.len() / width;
    let mut partials = vec![Partial::empty(width); heads];
    let mut scores = vec![[f32::NEG_INFINITY; KEYS]; heads];
    let block = |&(pos, _): &(u32, u32)| pos as usize / KEYS;
    for visible in stretch.visible.chunk_by(|a, b| block(a) == block(b)) {
        for (head, (scores, partial)) in scores.iter_mut().zip(&mut partials).enumerate() {
            let q = &stretch.q[head * width..(head + 1) * width];
            // SAFETY: passed on.
            unsafe {
                score::<L>(stretch, q, visible, scores);
                absorb::<L>(stretch, visible, scores, partial);
            }
        }
    }
    partials
}

/// Scores of a block's positions; what is not visible scores minus infinity.
#[inline(always)]
unsafe fn score<L: Lanes>(
    stretch: &Stretch<'_>,
    q: &[f32],
    visible: &[(u32, u32)],
    scores: &mut [f32; KEYS],
) {
    scores.fill(f32::NEG_INFINITY);
    for &(pos, cell) in visible {
        // SAFETY: passed on.
        let s = unsafe { dot::<L>(q, stretch.keys, cell as usize * stretch.width) };
        scores[pos as usize % KEYS] = s;
    }
}

/// Adds a block to a partial result.
#[inline(always)]
unsafe fn absorb<L: Lanes>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    scores: &mut [f32; KEYS],
    partial: &mut Partial,
) {
    let block_most = scores.iter().fold(f32::NEG_INFINITY, |most, s| most.max(*s));
    let most = partial.most.max(block_most);
    let shrink = math::exp(partial.most - most);
    for s in scores.iter_mut() {
        *s = math::exp(*s - most);
    }
    // SAFETY: 64 scores are four times sixteen; the rest is passed on.
    unsafe {
        let lanes = |i: usize| L::load(scores.as_ptr().add(i * LANES));
        let sum = L::sum(L::add(L::add(lanes(0), lanes(1)), L::add(lanes(2), lanes(3))));
        partial.sum = partial.sum * shrink + sum;
        partial.most = most;
        for acc in partial.acc.chunks_exact_mut(LANES) {
            let p = acc.as_mut_ptr();
            L::store(p, L::mul(L::load(p), L::splat(shrink)));
        }
        for &(pos, cell) in visible {
            let weight = scores[pos as usize % KEYS];
            add_value::<L>(&mut partial.acc, weight, stretch.values, cell as usize * stretch.width);
        }
    }
}

#[inline(always)]
unsafe fn load<L: Lanes>(side: Side<'_>, at: usize) -> L::F {
    // SAFETY: sixteen elements from `at` lie inside the side.
    unsafe {
        match side.element {
            Element::F32 => L::load(side.bytes.as_ptr().cast::<f32>().add(at)),
            Element::F16 => L::load_f16(side.bytes.as_ptr().cast::<u16>().add(at)),
        }
    }
}

/// Four chains of sixteen lanes, added pairwise.
#[inline(always)]
unsafe fn dot<L: Lanes>(q: &[f32], keys: Side<'_>, at: usize) -> f32 {
    // SAFETY: `q.len()` elements from `at` lie inside the side, a multiple of sixteen.
    unsafe {
        let mut sums = [L::splat(0.0); 4];
        for (i, q) in q.chunks_exact(LANES).enumerate() {
            sums[i % 4] = L::fma(L::load(q.as_ptr()), load::<L>(keys, at + i * LANES), sums[i % 4]);
        }
        L::sum(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])))
    }
}

#[inline(always)]
unsafe fn add_value<L: Lanes>(acc: &mut [f32], weight: f32, values: Side<'_>, at: usize) {
    // SAFETY: `acc.len()` elements from `at` lie inside the side, a multiple of sixteen.
    unsafe {
        let weight = L::splat(weight);
        for (i, acc) in acc.chunks_exact_mut(LANES).enumerate() {
            let p = acc.as_mut_ptr();
            L::store(p, L::fma(weight, load::<L>(values, at + i * LANES), L::load(p)));
        }
    }
}
