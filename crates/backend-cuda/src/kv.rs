//! Keys and values on the device: per slot and head, a row of cells.

use std::cell::OnceCell;

use lapidary_core::{Code, KvKernels, KvLayerSpec, LayerPlan, Regime, SlotId, Unsupported, View};

use crate::act::Act;
use crate::cuda::{Cuda, args};
use crate::device::Shape;
use crate::kernels::{ANY, Kernel};
use crate::pool::Buffer;

/// Positions of one partial result; `STRETCH` of kernels/view.cuh.
const STRETCH: u32 = 128;
/// Most pairs of a row and a head that one block attends; `PAIRS` of kernels/attend.cu.
const PAIRS: usize = 8;
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
    /// `{slot, entry}` per row.
    writes: Buffer,
    /// See `View` of kernels/view.cuh.
    on_device: Buffer,
    lineages: Buffer,
    /// Partial results per row.
    counts: Buffer,
    /// Partial results in all.
    partials: usize,
    /// Work for blocks that attend 1, 2, 4 or 8 rows at once, made when first needed.
    items: [OnceCell<(Buffer, usize)>; 4],
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

impl Plan {
    fn upload(cuda: &Cuda, plan: LayerPlan) -> Self {
        let mut words = Vec::with_capacity(8 * plan.views.len());
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
        let writes: Vec<u32> =
            plan.writes.iter().flat_map(|(slot, entry)| [slot.0, *entry]).collect();
        Self {
            views: plan.views,
            writes: cuda.list(&writes),
            on_device: cuda.list(&words),
            lineages: cuda.list(&lineages),
            counts: cuda.list(&counts),
            partials: partials as usize,
            items: Default::default(),
        }
    }

    /// `{first row, rows, stretch, 0}` for blocks that take up to `2^exponent` rows, and how many
    /// there are. Rows share a block if they are neighbours of one chain.
    fn items(&self, cuda: &Cuda, exponent: usize) -> &(Buffer, usize) {
        self.items[exponent].get_or_init(|| {
            let chain = |a: &View, b: &View| {
                a.slot == b.slot && a.lineage.is_empty() && b.lineage.is_empty()
            };
            let (mut words, mut first) = (Vec::new(), 0);
            for run in self.views.chunk_by(chain) {
                for rows in run.chunks(1 << exponent) {
                    let ranges = rows.iter().map(stretches);
                    let start = ranges.clone().map(|(start, _)| start).min().unwrap_or(0);
                    let end = ranges.map(|(start, count)| start + count).max().unwrap_or(0);
                    let item = |stretch| [first, rows.len() as u32, stretch, 0];
                    words.extend((start..end).flat_map(item));
                    first += rows.len() as u32;
                }
            }
            (cuda.list(&words), words.len() / 4)
        })
    }
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
        let kernels = [Kernel::KvWrite, Kernel::KvCopy, Kernel::AttendMerge];
        let attends = [Kernel::Attend, Kernel::AttendPlain].map(|kernel| (kernel, element as u32));
        for (kernel, format) in kernels.map(|kernel| (kernel, ANY)).into_iter().chain(attends) {
            self.prepare(kernel, format).map_err(|e| Unsupported(e.to_string()))?;
        }
        let bytes = slots * spec.heads * cells * spec.width * element.bytes() as usize;
        let side = || {
            let buffer = self.pool.try_get(bytes).ok_or_else(|| {
                let free = self.memory().0 >> 20;
                Unsupported(format!(
                    "a cache of {} MiB does not fit into {free} MiB; use fewer slots or a shorter \
                     context",
                    2 * bytes >> 20
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
        for (cells, x) in [(&store.keys, k), (&store.values, v)] {
            assert_eq!((x.rows(), x.cols()), (plan.views.len(), heads * width), "rows to store");
            let (rows, heads, width) = (x.rows() as u32, heads as u32, width as u32);
            let (count, bytes) = (store.cells as u32, store.element.bytes());
            let args = args![x.data, cells, plan.writes, rows, heads, width, count, bytes];
            // SAFETY: one thread per number; entries are taken modulo the cells, and the cache
            // names no slot that was not reserved.
            unsafe { self.launch(Kernel::KvWrite, ANY, Shape::each(x.len()), &args) };
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
        if width.is_multiple_of(64) && width <= 512 {
            attend(self, store, plan, q)
        } else {
            self.attend_plain(store, plan, q)
        }
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
        let args = args![
            q.data, keys, values, plan.on_device, plan.lineages, out.data, heads, width, cells
        ];
        // SAFETY: a block per row and query head; a view per row; entries modulo the cells.
        unsafe { self.launch(Kernel::AttendPlain, store.element as u32, shape, &args) };
        out
    }
}

fn attend(cuda: &Cuda, store: &Store, plan: &Plan, q: &Act) -> Act {
    let KvLayerSpec { heads, width, .. } = store.spec;
    let query_heads = q.cols() / width;
    let group = query_heads / heads;
    let per = group.min(PAIRS);
    let exponent = (PAIRS / per).ilog2() as usize;
    let (items, count) = plan.items(cuda, exponent);
    let partials = cuda.pool.get(plan.partials * q.cols() * 4);
    let marks = cuda.pool.get(plan.partials * query_heads * 8);
    let shape = Shape {
        grid: (*count as u32, (heads * group.div_ceil(per)) as u32),
        block: 256,
        shared: 4 * (PAIRS * width + PAIRS * STRETCH as usize + 2048 + STRETCH as usize) as u32,
    };
    let [h, qh, w, c, p] = [heads, query_heads, width, store.cells, per].map(|n| n as u32);
    let (keys, values, views) = (&store.keys, &store.values, &plan.on_device);
    let args = args![
        q.data, keys, values, views, plan.lineages, items, partials, marks, h, qh, w, c, p
    ];
    // SAFETY: a block per item and set of query heads; every row of an item has a partial result
    // for each stretch in which it sees anything; shared memory is what the kernel asks for.
    unsafe { cuda.launch(Kernel::Attend, store.element as u32, shape, &args) };

    let out = cuda.blank(q.rows(), q.cols());
    let shape = Shape { grid: (q.rows() as u32, qh), block: w, shared: 0 };
    let args = args![partials, marks, views, plan.counts, out.data, w];
    // SAFETY: a thread per column; every partial result that is counted has been written.
    unsafe { cuda.launch(Kernel::AttendMerge, ANY, shape, &args) };
    out
}
