//! Keys and values on the device: per slot and head, a row of cells.

use std::cell::OnceCell;

use lapidary_core::{Code, KvKernels, KvLayerSpec, LayerPlan, Regime, SlotId, Unsupported, View};

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
    spec: KvLayerSpec,
    cells: usize,
    element: Element,
    keys: Buffer,
    values: Buffer,
}

/// How numbers are stored; the values are those of `FORMAT` in the kernels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Element {
    F32 = 8,
    F16 = 9,
}

impl Element {
    fn of(regime: Regime) -> Result<Self, Unsupported> {
        match (regime.keys, regime.values) {
            (Code::F32, Code::F32) => Ok(Self::F32),
            (Code::F16, Code::F16) => Ok(Self::F16),
            _ => Err(Unsupported(format!("CUDA has no {regime} cache; use f16 or f32"))),
        }
    }

    fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// The reads and writes of a step's rows on the device.
pub struct Plan {
    views: Vec<View>,
    /// The longest run of neighbouring rows of one chain.
    longest: usize,
    /// Partial results in all.
    partials: usize,
    lists: Lists,
    /// Work for blocks that attend up to `2^i` rows at once: with the other lists for those that
    /// earlier plans needed, else made when first needed. A list of its own that goes out between
    /// launches would cut them in two.
    items: [OnceCell<Items>; EXPONENTS],
}

/// `{first row, rows, stretch, 0}` for each block, and how many there are.
struct Items {
    place: Place,
    count: usize,
}

enum Place {
    /// Bytes from the start of the plan's lists.
    Lists(u64),
    Own(Buffer),
}

/// Blocks take up to 32 rows at once.
const EXPONENTS: usize = 6;

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
        let items: [OnceCell<Items>; EXPONENTS] = Default::default();
        for (exponent, cell) in items.iter().enumerate().filter(|(e, _)| cuda.wants_items(*e)) {
            // Items are read sixteen bytes at a time.
            words.resize(words.len().next_multiple_of(4), 0);
            let place = Place::Lists(4 * words.len() as u64);
            let list = items_of(&plan.views, exponent);
            let count = list.len() / 4;
            words.extend(list);
            cell.get_or_init(|| Items { place, count });
        }
        let longest = plan.views.chunk_by(chain).map(<[View]>::len).max().unwrap_or(0);
        let buffer = cuda.list(&words);
        let lists = Lists { buffer, writes, lineages: lineages_at, counts: counts_at };
        Self { views: plan.views, longest, partials: partials as usize, lists, items }
    }

    /// Where the items for blocks of up to `2^exponent` rows are, and how many there are.
    fn items(&self, cuda: &Cuda, exponent: usize) -> (Arg, usize) {
        let items = self.items[exponent].get_or_init(|| {
            let list = items_of(&self.views, exponent);
            Items { place: Place::Own(cuda.list(&list)), count: list.len() / 4 }
        });
        let place = match &items.place {
            Place::Lists(offset) => self.lists.at(*offset),
            Place::Own(buffer) => Arg::from(buffer),
        };
        (place, items.count)
    }
}

fn items_of(views: &[View], exponent: usize) -> Vec<u32> {
    let (mut words, mut first) = (Vec::new(), 0);
    for run in views.chunk_by(chain) {
        for rows in run.chunks(1 << exponent) {
            let ranges = rows.iter().map(stretches);
            let start = ranges.clone().map(|(start, _)| start).min().unwrap_or(0);
            let end = ranges.map(|(start, count)| start + count).max().unwrap_or(0);
            words.extend((start..end).flat_map(|stretch| [first, rows.len() as u32, stretch, 0]));
            first += rows.len() as u32;
        }
    }
    words
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
        let element = Element::of(regime)?;
        let attend = match element {
            Element::F32 => Kernel::Attend,
            Element::F16 => Kernel::AttendTensor1,
        };
        let format = element as u32;
        for (kernel, format) in [
            (Kernel::KvCopy, ANY),
            (Kernel::AttendMerge, ANY),
            (Kernel::KvWrite, format),
            (Kernel::AttendPlain, format),
            (attend, format),
        ] {
            self.prepare(kernel, format).map_err(|e| Unsupported(e.to_string()))?;
        }
        let bytes = slots * spec.heads * cells * spec.width * element.bytes() as usize;
        let side = || {
            let buffer = self.pool.try_get(bytes).ok_or_else(|| {
                let free = self.memory().0 >> 20;
                Unsupported(format!(
                    "a cache of {} MiB does not fit into {free} MiB; use fewer slots or a shorter \
                     context",
                    (2 * bytes) >> 20
                ))
            })?;
            buffer.zero();
            Ok(buffer)
        };
        Ok(Store { spec, cells, element, keys: side()?, values: side()? })
    }

    fn store_bytes(&self, store: &Store) -> usize {
        store.keys.bytes() + store.values.bytes()
    }

    fn upload_plan(&self, plan: LayerPlan) -> Plan {
        Plan::upload(self, plan)
    }

    fn write(&self, store: &mut Store, plan: &Plan, k: &Act, v: &Act) {
        let KvLayerSpec { heads, width, .. } = store.spec;
        for x in [k, v] {
            assert_eq!((x.rows(), x.cols()), (plan.views.len(), heads * width), "rows to store");
        }
        let [rows, heads, width, count] = [k.rows(), heads, width, store.cells].map(|n| n as u32);
        let writes = plan.lists.at(plan.lists.writes);
        let args =
            args![k.data, v.data, store.keys, store.values, writes, rows, heads, width, count];
        let shape = Shape::each(k.len());
        // SAFETY: one thread per number; entries are taken modulo the cells, and the cache names
        // no slot that was not reserved.
        unsafe { self.launch(Kernel::KvWrite, store.element as u32, shape, &args) };
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
        let work = match store.element {
            Element::F32 => Pieces::plain(q.cols() / width / heads),
            Element::F16 => Pieces::tensor(self, store, plan, q.cols() / width / heads),
        };
        attend(self, store, plan, q, &work)
    }

    fn copy(&self, store: &mut Store, slot: SlotId, from: u32, to: u32) {
        let KvLayerSpec { heads, width, .. } = store.spec;
        let bytes = width as u32 * store.element.bytes();
        assert!(bytes.is_multiple_of(4), "cells of {bytes} bytes");
        let (heads, words, count) = (heads as u32, bytes / 4, store.cells as u32);
        for cells in [&store.keys, &store.values] {
            let args = args![cells, slot.0, from, to, heads, words, count];
            let shape = Shape::each((heads * words) as usize);
            // SAFETY: entries are taken modulo the cells.
            unsafe { self.launch(Kernel::KvCopy, ANY, shape, &args) };
        }
    }
}

impl Cuda {
    /// Attention by its definition: the twin of the fast kernel, and the way for widths that it
    /// does not serve.
    pub fn attend_plain(&self, store: &Store, plan: &Plan, q: &Act) -> Act {
        let KvLayerSpec { heads, width, .. } = store.spec;
        let out = self.blank(q.rows(), q.cols());
        let shape = Shape {
            grid: (q.rows() as u32, (q.cols() / width) as u32),
            block: PLAIN_THREADS,
            shared: 4 * (width as u32 + 2 * STRETCH),
        };
        let (heads, width, cells) = (heads as u32, width as u32, store.cells as u32);
        let (keys, values) = (&store.keys, &store.values);
        let (views, lineages) = (plan.lists.views(), plan.lists.at(plan.lists.lineages));
        let args = args![q.data, keys, values, views, lineages, out.data, heads, width, cells];
        // SAFETY: a block per row and query head; a view per row; entries modulo the cells.
        unsafe { self.launch(Kernel::AttendPlain, store.element as u32, shape, &args) };
        out
    }
}

/// How attention is cut into blocks.
struct Pieces {
    kernel: Kernel,
    /// Query heads that a block takes at once.
    per: usize,
    /// It takes up to `2^exponent` rows.
    exponent: usize,
    /// Bytes of shared memory, given the width of a head.
    shared: fn(usize, usize) -> usize,
    tiles: usize,
}

impl Pieces {
    /// For `group` query heads to a key-value head, without tensor cores.
    fn plain(group: usize) -> Self {
        let per = group.min(PAIRS);
        let exponent = (PAIRS / per).ilog2() as usize;
        let shared = |width, _| 4 * (PAIRS * width + (PAIRS + 1) * STRETCH as usize + 2048);
        Self { kernel: Kernel::Attend, per, exponent, shared, tiles: 0 }
    }

    /// With tensor cores: two tiles a block for runs of rows that fill them.
    fn tensor(cuda: &Cuda, store: &Store, plan: &Plan, group: usize) -> Self {
        let shared: fn(usize, usize) -> usize = |width, tiles| {
            tiles * (64 * width + TILE * STRETCH as usize * 8) + 4 * STRETCH as usize
        };
        // A little shared memory is used by the kernel itself.
        let most = cuda.device.shared_bytes as usize - 4096;
        let wanted = plan.longest * group > TILE && shared(store.spec.width, 2) <= most;
        let (tiles, kernel) =
            if wanted { (2, Kernel::AttendTensor2) } else { (1, Kernel::AttendTensor1) };
        let per = group.min(TILE * tiles);
        let exponent = (TILE * tiles / per).ilog2() as usize;
        Self { kernel, per, exponent: exponent.min(EXPONENTS - 1), shared, tiles }
    }
}

fn attend(cuda: &Cuda, store: &Store, plan: &Plan, q: &Act, work: &Pieces) -> Act {
    let KvLayerSpec { heads, width, .. } = store.spec;
    let query_heads = q.cols() / width;
    let group = query_heads / heads;
    cuda.want_items(work.exponent);
    let (items, count) = plan.items(cuda, work.exponent);
    let partials = cuda.pool.get(plan.partials * q.cols() * 4);
    let marks = cuda.pool.get(plan.partials * query_heads * 8);
    let shape = Shape {
        grid: (count as u32, (heads * group.div_ceil(work.per)) as u32),
        block: 256,
        shared: (work.shared)(width, work.tiles) as u32,
    };
    let [h, qh, w, c, p] = [heads, query_heads, width, store.cells, work.per].map(|n| n as u32);
    let (views, lineages) = (plan.lists.views(), plan.lists.at(plan.lists.lineages));
    let (keys, values) = (&store.keys, &store.values);
    let args = args![q.data, keys, values, views, lineages, items, partials, marks, h, qh, w, c, p];
    // SAFETY: a block per item and set of query heads; every row of an item has a partial result
    // for each stretch in which it sees anything; shared memory is what the kernel asks for.
    unsafe { cuda.launch(work.kernel, store.element as u32, shape, &args) };

    let out = cuda.blank(q.rows(), q.cols());
    let codes = cuda.blank_codes(q.rows(), q.cols());
    let shape = Shape { grid: (q.rows() as u32, qh), block: w, shared: 0 };
    let (counts, segments) = (plan.lists.at(plan.lists.counts), q.cols().div_ceil(SEGMENT) as u32);
    let args =
        args![partials, marks, views, counts, out.data, codes.codes, codes.marks, w, segments];
    // SAFETY: a thread per column; every partial result that is counted has been written; codes
    // have a place for every block of whole segments.
    unsafe { cuda.launch(Kernel::AttendMerge, ANY, shape, &args) };
    out.rounded(Some(codes))
}
