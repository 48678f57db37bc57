//! Q8_0 in two planes: a bound on a product from 22 of its 34 bytes.
//!
//! A code is 128 less than a byte; the byte's five high bits lie in the records of a group, its three
//! low bits apart. What the low bits can add to a product is at most the length of the row that
//! they make times the length of the activation: [`Planes::slack`] holds the former, with all that
//! rounding can do.
//!
//! Of the 262,144 logits of Gemma 3 270M, the bound leaves one group of sixteen in three hundred to
//! be read. With four high bits it leaves two in three, with six one in a thousand.

use lapidary_core::{BlockType, Matrix};

use super::{CodeBits, Kind, Layout, Weight, put_code, take_code};
use crate::blocks::{BLOCK, Block32, block32};
use crate::disjoint::Disjoint;
use crate::lanes::LANES;
use crate::pool::Pool;
use crate::reference::law::SEGMENT_BLOCKS;

/// Smaller matrices stay in the processor's caches, where a second pass costs more than it saves.
const WORTH_SPLITTING: usize = 16 << 20;

/// Relative error of one rounding.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

/// What belongs to the records of high bits.
#[derive(Debug)]
pub(crate) struct Planes {
    /// Group after group, block after block, as [`CodeBits::Three`] lays out bits.
    low: Vec<u8>,
    /// Bytes of a group in `low`.
    group_bytes: usize,
    /// For each row, padding included: a product lies within this times the activation's length of
    /// what the high bits alone give.
    pub(crate) slack: Vec<f32>,
    /// The largest length of a row, slack included; no partial sum is larger than this times the
    /// activation's length. Not finite if a factor is not.
    pub(crate) longest: f64,
}

impl Planes {
    /// Low bits of a group.
    pub(super) fn low_bits(&self, group: usize) -> &[u8] {
        &self.low[group * self.group_bytes..(group + 1) * self.group_bytes]
    }
}

impl Weight {
    /// Whether a matrix has the type and the size that make two planes worth having.
    pub(crate) fn splits(stored: &Matrix<'_>) -> bool {
        stored.block == BlockType::Q8_0
            && stored.stack == 1
            && stored.bytes.len() >= WORTH_SPLITTING
    }

    /// Packs a matrix of Q8_0 in two planes.
    pub(crate) fn pack_planes(stored: &Matrix<'_>, pool: &Pool) -> Self {
        let &Matrix { block, stack, rows, cols, .. } = stored;
        assert!(block == BlockType::Q8_0 && stack == 1, "planes are made of one matrix of Q8_0");
        let blocks = cols / BLOCK;
        let row_bytes = blocks * block.block_bytes();
        let (layout, groups) = (Layout::PLANES, rows.div_ceil(LANES));
        let (group_bytes, low_bytes) =
            (layout.group_bytes(blocks), blocks * layout.bits.apart_bytes());
        let mut bytes = vec![0; groups * group_bytes];
        let mut low = vec![0; groups * low_bytes];
        let mut slack = vec![0.0; groups * LANES];
        let mut longest = vec![0.0_f64; groups];
        let (high_parts, low_parts) = (Disjoint::new(&mut bytes), Disjoint::new(&mut low));
        let (slacks, lengths) = (Disjoint::new(&mut slack), Disjoint::new(&mut longest));
        pool.run(groups, &|g| {
            let lanes = (rows - g * LANES).min(LANES);
            let stored = &stored.bytes[g * LANES * row_bytes..][..lanes * row_bytes];
            // SAFETY: each group is written by one call.
            let (high, low, slack, longest) = unsafe {
                (
                    high_parts.part(g * group_bytes..(g + 1) * group_bytes),
                    low_parts.part(g * low_bytes..(g + 1) * low_bytes),
                    slacks.part(g * LANES..(g + 1) * LANES),
                    lengths.part(g..g + 1),
                )
            };
            for (lane, row) in stored.chunks_exact(row_bytes).enumerate() {
                let lengths = split_row(row, lane, high, low);
                slack[lane] = lengths.slack(blocks);
                longest[0] = wider(longest[0], lengths.all());
            }
        });
        let longest = longest.into_iter().fold(0.0, wider);
        let planes = Planes { low, group_bytes: low_bytes, slack, longest };
        Self { kind: Kind::Blocks(layout), stack, rows, cols, bytes, planes: Some(planes) }
    }
}

/// The larger of two lengths, or what is not a number.
fn wider(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Squares of the lengths of a row and of what its low bits make.
#[derive(Default)]
struct Lengths {
    whole: f64,
    low: f64,
}

impl Lengths {
    /// With `n` the length of the row, `r` that of its low bits and `a` the activation's, both
    /// the product and the bound are sums whose terms add up to at most `a · (n + r)` in magnitude
    /// (Cauchy and Schwarz), each rounded once for its own, once per block or segment that it is
    /// added to, and a few times at the end. The last summand stands for what underflow can do: an
    /// activation's length carries its like, and their product is far above `blocks · 2⁻¹⁵⁰`.
    fn slack(&self, blocks: usize) -> f32 {
        let (n, r) = (self.whole.sqrt(), self.low.sqrt());
        let roundings = (2 * (blocks + SEGMENT_BLOCKS + 8)) as f64 * ROUNDING;
        let slack = (r + roundings * (n + r)) * (1.0 + 1.0 / f64::from(1 << 20));
        slack as f32 + 2.0_f32.powi(-30)
    }

    fn all(&self) -> f64 {
        self.whole.sqrt() + 2.0 * self.low.sqrt()
    }
}

fn split_row(row: &[u8], lane: usize, high: &mut [u8], low: &mut [u8]) -> Lengths {
    let (layout, mut lengths) = (Layout::PLANES, Lengths::default());
    let size = layout.bits.apart_bytes();
    for b in 0..row.len() / BlockType::Q8_0.block_bytes() {
        let source = block32(BlockType::Q8_0, row, b).expect("Q8_0 is made of blocks");
        let record = layout.record_at(b);
        split_codes(&source, lane, &mut high[record..], &mut low[b * size..]);
        super::pack_factors(layout, &source, lane, b, high);
        let square = |x: i32| x * x;
        let whole: i32 = source.q.iter().map(|&q| square(i32::from(q))).sum();
        // In halves, for the middle of 0 … 7 is 3.5.
        let halves: i32 = source.q.iter().map(|&q| square(2 * i32::from(byte(q) & 7) - 7)).sum();
        let factor = f64::from(source.d) * f64::from(source.d);
        lengths.whole += factor * f64::from(whole);
        lengths.low += factor * f64::from(halves) / 4.0;
    }
    lengths
}

/// The unsigned byte of a code.
fn byte(q: i8) -> u8 {
    q as u8 ^ 128
}

fn split_codes(source: &Block32, lane: usize, high: &mut [u8], low: &mut [u8]) {
    for (k, &q) in source.q.iter().enumerate() {
        put_code(CodeBits::EightInPlanes, high, (lane, k), byte(q) >> 3);
        put_code(CodeBits::Three, low, (lane, k), byte(q) & 7);
    }
}

/// Code `k` of block `b`, whose high bits are `high`.
pub(super) fn whole(high: u8, low: &[u8], b: usize, place: (usize, usize)) -> i8 {
    let low = take_code(CodeBits::Three, &low[b * CodeBits::Three.bytes()..], place);
    ((high << 3 | low) ^ 128) as i8
}
