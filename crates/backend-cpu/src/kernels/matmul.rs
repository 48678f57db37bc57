//! matmul: `y[r, n] = Σ_k x[r, k] · w[n, k]`, for the rows that a job lists.
//!
//! Weights are packed sixteen outputs wide (see `pack`), activations are codes of `quantise` for
//! quantised weights and plain floats otherwise.
//! Order: docs/numerics.md; a function of `k` and the format, never of the rows.
//! Bound: weight bytes for few rows, dot products for many.
//! Twin: `reference::law::dot` and `dot_floats`.

use lapidary_core::BlockType;

use crate::act::Codes;
use crate::blocks::{BLOCK, MX_TABLE, NL_TABLE};
use crate::lanes::{LANES, Lanes};
use crate::pack::{CodeBits, FloatType, Kind, Layout};
use crate::reference::law::{SEGMENT, SEGMENT_BLOCKS};

/// The inputs of a job.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    Codes(&'a Codes),
    Floats { data: &'a [f32], cols: usize },
}

/// One group of sixteen outputs for some rows.
pub(crate) struct Job<'a> {
    pub(crate) kind: Kind,
    /// The group's weights.
    pub(crate) group: &'a [u8],
    /// The codes that lie apart, where the layout has such.
    pub(crate) apart: &'a [u8],
    pub(crate) inputs: Inputs<'a>,
    /// `(row of the inputs, row of the output)`.
    pub(crate) rows: &'a [(u32, u32)],
    /// Start of the output: rows of `stride` values.
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
    /// First column to write, and how many of the sixteen there are.
    pub(crate) first: usize,
    pub(crate) lanes: usize,
}

/// Runs a job.
///
/// # Safety
/// The instructions of `L` exist and are enabled in the caller. The group holds what `kind` says
/// for the inputs' width, rows lie inside inputs and output, and nobody else writes these columns.
#[inline(always)]
pub(crate) unsafe fn matmul<L: Lanes>(job: &Job<'_>) {
    // SAFETY: passed on.
    unsafe {
        match (job.kind, job.inputs) {
            (Kind::Blocks(layout), Inputs::Codes(x)) => blocks::<L>(layout, x, job),
            (Kind::Floats(float), Inputs::Floats { data, cols }) => {
                floats::<L>(float, data, cols, job);
            }
            _ => unreachable!("codes go with blocks and floats with floats"),
        }
    }
}

/// Makes the layout a constant of the kernel.
#[inline(always)]
unsafe fn blocks<L: Lanes>(layout: Layout, x: &Codes, job: &Job<'_>) {
    use CodeBits::{Eight, EightInPlanes, Five, Four, FourFloat, FourNonlinear, Six, Three, Two};
    // SAFETY: passed on.
    unsafe {
        match (layout.bits, layout.mins, layout.parts) {
            (Two, true, 2) => tiles::<L, Q2K>(x, job),
            (Three, false, 2) => tiles::<L, Q3K>(x, job),
            (Four, false, 0) => tiles::<L, Q4Offset>(x, job),
            (Four, true, 0) => tiles::<L, Q4Min>(x, job),
            (Four, true, 1) => tiles::<L, Q4K>(x, job),
            (FourNonlinear, false, 0) => tiles::<L, Iq4Nl>(x, job),
            (FourNonlinear, false, 1) => tiles::<L, Iq4Xs>(x, job),
            (FourFloat, false, 0) => tiles::<L, Mxfp4>(x, job),
            (Five, false, 0) => tiles::<L, Q5Offset>(x, job),
            (Five, true, 0) => tiles::<L, Q5Min>(x, job),
            (Five, true, 1) => tiles::<L, Q5K>(x, job),
            (Six, false, 2) => tiles::<L, Q6K>(x, job),
            (Eight, false, 0) => tiles::<L, Q8>(x, job),
            (EightInPlanes, false, 0) => tiles::<L, Q8Planes>(x, job),
            _ => unreachable!("`Layout::of` makes no other layout"),
        }
    }
}

/// A layout known at compile time.
trait Format {
    const LAYOUT: Layout;
}

macro_rules! formats {
    ($($name:ident = $block:ident;)*) => {$(
        struct $name;
        impl Format for $name {
            const LAYOUT: Layout = match Layout::of(BlockType::$block) {
                Some(layout) => layout,
                None => panic!("a block type without a layout"),
            };
        }
    )*};
}

formats! {
    Iq4Nl = IQ4_NL;
    Iq4Xs = IQ4_XS;
    Mxfp4 = MXFP4;
    Q2K = Q2_K;
    Q3K = Q3_K;
    Q4K = Q4_K;
    Q4Min = Q4_1;
    Q4Offset = Q4_0;
    Q5K = Q5_K;
    Q5Min = Q5_1;
    Q5Offset = Q5_0;
    Q6K = Q6_K;
    Q8 = Q8_0;
}

struct Q8Planes;
impl Format for Q8Planes {
    const LAYOUT: Layout = Layout::PLANES;
}

#[inline(always)]
unsafe fn tiles<L: Lanes, T: Format>(x: &Codes, job: &Job<'_>) {
    let mut rows = job.rows;
    // SAFETY: passed on; each tile takes rows that are there.
    unsafe {
        while L::TILE >= 8 && rows.len() >= 8 {
            tile::<L, T, 8>(x, job, &rows[..8]);
            rows = &rows[8..];
        }
        while rows.len() >= 4 {
            tile::<L, T, 4>(x, job, &rows[..4]);
            rows = &rows[4..];
        }
        while rows.len() >= 2 {
            tile::<L, T, 2>(x, job, &rows[..2]);
            rows = &rows[2..];
        }
        if let [row] = rows {
            tile::<L, T, 1>(x, job, &[*row]);
        }
    }
}

/// Sixteen outputs of `R` rows: weights are taken apart once for all of them.
#[inline(always)]
unsafe fn tile<L: Lanes, T: Format, const R: usize>(x: &Codes, job: &Job<'_>, rows: &[(u32, u32)]) {
    let layout = const { T::LAYOUT };
    // SAFETY: the group holds `x.blocks` records, a head before each eight if factors are shared;
    // `rows` has `R` rows of `x`, each with `x.blocks` places.
    unsafe {
        let from: [usize; R] = std::array::from_fn(|r| rows.get_unchecked(r).0 as usize * x.blocks);
        let mut y = [L::splat(0.0); R];
        let (mut at, mut apart) = (job.group.as_ptr(), job.apart.as_ptr());
        let mut factors = (L::splat(0.0), L::splat(0.0));
        let mut b = 0;
        while b < x.blocks {
            let end = (b + SEGMENT_BLOCKS).min(x.blocks);
            if layout.shared {
                factors = load_factors::<L, T>(at);
                at = at.add(layout.head_bytes());
            }
            let mut segment = [L::splat(0.0); R];
            while b < end {
                let record = Record::<L>::load::<T>(at, apart, factors);
                at = at.add(layout.record_bytes());
                apart = apart.add(layout.bits.apart_bytes());
                for r in 0..R {
                    segment[r] = record.term::<T>(x, from[r] + b, segment[r]);
                }
                b += 1;
            }
            for (y, segment) in y.iter_mut().zip(segment) {
                *y = L::add(*y, segment);
            }
        }
        for (row, y) in rows.iter().zip(y) {
            store::<L>(job, row.1 as usize, y);
        }
    }
}

/// Writes the columns that exist.
#[inline(always)]
unsafe fn store<L: Lanes>(job: &Job<'_>, row: usize, y: L::F) {
    // SAFETY: the row and `lanes` columns from `first` lie inside the output.
    unsafe {
        let out = job.out.add(row * job.stride + job.first);
        if job.lanes == LANES {
            L::store(out, y);
        } else {
            let mut all = [0.0; LANES];
            L::store(all.as_mut_ptr(), y);
            std::ptr::copy_nonoverlapping(all.as_ptr(), out, job.lanes);
        }
    }
}

#[inline(always)]
unsafe fn load_factors<L: Lanes, T: Format>(at: *const u8) -> (L::F, L::F) {
    // SAFETY: `d`, and with minimums `m`, are here.
    unsafe {
        let wide = const { T::LAYOUT }.wide;
        let d = if wide { L::load_bf16(at.cast()) } else { L::load_f16(at.cast()) };
        let m = if const { T::LAYOUT }.mins { L::load_f16(at.add(2 * LANES).cast()) } else { d };
        (d, m)
    }
}

/// The `i`-th sixteen integer factors.
#[inline(always)]
unsafe fn integers<L: Lanes>(at: *const u8, i: usize) -> L::I {
    // SAFETY: passed on.
    unsafe { L::load_i8(at.add(i * LANES).cast()) }
}

/// One record in registers.
struct Record<L: Lanes> {
    chunks: [L::B; 8],
    d: L::F,
    m: L::F,
    /// Integer factors of the halves, and their integer minimums.
    scale: [L::I; 2],
    min: [L::I; 2],
}

impl<L: Lanes> Record<L> {
    #[inline(always)]
    unsafe fn load<T: Format>(at: *const u8, apart: *const u8, shared: (L::F, L::F)) -> Self {
        let layout = const { T::LAYOUT };
        // SAFETY: a whole record lies at `at`, and its other codes at `apart` if it has such.
        unsafe {
            let chunks = load_chunks::<L, T>(at, apart);
            let mut rest = at.add(layout.bits.bytes());
            let (d, m) = if layout.shared { shared } else { load_factors::<L, T>(rest) };
            rest = rest.add(if layout.shared { 0 } else { layout.factor_bytes() });
            let none = L::splat_i(1);
            let scale = match layout.parts {
                0 => [none; 2],
                1 => [integers::<L>(rest, 0); 2],
                _ => [integers::<L>(rest, 0), integers::<L>(rest, 1)],
            };
            let min = match (layout.mins, layout.parts) {
                (false, _) | (true, 0) => [none; 2],
                (true, 1) => [integers::<L>(rest, 1); 2],
                _ => [integers::<L>(rest, 2), integers::<L>(rest, 3)],
            };
            Self { chunks, d, m, scale, min }
        }
    }

    /// `segment + scale · term` for the block at place `p` of the inputs.
    #[inline(always)]
    unsafe fn term<T: Format>(&self, x: &Codes, p: usize, segment: L::F) -> L::F {
        let layout = const { T::LAYOUT };
        // SAFETY: place `p` exists in all four arrays.
        unsafe {
            let a = x.bytes.as_ptr().add(p * BLOCK).cast::<i32>();
            let sum = *x.sums.get_unchecked(p);
            let first = *x.first_half.get_unchecked(p);
            let excess = if layout.bits.is_signed() { L::SIGNED_EXCESS } else { layout.offset };
            let (bias_low, bias_high) = match (excess, layout.parts) {
                (0, _) => (0, 0),
                (_, 2) => (-excess * first, -excess * (sum - first)),
                _ => (-excess * sum, 0),
            };
            let mut low = L::splat_i(bias_low);
            let mut high = L::splat_i(bias_high);
            for c in 0..4 {
                low = dot::<L, T>(low, self.chunks[c], a.add(c).read_unaligned());
                high = dot::<L, T>(high, self.chunks[c + 4], a.add(c + 4).read_unaligned());
            }
            let total = match layout.parts {
                0 => L::add_i(low, high),
                1 => L::mul_i(L::add_i(low, high), self.scale[0]),
                _ => L::add_i(L::mul_i(low, self.scale[0]), L::mul_i(high, self.scale[1])),
            };
            let mut term = L::mul(self.d, L::to_f(total));
            if layout.mins {
                let mins = match layout.parts {
                    0 => L::splat_i(sum),
                    1 => L::mul_i(self.min[0], L::splat_i(sum)),
                    _ => L::add_i(
                        L::mul_i(self.min[0], L::splat_i(first)),
                        L::mul_i(self.min[1], L::splat_i(sum - first)),
                    ),
                };
                term = L::fma(self.m, L::to_f(mins), term);
            }
            L::fma(L::splat(*x.scales.get_unchecked(p)), term, segment)
        }
    }
}

#[inline(always)]
unsafe fn dot<L: Lanes, T: Format>(acc: L::I, w: L::B, a: i32) -> L::I {
    // SAFETY: codes of unsigned layouts are at most 63.
    unsafe {
        if const { T::LAYOUT }.bits.is_signed() {
            L::dot_signed(acc, w, a)
        } else {
            L::dot(acc, w, a)
        }
    }
}

/// Takes the eight chunks of a block apart, as `CodeBits` describes them.
#[inline(always)]
unsafe fn load_chunks<L: Lanes, T: Format>(at: *const u8, apart: *const u8) -> [L::B; 8] {
    // SAFETY: the codes of a whole record lie at `at`, and at `apart` if the layout says so.
    unsafe {
        match const { T::LAYOUT }.bits {
            CodeBits::Two => two_bits::<L, 0>(at),
            CodeBits::Three => three_bits::<L>(at),
            CodeBits::Four => nibbles::<L>(at),
            CodeBits::Five => five_bits::<L>(at),
            CodeBits::Six => or::<L>(nibbles::<L>(at), two_bits::<L, 4>(at.add(256))),
            CodeBits::Eight => bytes::<L>(at),
            CodeBits::EightInPlanes => both_planes::<L>(five_bits::<L>(at), three_bits::<L>(apart)),
            CodeBits::FourNonlinear => look_up::<L>(nibbles::<L>(at), &NL_TABLE),
            CodeBits::FourFloat => look_up::<L>(nibbles::<L>(at), &MX_TABLE),
        }
    }
}

// Closures do not inherit the caller's target features, so none may hold an instruction: what
// follows is written out.

#[inline(always)]
unsafe fn bytes<L: Lanes>(at: *const u8) -> [L::B; 8] {
    // SAFETY: eight vectors lie at `at`.
    unsafe {
        let mut chunks = [L::load_b(at); 8];
        for (i, chunk) in chunks.iter_mut().enumerate() {
            *chunk = L::load_b(at.add(64 * i));
        }
        chunks
    }
}

#[inline(always)]
unsafe fn three_bits<L: Lanes>(at: *const u8) -> [L::B; 8] {
    // SAFETY: three vectors lie at `at`.
    unsafe { or::<L>(two_bits::<L, 0>(at), one_bit::<L, 2>(at.add(128))) }
}

#[inline(always)]
pub(super) unsafe fn five_bits<L: Lanes>(at: *const u8) -> [L::B; 8] {
    // SAFETY: five vectors lie at `at`.
    unsafe { or::<L>(nibbles::<L>(at), one_bit::<L, 4>(at.add(256))) }
}

#[inline(always)]
unsafe fn both_planes<L: Lanes>(high: [L::B; 8], mut low: [L::B; 8]) -> [L::B; 8] {
    for (low, high) in low.iter_mut().zip(high) {
        // SAFETY: instructions by contract.
        *low = unsafe { L::flip(L::or(*low, L::field_up::<0, 3>(high, 31))) };
    }
    low
}

#[inline(always)]
unsafe fn nibbles<L: Lanes>(at: *const u8) -> [L::B; 8] {
    // SAFETY: four vectors lie at `at`.
    unsafe {
        let mut chunks = [L::load_b(at); 8];
        for i in 0..4 {
            let both = L::load_b(at.add(64 * i));
            chunks[i] = L::field::<0>(both, 15);
            chunks[i + 4] = L::field::<4>(both, 15);
        }
        chunks
    }
}

/// Two bits per chunk from two vectors, shifted up.
#[inline(always)]
unsafe fn two_bits<L: Lanes, const UP: u32>(at: *const u8) -> [L::B; 8] {
    // SAFETY: two vectors lie at `at`.
    unsafe {
        let (a, b) = (L::load_b(at), L::load_b(at.add(64)));
        [
            L::field_up::<0, UP>(a, 3),
            L::field_up::<2, UP>(a, 3),
            L::field_up::<4, UP>(a, 3),
            L::field_up::<6, UP>(a, 3),
            L::field_up::<0, UP>(b, 3),
            L::field_up::<2, UP>(b, 3),
            L::field_up::<4, UP>(b, 3),
            L::field_up::<6, UP>(b, 3),
        ]
    }
}

/// One bit per chunk from one vector, shifted up.
#[inline(always)]
unsafe fn one_bit<L: Lanes, const UP: u32>(at: *const u8) -> [L::B; 8] {
    // SAFETY: a vector lies at `at`.
    unsafe {
        let v = L::load_b(at);
        [
            L::field_up::<0, UP>(v, 1),
            L::field_up::<1, UP>(v, 1),
            L::field_up::<2, UP>(v, 1),
            L::field_up::<3, UP>(v, 1),
            L::field_up::<4, UP>(v, 1),
            L::field_up::<5, UP>(v, 1),
            L::field_up::<6, UP>(v, 1),
            L::field_up::<7, UP>(v, 1),
        ]
    }
}

#[inline(always)]
unsafe fn or<L: Lanes>(mut low: [L::B; 8], high: [L::B; 8]) -> [L::B; 8] {
    for (low, high) in low.iter_mut().zip(high) {
        // SAFETY: instructions by contract.
        *low = unsafe { L::or(*low, high) };
    }
    low
}

#[inline(always)]
unsafe fn look_up<L: Lanes>(mut codes: [L::B; 8], table: &[i8; 16]) -> [L::B; 8] {
    for codes in &mut codes {
        // SAFETY: nibbles are below sixteen.
        *codes = unsafe { L::look_up(*codes, table) };
    }
    codes
}

/// Plain floats: rows in tiles of up to four, one multiply-add chain per row.
#[inline(always)]
unsafe fn floats<L: Lanes>(float: FloatType, x: &[f32], cols: usize, job: &Job<'_>) {
    // SAFETY: passed on; each tile takes rows that are there.
    unsafe {
        let mut rows = job.rows;
        while rows.len() >= 4 {
            float_tile::<L, 4>(float, x, cols, job, &rows[..4]);
            rows = &rows[4..];
        }
        for row in rows {
            float_tile::<L, 1>(float, x, cols, job, &[*row]);
        }
    }
}

#[inline(always)]
unsafe fn float_tile<L: Lanes, const R: usize>(
    float: FloatType,
    x: &[f32],
    cols: usize,
    job: &Job<'_>,
    rows: &[(u32, u32)],
) {
    // SAFETY: the group holds `cols` times sixteen elements; `rows` has `R` rows of `x`.
    unsafe {
        let from: [*const f32; R] =
            std::array::from_fn(|r| x.as_ptr().add(rows.get_unchecked(r).0 as usize * cols));
        let w = job.group.as_ptr();
        let mut y = [L::splat(0.0); R];
        let mut k = 0;
        while k < cols {
            let end = (k + SEGMENT).min(cols);
            let mut segment = [L::splat(0.0); R];
            while k < end {
                let w = match float {
                    FloatType::F32 => L::load(w.cast::<f32>().add(k * LANES)),
                    FloatType::F16 => L::load_f16(w.cast::<u16>().add(k * LANES)),
                    FloatType::BF16 => L::load_bf16(w.cast::<u16>().add(k * LANES)),
                };
                for r in 0..R {
                    segment[r] = L::fma(w, L::splat(*from[r].add(k)), segment[r]);
                }
                k += 1;
            }
            for (y, segment) in y.iter_mut().zip(segment) {
                *y = L::add(*y, segment);
            }
        }
        for (row, y) in rows.iter().zip(y) {
            store::<L>(job, row.1 as usize, y);
        }
    }
}
