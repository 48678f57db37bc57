//! Keys and values in memory: per slot and head, a row of cells.

use half::f16;
use lapidary_core::{Code, KvKernels, KvLayerSpec, LayerPlan, Regime, SlotId, Unsupported, View};

use crate::act::Act;
use crate::cpu::Cpu;
use crate::disjoint::Disjoint;
use crate::kernels::attend::{Element, Partial, STRETCH, Side, Stretch};
use crate::lanes::LANES;

/// One layer's keys and values for all slots.
pub struct Store {
    spec: KvLayerSpec,
    cells: usize,
    keys: Cells,
    values: Cells,
}

/// `slots × heads × cells × width` elements.
struct Cells {
    element: Element,
    bytes: Vec<u8>,
}

impl Element {
    fn of(code: Code) -> Result<Self, Unsupported> {
        match code {
            Code::F32 => Ok(Self::F32),
            Code::F16 => Ok(Self::F16),
            Code::Rotated(bits) => {
                Err(Unsupported(format!("the CPU has no {bits}-bit rotated cache; use f16 or f32")))
            }
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

impl Cells {
    fn write(element: Element, values: &[f32], out: &mut [u8]) {
        match element {
            Element::F32 => {
                let places = out.as_chunks_mut::<4>().0;
                values.iter().zip(places).for_each(|(v, out)| *out = v.to_le_bytes());
            }
            Element::F16 => {
                let places = out.as_chunks_mut::<2>().0;
                let half = |v: &f32| f16::from_f32(*v).to_le_bytes();
                values.iter().zip(places).for_each(|(v, out)| *out = half(v));
            }
        }
    }
}

impl Store {
    /// Index of the first element of a cell.
    fn at(&self, slot: SlotId, head: usize, cell: usize) -> usize {
        ((slot.index() * self.spec.heads + head) * self.cells + cell) * self.spec.width
    }

    fn side<'a>(&self, cells: &'a Cells, slot: SlotId, head: usize) -> Side<'a> {
        let size = cells.element.bytes();
        let first = self.at(slot, head, 0) * size;
        let len = self.cells * self.spec.width * size;
        Side { element: cells.element, bytes: &cells.bytes[first..first + len] }
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
        let elements = slots * spec.heads * cells * spec.width;
        let side = |code| {
            let element = Element::of(code)?;
            Ok(Cells { element, bytes: vec![0; elements * element.bytes()] })
        };
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
                let at = store.at(slot, head, entry as usize % store.cells);
                for (cells, x) in [(&mut store.keys, k), (&mut store.values, v)] {
                    let size = cells.element.bytes();
                    let place = at * size..(at + width) * size;
                    Cells::write(cells.element, x, &mut cells.bytes[place]);
                }
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
        let width = store.spec.width;
        for head in 0..store.spec.heads {
            let from = store.at(slot, head, from as usize % store.cells);
            let to = store.at(slot, head, to as usize % store.cells);
            for cells in [&mut store.keys, &mut store.values] {
                let size = cells.element.bytes();
                cells.bytes.copy_within(from * size..(from + width) * size, to * size);
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
            let partials = stretches(&visible).map(|part| self.partials(cpu, row, head, part));
            // SAFETY: each task has its own place.
            self.finish(partials, unsafe { out.part(place) });
        });
    }

    /// Few tasks: their stretches are shared out, then put together in order.
    fn by_stretch(&self, cpu: &Cpu, out: &mut [f32]) {
        let visible: Vec<_> = self.plan.views.iter().map(|view| self.visible(view)).collect();
        let mut work = Vec::new();
        for task in 0..self.tasks() {
            let (row, head, _) = self.task(task);
            work.extend(stretches(&visible[row]).map(|part| (task, row, head, part)));
        }
        let mut done: Vec<Vec<Partial>> = vec![Vec::new(); work.len()];
        let places = Disjoint::new(&mut done);
        cpu.pool.run(work.len(), &|i| {
            let (_, row, head, part) = work[i];
            // SAFETY: each piece of work has its own place.
            let place = unsafe { places.part(i..i + 1) };
            place[0] = self.partials(cpu, row, head, part);
        });
        let mut done = work.iter().zip(done).peekable();
        for task in 0..self.tasks() {
            let (.., place) = self.task(task);
            let own = std::iter::from_fn(|| done.next_if(|((t, ..), _)| *t == task));
            self.finish(own.map(|(_, partials)| partials), &mut out[place]);
        }
    }

    /// Every visible position with its cell.
    fn visible(&self, view: &View) -> Vec<(u32, u32)> {
        let cells = self.store.cells as u32;
        view.entries().map(|(pos, entry)| (pos, entry % cells)).collect()
    }

    fn partials(&self, cpu: &Cpu, row: usize, head: usize, visible: &[(u32, u32)]) -> Vec<Partial> {
        let slot = self.plan.views[row].slot;
        let stretch = Stretch {
            keys: self.store.side(&self.store.keys, slot, head),
            values: self.store.side(&self.store.values, slot, head),
            visible,
            q: &self.q.row(row)[head * self.columns..(head + 1) * self.columns],
            width: self.store.spec.width,
        };
        // SAFETY: `kernels` are those of a detected `Isa`; cells are taken modulo their number;
        // `reserve` checked the width.
        unsafe { (cpu.kernels.attend)(&stretch) }
    }

    /// Puts the stretches of a task together, oldest first.
    fn finish(&self, stretches: impl Iterator<Item = Vec<Partial>>, out: &mut [f32]) {
        let width = self.store.spec.width;
        let mut whole = vec![Partial::empty(width); self.columns / width];
        for partials in stretches {
            whole.iter_mut().zip(&partials).for_each(|(whole, part)| whole.merge(part));
        }
        let heads = whole.iter().zip(out.chunks_exact_mut(width));
        heads.for_each(|(whole, out)| whole.write(out));
    }
}

/// Cuts visible positions at multiples of [`STRETCH`].
fn stretches(visible: &[(u32, u32)]) -> impl Iterator<Item = &[(u32, u32)]> {
    let stretch = |&(pos, _): &(u32, u32)| pos as usize / STRETCH;
    visible.chunk_by(move |a, b| stretch(a) == stretch(b))
}
