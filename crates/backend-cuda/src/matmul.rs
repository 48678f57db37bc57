//! Which matrix kernel serves which shape. Every choice gives the same bits: see
//! kernels/record.cuh for the layout and docs/numerics.md for the order.

use crate::act::Act;
use crate::cuda::{Cuda, TICKETS, args};
use crate::device::{Arg, Shape};
use crate::kernels::Kernel;
use crate::pool::Buffer;
use crate::weight::{Format, Weight};

/// A way to multiply with a quantised matrix. For tests and benches: [`Cuda`]'s ops choose by the
/// number of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// One thread per output, as the law says: the twin.
    Plain,
    /// Integer dot products, up to this many rows (1 to 4) at once.
    Rows(u32),
    /// Tensor cores, tiles of 8, 16 or 32 rows, segments shared out among warps. Lists of tiles may
    /// be cut for 4.
    Few(u32),
    /// Tensor cores, tiles of 32, 48 or 64 rows, all segments of an output by one warp.
    Many(u32),
}

impl Method {
    /// The way for `rows` rows of one matrix with `groups` groups of outputs, on a device of
    /// `processors`.
    fn for_rows(rows: usize, groups: usize, processors: u32) -> Self {
        // Rounds of blocks, two to a processor, counted in blocks of 32 rows.
        let rounds = |tile: usize| {
            let blocks = groups.div_ceil(4) * rows.div_ceil(tile);
            blocks.div_ceil(2 * processors as usize) * tile / 32
        };
        match rows {
            0..=4 => Self::Rows(rows.max(1) as u32),
            5..=8 => Self::Few(8),
            9..=16 => Self::Few(16),
            // Tall matrices have blocks enough without sharing segments out.
            17..=64 if rounds(32) < 2 => Self::Few(32),
            // Smaller tiles take apart more weights: worth it if that saves a round.
            _ if 14 * rounds(32) < 13 * rounds(64) => Self::Many(32),
            _ => Self::Many(64),
        }
    }

    /// Rows of one tile.
    pub(crate) fn tile(self) -> u32 {
        match self {
            Self::Plain => 1,
            Self::Rows(rows) | Self::Few(rows) | Self::Many(rows) => rows,
        }
    }
}

/// Which rows multiply with which matrix of a stack.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    /// Every row with the first matrix.
    Rows,
    /// Output row `i` is row `i / share` of the inputs times matrix `of[i]`.
    Pairs {
        /// A matrix for each output row.
        of: &'a Buffer,
        /// Output rows per input row.
        share: u32,
    },
    /// Output row `i` is row `from[i]` of the inputs (`i` without a list); tiles say which matrix.
    Tiles {
        /// A row of the inputs for each output row.
        from: Option<&'a Buffer>,
        /// `most` tiles, some of which may be empty.
        tiles: &'a Buffer,
        /// The length of that list.
        most: u32,
        /// The way that the tiles are cut for.
        method: Method,
    },
}

impl Cuda {
    /// `x · Wᵀ` by a given way; `linear` chooses one. Any way serves any quantised matrix.
    ///
    /// # Panics
    /// If the matrix is one of plain numbers.
    pub fn linear_by(&self, method: Method, x: &Act, w: &Weight) -> Act {
        assert!(!w.format.is_float(), "plain numbers have one way");
        let out = self.blank(x.rows(), w.rows);
        self.by(method, x, &[(w, &out)], Work::Rows);
        out
    }

    /// Multiplies into `out`, which has a row for each product.
    pub(crate) fn multiply(&self, x: &Act, w: &Weight, out: &Act, work: Work<'_>) {
        assert_eq!(x.cols(), w.cols, "inputs of a matrix");
        assert_eq!(out.cols(), w.rows, "outputs of a matrix");
        if w.format.is_float() {
            return self.floats(x, w, out, work);
        }
        let method = match work {
            Work::Rows => Method::for_rows(out.rows(), w.groups(), self.device.processors),
            Work::Pairs { .. } => Method::Rows(1),
            Work::Tiles { method, .. } => method,
        };
        self.by(method, x, &[(w, out)], work);
    }

    /// Every row with each of up to [`PARTS`] matrices of one format, by one launch.
    pub(crate) fn side_by_side(&self, x: &Act, ws: &[&Weight]) -> Vec<Act> {
        let outs: Vec<_> = ws.iter().map(|w| self.blank(x.rows(), w.rows)).collect();
        if let ([w], [out]) = (ws, &outs[..]) {
            self.multiply(x, w, out, Work::Rows);
            return outs;
        }
        for w in ws {
            assert_eq!((w.cols, w.format), (x.cols(), ws[0].format), "matrices side by side");
        }
        let parts: Vec<_> = ws.iter().copied().zip(&outs).collect();
        let groups = ws.iter().map(|w| w.groups()).sum();
        let method = Method::for_rows(x.rows(), groups, self.device.processors);
        self.by(method, x, &parts, Work::Rows);
        outs
    }

    fn by(&self, method: Method, x: &Act, parts: &[Part<'_>], work: Work<'_>) {
        match method {
            Method::Plain => parts.iter().for_each(|(w, out)| self.plain(x, w, out)),
            Method::Rows(tile) => self.rows(tile, x, parts, work),
            Method::Few(4) => self.tiles(4, x, parts, work),
            Method::Few(8) if matches!(work, Work::Tiles { .. }) => self.tiles(8, x, parts, work),
            Method::Few(tile) => self.few(tile, x, parts, work),
            Method::Many(tile) => self.many(tile, x, parts, work),
        }
    }

    fn plain(&self, x: &Act, w: &Weight, out: &Act) {
        let codes = self.codes(x);
        let (rows, height, segments) = (out.rows() as u32, w.rows as u32, w.segments() as u32);
        let (from, of) = (None::<&Buffer>, None::<&Buffer>);
        let args =
            args![w.data, codes.codes, codes.marks, out.data, rows, height, segments, from, of];
        // SAFETY: one thread per output; the codes have the output's rows.
        unsafe { self.launch(Kernel::Plain, w.format.number(), Shape::each(out.len()), &args) };
    }

    fn rows(&self, tile: u32, x: &Act, parts: &[Part<'_>], work: Work<'_>) {
        const MOST_WARPS: u32 = 16;
        let kernel = match tile {
            1 => Kernel::Rows1,
            2 => Kernel::Rows2,
            3 => Kernel::Rows3,
            4 => Kernel::Rows4,
            _ => unreachable!("there are kernels for 1 to 4 rows"),
        };
        let (of, share) = match work {
            Work::Rows => (None, 1),
            Work::Pairs { of, share } => (Some(of), share),
            Work::Tiles { .. } => unreachable!("tiles are for tensor cores"),
        };
        let codes = self.codes(x);
        let (rows, segments) = sizes(parts);
        let warps = segments.min(MOST_WARPS);
        let shape = Shape {
            grid: (blocks(parts, 1), rows.div_ceil(tile)),
            block: 32 * warps,
            shared: warps * tile * 320 + segments * tile * 128,
        };
        let mut args = sides(parts);
        args.extend(args![codes.codes, codes.marks, rows, segments, of, share]);
        // SAFETY: a block per group and set of rows; lists are as long as the output; shared
        // memory is what the kernel's contract asks for.
        unsafe { self.launch(kernel, format(parts), shape, &args) };
    }

    fn few(&self, tile: u32, x: &Act, parts: &[Part<'_>], work: Work<'_>) {
        const MOST_WARPS: u32 = 11;
        let kernel = match tile {
            8 => Kernel::Few1,
            16 => Kernel::Few2,
            32 => Kernel::Few4,
            _ => unreachable!("there are kernels for tiles of 8, 16 and 32 rows"),
        };
        let codes = self.codes(x);
        let (rows, segments) = sizes(parts);
        let (from, tiles, count) = lists(work, rows.div_ceil(tile));
        // With blocks to spare, smaller ones: several then share a processor, and one waits for
        // memory while another multiplies.
        let plenty = blocks(parts, 1) * count > 2 * self.device.processors;
        let warps = even(segments, if plenty { MOST_WARPS.div_ceil(2) } else { MOST_WARPS });
        let shape = Shape {
            grid: (blocks(parts, 1), count),
            block: 32 * warps,
            shared: warps * (ends_bytes(parts) + tile * 336) + segments * tile * 36 * 4,
        };
        if shape.shared > self.device.shared_bytes {
            // Very wide matrices: their partial results fit only for fewer rows at once.
            // Tiles that were cut for fewer rows fit those of 32.
            return match (tile, work) {
                (8, _) | (_, Work::Tiles { .. }) => self.many(32, x, parts, work),
                _ => self.few(tile / 2, x, parts, work),
            };
        }
        let mut args = sides(parts);
        args.extend(args![codes.codes, codes.marks, rows, segments, from, tiles]);
        // SAFETY: as in `rows`.
        unsafe { self.launch(kernel, format(parts), shape, &args) };
    }

    fn tiles(&self, tile: u32, x: &Act, parts: &[Part<'_>], work: Work<'_>) {
        const STAGES: u32 = 2;
        let (kernel, warps) = if tile == 4 { (Kernel::Tiles4, 2) } else { (Kernel::Tiles8, 4) };
        let &[(w, out)] = parts else { unreachable!("tiles multiply with one stack") };
        let segments = w.segments() as u32;
        let record = w.format.record_bytes() as u32;
        let shared = warps * (STAGES * record + ends_bytes(parts)) + segments * tile * 336;
        if shared > self.device.shared_bytes {
            return self.few(8, x, parts, work);
        }
        let codes = self.codes(x);
        let (from, tiles, count) = lists(work, 0);
        // Long enough runs of records to hide the first one's way.
        let per = (8 / segments).max(1);
        let grid = ((w.groups() as u32).div_ceil(warps * per), count);
        let shape = Shape { grid, block: 32 * warps, shared };
        let height = w.rows as u32;
        let args =
            args![w.data, codes.codes, codes.marks, out.data, height, segments, from, tiles, per];
        // SAFETY: as in `rows`.
        unsafe { self.launch(kernel, w.format.number(), shape, &args) };
    }

    fn many(&self, tile: u32, x: &Act, parts: &[Part<'_>], work: Work<'_>) {
        let (kernel, row_bytes) = match tile {
            32 => (Kernel::Many4, 32 * 336),
            48 => (Kernel::Many6, 48 * 336),
            64 => (Kernel::Many8, 64 * 336),
            _ => unreachable!("there are kernels for tiles of 32, 48 and 64 rows"),
        };
        let codes = self.codes(x);
        let (rows, segments) = sizes(parts);
        let record = parts[0].0.format.record_bytes() as u32;
        let shared = |warps: u32| 2 * (warps * record + row_bytes) + warps * ends_bytes(parts);
        let warps = if shared(4) <= self.device.shared_bytes { 4 } else { 2 };
        let (from, tiles, count) = lists(work, rows.div_ceil(tile));
        let shape =
            Shape { grid: (blocks(parts, warps), count), block: 32 * warps, shared: shared(warps) };
        let mut args = sides(parts);
        args.extend(args![codes.codes, codes.marks, rows, segments, from, tiles]);
        // SAFETY: as in `rows`.
        unsafe { self.launch(kernel, format(parts), shape, &args) };
    }

    fn floats(&self, x: &Act, w: &Weight, out: &Act, work: Work<'_>) {
        const MOST_WARPS: u32 = 11;
        let (rows, segments) = sizes(&[(w, out)]);
        let height = w.rows as u32;
        let (list, of) = match work {
            Work::Rows => (None, None),
            Work::Pairs { of, share } => {
                let from: Vec<u32> = (0..rows).map(|i| i / share).collect();
                (Some(self.list(&from)), Some(of))
            }
            Work::Tiles { .. } => unreachable!("plain numbers are multiplied pair by pair"),
        };
        let tile = if of.is_some() || rows < 8 { 1 } else { 8 };
        let (groups, sets) = (w.groups() as u32, rows.div_ceil(tile));
        let is_narrow = 4 * groups <= self.device.processors;
        // Each warp of few rows needs a ticket.
        if of.is_none()
            && is_narrow
            && groups * sets.max(rows.min(128).div_ceil(2)) <= TICKETS as u32
        {
            return self.floats_split(tile, x, w, out);
        }
        let kernel = if tile == 1 { Kernel::Floats1 } else { Kernel::Floats8 };
        let warps = segments.min(MOST_WARPS);
        let shape = Shape {
            grid: (groups, sets),
            block: 32 * warps,
            shared: warps * tile * 1024 + segments * tile * 128,
        };
        let args = args![w.data, x.data, out.data, rows, height, w.cols as u32, list.as_ref(), of];
        // SAFETY: as in `rows`.
        unsafe { self.launch(kernel, w.format.number(), shape, &args) };
    }

    /// A matrix of few outputs, whose segments are shared out among blocks.
    fn floats_split(&self, tile: u32, x: &Act, w: &Weight, out: &Act) {
        /// Rows from which on a block takes 32.
        const SHARED: u32 = 128;
        let (rows, segments) = sizes(&[(w, out)]);
        let (kernel, warps, each) = match tile {
            1 => (Kernel::FloatsSplit1, 1, 1),
            _ if rows < SHARED => (Kernel::FloatsSplit8, 4, 2),
            _ => (Kernel::FloatsSplit32, 4, 8),
        };
        let (groups, sets) = (w.groups() as u32, rows.div_ceil(each));
        let partials = self.pool.get((groups * sets * segments * each * 128) as usize);
        let grid = (groups * segments, sets.div_ceil(warps));
        let four = 4 * if w.format == Format::F32 { 4 } else { 2 };
        let shared = warps * each * 1024 + 2048 * four;
        let shape = Shape { grid, block: 32 * warps, shared };
        let (height, cols) = (w.rows as u32, w.cols as u32);
        let args = args![w.data, x.data, out.data, partials, self.tickets, rows, height, cols];
        // SAFETY: a block per segment, group and sets of rows, with a place for each; a ticket for
        // each group and set. Launches follow each other, so each finds its tickets at zero.
        unsafe { self.launch(kernel, w.format.number(), shape, &args) };
    }
}

/// A matrix, and where its products go.
type Part<'a> = (&'a Weight, &'a Act);

/// Matrices that a launch may take side by side.
pub(crate) const PARTS: usize = 3;

/// Rows of a product, and segments of its matrices.
fn sizes(parts: &[Part<'_>]) -> (u32, u32) {
    let (w, out) = parts[0];
    (out.rows() as u32, w.segments() as u32)
}

/// The `FORMAT` of matrices side by side.
fn format(parts: &[Part<'_>]) -> u32 {
    parts[0].0.format.number()
}

/// What tensor core kernels keep of the factors of a record.
fn ends_bytes(parts: &[Part<'_>]) -> u32 {
    parts[0].0.format.ends_bytes() as u32
}

/// Blocks of `unit` groups that it takes to cover each part.
fn blocks(parts: &[Part<'_>], unit: u32) -> u32 {
    parts.iter().map(|(w, _)| (w.groups() as u32).div_ceil(unit)).sum()
}

/// What kernels/record.cuh calls PARTS.
fn sides(parts: &[Part<'_>]) -> Vec<Arg> {
    let get = |i: usize, of: &dyn Fn(&Part<'_>) -> u64| parts.get(i).map_or(0, of);
    let weights = (0..PARTS).map(|i| Arg::Address(get(i, &|(w, _)| w.data.address())));
    let outs = (0..PARTS).map(|i| Arg::Address(get(i, &|(_, out)| out.data.address())));
    let heights = (0..PARTS).map(|i| Arg::Int(get(i, &|(w, _)| w.rows as u64) as u32));
    weights.chain(outs).chain(heights).collect()
}

/// The lists that tensor core kernels take, and the number of tiles.
fn lists<'a>(work: Work<'a>, tiles: u32) -> (Option<&'a Buffer>, Option<&'a Buffer>, u32) {
    match work {
        Work::Rows => (None, None, tiles),
        Work::Tiles { from, tiles, most, .. } => (from, Some(tiles), most),
        Work::Pairs { .. } => unreachable!("pairs are multiplied one by one"),
    }
}

/// Warps for `segments` segments, at most `most`, so that each gets about as many.
fn even(segments: u32, most: u32) -> u32 {
    segments.div_ceil(segments.div_ceil(most))
}
