//! The likeliest tokens from a head in two planes: the high bits of all rows bound every logit, and
//! the low ones are read only where a logit can still be among the likeliest.
//!
//! Exact: every logit that counts is the product's own, and what is left out is below the `k`
//! likeliest by a bound that includes all roundings. Where the bound says nothing, because an
//! activation or a factor is not finite or is huge, all groups are read.

use lapidary_core::{Candidate, Head, TokenId, best, candidates, likeliest as largest};

use super::groups_per_piece;
use crate::act::{Act, Codes};
use crate::blocks::BLOCK;
use crate::cpu::Cpu;
use crate::disjoint::Disjoint;
use crate::kernels::bound::BoundJob;
use crate::kernels::matmul::{Inputs, Job};
use crate::lanes::LANES;
use crate::math;
use crate::pack::{Planes, Weight};

/// For more tokens than this the bar is so low that most groups are read in any case.
pub(super) const FEW: usize = 8;
/// Groups that are read first at least: their best logit is the bar for all others.
const FIRST: usize = 4;
/// Groups that one piece of work reads.
const PIECE: usize = 16;
/// Products beyond this are not bounded, so that nothing below overflows.
const HUGE: f64 = 1e30;
/// The bound of a group that has been read: below every bar.
const READ: f32 = f32::NEG_INFINITY;

/// The likeliest `k` tokens of each row of `x`.
pub(super) fn likeliest(
    cpu: &Cpu,
    x: &Act,
    head: &Head<'_, Cpu>,
    planes: &Planes,
    k: usize,
) -> Vec<Vec<Candidate>> {
    let search = Search { cpu, codes: cpu.codes(x), w: head.weight, softcap: head.softcap };
    let groups = head.weight.groups();
    let mut bounds = search.bounds(planes);
    let mut found = vec![Vec::new(); x.rows()];

    let mut first = Vec::new();
    for (bounds, row) in bounds.chunks_exact_mut(groups).zip(0_u32..) {
        for group in largest(bounds, k.max(FIRST)) {
            bounds[group.token.index()] = READ;
            first.push((group.token.0, row));
        }
    }
    search.read(first, &mut found);

    let mut rest = Vec::new();
    for (row, bounds) in bounds.chunks_exact(groups).enumerate() {
        found[row] = best(std::mem::take(&mut found[row]), k);
        let bar = found[row].get(k - 1).map_or(f32::MIN, |last| search.raw(last.logit));
        let possible = (0_u32..).zip(bounds).filter(|(_, bound)| **bound >= bar);
        rest.extend(possible.map(|(group, _)| (group, row as u32)));
    }
    search.read(rest, &mut found);
    found.into_iter().map(|found| best(found, k)).collect()
}

struct Search<'a> {
    cpu: &'a Cpu,
    codes: &'a Codes,
    w: &'a Weight,
    softcap: Option<f32>,
}

impl Search<'_> {
    /// For each row, what no logit of each group exceeds, before the softcap. Never NaN.
    fn bounds(&self, planes: &Planes) -> Vec<f32> {
        let (groups, w) = (self.w.groups(), self.w);
        let lengths: Vec<_> = self.lengths().collect();
        let mut bounds = vec![f32::INFINITY; lengths.len() * groups];
        let rounded: Vec<_> = lengths.iter().map(|length| *length as f32).collect();
        let step = groups_per_piece(w, groups, self.cpu.pool.threads());
        let out = Disjoint::new(&mut bounds);
        self.cpu.pool.run(groups.div_ceil(step), &|piece| {
            for g in piece * step..((piece + 1) * step).min(groups) {
                let job = BoundJob {
                    group: w.group(0, g),
                    slack: &planes.slack[g * LANES..(g + 1) * LANES],
                    x: self.codes,
                    lengths: &rounded,
                    // SAFETY: every row has a bound for each group.
                    out: unsafe { out.start().add(g) },
                    stride: groups,
                };
                // SAFETY: `kernels` are those of a detected `Isa`; planes have the layout and the
                // width of the weight; each group is bounded by one call.
                unsafe { (self.cpu.kernels.bound)(&job) }
            }
        });
        for (length, bounds) in lengths.iter().zip(bounds.chunks_exact_mut(groups)) {
            let bounded = *length < HUGE && length * planes.longest < HUGE;
            if !bounded {
                bounds.fill(f32::INFINITY);
            }
        }
        bounds
    }

    /// The length of each rounded activation, rounded up, and a little more against underflow.
    fn lengths(&self) -> impl Iterator<Item = f64> {
        let blocks = self.codes.blocks;
        let rows = self
            .codes
            .scales
            .chunks_exact(blocks)
            .zip(self.codes.bytes.chunks_exact(blocks * BLOCK));
        rows.map(|(scales, codes)| {
            let block = |(scale, codes): (&f32, &[i8])| {
                let square: i32 = codes.iter().map(|&a| i32::from(a) * i32::from(a)).sum();
                f64::from(*scale) * f64::from(*scale) * f64::from(square)
            };
            let square: f64 = scales.iter().zip(codes.chunks_exact(BLOCK)).map(block).sum();
            square.sqrt() * (1.0 + 1.0 / f64::from(1 << 20)) + 2.0_f64.powi(-90)
        })
    }

    /// Adds every candidate of the groups, `(group, row)`, to those that were found in the row.
    fn read(&self, mut pairs: Vec<(u32, u32)>, found: &mut [Vec<Candidate>]) {
        pairs.sort_unstable();
        let mut logits = vec![0.0; pairs.len() * LANES];
        let out = Disjoint::new(&mut logits);
        self.cpu.pool.run(pairs.len().div_ceil(PIECE), &|piece| {
            let mut place = piece * PIECE;
            let pairs = &pairs[place..(place + PIECE).min(pairs.len())];
            for group in pairs.chunk_by(|a, b| a.0 == b.0) {
                let g = group[0].0 as usize;
                let rows: Vec<_> =
                    (place as u32..).zip(group).map(|(to, &(_, row))| (row, to)).collect();
                place += rows.len();
                let job = Job {
                    kind: self.w.kind,
                    group: self.w.group(0, g),
                    apart: self.w.apart(0, g),
                    inputs: Inputs::Codes(self.codes),
                    rows: &rows,
                    out: out.start(),
                    stride: LANES,
                    first: 0,
                    lanes: LANES,
                };
                // SAFETY: each pair has its own sixteen places; `kernels` are those of a detected
                // `Isa`.
                unsafe { (self.cpu.kernels.matmul)(&job) }
            }
        });
        if let Some(cap) = self.softcap {
            // SAFETY: `kernels` are those of a detected `Isa`.
            unsafe { (self.cpu.kernels.softcap)(&mut logits, cap) }
        }
        for (&(group, row), logits) in pairs.iter().zip(logits.chunks_exact(LANES)) {
            let first = group as usize * LANES;
            let lanes = (self.w.rows - first).min(LANES);
            let own = candidates(&logits[..lanes]).into_iter();
            let place = |c: Candidate| Candidate { token: TokenId(c.token.0 + first as u32), ..c };
            found[row as usize].extend(own.map(place));
        }
    }

    /// A number such that no smaller one has a logit of `bar` or more after the softcap.
    ///
    /// The true softcap rises; ours is within `2⁻²¹` caps of it (`tanh` within 2⁻²³, and three
    /// roundings). So where ours is `2⁻²⁰` caps below the bar, it is below the bar everywhere
    /// further down.
    fn raw(&self, bar: f32) -> f32 {
        let Some(cap) = self.softcap else { return bar };
        let capped = |x: f32| f64::from(cap * math::tanh(x * (1.0 / cap)));
        let (cap, bar) = (f64::from(cap), f64::from(bar));
        let start = cap * (bar / cap).atanh();
        let steps = (0..24).map(|step| (start - cap * 2.0_f64.powi(step - 20)) as f32);
        let mut below = steps.filter(|x| capped(*x) + cap * 2.0_f64.powi(-20) < bar);
        below.next().unwrap_or(f32::MIN)
    }
}

#[cfg(test)]
mod tests;
