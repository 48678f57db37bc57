//! Keys and values on the device: per slot and head, a row of cells.

use std::cell::OnceCell;
use std::ops::Range;

use lapidary_core::{
    Code, KvKernels, KvLayerSpec, LayerPlan, ROTATED_BLOCK, Regime, SlotId, Transport, Unsupported,
    View, levels,
};

use crate::act::Act;
use crate::cuda::{Cuda, args};
use crate::device::{Arg, Shape};
use crate::kernels::{ANY, Kernel};
use crate::pool::Buffer;
use crate::weight::SEGMENT;

/// Positions of one partial result; `STRETCH` of kernels/view.cuh.
const STRETCH: u32 = 128;
/// Most pairs of a row and a head that a block of kernels/attend.cu takes; its `PAIRS`.
const PAIRS: usize = 8;
/// Pairs of one tile of kernels/attend_tensor.cu.
const TILE: usize = 16;
/// Threads of a block of `attend_plain`, and positions it takes at once.
const PLAIN_THREADS: u32 = 128;

/// One layer's keys and values for all slots.
pub struct Store {
    pub(crate) spec: KvLayerSpec,
    pub(crate) cells: usize,
    pub(crate) keys: Side,
    pub(crate) values: Side,
}

/// Keys or values: for each slot, head and cell, a head's worth of numbers.
pub(crate) struct Side {
    form: Form,
    /// Bytes of a cell.
    pub(crate) size: usize,
    pub(crate) data: Buffer,
}

/// How the numbers of a side are stored; the values are those of CODE in kernels/rotated.cuh.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    F32 = 0,
    F16 = 1,
    Four = 2,
    Five = 3,
    Six = 4,
    Eight = 5,
}

impl Form {
    fn of(code: Code, width: usize) -> Result<Self, Unsupported> {
        let form = match code {
            Code::F32 => Self::F32,
            Code::F16 => Self::F16,
            Code::Rotated(4) => Self::Four,
            Code::Rotated(5) => Self::Five,
            Code::Rotated(6) => Self::Six,
            Code::Rotated(8) => Self::Eight,
            Code::Rotated(bits) => {
                let message = format!("codes of {bits} bits do not exist; choose 4, 5, 6 or 8");
                return Err(Unsupported(message));
            }
        };
        if form.is_rotated() {
            block_width(width)?;
        }
        Ok(form)
    }

    fn is_rotated(self) -> bool {
        !matches!(self, Self::F32 | Self::F16)
    }

    /// Bytes of a cell.
    fn bytes(self, width: usize) -> usize {
        let codes = |bits: usize| width * bits / 8 + width.div_ceil(ROTATED_BLOCK) * 4;
        match self {
            Self::F32 => width * 4,
            Self::F16 => width * 2,
            Self::Four => codes(4),
            Self::Five => codes(5),
            Self::Six => codes(6),
            Self::Eight => codes(8),
        }
    }
}

/// Width of the blocks that rotated heads of this width are cut into.
fn block_width(width: usize) -> Result<usize, Unsupported> {
    const NARROWEST: usize = 32;
    let block = width.min(ROTATED_BLOCK);
    if block >= NARROWEST && block.is_power_of_two() && width.is_multiple_of(block) {
        return Ok(block);
    }
    Err(Unsupported(format!(
        "heads of width {width} cannot be rotated: that takes multiples of {ROTATED_BLOCK}, or \
         128, 64 or 32; use f16"
    )))
}

impl Store {
    /// The `FORMAT` of kernels that read both sides; see kernels/view.cuh.
    fn pair(&self) -> u32 {
        6 * self.keys.form as u32 + self.values.form as u32
    }

    fn is_floats(&self) -> bool {
        self.keys.form == Form::F32 && self.values.form == Form::F32
    }

    /// Columns that are rotated together, and one over their root.
    fn rotation(&self) -> (u32, f32) {
        let block = self.spec.width.min(ROTATED_BLOCK);
        (block as u32, 1.0 / (block as f32).sqrt())
    }
}

/// The reads and writes of a step's rows on the device.
pub struct Plan {
    views: Vec<View>,
    /// The longest run of neighbouring rows of one chain.
    longest: usize,
    lists: Lists,
    /// Work for blocks, by [`Cut::number`]: with the other lists for those cuts that earlier plans
    /// needed, else made when first needed. A list of its own that goes out between launches would
    /// cut them in two.
    items: [OnceCell<Items>; CUTS],
}

/// How a plan's rows are cut into work for blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Cut {
    /// A block takes up to `2^exponent` rows.
    exponent: usize,
    /// It takes them through all stretches that they see, not through one.
    whole: bool,
}

impl Cut {
    fn number(self) -> usize {
        self.exponent + if self.whole { EXPONENTS } else { 0 }
    }

    fn of(number: usize) -> Self {
        Self { exponent: number % EXPONENTS, whole: number >= EXPONENTS }
    }
}

/// `{first row, rows, first stretch, stretches}` for each block.
struct Items {
    place: Place,
    pieces: Vec<Piece>,
}

/// Neighbouring rows whose partial results are in memory together.
struct Piece {
    items: Range<usize>,
    rows: Range<usize>,
    /// Their partial results, among those of all rows.
    partials: Range<usize>,
}

/// Partial results after which a piece ends: long texts have more of them than fit into memory.
const PIECE: usize = 8192;

enum Place {
    /// Bytes from the start of the plan's lists.
    Lists(u64),
    Own(Buffer),
}

/// Blocks take up to 32 rows at once.
const EXPONENTS: usize = 6;
/// Numbers of cuts.
const CUTS: usize = 2 * EXPONENTS;

/// What the kernels read of a plan, in one buffer.
struct Lists {
    buffer: Buffer,
    /// Where each list begins, in bytes: `{slot, entry}` per row; lineages; partial results per
    /// row. What kernels/view.cuh calls views comes first.
    writes: u64,
    lineages: u64,
    counts: u64,
}

impl Lists {
    fn views(&self) -> Arg {
        Arg::Address(self.buffer.address())
    }

    fn at(&self, offset: u64) -> Arg {
        Arg::Address(self.buffer.address() + offset)
    }
}

/// The stretches that a row's visible positions fall into: the first, and how many.
fn stretches(view: &View) -> (u32, u32) {
    let first = if view.run.is_empty() {
        (view.pos + 1).saturating_sub(view.lineage.len() as u32)
    } else {
        view.run.start
    };
    let end = if view.lineage.is_empty() { view.run.end } else { view.pos + 1 };
    (first / STRETCH, end.div_ceil(STRETCH) - first / STRETCH)
}

/// Whether two neighbouring rows may share a block.
fn chain(a: &View, b: &View) -> bool {
    a.slot == b.slot && a.lineage.is_empty() && b.lineage.is_empty()
}

impl Plan {
    fn upload(cuda: &Cuda, plan: LayerPlan) -> Self {
        let mut words = Vec::with_capacity(11 * plan.views.len());
        let (mut lineages, mut counts) = (Vec::<u32>::new(), Vec::new());
        let mut partials = 0;
        for view in &plan.views {
            let (first, count) = stretches(view);
            let (at, ancestors) = (lineages.len() as u32, view.lineage.len() as u32);
            words.extend([view.slot.0, view.pos, view.run.start, view.run.end]);
            words.extend([at, ancestors, first, partials]);
            lineages.extend(&view.lineage);
            counts.push(count);
            partials += count;
        }
        let writes = 4 * words.len() as u64;
        words.extend(plan.writes.iter().flat_map(|(slot, entry)| [slot.0, *entry]));
        let counts_at = 4 * words.len() as u64;
        words.extend(counts);
        let lineages_at = 4 * words.len() as u64;
        words.extend(lineages);
        let items: [OnceCell<Items>; CUTS] = Default::default();
        for (cut, cell) in items.iter().enumerate().filter(|(cut, _)| cuda.wants_items(*cut)) {
            // Items are read sixteen bytes at a time.
            words.resize(words.len().next_multiple_of(4), 0);
            let place = Place::Lists(4 * words.len() as u64);
            let (list, pieces) = items_of(&plan.views, Cut::of(cut));
            words.extend(list);
            cell.get_or_init(|| Items { place, pieces });
        }
        let longest = plan.views.chunk_by(chain).map(<[View]>::len).max().unwrap_or(0);
        let buffer = cuda.list(&words);
        let lists = Lists { buffer, writes, lineages: lineages_at, counts: counts_at };
        Self { views: plan.views, longest, lists, items }
    }

    /// How many groups of up to `2^exponent` rows there are.
    fn groups(&self, exponent: usize) -> usize {
        self.views.chunk_by(chain).map(|run| run.len().div_ceil(1 << exponent)).sum()
    }

    /// Where the items of a cut are, and their pieces.
    fn items(&self, cuda: &Cuda, cut: Cut) -> (u64, &[Piece]) {
        let items = self.items[cut.number()].get_or_init(|| {
            let (list, pieces) = items_of(&self.views, cut);
            Items { place: Place::Own(cuda.list(&list)), pieces }
        });
        let place = match &items.place {
            Place::Lists(offset) => self.lists.buffer.address() + offset,
            Place::Own(buffer) => buffer.address(),
        };
        (place, &items.pieces)
    }
}

/// The stretches that any of some rows sees.
fn stretches_of(rows: &[View]) -> Range<u32> {
    let ranges = || rows.iter().map(stretches);
    let start = ranges().map(|(start, _)| start).min().unwrap_or(0);
    let end = ranges().map(|(start, count)| start + count).max().unwrap_or(0);
    start..end
}

fn items_of(views: &[View], cut: Cut) -> (Vec<u32>, Vec<Piece>) {
    let (mut groups, mut first) = (Vec::new(), 0);
    for run in views.chunk_by(chain) {
        for rows in run.chunks(1 << cut.exponent) {
            groups.push((first, rows));
            first += rows.len();
        }
    }
    if cut.whole { whole_items(&groups) } else { apart(&groups) }
}

/// An item for each group of rows, which leaves a result a row. The longest tend to come last, and
/// are begun with.
fn whole_items(groups: &[(usize, &[View])]) -> (Vec<u32>, Vec<Piece>) {
    let item = |(first, rows): &(usize, &[View])| {
        let seen = stretches_of(rows);
        [*first as u32, rows.len() as u32, seen.start, seen.len() as u32]
    };
    let rows = groups.iter().map(|(_, rows)| rows.len()).sum();
    let piece = Piece { items: 0..groups.len(), rows: 0..rows, partials: 0..rows };
    (groups.iter().rev().flat_map(item).collect(), vec![piece])
}

/// An item for each group of rows and stretch.
fn apart(groups: &[(usize, &[View])]) -> (Vec<u32>, Vec<Piece>) {
    let (mut words, mut partials) = (Vec::new(), 0);
    let mut pieces: Vec<Piece> = Vec::new();
    for &(first, rows) in groups {
        if pieces.last().is_none_or(|piece| piece.partials.len() >= PIECE) {
            let item = words.len() / 4;
            pieces.push(Piece {
                items: item..item,
                rows: first..first,
                partials: partials..partials,
            });
        }
        let item = |stretch| [first as u32, rows.len() as u32, stretch, 1];
        words.extend(stretches_of(rows).flat_map(item));
        partials += rows.iter().map(|view| stretches(view).1 as usize).sum::<usize>();
        let piece = pieces.last_mut().expect("there is a piece for every row");
        (piece.items.end, piece.rows.end, piece.partials.end) =
            (words.len() / 4, first + rows.len(), partials);
    }
    (words, pieces)
}

impl KvKernels for Cuda {
    type Store = Store;

    fn reserve(
        &self,
        regime: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Store, Unsupported> {
        let (keys, values) =
            (Form::of(regime.keys, spec.width)?, Form::of(regime.values, spec.width)?);
        if (keys == Form::F32) != (values == Form::F32) {
            let message = format!("CUDA has no {regime} cache; f32 is for both sides or for none");
            return Err(Unsupported(message));
        }
        let side = |form: Form| {
            let size = form.bytes(spec.width);
            let bytes = slots * spec.heads * cells * size;
            let data = self.pool.try_get(bytes).ok_or_else(|| {
                let free = self.memory().0 >> 20;
                Unsupported(format!(
                    "a cache of {} MiB does not fit into {free} MiB; use fewer slots or a shorter \
                     context",
                    (2 * bytes) >> 20
                ))
            })?;
            data.zero();
            Ok(Side { form, size, data })
        };
        let store = Store { spec, cells, keys: side(keys)?, values: side(values)? };
        for (kernel, format) in kernels_of(&store) {
            self.prepare(kernel, format).map_err(|e| Unsupported(e.to_string()))?;
        }
        Ok(store)
    }

    fn store_bytes(&self, store: &Store) -> usize {
        store.keys.data.bytes() + store.values.data.bytes()
    }

    fn upload_plan(&self, plan: LayerPlan) -> Plan {
        Plan::upload(self, plan)
    }

    fn write(&self, store: &mut Store, plan: &Plan, k: &Act, v: &Act) {
        let KvLayerSpec { heads, width, .. } = store.spec;
        for x in [k, v] {
            assert_eq!((x.rows(), x.cols()), (plan.views.len(), heads * width), "rows to store");
        }
        let plain = |side: &Side| (!side.form.is_rotated()).then_some(side.data.address());
        let (keys, values) = (plain(&store.keys), plain(&store.values));
        if let Some(form) = [&store.keys, &store.values].into_iter().find(|s| !s.form.is_rotated())
        {
            let [rows, h, w, count] = [k.rows(), heads, width, store.cells].map(|n| n as u32);
            let writes = plan.lists.at(plan.lists.writes);
            let (keys, values) =
                (Arg::Address(keys.unwrap_or(0)), Arg::Address(values.unwrap_or(0)));
            let args = args![k.data, v.data, keys, values, writes, rows, h, w, count];
            let shape = Shape::each(k.len());
            // SAFETY: one thread per number; entries are taken modulo the cells, and the cache
            // names no slot that was not reserved.
            unsafe { self.launch(Kernel::KvWrite, 7 * form.form as u32, shape, &args) };
        }
        for (side, x) in [(&store.keys, k), (&store.values, v)] {
            if side.form.is_rotated() {
                self.write_codes(store, side, plan, x);
            }
        }
    }

    fn attend(&self, store: &Store, plan: &Plan, q: &Act) -> Act {
        let KvLayerSpec { heads, width, .. } = store.spec;
        assert_eq!(plan.views.len(), q.rows(), "one view per row");
        assert!(
            q.cols().is_multiple_of(heads * width),
            "{} query columns over {heads} heads of {width}",
            q.cols()
        );
        if !width.is_multiple_of(64) || width > 512 {
            return self.attend_plain(store, plan, q);
        }
        let group = q.cols() / width / heads;
        if store.is_floats() {
            return attend(self, store, plan, q, &Pieces::plain(group, width));
        }
        let work = Pieces::tensor(self, store, plan, group);
        if store.keys.form.is_rotated() {
            let turned = self.rotate(store, q, Way::There);
            attend(self, store, plan, &turned, &work)
        } else {
            attend(self, store, plan, q, &work)
        }
    }

    fn copy(&self, store: &mut Store, slot: SlotId, from: u32, to: u32) {
        let (heads, count) = (store.spec.heads as u32, store.cells as u32);
        for side in [&store.keys, &store.values] {
            assert!(side.size.is_multiple_of(4), "cells of {} bytes", side.size);
            let words = side.size as u32 / 4;
            let args = args![side.data, slot.0, from, to, heads, words, count];
            let shape = Shape::each((heads * words) as usize);
            // SAFETY: entries are taken modulo the cells.
            unsafe { self.launch(Kernel::KvCopy, ANY, shape, &args) };
        }
    }

    fn transport(&self) -> Option<&dyn Transport<Store>> {
        Some(self)
    }
}

/// Which way a rotation goes.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Way {
    There,
    Back,
}

/// The kernels that a store needs, and the `FORMAT` of each.
fn kernels_of(store: &Store) -> Vec<(Kernel, u32)> {
    let pair = store.pair();
    let attend = if store.is_floats() { Kernel::Attend } else { Kernel::AttendTensor1 };
    let mut kernels = vec![
        (Kernel::KvCopy, ANY),
        (Kernel::KvMove, ANY),
        (Kernel::AttendMerge, ANY),
        (Kernel::AttendPlain, pair),
        (attend, pair),
    ];
    for side in [&store.keys, &store.values] {
        kernels.extend(if side.form.is_rotated() {
            [(Kernel::KvCode, side.form as u32), (Kernel::Rotate, ANY)]
        } else {
            [(Kernel::KvWrite, 7 * side.form as u32); 2]
        });
    }
    kernels
}

impl Cuda {
    /// Attention by its definition: the twin of the fast kernel, and the way for widths that it
    /// does not serve.
    pub fn attend_plain(&self, store: &Store, plan: &Plan, q: &Act) -> Act {
        let KvLayerSpec { heads, width, .. } = store.spec;
        let turned = store.keys.form.is_rotated().then(|| self.rotate(store, q, Way::There));
        let q = turned.as_ref().unwrap_or(q);
        let out = self.blank(q.rows(), q.cols());
        let shape = Shape {
            grid: (q.rows() as u32, (q.cols() / width) as u32),
            block: PLAIN_THREADS,
            shared: 4 * (width as u32 + 2 * STRETCH),
        };
        let (heads, width, cells) = (heads as u32, width as u32, store.cells as u32);
        let (keys, values, levels) = (&store.keys.data, &store.values.data, self.levels());
        let (views, lineages) = (plan.lists.views(), plan.lists.at(plan.lists.lineages));
        let args =
            args![q.data, keys, values, levels, views, lineages, out.data, heads, width, cells];
        // SAFETY: a block per row and query head; a view per row; entries modulo the cells.
        unsafe { self.launch(Kernel::AttendPlain, store.pair(), shape, &args) };
        if store.values.form.is_rotated() { self.rotate(store, &out, Way::Back) } else { out }
    }

    /// What codes stand for: 16, 32, 64 and 256 numbers.
    fn levels(&self) -> &Buffer {
        self.levels.get_or_init(|| self.list(&[4, 5, 6, 8].map(levels).concat()))
    }

    /// Rotates every block of every head.
    fn rotate(&self, store: &Store, x: &Act, way: Way) -> Act {
        let (block, norm) = store.rotation();
        let out = self.blank(x.rows(), x.cols());
        let blocks = x.len() / block as usize;
        let args = args![x.data, out.data, blocks as u64, block, u32::from(way == Way::Back), norm];
        // SAFETY: a warp per block; both activations have as many numbers.
        unsafe { self.launch(Kernel::Rotate, ANY, Shape::each(32 * blocks), &args) };
        out
    }

    /// Stores one side of each row as codes.
    fn write_codes(&self, store: &Store, side: &Side, plan: &Plan, x: &Act) {
        const WARPS: usize = 4;
        let (block, norm) = store.rotation();
        let blocks = x.len() / block as usize;
        let shape =
            Shape { grid: (blocks.div_ceil(WARPS) as u32, 1), block: 32 * WARPS as u32, shared: 0 };
        let KvLayerSpec { heads, width, .. } = store.spec;
        let [rows, heads, width, count, size] =
            [x.rows(), heads, width, store.cells, side.size].map(|n| n as u32);
        let writes = plan.lists.at(plan.lists.writes);
        let levels = self.levels();
        let args = args![x.data, side.data, writes, levels, rows, heads, width, count, size, norm];
        // SAFETY: a warp per block of every head; entries are taken modulo the cells, and the
        // cache names no slot that was not reserved.
        unsafe { self.launch(Kernel::KvCode, side.form as u32, shape, &args) };
    }
}

/// How attention is cut into blocks.
struct Pieces {
    kernel: Kernel,
    /// Query heads that a block takes at once.
    per: usize,
    /// What else it takes.
    cut: Cut,
    /// Threads of a block.
    threads: u32,
    /// Bytes of shared memory.
    shared: usize,
}

impl Pieces {
    /// For `group` query heads of `width` to a key-value head, without tensor cores.
    fn plain(group: usize, width: usize) -> Self {
        let per = group.min(PAIRS);
        let exponent = (PAIRS / per).ilog2() as usize;
        let shared = 4 * (PAIRS * width + (PAIRS + 1) * STRETCH as usize + 2048);
        let cut = Cut { exponent, whole: false };
        Self { kernel: Kernel::Attend, per, cut, threads: 256, shared }
    }

    /// With tensor cores: several tiles a block, and whole rows, for runs of rows that fill them.
    fn tensor(cuda: &Cuda, store: &Store, plan: &Plan, group: usize) -> Self {
        /// What the kernel itself uses of shared memory, at most.
        const OWN: usize = 12_288;
        let KvLayerSpec { heads, width, .. } = store.spec;
        let sets = if store.values.form.is_rotated() { width.div_ceil(ROTATED_BLOCK) } else { 1 };
        let most = cuda.device.shared_bytes as usize - OWN;
        let processors = cuda.device.processors as usize;
        let pieces = |tiles: usize, kernel| {
            let per = group.min(TILE * tiles);
            let exponent = ((TILE * tiles / per).ilog2() as usize).min(EXPONENTS - 1);
            let stretch = STRETCH as usize;
            let pair = 4 * (stretch + 4 + stretch * sets);
            let shared = tiles * (64 * width + TILE * pair) + 4 * stretch;
            let threads = if kernel == Kernel::AttendTensorWide2 { 512 } else { 256 };
            Self { kernel, per, cut: Cut { exponent, whole: tiles > 1 }, threads, shared }
        };
        let serves = |work: &Self| {
            let blocks = plan.groups(work.cut.exponent) * heads * group.div_ceil(work.per);
            work.shared <= most && blocks >= processors && plan.longest * group > TILE
        };
        let two = if width <= 256 { Kernel::AttendTensor2 } else { Kernel::AttendTensorWide2 };
        let two = Some(pieces(2, two)).filter(serves);
        two.unwrap_or_else(|| pieces(1, Kernel::AttendTensor1))
    }
}

fn attend(cuda: &Cuda, store: &Store, plan: &Plan, q: &Act, work: &Pieces) -> Act {
    let KvLayerSpec { heads, width, .. } = store.spec;
    let query_heads = q.cols() / width;
    let group = query_heads / heads;
    cuda.want_items(work.cut.number());
    let (items, pieces) = plan.items(cuda, work.cut);
    let most = pieces.iter().map(|piece| piece.partials.len()).max().unwrap_or(0);
    let partials = cuda.pool.get(most * q.cols() * 4);
    let marks = cuda.pool.get(most * query_heads * 8);
    let out = cuda.blank(q.rows(), q.cols());
    let codes = cuda.blank_codes(q.rows(), q.cols());
    let [h, qh, w, c, p] = [heads, query_heads, width, store.cells, work.per].map(|n| n as u32);
    let (lineages, counts) = (plan.lists.at(plan.lists.lineages), plan.lists.counts);
    let views = plan.lists.buffer.address();
    let segments = q.cols().div_ceil(SEGMENT);
    let (block, norm) = store.rotation();
    let block = if store.values.form.is_rotated() { block } else { 0 };
    for piece in pieces {
        // Rows count their partial results from the first row's of all.
        let skipped = piece.partials.start as u64;
        let partials_at =
            Arg::Address(partials.address().wrapping_sub(skipped * 4 * q.cols() as u64));
        let marks_at = Arg::Address(marks.address().wrapping_sub(skipped * 8 * query_heads as u64));
        let items_at = Arg::Address(items + 16 * piece.items.start as u64);
        let shape = Shape {
            grid: (piece.items.len() as u32, (heads * group.div_ceil(work.per)) as u32),
            block: work.threads,
            shared: work.shared as u32,
        };
        let mut args =
            vec![Arg::from(&q.data), Arg::from(&store.keys.data), Arg::from(&store.values.data)];
        args.extend((!store.is_floats()).then(|| Arg::from(cuda.levels())));
        args.push(Arg::Address(views));
        args.extend(args![lineages, items_at, partials_at, marks_at, h, qh, w, c, p]);
        // SAFETY: a block per item and set of query heads; every row of an item has a partial
        // result for each stretch in which it sees anything, or one if the cut is whole, and there
        // is room for those of a piece; shared memory is what the kernel asks for.
        unsafe { cuda.launch(work.kernel, store.pair(), shape, &args) };

        let first = piece.rows.start as u64;
        let at = |buffer: &Buffer, row_bytes: usize| {
            Arg::Address(buffer.address() + first * row_bytes as u64)
        };
        let shape = Shape { grid: (piece.rows.len() as u32, qh), block: w, shared: 0 };
        let counts = if work.cut.whole { 0 } else { views + counts + 4 * first };
        let (views, counts) = (Arg::Address(views + 32 * first), Arg::Address(counts));
        let args = args![
            partials_at,
            marks_at,
            views,
            counts,
            at(&out.data, 4 * q.cols()),
            at(&codes.codes, SEGMENT * segments),
            at(&codes.marks, 64 * segments),
            w,
            segments as u32,
            block,
            norm
        ];
        // SAFETY: a thread per column; every partial result that is counted has been written;
        // codes have a place for every block of whole segments.
        unsafe { cuda.launch(Kernel::AttendMerge, ANY, shape, &args) };
    }
    out.rounded(Some(codes))
}
