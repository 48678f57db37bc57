//! The layout of weights in memory: sixteen outputs side by side.
//!
//! A matrix is cut into groups of sixteen rows, the last one padded with zeros. Within a group,
//! inputs ascend; for each block of 32 inputs there is a record of codes and the factors that go
//! with them, each factor sixteen times, one per row. See [`Layout`] for what a record holds.

mod planes;

pub(crate) use planes::Planes;

use half::{bf16, f16};
use lapidary_core::{BlockType, Matrix, Unsupported};

use crate::blocks::{BLOCK, Block32, MX_TABLE, NL_TABLE, block32};
use crate::disjoint::Disjoint;
use crate::lanes::LANES;
use crate::pool::Pool;

/// How the codes of a block of 32 are kept. A chunk is four inputs of sixteen rows, 64 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CodeBits {
    /// Two vectors: two bits per chunk, chunks 0–3 and 4–7.
    Two,
    /// Two vectors as above, then one whose bit `c` is the high bit of chunk `c`.
    Three,
    /// Four vectors: chunk `c` in the low nibbles of vector `c`, chunk `c + 4` in the high ones.
    Four,
    /// Four vectors as above, then one whose bit `c` is the high bit of chunk `c`.
    Five,
    /// Four vectors of low nibbles, then two: two bits per chunk, chunks 0–3 and 4–7.
    Six,
    /// Eight vectors of signed bytes.
    Eight,
    /// Of bytes that are 128 more than the code, the five high bits, as `Five`; the three low bits
    /// lie apart, as `Three`: see [`Planes`].
    EightInPlanes,
    /// As `Four`, each code standing for an entry of [`NL_TABLE`].
    FourNonlinear,
    /// As `Four`, each code standing for an entry of [`MX_TABLE`].
    FourFloat,
}

impl CodeBits {
    /// Bytes of a block's codes for sixteen rows.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Two => 128,
            Self::Three => 192,
            Self::Four | Self::FourNonlinear | Self::FourFloat => 256,
            Self::Five | Self::EightInPlanes => 320,
            Self::Six => 384,
            Self::Eight => 512,
        }
    }

    /// Bytes of a block's codes for sixteen rows that lie apart.
    pub(crate) const fn apart_bytes(self) -> usize {
        if matches!(self, Self::EightInPlanes) { Self::Three.bytes() } else { 0 }
    }

    /// What codes stand for, if not for themselves.
    pub(crate) const fn table(self) -> Option<&'static [i8; 16]> {
        match self {
            Self::FourNonlinear => Some(&NL_TABLE),
            Self::FourFloat => Some(&MX_TABLE),
            _ => None,
        }
    }

    /// Whether the numbers to multiply with are signed.
    pub(crate) const fn is_signed(self) -> bool {
        matches!(self, Self::Eight | Self::EightInPlanes) || self.table().is_some()
    }

    /// Bits below the high plane.
    const fn low_bits(self) -> usize {
        match self {
            Self::Two | Self::Three => 2,
            Self::Eight => 8,
            _ => 4,
        }
    }

    /// Bits in the high plane.
    const fn high_bits(self) -> usize {
        match self {
            Self::Three | Self::Five | Self::EightInPlanes => 1,
            Self::Six => 2,
            _ => 0,
        }
    }
}

/// Where `bits` bits of chunk `chunk` lie in a plane that starts at `start`: the vector's first
/// byte, and the shift within each byte. Four-bit planes pair chunk `c` with `c + 4`; narrower
/// ones fill a byte with consecutive chunks.
fn plane(start: usize, bits: usize, chunk: usize) -> (usize, usize) {
    match bits {
        8 => (start + 64 * chunk, 0),
        4 => (start + 64 * (chunk % 4), 4 * (chunk / 4)),
        2 => (start + 64 * (chunk / 4), 2 * (chunk % 4)),
        _ => (start, chunk),
    }
}

/// What a record holds, in this order: codes; then `d` and, with minimums, `m` as half floats,
/// unless they are shared by eight records and precede them; then the integer factors of each
/// part, and with minimums the integer minimums.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Layout {
    pub(crate) bits: CodeBits,
    /// Added to every code to make it unsigned; zero where codes are signed or stay unsigned.
    pub(crate) offset: i32,
    /// Whether blocks have minimums.
    pub(crate) mins: bool,
    /// Whether `d` and `m` are shared by the eight blocks of 256 inputs.
    pub(crate) shared: bool,
    /// Whether `d` is a bfloat16, because its exponents outrange a half float's.
    pub(crate) wide: bool,
    /// Integer factors per block: none, one, or one per half.
    pub(crate) parts: usize,
}

impl Layout {
    /// Factors in every record, none of them integers.
    const fn own(bits: CodeBits, offset: i32, mins: bool) -> Self {
        Self { bits, offset, mins, shared: false, wide: false, parts: 0 }
    }

    /// Float factors for eight records, integer ones for each of `parts` parts of a record.
    const fn shared(bits: CodeBits, offset: i32, mins: bool, parts: usize) -> Self {
        Self { bits, offset, mins, shared: true, wide: false, parts }
    }

    /// Q8_0 in two planes of bits.
    pub(crate) const PLANES: Self = Self::own(CodeBits::EightInPlanes, 0, false);

    /// The layout of a stored type.
    pub(crate) const fn of(block: BlockType) -> Option<Self> {
        Some(match block {
            BlockType::IQ4_NL => Self::own(CodeBits::FourNonlinear, 0, false),
            BlockType::MXFP4 => Self { wide: true, ..Self::own(CodeBits::FourFloat, 0, false) },
            BlockType::Q4_0 => Self::own(CodeBits::Four, 8, false),
            BlockType::Q4_1 => Self::own(CodeBits::Four, 0, true),
            BlockType::Q5_0 => Self::own(CodeBits::Five, 16, false),
            BlockType::Q5_1 => Self::own(CodeBits::Five, 0, true),
            BlockType::Q8_0 => Self::own(CodeBits::Eight, 0, false),
            BlockType::IQ4_XS => Self::shared(CodeBits::FourNonlinear, 0, false, 1),
            BlockType::Q2_K => Self::shared(CodeBits::Two, 0, true, 2),
            BlockType::Q3_K => Self::shared(CodeBits::Three, 4, false, 2),
            BlockType::Q4_K => Self::shared(CodeBits::Four, 0, true, 1),
            BlockType::Q5_K => Self::shared(CodeBits::Five, 0, true, 1),
            BlockType::Q6_K => Self::shared(CodeBits::Six, 32, false, 2),
            _ => return None,
        })
    }

    /// Bytes of `d` and `m` for sixteen rows.
    pub(crate) const fn factor_bytes(self) -> usize {
        if self.mins { 4 * LANES } else { 2 * LANES }
    }

    /// Bytes that precede eight records.
    pub(crate) const fn head_bytes(self) -> usize {
        if self.shared { self.factor_bytes() } else { 0 }
    }

    /// Bytes of one record.
    pub(crate) const fn record_bytes(self) -> usize {
        let own = if self.shared { 0 } else { self.factor_bytes() };
        let integers = self.parts * LANES * if self.mins { 2 } else { 1 };
        self.bits.bytes() + own + integers
    }

    /// Bytes of a group of sixteen rows of `blocks` blocks.
    pub(crate) const fn group_bytes(self, blocks: usize) -> usize {
        blocks / 8 * self.head_bytes() + blocks * self.record_bytes()
    }

    /// Where record `b` of a group begins.
    fn record_at(self, b: usize) -> usize {
        (b / 8 + 1) * self.head_bytes() + b * self.record_bytes()
    }

    /// Where the `d` and `m` of record `b` begin.
    fn factors_at(self, b: usize) -> usize {
        if self.shared {
            b / 8 * (self.head_bytes() + 8 * self.record_bytes())
        } else {
            self.record_at(b) + self.bits.bytes()
        }
    }

    /// Where the integer factors of record `b` begin.
    fn integers_at(self, b: usize) -> usize {
        self.record_at(b) + self.record_bytes() - self.parts * LANES * if self.mins { 2 } else { 1 }
    }
}

/// A float type whose elements are kept one by one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FloatType {
    F32,
    F16,
    BF16,
}

impl FloatType {
    pub(crate) const fn bytes(self) -> usize {
        if matches!(self, Self::F32) { 4 } else { 2 }
    }
}

/// How the bytes of a [`Weight`] are to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Records of blocks.
    Blocks(Layout),
    /// For each input, sixteen rows' elements.
    Floats(FloatType),
}

/// A stack of matrices in the layout of this module.
#[derive(Debug)]
pub struct Weight {
    pub(crate) kind: Kind,
    pub(crate) stack: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bytes: Vec<u8>,
    /// The other half of codes that are kept in two planes.
    pub(crate) planes: Option<Planes>,
}

impl Weight {
    /// Packs a stored stack of matrices.
    ///
    /// # Errors
    /// The type has no kernels, or rows are not whole blocks of 32.
    pub(crate) fn pack(stored: &Matrix<'_>, pool: &Pool) -> Result<Self, Unsupported> {
        let &Matrix { block, stack, rows, cols, .. } = stored;
        let kind = match block {
            BlockType::F32 => Kind::Floats(FloatType::F32),
            BlockType::F16 => Kind::Floats(FloatType::F16),
            BlockType::BF16 => Kind::Floats(FloatType::BF16),
            _ => Kind::Blocks(Layout::of(block).ok_or_else(|| no_kernel(block))?),
        };
        let whole = matches!(kind, Kind::Floats(_)) || cols.is_multiple_of(BLOCK);
        let row_bytes = block.row_bytes(cols).filter(|_| whole);
        let row_bytes = row_bytes.ok_or_else(|| {
            Unsupported(format!("rows of {cols} are not whole {block} blocks of 32"))
        })?;
        assert_eq!(stored.bytes.len(), stack * rows * row_bytes, "bytes of a stored stack");

        let mut weight = Self { kind, stack, rows, cols, bytes: Vec::new(), planes: None };
        let groups = stack * weight.groups();
        let group_bytes = weight.group_bytes();
        weight.bytes = vec![0; groups * group_bytes];
        let per_matrix = weight.groups();
        let out = Disjoint::new(&mut weight.bytes);
        pool.run(groups, &|g| {
            let first = g / per_matrix * rows + g % per_matrix * LANES;
            let end = ((g / per_matrix) + 1) * rows;
            let lanes = (end - first).min(LANES);
            let rows = &stored.bytes[first * row_bytes..(first + lanes) * row_bytes];
            // SAFETY: each group is written by one call.
            let group = unsafe { out.part(g * group_bytes..(g + 1) * group_bytes) };
            match kind {
                Kind::Blocks(layout) => pack_blocks(layout, block, rows, row_bytes, group),
                Kind::Floats(float) => pack_floats(float, rows, row_bytes, group),
            }
        });
        Ok(weight)
    }

    /// Groups of sixteen rows per matrix.
    pub(crate) fn groups(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// Bytes of one group.
    pub(crate) fn group_bytes(&self) -> usize {
        match self.kind {
            Kind::Blocks(layout) => layout.group_bytes(self.cols / BLOCK),
            Kind::Floats(float) => self.cols * LANES * float.bytes(),
        }
    }

    /// The bytes of group `g` of matrix `m`.
    pub(crate) fn group(&self, m: usize, g: usize) -> &[u8] {
        assert!(m < self.stack && g < self.groups(), "group {g} of matrix {m}");
        let len = self.group_bytes();
        let first = (m * self.groups() + g) * len;
        &self.bytes[first..first + len]
    }

    /// The codes of group `g` of matrix `m` that lie apart, if any do.
    pub(crate) fn apart(&self, m: usize, g: usize) -> &[u8] {
        self.planes.as_ref().map_or(&[], |planes| planes.low_bits(m * self.groups() + g))
    }

    /// The numbers of row `row` of the first matrix, as the file's type defines them.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        let (group, lane) = (self.group(0, row / LANES), row % LANES);
        let apart = self.apart(0, row / LANES);
        match self.kind {
            Kind::Blocks(layout) => {
                for (b, out) in out.chunks_exact_mut(BLOCK).enumerate() {
                    decode(&unpack(layout, (group, apart), b, lane), layout.mins, out);
                }
            }
            Kind::Floats(float) => {
                for (k, out) in out.iter_mut().enumerate() {
                    *out = float_at(float, group, k * LANES + lane);
                }
            }
        }
    }
}

fn no_kernel(block: BlockType) -> Unsupported {
    Unsupported(format!("the CPU has no kernels for {block}; requantise to Q8_0, Q6_K or Q4_K"))
}

fn pack_floats(float: FloatType, rows: &[u8], row_bytes: usize, group: &mut [u8]) {
    let size = float.bytes();
    for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (k, element) in row.chunks_exact(size).enumerate() {
            let at = (k * LANES + lane) * size;
            group[at..at + size].copy_from_slice(element);
        }
    }
}

fn float_at(float: FloatType, group: &[u8], i: usize) -> f32 {
    let at = i * float.bytes();
    match float {
        FloatType::F32 => {
            f32::from_le_bytes(group[at..at + 4].try_into().expect("four bytes were taken"))
        }
        FloatType::F16 => f16::from_le_bytes([group[at], group[at + 1]]).to_f32(),
        FloatType::BF16 => bf16::from_le_bytes([group[at], group[at + 1]]).to_f32(),
    }
}

fn pack_blocks(layout: Layout, block: BlockType, rows: &[u8], row_bytes: usize, group: &mut [u8]) {
    for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
        for b in 0..row_bytes / block.block_bytes() * block.block_len() / BLOCK {
            let source = block32(block, row, b).expect("only block types have a layout");
            pack_codes(layout, &source, lane, &mut group[layout.record_at(b)..]);
            pack_factors(layout, &source, lane, b, group);
        }
    }
}

fn pack_codes(layout: Layout, source: &Block32, lane: usize, codes: &mut [u8]) {
    for (k, &q) in source.q.iter().enumerate() {
        let code = match layout.bits.table() {
            Some(table) => table.iter().position(|entry| *entry == q).unwrap_or(0) as u8,
            None => (i32::from(q) + layout.offset) as u8,
        };
        put_code(layout.bits, codes, (lane, k), code);
    }
}

/// Writes code `k` of a block of zeros.
fn put_code(bits: CodeBits, codes: &mut [u8], (lane, k): (usize, usize), code: u8) {
    let (low_bits, high_bits) = (bits.low_bits(), bits.high_bits());
    let (chunk, byte) = (k / 4, 4 * lane + k % 4);
    let (at, shift) = plane(0, low_bits, chunk);
    codes[at + byte] |= (code & low_mask(low_bits)) << shift;
    if high_bits > 0 {
        let (at, shift) = plane(8 * 64 * low_bits / 8, high_bits, chunk);
        codes[at + byte] |= (code >> low_bits) << shift;
    }
}

/// The inverse of [`put_code`].
fn take_code(bits: CodeBits, codes: &[u8], (lane, k): (usize, usize)) -> u8 {
    let (low_bits, high_bits) = (bits.low_bits(), bits.high_bits());
    let (chunk, byte) = (k / 4, 4 * lane + k % 4);
    let (at, shift) = plane(0, low_bits, chunk);
    let code = (codes[at + byte] >> shift) & low_mask(low_bits);
    if high_bits == 0 {
        return code;
    }
    let (at, shift) = plane(8 * 64 * low_bits / 8, high_bits, chunk);
    code | ((codes[at + byte] >> shift) & low_mask(high_bits)) << low_bits
}

fn low_mask(bits: usize) -> u8 {
    (0xff_u16 >> (8 - bits)) as u8
}

fn pack_factors(layout: Layout, source: &Block32, lane: usize, b: usize, group: &mut [u8]) {
    let mut put = |at: usize, bytes: [u8; 2]| group[at..at + 2].copy_from_slice(&bytes);
    let factors = layout.factors_at(b) + 2 * lane;
    let d = if layout.wide {
        bf16::from_f32(source.d).to_le_bytes()
    } else {
        f16::from_f32(source.d).to_le_bytes()
    };
    put(factors, d);
    if layout.mins {
        put(factors + 2 * LANES, f16::from_f32(source.m).to_le_bytes());
    }
    let integers = layout.integers_at(b) + lane;
    for part in 0..layout.parts {
        group[integers + part * LANES] = source.scale[part] as u8;
        if layout.mins {
            group[integers + (layout.parts + part) * LANES] = source.min[part];
        }
    }
}

/// The inverse of packing, for one row's block.
fn unpack(layout: Layout, (group, apart): (&[u8], &[u8]), b: usize, lane: usize) -> Block32 {
    let codes = &group[layout.record_at(b)..];
    let q = std::array::from_fn(|k| {
        let code = take_code(layout.bits, codes, (lane, k));
        match (layout.bits, layout.bits.table()) {
            (CodeBits::EightInPlanes, _) => planes::whole(code, apart, b, (lane, k)),
            (_, Some(table)) => table[usize::from(code)],
            (_, None) => (i32::from(code as i8) - layout.offset) as i8,
        }
    });
    let half_at = |at: usize| f16::from_le_bytes([group[at], group[at + 1]]).to_f32();
    let factors = layout.factors_at(b) + 2 * lane;
    let integers = layout.integers_at(b) + lane;
    let part = |half: usize| half.min(layout.parts.saturating_sub(1)) * LANES;
    let scale = |half| if layout.parts == 0 { 1 } else { group[integers + part(half)] as i8 };
    let min = |half| match (layout.mins, layout.parts) {
        (false, _) => 0,
        (true, 0) => 1,
        (true, parts) => group[integers + parts * LANES + part(half)],
    };
    Block32 {
        q,
        scale: [scale(0), scale(1)],
        min: [min(0), min(1)],
        d: if layout.wide {
            bf16::from_le_bytes([group[factors], group[factors + 1]]).to_f32()
        } else {
            half_at(factors)
        },
        m: if layout.mins { half_at(factors + 2 * LANES) } else { 0.0 },
    }
}

/// The block's numbers in the order of operations that the file format defines: the factor of a
/// half is rounded, then each product, then each sum.
fn decode(block: &Block32, mins: bool, out: &mut [f32]) {
    for (k, out) in out.iter_mut().enumerate() {
        let half = k / 16;
        let scaled = block.d * f32::from(block.scale[half]) * f32::from(block.q[k]);
        *out = if mins { scaled + block.m * f32::from(block.min[half]) } else { scaled };
    }
}
