//! attend: softmax(q · kᵀ) · v for the query heads that share a key-value head, over a fixed
//! stretch of positions.
//!
//! Head width a multiple of sixteen. Keys are taken in blocks of 64 aligned to absolute positions
//! and in stretches of 512; within a block, scores are exponentiated together and values added in
//! ascending order; blocks, then stretches, are merged in ascending order. What a row sees alone
//! decides the order, so its bits do not depend on chunking, slot or company.
//! Bound: stored bytes. Twin: `reference::kv`.

use lapidary_core::levels;

use crate::lanes::{LANES, Lanes};
use crate::math;
use crate::rotated::{SCALE_BYTES, block_bytes};

/// Positions whose scores are exponentiated together.
pub(crate) const KEYS: usize = 64;
/// Positions of one partial result.
pub(crate) const STRETCH: usize = 512;

/// How a store keeps its numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Element {
    F32,
    F16,
    /// Packed blocks of `block` codes each: see `rotated`.
    Rotated {
        bits: u8,
        block: usize,
    },
}

impl Element {
    /// Bytes of a head's `width` values.
    pub(crate) fn bytes(self, width: usize) -> usize {
        match self {
            Self::F32 => 4 * width,
            Self::F16 => 2 * width,
            Self::Rotated { bits, block } => width / block * block_bytes(bits, block),
        }
    }
}

/// One side of the cells of one head, for one slot.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) element: Element,
    /// Cell after cell.
    pub(crate) bytes: &'a [u8],
}

/// What is to be attended: `(position, cell)` of everything visible in the stretch, ascending.
pub(crate) struct Stretch<'a> {
    pub(crate) keys: Side<'a>,
    pub(crate) values: Side<'a>,
    pub(crate) visible: &'a [(u32, u32)],
    /// Head after head, rotated if the keys are.
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

/// The partial results of the stretch, one per query head; rotated if the values are.
///
/// # Safety
/// The instructions of `L` are enabled in the caller; every cell lies inside both sides; `width`
/// is a multiple of sixteen, and of 32 for rotated codes.
#[inline(always)]
pub(crate) unsafe fn attend<L: Lanes>(stretch: &Stretch<'_>) -> Vec<Partial> {
    let width = stretch.width;
    let heads = stretch.q.len() / width;
    let mut partials = vec![Partial::empty(width); heads];
    let mut scores = vec![[f32::NEG_INFINITY; KEYS]; heads];
    let mut vector = vec![0.0; width];
    let block = |&(pos, _): &(u32, u32)| pos as usize / KEYS;
    for visible in stretch.visible.chunk_by(|a, b| block(a) == block(b)) {
        scores.iter_mut().for_each(|scores| scores.fill(f32::NEG_INFINITY));
        // SAFETY: passed on.
        unsafe {
            if width.is_multiple_of(QUAD) {
                score_in_registers::<L>(stretch, visible, &mut scores);
            } else {
                score::<L>(stretch, visible, &mut vector, &mut scores);
            }
            for (scores, partial) in scores.iter_mut().zip(&mut partials) {
                weigh::<L>(scores, partial);
            }
            if width.is_multiple_of(QUAD) {
                add_values_in_registers::<L>(stretch, visible, &scores, &mut partials);
            } else {
                add_values::<L>(stretch, visible, &mut vector, &scores, &mut partials);
            }
        }
    }
    partials
}

/// Values that are held in four registers.
const QUAD: usize = 4 * LANES;
/// Heads whose sums are kept in registers together.
const HEADS: usize = 4;

/// Reads 64 numbers of a cell from a side of one kind of element.
trait Reader {
    /// Numbers `at..at + 64` of a cell; `at` is a multiple of 64.
    unsafe fn quad<L: Lanes>(side: Side<'_>, cell: usize, at: usize, width: usize) -> [L::F; 4];
}

struct F32Reader;
struct F16Reader;
/// Codes of `BITS` bits.
struct CodeReader<const BITS: u8>;

impl Reader for F32Reader {
    #[inline(always)]
    unsafe fn quad<L: Lanes>(side: Side<'_>, cell: usize, at: usize, width: usize) -> [L::F; 4] {
        // SAFETY: by contract.
        unsafe {
            let p = side.bytes.as_ptr().cast::<f32>().add(cell * width + at);
            let (a, b) = (L::load(p), L::load(p.add(LANES)));
            [a, b, L::load(p.add(2 * LANES)), L::load(p.add(3 * LANES))]
        }
    }
}

impl Reader for F16Reader {
    #[inline(always)]
    unsafe fn quad<L: Lanes>(side: Side<'_>, cell: usize, at: usize, width: usize) -> [L::F; 4] {
        // SAFETY: by contract.
        unsafe {
            let p = side.bytes.as_ptr().cast::<u16>().add(cell * width + at);
            let (a, b) = (L::load_f16(p), L::load_f16(p.add(LANES)));
            [a, b, L::load_f16(p.add(2 * LANES)), L::load_f16(p.add(3 * LANES))]
        }
    }
}

impl<const BITS: u8> Reader for CodeReader<BITS> {
    #[inline(always)]
    unsafe fn quad<L: Lanes>(side: Side<'_>, cell: usize, at: usize, width: usize) -> [L::F; 4] {
        // SAFETY: by contract; a packed block holds a multiple of 64 codes here.
        unsafe {
            let Element::Rotated { block, .. } = side.element else {
                unreachable!("codes are read from rotated sides")
            };
            let bytes = const { BITS as usize };
            let size = SCALE_BYTES + block * bytes / 8;
            let first = cell * (width / block) * size + at / block * size;
            code_quad::<L, BITS>(side.bytes.as_ptr().add(first), at % block, block)
        }
    }
}

/// Numbers `at..at + 64` of a packed block of `block` codes.
#[inline(always)]
unsafe fn code_quad<L: Lanes, const BITS: u8>(
    from: *const u8,
    at: usize,
    block: usize,
) -> [L::F; 4] {
    // SAFETY: by contract.
    unsafe {
        let scale = L::splat(from.cast::<f32>().read_unaligned());
        let codes = from.add(SCALE_BYTES);
        let mut quad = [scale; 4];
        for (i, x) in quad.iter_mut().enumerate() {
            let index = at + i * LANES;
            let code = if const { BITS == 8 } {
                L::load_u8(codes.add(index))
            } else {
                nibble_code::<L, BITS>(codes, index, block)
            };
            *x = L::mul(L::pick(const { levels(BITS) }, code), scale);
        }
        quad
    }
}

/// Sixteen codes from `index` on, from a nibble plane and planes of single bits.
#[inline(always)]
unsafe fn nibble_code<L: Lanes, const BITS: u8>(
    codes: *const u8,
    index: usize,
    block: usize,
) -> L::I {
    // SAFETY: by contract.
    unsafe {
        let bytes = L::load_u8(codes.add(index / (2 * LANES) * LANES));
        let low = (index / LANES).is_multiple_of(2);
        let mut code = if low { L::field_i::<0>(bytes, 15) } else { L::field_i::<4>(bytes, 15) };
        for plane in 0..const { BITS.saturating_sub(4) as usize } {
            let bits = codes.add(block / 2 + plane * block / 8 + index / 8);
            code = L::set_bit(code, bits.cast::<u16>().read_unaligned(), 16 << plane);
        }
        code
    }
}

/// Makes the kind of element of a side a constant.
macro_rules! with_reader {
    ($side:expr, $function:ident::<$lanes:ty>($($argument:expr),*)) => {
        match $side.element {
            Element::F32 => $function::<$lanes, F32Reader>($($argument),*),
            Element::F16 => $function::<$lanes, F16Reader>($($argument),*),
            Element::Rotated { bits: 4, .. } => $function::<$lanes, CodeReader<4>>($($argument),*),
            Element::Rotated { bits: 5, .. } => $function::<$lanes, CodeReader<5>>($($argument),*),
            Element::Rotated { bits: 6, .. } => $function::<$lanes, CodeReader<6>>($($argument),*),
            Element::Rotated { .. } => $function::<$lanes, CodeReader<8>>($($argument),*),
        }
    };
}

#[inline(always)]
unsafe fn score_in_registers<L: Lanes>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    scores: &mut [[f32; KEYS]],
) {
    // SAFETY: passed on.
    unsafe { with_reader!(stretch.keys, score_heads::<L>(stretch, visible, scores)) }
}

#[inline(always)]
unsafe fn score_heads<L: Lanes, R: Reader>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    scores: &mut [[f32; KEYS]],
) {
    for (part, scores) in scores.chunks_mut(HEADS).enumerate() {
        let q = &stretch.q[part * HEADS * stretch.width..];
        // SAFETY: passed on; `q` has as many heads as there are scores.
        unsafe {
            match scores.len() {
                4 => score_tile::<L, R, 4>(stretch, q, visible, scores),
                3 => score_tile::<L, R, 3>(stretch, q, visible, scores),
                2 => score_tile::<L, R, 2>(stretch, q, visible, scores),
                _ => score_tile::<L, R, 1>(stretch, q, visible, scores),
            }
        }
    }
}

/// Scores of `H` heads, each key read once: four chains per head, as in `dot`.
#[inline(always)]
unsafe fn score_tile<L: Lanes, R: Reader, const H: usize>(
    stretch: &Stretch<'_>,
    q: &[f32],
    visible: &[(u32, u32)],
    scores: &mut [[f32; KEYS]],
) {
    let width = stretch.width;
    for &(pos, cell) in visible {
        // SAFETY: passed on; `q` holds `H` heads.
        unsafe {
            let mut sums = [[L::splat(0.0); 4]; H];
            for at in (0..width).step_by(QUAD) {
                let key = R::quad::<L>(stretch.keys, cell as usize, at, width);
                for (head, sums) in sums.iter_mut().enumerate() {
                    let q = q.as_ptr().add(head * width + at);
                    for (i, (sum, key)) in sums.iter_mut().zip(key).enumerate() {
                        *sum = L::fma(L::load(q.add(i * LANES)), key, *sum);
                    }
                }
            }
            for (sums, scores) in sums.into_iter().zip(scores.iter_mut()) {
                let all = L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3]));
                scores[pos as usize % KEYS] = L::sum(all);
            }
        }
    }
}

#[inline(always)]
unsafe fn add_values_in_registers<L: Lanes>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    weights: &[[f32; KEYS]],
    partials: &mut [Partial],
) {
    // SAFETY: passed on.
    unsafe { with_reader!(stretch.values, value_heads::<L>(stretch, visible, weights, partials)) }
}

#[inline(always)]
unsafe fn value_heads<L: Lanes, R: Reader>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    weights: &[[f32; KEYS]],
    partials: &mut [Partial],
) {
    for (weights, partials) in weights.chunks(HEADS).zip(partials.chunks_mut(HEADS)) {
        for at in (0..stretch.width).step_by(QUAD) {
            // SAFETY: passed on; as many weights as partial results.
            unsafe {
                match partials.len() {
                    4 => value_tile::<L, R, 4>(stretch, at, visible, weights, partials),
                    3 => value_tile::<L, R, 3>(stretch, at, visible, weights, partials),
                    2 => value_tile::<L, R, 2>(stretch, at, visible, weights, partials),
                    _ => value_tile::<L, R, 1>(stretch, at, visible, weights, partials),
                }
            }
        }
    }
}

/// 64 columns of `H` heads' sums over a block's values, oldest first.
#[inline(always)]
unsafe fn value_tile<L: Lanes, R: Reader, const H: usize>(
    stretch: &Stretch<'_>,
    at: usize,
    visible: &[(u32, u32)],
    weights: &[[f32; KEYS]],
    partials: &mut [Partial],
) {
    // SAFETY: passed on; every head has `width` sums, and 64 of them from `at` on.
    unsafe {
        let mut acc = [[L::splat(0.0); 4]; H];
        for (acc, partial) in acc.iter_mut().zip(partials.iter()) {
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = L::load(partial.acc.as_ptr().add(at + i * LANES));
            }
        }
        for &(pos, cell) in visible {
            let value = R::quad::<L>(stretch.values, cell as usize, at, stretch.width);
            for (acc, weights) in acc.iter_mut().zip(weights) {
                let weight = L::splat(weights[pos as usize % KEYS]);
                for (acc, value) in acc.iter_mut().zip(value) {
                    *acc = L::fma(weight, value, *acc);
                }
            }
        }
        for (acc, partial) in acc.into_iter().zip(partials) {
            for (i, acc) in acc.into_iter().enumerate() {
                L::store(partial.acc.as_mut_ptr().add(at + i * LANES), acc);
            }
        }
    }
}

/// Scores of a block's positions, for widths that are no multiple of 64.
#[inline(always)]
unsafe fn score<L: Lanes>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    key: &mut [f32],
    scores: &mut [[f32; KEYS]],
) {
    for &(pos, cell) in visible {
        // SAFETY: passed on.
        unsafe {
            fetch::<L>(stretch.keys, cell as usize, key);
            for (q, scores) in stretch.q.chunks_exact(stretch.width).zip(scores.iter_mut()) {
                scores[pos as usize % KEYS] = dot::<L>(q, key);
            }
        }
    }
}

/// Turns scores into weights, and shrinks what was added up under an earlier maximum.
#[inline(always)]
unsafe fn weigh<L: Lanes>(scores: &mut [f32; KEYS], partial: &mut Partial) {
    let block_most = scores.iter().fold(f32::NEG_INFINITY, |most, s| most.max(*s));
    let most = partial.most.max(block_most);
    let shrink = math::exp(partial.most - most);
    for s in scores.iter_mut() {
        *s = math::exp(*s - most);
    }
    // SAFETY: 64 scores are four times sixteen; instructions by contract.
    unsafe {
        let p = scores.as_ptr();
        let first = L::add(L::load(p), L::load(p.add(LANES)));
        let second = L::add(L::load(p.add(2 * LANES)), L::load(p.add(3 * LANES)));
        let sum = L::sum(L::add(first, second));
        partial.sum = partial.sum * shrink + sum;
        partial.most = most;
        for acc in partial.acc.chunks_exact_mut(LANES) {
            let p = acc.as_mut_ptr();
            L::store(p, L::mul(L::load(p), L::splat(shrink)));
        }
    }
}

/// Adds a block's weighted values, oldest first, for widths that are no multiple of 64.
#[inline(always)]
unsafe fn add_values<L: Lanes>(
    stretch: &Stretch<'_>,
    visible: &[(u32, u32)],
    value: &mut [f32],
    weights: &[[f32; KEYS]],
    partials: &mut [Partial],
) {
    for &(pos, cell) in visible {
        // SAFETY: passed on.
        unsafe {
            fetch::<L>(stretch.values, cell as usize, value);
            for (weights, partial) in weights.iter().zip(partials.iter_mut()) {
                add_value::<L>(&mut partial.acc, weights[pos as usize % KEYS], value);
            }
        }
    }
}

/// The numbers of a cell.
#[inline(always)]
unsafe fn fetch<L: Lanes>(side: Side<'_>, cell: usize, out: &mut [f32]) {
    let bytes = side.element.bytes(out.len());
    // SAFETY: the cell lies inside the side, and holds `out.len()` elements.
    unsafe {
        let from = side.bytes.as_ptr().add(cell * bytes);
        match side.element {
            Element::F32 => {
                std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().cast(), bytes);
            }
            Element::F16 => {
                for (i, out) in out.chunks_exact_mut(LANES).enumerate() {
                    L::store(out.as_mut_ptr(), L::load_f16(from.cast::<u16>().add(i * LANES)));
                }
            }
            Element::Rotated { bits, block } => {
                for (i, out) in out.chunks_exact_mut(block).enumerate() {
                    decode::<L>(bits, from.add(i * block_bytes(bits, block)), out);
                }
            }
        }
    }
}

/// A packed block's numbers, still rotated.
#[inline(always)]
unsafe fn decode<L: Lanes>(bits: u8, from: *const u8, out: &mut [f32]) {
    // SAFETY: a packed block of `out.len()` codes lies at `from`.
    unsafe {
        match bits {
            4 => decode_nibbles::<L, 0>(levels(4), from, out),
            5 => decode_nibbles::<L, 1>(levels(5), from, out),
            6 => decode_nibbles::<L, 2>(levels(6), from, out),
            _ => {
                let scale = L::splat(from.cast::<f32>().read_unaligned());
                for (i, out) in out.chunks_exact_mut(LANES).enumerate() {
                    let codes = L::load_u8(from.add(SCALE_BYTES + i * LANES));
                    L::store(out.as_mut_ptr(), L::mul(L::pick(levels(8), codes), scale));
                }
            }
        }
    }
}

/// Codes of a nibble plane and `PLANES` planes of single bits.
#[inline(always)]
unsafe fn decode_nibbles<L: Lanes, const PLANES: usize>(
    levels: &'static [f32],
    from: *const u8,
    out: &mut [f32],
) {
    let len = out.len();
    // SAFETY: as in `decode`.
    unsafe {
        let scale = L::splat(from.cast::<f32>().read_unaligned());
        let planes = from.add(SCALE_BYTES + len / 2);
        for (i, out) in out.chunks_exact_mut(2 * LANES).enumerate() {
            let bytes = L::load_u8(from.add(SCALE_BYTES + i * LANES));
            let halves = [L::field_i::<0>(bytes, 15), L::field_i::<4>(bytes, 15)];
            for (half, mut codes) in halves.into_iter().enumerate() {
                for plane in 0..PLANES {
                    let at = planes.add(plane * len / 8 + 2 * (2 * i + half));
                    codes = L::set_bit(codes, at.cast::<u16>().read_unaligned(), 16 << plane);
                }
                let out = out.as_mut_ptr().add(half * LANES);
                L::store(out, L::mul(L::pick(levels, codes), scale));
            }
        }
    }
}

/// Four chains of sixteen lanes, taking turns, added pairwise.
#[inline(always)]
unsafe fn dot<L: Lanes>(q: &[f32], key: &[f32]) -> f32 {
    const STRIDE: usize = 4 * LANES;
    let (q_whole, k_whole) = (q.chunks_exact(STRIDE), key.chunks_exact(STRIDE));
    let rest = q_whole.remainder().chunks_exact(LANES).zip(k_whole.remainder().chunks_exact(LANES));
    // SAFETY: both have the same multiple of sixteen elements.
    unsafe {
        let mut sums = [L::splat(0.0); 4];
        for (q, k) in q_whole.zip(k_whole) {
            let (q, k) = (q.as_ptr(), k.as_ptr());
            sums[0] = term::<L>(q, k, sums[0]);
            sums[1] = term::<L>(q.add(LANES), k.add(LANES), sums[1]);
            sums[2] = term::<L>(q.add(2 * LANES), k.add(2 * LANES), sums[2]);
            sums[3] = term::<L>(q.add(3 * LANES), k.add(3 * LANES), sums[3]);
        }
        for ((q, k), sum) in rest.zip(&mut sums) {
            *sum = term::<L>(q.as_ptr(), k.as_ptr(), *sum);
        }
        L::sum(L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3])))
    }
}

#[inline(always)]
unsafe fn term<L: Lanes>(q: *const f32, k: *const f32, sum: L::F) -> L::F {
    // SAFETY: sixteen elements lie at both.
    unsafe { L::fma(L::load(q), L::load(k), sum) }
}

#[inline(always)]
unsafe fn add_value<L: Lanes>(acc: &mut [f32], weight: f32, value: &[f32]) {
    // SAFETY: both have the same multiple of sixteen elements.
    unsafe {
        let weight = L::splat(weight);
        for (acc, v) in acc.chunks_exact_mut(LANES).zip(value.chunks_exact(LANES)) {
            let p = acc.as_mut_ptr();
            L::store(p, L::fma(weight, L::load(v.as_ptr()), L::load(p)));
        }
    }
}
