//! Keys and values in memory: per slot and head, a row of cells.

use std::ops::Range;

use half::f16;
use lapidary_core::{
    Code, KvKernels, KvLayerSpec, LayerPlan, Regime, SlotId, Transport, Unsupported, View,
};

use crate::act::Act;
use crate::cpu::Cpu;
use crate::disjoint::Disjoint;
use crate::kernels::attend::{Element, Partial, STRETCH, Side, Stretch};
use crate::lanes::LANES;
use crate::rotated::{block_width, encode, rotate, unrotate};

/// One layer's keys and values for all slots.
pub struct Store {
    spec: KvLayerSpec,
    cells: usize,
    keys: Cells,
    values: Cells,
}

/// For each slot, head and cell, a head's worth of values.
struct Cells {
    element: Element,
    /// Bytes of a cell.
    size: usize,
    bytes: Vec<u8>,
}

impl Cells {
    fn reserve(code: Code, width: usize, cells: usize) -> Result<Self, Unsupported> {
        let element = match code {
            Code::F32 => Element::F32,
            Code::F16 => Element::F16,
            Code::Rotated(bits @ (4 | 5 | 6 | 8)) => {
                Element::Rotated { bits, block: block_width(width)? }
            }
            Code::Rotated(bits) => {
                let message = format!("codes of {bits} bits do not exist; choose 4, 5, 6 or 8");
                return Err(Unsupported(message));
            }
        };
        let size = element.bytes(width);
        Ok(Self { element, size, bytes: vec![0; cells * size] })
    }

    fn write(&mut self, cell: usize, values: &[f32]) {
        let out = &mut self.bytes[cell * self.size..(cell + 1) * self.size];
        match self.element {
            Element::F32 => {
                let places = out.as_chunks_mut::<4>().0;
                values.iter().zip(places).for_each(|(v, out)| *out = v.to_le_bytes());
            }
            Element::F16 => {
                let places = out.as_chunks_mut::<2>().0;
                let half = |v: &f32| f16::from_f32(*v).to_le_bytes();
                values.iter().zip(places).for_each(|(v, out)| *out = half(v));
            }
            Element::Rotated { bits, block } => {
                let mut rotated = values.to_vec();
                rotate(&mut rotated, block);
                encode(bits, &rotated, block, out);
            }
        }
    }
}

impl Store {
    /// Number of a cell among all of its side.
    fn cell(&self, slot: SlotId, head: usize, entry: u32) -> usize {
        (slot.index() * self.spec.heads + head) * self.cells + entry as usize % self.cells
    }

    fn side<'a>(&self, cells: &'a Cells, slot: SlotId, head: usize) -> Side<'a> {
        let first = self.cell(slot, head, 0) * cells.size;
        let bytes = &cells.bytes[first..first + self.cells * cells.size];
        Side { element: cells.element, bytes }
    }
}

impl KvKernels for Cpu {
    type Store = Store;

    fn reserve(
        &self,
        regime: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Store, Unsupported> {
        if !spec.width.is_multiple_of(LANES) {
            let width = spec.width;
            return Err(Unsupported(format!("heads of width {width} are no multiple of {LANES}")));
        }
        let side = |code| Cells::reserve(code, spec.width, slots * spec.heads * cells);
        Ok(Store { spec, cells, keys: side(regime.keys)?, values: side(regime.values)? })
    }

    fn store_bytes(&self, store: &Store) -> usize {
        store.keys.bytes.len() + store.values.bytes.len()
    }

    fn upload_plan(&self, plan: LayerPlan) -> LayerPlan {
        plan
    }

    fn write(&self, store: &mut Store, plan: &LayerPlan, k: &Act, v: &Act) {
        let width = store.spec.width;
        for (row, &(slot, entry)) in plan.writes.iter().enumerate() {
            let heads = k.row(row).chunks_exact(width).zip(v.row(row).chunks_exact(width));
            for (head, (k, v)) in heads.enumerate() {
                let cell = store.cell(slot, head, entry);
                store.keys.write(cell, k);
                store.values.write(cell, v);
            }
        }
    }

    fn attend(&self, store: &Store, plan: &LayerPlan, q: &Act) -> Act {
        let mut out = Act::zeros(q.rows(), q.cols());
        let attention = Attention::new(store, plan, q);
        if attention.tasks() >= 4 * self.pool.threads() {
            attention.by_row(self, out.data_mut());
        } else {
            attention.by_stretch(self, out.data_mut());
        }
        out
    }

    fn copy(&self, store: &mut Store, slot: SlotId, from: u32, to: u32) {
        for head in 0..store.spec.heads {
            let (from, to) = (store.cell(slot, head, from), store.cell(slot, head, to));
            for Cells { size, bytes, .. } in [&mut store.keys, &mut store.values] {
                bytes.copy_within(from * *size..(from + 1) * *size, to * *size);
            }
        }
    }

    fn transport(&self) -> Option<&dyn Transport<Store>> {
        Some(self)
    }
}

/// An entry's bytes are those of its heads in turn, each head's key before its value.
impl Transport<Store> for Cpu {
    fn layout(&self) -> &'static str {
        "cpu-1"
    }

    fn entry_bytes(&self, store: &Store) -> usize {
        store.spec.heads * (store.keys.size + store.values.size)
    }

    fn export(&self, store: &Store, slot: SlotId, entries: Range<u32>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(entries.len() * self.entry_bytes(store));
        for entry in entries {
            for head in 0..store.spec.heads {
                let cell = store.cell(slot, head, entry);
                for side in [&store.keys, &store.values] {
                    bytes.extend_from_slice(&side.bytes[cell * side.size..(cell + 1) * side.size]);
                }
            }
        }
        bytes
    }

    fn import(&self, store: &mut Store, slot: SlotId, first: u32, bytes: &[u8]) {
        let entries = bytes.chunks_exact(self.entry_bytes(store));
        assert!(entries.remainder().is_empty(), "{} bytes are no whole entries", bytes.len());
        let head_bytes = store.keys.size + store.values.size;
        for (entry, bytes) in (first..).zip(entries) {
            for (head, bytes) in bytes.chunks_exact(head_bytes).enumerate() {
                let cell = store.cell(slot, head, entry);
                let (key, value) = bytes.split_at(store.keys.size);
                for (side, bytes) in [(&mut store.keys, key), (&mut store.values, value)] {
                    side.bytes[cell * side.size..(cell + 1) * side.size].copy_from_slice(bytes);
                }
            }
        }
    }
}

/// One call of `attend`: a task is one row and one key-value head.
struct Attention<'a> {
    store: &'a Store,
    plan: &'a LayerPlan,
    q: &'a Act,
    /// Columns of `q` and of the output that belong to one key-value head.
    columns: usize,
}

impl<'a> Attention<'a> {
    fn new(store: &'a Store, plan: &'a LayerPlan, q: &'a Act) -> Self {
        let heads = store.spec.heads;
        assert_eq!(plan.views.len(), q.rows(), "one view per row");
        assert!(
            q.cols().is_multiple_of(heads * store.spec.width),
            "{} query columns over {heads} heads of {}",
            q.cols(),
            store.spec.width
        );
        Self { store, plan, q, columns: q.cols() / heads }
    }

    fn tasks(&self) -> usize {
        self.q.rows() * self.store.spec.heads
    }

    /// `(row, head, where its output goes)` of a task.
    fn task(&self, task: usize) -> (usize, usize, std::ops::Range<usize>) {
        let heads = self.store.spec.heads;
        let (row, head) = (task / heads, task % heads);
        let first = row * self.q.cols() + head * self.columns;
        (row, head, first..first + self.columns)
    }

    /// Many tasks: each goes through its stretches alone.
    fn by_row(&self, cpu: &Cpu, out: &mut [f32]) {
        let out = Disjoint::new(out);
        cpu.pool.run(self.tasks(), &|task| {
            let (row, head, place) = self.task(task);
            let visible = self.visible(&self.plan.views[row]);
            let heads = 0..self.columns / self.store.spec.width;
            let parts = stretches(&visible).map(|visible| {
                let part = Part { row, head, visible, heads: heads.clone() };
                (heads.start, self.partials(cpu, &part))
            });
            // SAFETY: each task has its own place.
            self.finish(parts, unsafe { out.part(place) });
        });
    }

    /// Few tasks: their stretches are shared out, those of few stretches by query heads too, then put
    /// together in order.
    fn by_stretch(&self, cpu: &Cpu, out: &mut [f32]) {
        let visible: Vec<_> = self.plan.views.iter().map(|view| self.visible(view)).collect();
        let whole: usize = visible.iter().map(|visible| stretches(visible).count()).sum();
        let heads = self.columns / self.store.spec.width;
        // Twice as many pieces as threads, for stretches are of different lengths; but no more parts
        // than threads, for each reads all keys and values.
        let threads = cpu.pool.threads();
        let pieces = (whole * self.store.spec.heads).max(1);
        let parts = (2 * threads).div_ceil(pieces).min(threads).min(heads);
        let mut work = Vec::new();
        for task in 0..self.tasks() {
            let (row, head, _) = self.task(task);
            for visible in stretches(&visible[row]) {
                let first = |part: usize| part * heads / parts;
                let part = |part| Part { row, head, visible, heads: first(part)..first(part + 1) };
                work.extend((0..parts).map(|i| (task, part(i))));
            }
        }
        let mut done: Vec<Vec<Partial>> = vec![Vec::new(); work.len()];
        let places = Disjoint::new(&mut done);
        cpu.pool.run(work.len(), &|i| {
            // SAFETY: each piece of work has its own place.
            let place = unsafe { places.part(i..i + 1) };
            place[0] = self.partials(cpu, &work[i].1);
        });
        let mut done = work.iter().zip(done).peekable();
        for task in 0..self.tasks() {
            let (.., place) = self.task(task);
            let own = std::iter::from_fn(|| done.next_if(|((t, _), _)| *t == task));
            let own = own.map(|((_, part), partials)| (part.heads.start, partials));
            self.finish(own, &mut out[place]);
        }
    }

    /// Every visible position with its cell.
    fn visible(&self, view: &View) -> Vec<(u32, u32)> {
        let cells = self.store.cells as u32;
        view.entries().map(|(pos, entry)| (pos, entry % cells)).collect()
    }

    fn partials(&self, cpu: &Cpu, part: &Part<'_>) -> Vec<Partial> {
        let &Part { row, head, visible, ref heads } = part;
        let (slot, width) = (self.plan.views[row].slot, self.store.spec.width);
        let first = head * self.columns;
        let columns = first + heads.start * width..first + heads.end * width;
        let mut q = self.q.row(row)[columns].to_vec();
        if let Element::Rotated { block, .. } = self.store.keys.element {
            rotate(&mut q, block);
        }
        let stretch = Stretch {
            keys: self.store.side(&self.store.keys, slot, head),
            values: self.store.side(&self.store.values, slot, head),
            visible,
            q: &q,
            width,
        };
        // SAFETY: `kernels` are those of a detected `Isa`; cells are taken modulo their number;
        // `reserve` checked the width.
        unsafe { (cpu.kernels.attend)(&stretch) }
    }

    /// Puts the parts of a task together, oldest first; each begins at some query head.
    fn finish(&self, parts: impl Iterator<Item = (usize, Vec<Partial>)>, out: &mut [f32]) {
        let width = self.store.spec.width;
        let mut whole = vec![Partial::empty(width); self.columns / width];
        for (first, partials) in parts {
            whole[first..].iter_mut().zip(&partials).for_each(|(whole, part)| whole.merge(part));
        }
        let heads = whole.iter().zip(out.chunks_exact_mut(width));
        heads.for_each(|(whole, out)| whole.write(out));
        if let Element::Rotated { block, .. } = self.store.values.element {
            unrotate(out, block);
        }
    }
}

/// A stretch of what a row sees, for some of the query heads of a key-value head.
struct Part<'a> {
    row: usize,
    head: usize,
    visible: &'a [(u32, u32)],
    heads: Range<usize>,
}

/// Cuts visible positions at multiples of [`STRETCH`].
fn stretches(visible: &[(u32, u32)]) -> impl Iterator<Item = &[(u32, u32)]> {
    let stretch = |&(pos, _): &(u32, u32)| pos as usize / STRETCH;
    visible.chunk_by(move |a, b| stretch(a) == stretch(b))
}
