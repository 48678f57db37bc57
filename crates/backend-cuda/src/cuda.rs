//! The CUDA backend: ops as launches of kernels.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lapidary_core::{
    Backend, Branch, Candidate, DeviceError, Heads, Join, Matrix, Rope, TokenId, Unsupported,
    join_apart, likeliest,
};

use crate::act::{Act, Codes};
use crate::compile::{Compiler, Cubins, KernelError};
use crate::device::{Arg, Device, Shape, lock};
use crate::experts::Routes;
use crate::kernels::{ANY, Kernel, Kernels};
use crate::kv::Plan;
use crate::matmul::Work;
use crate::open::OpenError;
use crate::pool::{Buffer, Pool};
use crate::profile::{Profile, Timing};
use crate::weight::{SEGMENT, Weight};
use crate::{matmul, top};

/// Widths up to this are normed by one warp, wider ones by a block.
const NARROW: usize = 512;
/// Widths up to this are normed with three numbers per thread; see kernels/norm.cu.
const WIDE: usize = 3 * 1024;
/// Norms of a sum that kernels/join.cu makes along with it.
const NEXT: usize = 3;
/// Most places that one launch counts at.
pub(crate) const TICKETS: usize = 4096;
/// The widest norm.
const WIDEST: usize = 12 * 1024;

/// One NVIDIA GPU.
pub struct Cuda {
    pub(crate) pool: Arc<Pool>,
    pub(crate) device: Arc<Device>,
    kernels: Kernels,
    index: usize,
    profile: Mutex<Option<Profile>>,
    /// Zeros for kernels that count who is done; see kernels/matmul_floats.cu.
    pub(crate) tickets: Buffer,
    /// What codes of rotated caches stand for, once they are needed.
    pub(crate) levels: OnceLock<Buffer>,
    /// Bit `i` says that some attention was cut by the cut of that number; see kv.rs.
    items: AtomicU32,
}

/// A vector of weights on the device.
pub struct Vector {
    pub(crate) len: usize,
    pub(crate) data: Buffer,
}

/// Sines, then cosines, of a step's rows for one rotation, row after row.
pub struct Angles {
    rows: usize,
    pairs: usize,
    data: Buffer,
}

/// The arguments of a kernel, in the order of its signature.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { [$($crate::device::Arg::from(&$arg)),*] };
}
pub(crate) use args;

impl From<&Buffer> for Arg {
    fn from(buffer: &Buffer) -> Self {
        Self::Address(buffer.address())
    }
}

impl From<&&Buffer> for Arg {
    fn from(buffer: &&Buffer) -> Self {
        Self::Address(buffer.address())
    }
}

impl From<&Option<&Buffer>> for Arg {
    fn from(buffer: &Option<&Buffer>) -> Self {
        Self::Address(buffer.map_or(0, Buffer::address))
    }
}

impl Cuda {
    /// Makes a device ready: driver, compiler and the kernels that every model needs.
    ///
    /// # Errors
    /// [`OpenError`], one sentence for each way in which a machine can fall short.
    pub fn open(index: usize, cubins: Cubins) -> Result<Self, OpenError> {
        let device = Arc::new(Device::open(index)?);
        let compiler = Compiler::new(device.capability, cubins).ok_or(OpenError::NoCompiler)?;
        let pool = Pool::new(Arc::clone(&device));
        let tickets = pool.get(4 * TICKETS);
        tickets.zero();
        let cuda = Self {
            tickets,
            levels: OnceLock::new(),
            pool,
            device,
            kernels: Kernels::new(compiler),
            index,
            profile: Mutex::new(None),
            items: AtomicU32::new(0),
        };
        for kernel in [
            Kernel::Add,
            Kernel::Combine,
            Kernel::GeluMul,
            Kernel::Group,
            Kernel::Join,
            Kernel::NormWide3,
            Kernel::NormRope,
            Kernel::Quantise,
            Kernel::Rope,
            Kernel::Route,
            Kernel::Scale,
            Kernel::Select,
            Kernel::Softcap,
            Kernel::TopLast,
            Kernel::Turn,
        ] {
            cuda.prepare(kernel, ANY)?;
        }
        Ok(cuda)
    }

    /// Bytes of device memory that are free, and in all; zeros if the device has failed.
    pub fn memory(&self) -> (usize, usize) {
        self.device.memory().unwrap_or_default()
    }

    /// How often memory was taken from the driver so far. Steady work takes none.
    pub fn allocations(&self) -> usize {
        self.device.allocations()
    }

    /// Starts to measure every kernel. Measuring slows steps of small kernels down.
    pub fn start_profile(&self) {
        *lock(&self.profile) = Some(Profile::default());
    }

    /// What was measured since [`start_profile`](Self::start_profile), the longest first.
    pub fn take_profile(&self) -> Vec<Timing> {
        self.device.wait();
        let profile = lock(&self.profile).take();
        profile.map_or_else(Vec::new, |profile| profile.timings(&self.device))
    }

    /// Whether attention that is cut so has been asked for.
    pub(crate) fn wants_items(&self, cut: usize) -> bool {
        self.items.load(Ordering::Relaxed) >> cut & 1 == 1
    }

    /// Remembers that it has.
    pub(crate) fn want_items(&self, cut: usize) {
        self.items.fetch_or(1 << cut, Ordering::Relaxed);
    }

    /// Compiles and loads a kernel ahead of its first launch.
    pub(crate) fn prepare(&self, kernel: Kernel, format: u32) -> Result<(), KernelError> {
        self.kernels.get(&self.device, kernel, format).map(|_| ())
    }

    /// Launches a kernel; a kernel that cannot be had is the device's failure.
    ///
    /// # Safety
    /// The arguments are those of the kernel's signature, and it stays inside what they name.
    pub(crate) unsafe fn launch(&self, kernel: Kernel, format: u32, shape: Shape, args: &[Arg]) {
        let function = match self.kernels.get(&self.device, kernel, format) {
            Ok(function) => function,
            Err(e) => return self.device.fail(e.to_string()),
        };
        let mut profile = lock(&self.profile);
        let Some(profile) = profile.as_mut() else {
            // SAFETY: passed on.
            return unsafe { self.device.launch(function, shape, args) };
        };
        let before = self.device.moment();
        // SAFETY: passed on.
        unsafe { self.device.launch(function, shape, args) };
        if let (Some(before), Some(after)) = (before, self.device.moment()) {
            profile.push(kernel, format, (before, after));
        }
    }

    /// Rows of anything.
    pub(crate) fn blank(&self, rows: usize, cols: usize) -> Act {
        Act::new(rows, cols, self.pool.get(rows * cols * size_of::<f32>()))
    }

    /// A list on the device.
    pub(crate) fn list<T: Word>(&self, values: &[T]) -> Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        let buffer = self.pool.get(bytes.len());
        buffer.write(&bytes);
        buffer
    }

    /// The rounded form of an activation.
    pub(crate) fn codes<'a>(&self, x: &'a Act) -> &'a Codes {
        x.codes(|x| {
            let codes = self.blank_codes(x.rows(), x.cols());
            let places = x.rows() * x.cols().div_ceil(SEGMENT) * 8;
            let (rows, cols) = (x.rows() as u32, x.cols() as u32);
            let args = args![x.data, codes.codes, codes.marks, rows, cols];
            // SAFETY: there is a place for every block of every row, padded to whole segments.
            unsafe { self.launch(Kernel::Quantise, ANY, Shape::each(places * 32), &args) };
            codes
        })
    }

    /// The norm of each group, times `w` if there is one, plus `residual` if there is one.
    fn norm(&self, x: &Act, width: usize, w: Option<&Buffer>, eps: f32, more: Option<&Act>) -> Act {
        assert!(x.cols().is_multiple_of(width), "{} columns are no groups of {width}", x.cols());
        let residual = more.map(|act| &act.data);
        if width > NARROW {
            return self.norm_wide(x, width, w, eps, residual);
        }
        let out = self.blank(x.rows(), x.cols());
        let groups = x.len() / width;
        let args = args![x.data, w, residual, out.data, groups as u64, width as u32, eps];
        // SAFETY: all activations have `groups` groups of `width`, `w` has `width` values.
        unsafe { self.launch(Kernel::NormNarrow, ANY, Shape::each(groups * 32), &args) };
        out
    }

    /// Likewise, for groups that take a block each. A sum is not rounded for matrices: nothing
    /// multiplies with the residual stream before its next norm.
    fn norm_wide(
        &self,
        x: &Act,
        width: usize,
        w: Option<&Buffer>,
        eps: f32,
        residual: Option<&Buffer>,
    ) -> Act {
        assert!(width <= WIDEST, "norms reach over at most {WIDEST} columns, not {width}");
        let kernel = if width <= WIDE { Kernel::NormWide3 } else { Kernel::NormWide12 };
        let out = self.blank(x.rows(), x.cols());
        let rounded = width == x.cols() && width.is_multiple_of(32) && residual.is_none();
        let codes = rounded.then(|| self.blank_codes(x.rows(), width));
        let shape = Shape { grid: ((x.len() / width) as u32, 1), block: 1024, shared: 0 };
        let (list, marks) = Codes::buffers(codes.as_ref());
        let args = args![x.data, w, residual, out.data, list, marks, width as u32, eps];
        // SAFETY: a block per group; `w` has `width` values; codes have a place for every block.
        unsafe { self.launch(kernel, ANY, shape, &args) };
        out.rounded(codes)
    }

    /// Room for the rounded form of rows.
    pub(crate) fn blank_codes(&self, rows: usize, cols: usize) -> Codes {
        let places = rows * cols.div_ceil(SEGMENT) * 8;
        Codes { codes: self.pool.get(places * 32), marks: self.pool.get(places * 8) }
    }

    /// `y[to[i]] = x[from[i]][first..first + cols]`.
    fn select_into(
        &self,
        x: &Act,
        y: &Buffer,
        (count, cols, first): (usize, usize, usize),
        from: Option<&Buffer>,
        to: Option<&Buffer>,
    ) {
        let n = count * cols;
        let (stride, cols, first) = (x.cols() as u32, cols as u32, first as u32);
        let args = args![x.data, y, n as u64, cols, stride, first, from, to];
        // SAFETY: callers checked rows and columns.
        unsafe { self.launch(Kernel::Select, ANY, Shape::each(n), &args) };
    }

    /// `gelu(gate) · up`.
    pub(crate) fn gelu_rows(&self, gate: &Act, up: &Act, place: Gate) -> Act {
        let Gate { cols, stride, .. } = place;
        let out = self.blank(gate.rows(), cols);
        if cols.is_multiple_of(32) && stride.is_multiple_of(4) {
            let codes = self.gelu_rounded(gate, up, Some(&out.data), place);
            return out.rounded(Some(codes));
        }
        let up = Arg::Address(up.data.address() + 4 * place.up as u64);
        let [rows, cols, stride] = [out.rows(), cols, stride].map(|n| n as u32);
        let args = args![gate.data, up, out.data, rows, cols, stride];
        // SAFETY: both inputs have the output's rows, `stride` apart, with `cols` columns each.
        unsafe { self.launch(Kernel::GeluMul, ANY, Shape::each(out.len()), &args) };
        out
    }

    /// `gelu(gate) · up` of rows that hold both, for quantised matrices alone: where it can, it
    /// leaves the values out.
    pub(crate) fn gelu_codes(&self, both: &Act, place: Gate) -> Act {
        if !place.cols.is_multiple_of(32) || !place.stride.is_multiple_of(4) {
            return self.gelu_rows(both, both, place);
        }
        let codes = self.gelu_rounded(both, both, None, place);
        Act::codes_alone(both.rows(), place.cols, self.pool.get(0), codes)
    }

    /// The rounded form of `gelu(gate) · up`, and the values if there is room for them.
    fn gelu_rounded(&self, gate: &Act, up: &Act, values: Option<&Buffer>, place: Gate) -> Codes {
        let codes = self.blank_codes(gate.rows(), place.cols);
        let up = Arg::Address(up.data.address() + 4 * place.up as u64);
        let padded = place.cols.next_multiple_of(SEGMENT);
        let shape = Shape::each(gate.rows() * padded / 4);
        let [rows, cols, padded, stride] =
            [gate.rows(), place.cols, padded, place.stride].map(|n| n as u32);
        let args =
            args![gate.data, up, values, codes.codes, codes.marks, rows, cols, padded, stride];
        // SAFETY: both inputs have as many rows, `stride` apart, with `cols` columns each; codes
        // have a place for every block of whole segments.
        unsafe { self.launch(Kernel::GeluMulRounded, ANY, shape, &args) };
        codes
    }
}

/// Where rows have what is gated: `cols` columns of rows `stride` apart, those to multiply with
/// from column `up` on.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) cols: usize,
    pub(crate) stride: usize,
    pub(crate) up: usize,
}

/// A word of a list.
pub(crate) trait Word: Copy {
    fn bytes(self) -> [u8; 4];
}

impl Word for u32 {
    fn bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }
}

impl Word for f32 {
    fn bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }
}

fn check_rows(rows: impl IntoIterator<Item = usize>, of: &Act) -> Vec<u32> {
    let check = |row: usize| {
        assert!(row < of.rows(), "row {row} of {}", of.rows());
        row as u32
    };
    rows.into_iter().map(check).collect()
}

impl Backend for Cuda {
    type Act = Act;
    type Weight = Weight;
    type Vector = Vector;
    type Routes = Routes;
    type Angles = Angles;
    type Plan = Plan;

    fn name(&self) -> String {
        let (name, compiler) = (&self.device.name, self.kernels.compiler().name());
        format!("cuda:{} ({name}; {compiler})", self.index)
    }

    fn matrix(&self, stored: Matrix<'_>) -> Result<Weight, Unsupported> {
        Weight::upload(self, &stored)
    }

    fn vector(&self, values: &[f32]) -> Vector {
        Vector { len: values.len(), data: self.list(values) }
    }

    fn upload(&self, values: &[f32], cols: usize) -> Act {
        assert!(values.len().is_multiple_of(cols), "{} values / {cols}", values.len());
        Act::new(values.len() / cols, cols, self.list(values))
    }

    fn angles(&self, rope: &Rope, rows: &[[u32; 3]]) -> Angles {
        let pairs = rope.freqs.len();
        let bits = |x: &f32| x.to_bits();
        let mut words: Vec<u32> = rows.iter().flatten().copied().collect();
        words.extend(rope.freqs.iter().map(bits));
        words.extend(rope.axis.iter().copied().map(u32::from));
        let list = self.list(&words);
        let freqs = Arg::Address(list.address() + 12 * rows.len() as u64);
        let axes = Arg::Address(list.address() + (12 * rows.len() + 4 * pairs) as u64);
        let turns = rows.len() * pairs;
        let angles = Angles { rows: rows.len(), pairs, data: self.pool.get(8 * turns) };
        let cos = Arg::Address(angles.data.address() + 4 * turns as u64);
        let (count, pairs) = (rows.len() as u32, pairs as u32);
        let args = args![list, freqs, axes, angles.data, cos, count, pairs];
        // SAFETY: one thread per pair of a row; `axis` is below three in every rope.
        unsafe { self.launch(Kernel::Turn, ANY, Shape::each(turns), &args) };
        angles
    }

    fn embed(&self, table: &Weight, tokens: &[TokenId], scale: f32) -> Act {
        let check = |token: &TokenId| {
            assert!(token.index() < table.rows, "token {} of {}", token.0, table.rows);
            token.0
        };
        let tokens = self.list(&tokens.iter().map(check).collect::<Vec<_>>());
        let out = self.blank(tokens.bytes() / 4, table.cols);
        let (rows, cols) = (out.rows() as u32, out.cols() as u32);
        let kernel = if table.format.is_float() { Kernel::EmbedFloats } else { Kernel::Embed };
        let args = args![table.data, tokens, out.data, rows, cols, scale];
        // SAFETY: every token is a row of the table, whose rows are as wide as the output's.
        unsafe { self.launch(kernel, table.format.number(), Shape::each(out.len()), &args) };
        out
    }

    fn replace_rows(&self, mut x: Act, source: &Act, pairs: &[(usize, usize)]) -> Act {
        assert_eq!(x.cols(), source.cols(), "width of the replacing rows");
        if pairs.is_empty() {
            return x;
        }
        let to = self.list(&check_rows(pairs.iter().map(|pair| pair.0), &x));
        let from = self.list(&check_rows(pairs.iter().map(|pair| pair.1), source));
        let part = (pairs.len(), x.cols(), 0);
        self.select_into(source, x.data_mut(), part, Some(&from), Some(&to));
        x
    }

    fn linear(&self, x: &Act, w: &Weight) -> Act {
        let out = self.blank(x.rows(), w.rows);
        self.multiply(x, w, &out, Work::Rows);
        out
    }

    fn rms_norm(&self, x: &Act, w: &Vector, eps: f32) -> Act {
        self.norm(x, w.len, Some(&w.data), eps, None)
    }

    fn unit_norm(&self, x: &Act, width: usize, eps: f32) -> Act {
        self.norm(x, width, None, eps, None)
    }

    fn rope(&self, mut x: Act, angles: &Angles) -> Act {
        let (rows, cols, pairs) = (x.rows(), x.cols(), angles.pairs);
        assert!(cols.is_multiple_of(2 * pairs), "{cols} columns are no heads of {}", 2 * pairs);
        assert_eq!(rows, angles.rows, "rows of the angles");
        let n = x.len() / 2;
        let cos = Arg::Address(angles.data.address() + (4 * rows * pairs) as u64);
        let (rows, cols, pairs) = (rows as u32, cols as u32, pairs as u32);
        let args = args![x.data_mut(), angles.data, cos, rows, cols, pairs];
        // SAFETY: one thread per pair of the activation; angles for every row.
        unsafe { self.launch(Kernel::Rope, ANY, Shape::each(n), &args) };
        x
    }

    fn add(&self, a: &Act, b: &Act) -> Act {
        assert_eq!((a.rows(), a.cols()), (b.rows(), b.cols()), "shapes of a sum");
        let out = self.blank(a.rows(), a.cols());
        let args = args![a.data, b.data, out.data, out.len() as u64];
        // SAFETY: all three have as many numbers.
        unsafe { self.launch(Kernel::Add, ANY, Shape::each(out.len()), &args) };
        out
    }

    fn scale(&self, mut x: Act, s: &Vector) -> Act {
        assert!(s.len == 1 || s.len == x.cols(), "one factor, or one per column");
        let n = x.len();
        let args = args![x.data_mut(), s.data, n as u64, s.len as u32];
        // SAFETY: one thread per number; a factor for every column.
        unsafe { self.launch(Kernel::Scale, ANY, Shape::each(n), &args) };
        x
    }

    fn gelu_mul(&self, gate: &Act, up: &Act) -> Act {
        assert_eq!((gate.rows(), gate.cols()), (up.rows(), up.cols()), "shapes of gate and up");
        self.gelu_rows(gate, up, Gate { cols: gate.cols(), stride: gate.cols(), up: 0 })
    }

    fn clamp(&self, x: &Act, least: f32, most: f32) -> Act {
        let out = self.blank(x.rows(), x.cols());
        let args = args![x.data, out.data, out.len() as u64, least, most];
        // SAFETY: both have as many numbers.
        unsafe { self.launch(Kernel::Clamp, ANY, Shape::each(out.len()), &args) };
        out
    }

    fn softcap(&self, mut x: Act, cap: f32) -> Act {
        let n = x.len();
        let args = args![x.data_mut(), n as u64, cap];
        // SAFETY: one thread per number.
        unsafe { self.launch(Kernel::Softcap, ANY, Shape::each(n), &args) };
        x
    }

    fn route(&self, logits: &Act, per_expert: &Vector, k: usize) -> Routes {
        Routes::choose(self, logits, per_expert, k)
    }

    fn experts(&self, x: &Act, routes: &Routes, gate_up: &Weight, down: &Weight) -> Act {
        routes.experts(self, x, gate_up, down)
    }

    fn select(&self, x: &Act, rows: &[usize]) -> Act {
        // All rows in order need no list, which would have to go out between launches.
        let all = rows.len() == x.rows() && rows.iter().copied().eq(0..x.rows());
        let from = (!all).then(|| self.list(&check_rows(rows.iter().copied(), x)));
        let out = self.blank(rows.len(), x.cols());
        self.select_into(x, &out.data, (rows.len(), x.cols(), 0), from.as_ref(), None);
        out
    }

    fn columns(&self, x: &Act, columns: Range<usize>) -> Act {
        assert!(columns.end <= x.cols(), "columns {columns:?} of {}", x.cols());
        let out = self.blank(x.rows(), columns.len());
        self.select_into(x, &out.data, (x.rows(), columns.len(), columns.start), None, None);
        out
    }

    fn finish(&self) -> Result<(), DeviceError> {
        self.device.wait();
        self.device.fault().map_or(Ok(()), |reason| Err(DeviceError(reason)))
    }

    fn read(&self, x: &Act) -> Result<Vec<f32>, DeviceError> {
        let values = x.data.read(x.len());
        self.device.fault().map_or(Ok(values), |reason| Err(DeviceError(reason)))
    }

    fn add_norm(&self, residual: &Act, branch: &Act, w: &Vector, eps: f32) -> Act {
        let shape = (branch.rows(), branch.cols());
        assert_eq!((residual.rows(), residual.cols()), shape, "shapes of a sum");
        self.norm(branch, w.len, Some(&w.data), eps, Some(residual))
    }

    fn norm_rope(&self, x: &Act, w: &Vector, eps: f32, angles: &Angles) -> Act {
        let width = w.len;
        if width != 2 * angles.pairs || !width.is_multiple_of(64) || width > NARROW {
            return self.rope(self.rms_norm(x, w, eps), angles);
        }
        assert!(x.cols().is_multiple_of(width), "{} columns are no groups of {width}", x.cols());
        assert_eq!(x.rows(), angles.rows, "rows of the angles");
        let out = self.blank(x.rows(), x.cols());
        let cos = Arg::Address(angles.data.address() + (4 * x.rows() * angles.pairs) as u64);
        let (rows, cols) = (x.rows() as u32, x.cols() as u32);
        let args = args![x.data, w.data, angles.data, cos, out.data, rows, cols, width as u32, eps];
        // SAFETY: one warp per head; angles for every row, `w` for every column of a head.
        unsafe { self.launch(Kernel::NormRope, ANY, Shape::each(x.len() / width * 32), &args) };
        out
    }

    fn top(&self, logits: &Act, rows: usize, k: usize) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        assert_eq!(logits.rows(), rows, "rows of logits");
        if k <= top::MOST {
            return self.pick(logits, k);
        }
        let flat = self.read(logits)?;
        Ok(flat.chunks_exact(logits.cols()).map(|row| likeliest(row, k)).collect())
    }

    fn linear_many(&self, x: &Act, ws: &[&Weight]) -> Vec<Act> {
        let alike = |a: &&Weight, b: &&Weight| a.format == b.format && !a.format.is_float();
        let runs = ws.chunk_by(alike).flat_map(|run| run.chunks(matmul::PARTS));
        runs.flat_map(|parts| self.side_by_side(x, parts)).collect()
    }

    fn norm_heads(&self, heads: &Heads<'_, Self>) -> [Act; 3] {
        let &Heads { q, k, v, q_norm, k_norm, width, eps, angles } = heads;
        let served = width.is_multiple_of(64) && width <= NARROW;
        if !served || [q_norm.len, k_norm.len, 2 * angles.pairs] != [width; 3] {
            let q = self.norm_rope(q, q_norm, eps, angles);
            let k = self.norm_rope(k, k_norm, eps, angles);
            return [q, k, self.unit_norm(v, width, eps)];
        }
        let shape = (k.rows(), k.cols());
        assert_eq!((v.rows(), v.cols()), shape, "as many values as keys");
        assert_eq!([q.rows(), angles.rows], [k.rows(); 2], "rows of queries, angles and keys");
        assert!(q.cols().is_multiple_of(width) && k.cols().is_multiple_of(width), "whole heads");
        let out = [q, k, v].map(|x| self.blank(x.rows(), x.cols()));
        let cos = Arg::Address(angles.data.address() + (4 * k.rows() * angles.pairs) as u64);
        let warps = (q.len() + 2 * k.len()) / width;
        let [rows, qh, h, w] =
            [k.rows(), q.cols() / width, k.cols() / width, width].map(|n| n as u32);
        let args = args![
            q.data,
            k.data,
            v.data,
            q_norm.data,
            k_norm.data,
            angles.data,
            cos,
            out[0].data,
            out[1].data,
            out[2].data,
            rows,
            qh,
            h,
            w,
            eps
        ];
        // SAFETY: one warp per head of all three; angles for every row, weights for every column.
        unsafe { self.launch(Kernel::NormHeads, ANY, Shape::each(warps * 32), &args) };
        out
    }

    fn join(&self, join: &Join<'_, Self>) -> (Act, Vec<Act>) {
        let &Join { residual, ref branch, norm, scale, next, eps } = join;
        let (rows, width) = (residual.rows(), residual.cols());
        let (a, b) = match *branch {
            Branch::One(x) => ((x, None), None),
            Branch::Normed([(a, a_norm), (b, b_norm)]) => ((a, Some(a_norm)), Some((b, b_norm))),
        };
        let ((a, a_norm), (b, b_norm)) = (a, b.unzip());
        let norms = [Some(norm), a_norm, b_norm].into_iter().flatten().chain(next.iter().copied());
        let is_whole = norms.into_iter().all(|w| w.len == width);
        let served = width > NARROW && width <= WIDE && width.is_multiple_of(32);
        if !served || !is_whole || next.len() > NEXT {
            return join_apart(self, join);
        }
        for x in [Some(a), b].into_iter().flatten() {
            assert_eq!((x.rows(), x.cols()), (rows, width), "shapes of a sum");
        }
        assert!(
            scale.is_none_or(|s| s.len == 1 || s.len == width),
            "one factor, or one per column"
        );
        let y = self.blank(rows, width);
        let normed: Vec<_> =
            next.iter().map(|_| (self.blank(rows, width), self.blank_codes(rows, width))).collect();
        let data = |v: Option<&Vector>| v.map_or(0, |v| v.data.address());
        let none = Arg::Address(0);
        let mut args = vec![
            Arg::from(&a.data),
            Arg::Address(data(a_norm)),
            Arg::Address(b.map_or(0, |b| b.data.address())),
            Arg::Address(data(b_norm)),
            Arg::from(&residual.data),
            Arg::from(&norm.data),
            Arg::Address(data(scale)),
            Arg::from(&y.data),
        ];
        for i in 0..NEXT {
            args.extend(match (next.get(i), normed.get(i)) {
                (Some(w), Some((x, codes))) => {
                    args![w.data, x.data, codes.codes, codes.marks]
                }
                _ => [none; 4],
            });
        }
        let per_column = u32::from(scale.is_some_and(|s| s.len > 1));
        args.extend(args![per_column, width as u32, eps]);
        let (kernel, block) = if rows < self.device.processors as usize {
            (Kernel::Join, 1024)
        } else {
            (Kernel::JoinMany, 256)
        };
        let shape = Shape { grid: (rows as u32, 1), block, shared: 0 };
        // SAFETY: a block per row; everything has the residual's shape, weights its width; codes
        // have a place for every block of whole segments.
        unsafe { self.launch(kernel, ANY, shape, &args) };
        (y, normed.into_iter().map(|(x, codes)| x.rounded(Some(codes))).collect())
    }
}
