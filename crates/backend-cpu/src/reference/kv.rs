//! The naive cache: every entry a vector of floats, attention by its definition.

use half::f16;
use lapidary_core::{Code, KvKernels, KvLayerSpec, LayerPlan, Regime, SlotId, Unsupported};

use super::{Reference, Rows};

/// One layer's keys and values for all slots.
pub struct Store {
    spec: KvLayerSpec,
    cells: usize,
    regime: Regime,
    /// `(keys, values)` of all heads, per slot and cell.
    entries: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Store {
    fn cell(&self, slot: SlotId, entry: u32) -> usize {
        slot.index() * self.cells + entry as usize % self.cells
    }
}

/// What comes back out of a store.
fn round_trip(code: Code, x: &[f32]) -> Vec<f32> {
    match code {
        Code::F32 => x.to_vec(),
        Code::F16 => x.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
        Code::Rotated(_) => unreachable!("`reserve` refuses rotated codes"),
    }
}

impl KvKernels for Reference {
    type Store = Store;

    fn reserve(
        &self,
        regime: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Store, Unsupported> {
        let rotated = |code| matches!(code, Code::Rotated(_));
        if rotated(regime.keys) || rotated(regime.values) {
            return Err(Unsupported(format!("the reference has no {regime} cache")));
        }
        Ok(Store { spec, cells, regime, entries: vec![Default::default(); slots * cells] })
    }

    fn store_bytes(&self, store: &Store) -> usize {
        store.entries.len() * store.spec.heads * store.spec.width * 8
    }

    fn upload_plan(&self, plan: LayerPlan) -> LayerPlan {
        plan
    }

    fn write(&self, store: &mut Store, plan: &LayerPlan, k: &Rows, v: &Rows) {
        for (row, &(slot, entry)) in plan.writes.iter().enumerate() {
            let cell = store.cell(slot, entry);
            let keys = round_trip(store.regime.keys, k.row(row));
            store.entries[cell] = (keys, round_trip(store.regime.values, v.row(row)));
        }
    }

    fn attend(&self, store: &Store, plan: &LayerPlan, q: &Rows) -> Rows {
        let KvLayerSpec { heads, width, .. } = store.spec;
        let group = q.cols / width / heads;
        let mut data = Vec::new();
        for (row, view) in q.iter().zip(&plan.views) {
            let seen: Vec<_> =
                view.entries().map(|(_, entry)| store.cell(view.slot, entry)).collect();
            for (g, q) in row.chunks_exact(width).enumerate() {
                let head = g / group * width..(g / group + 1) * width;
                let score = |cell: &usize| {
                    let key = &store.entries[*cell].0[head.clone()];
                    q.iter().zip(key).map(|(q, k)| q * k).sum::<f32>()
                };
                let scores: Vec<f32> = seen.iter().map(score).collect();
                let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let shares: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
                let sum: f32 = shares.iter().sum();
                let mut out = vec![0.0; width];
                for (share, cell) in shares.iter().zip(&seen) {
                    let value = &store.entries[*cell].1[head.clone()];
                    out.iter_mut().zip(value).for_each(|(out, v)| *out += share / sum * v);
                }
                data.extend(out);
            }
        }
        Rows { cols: q.cols, data }
    }

    fn copy(&self, store: &mut Store, slot: SlotId, from: u32, to: u32) {
        let (from, to) = (store.cell(slot, from), store.cell(slot, to));
        store.entries[to] = store.entries[from].clone();
    }
}
