//! The naive cache: every entry a vector of floats, attention by its definition.

use std::ops::Range;

use half::f16;
use lapidary_core::{
    Code, KvKernels, KvLayerSpec, LayerPlan, ROTATED_BLOCK, Regime, SlotId, Transport, Unsupported,
    levels, sign,
};

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
        Code::Rotated(bits) => {
            let block = x.len().min(ROTATED_BLOCK);
            x.chunks_exact(block).flat_map(|x| round_block(levels(bits), x)).collect()
        }
    }
}

/// Rotates a block by the definition of the transform, takes the nearest levels of its values
/// over their root mean square, scales them by least squares, and rotates back.
fn round_block(levels: &[f32], x: &[f32]) -> Vec<f32> {
    let n = x.len();
    let entry = |i: usize, j: usize| {
        let sign = if (i & j).count_ones() % 2 == 1 { -1.0 } else { 1.0 };
        sign / (n as f64).sqrt()
    };
    let signed = |j: usize| f64::from(sign(j)) * f64::from(x[j]);
    let rotated = |i: usize| (0..n).map(|j| entry(i, j) * signed(j)).sum::<f64>();
    let rotated: Vec<f64> = (0..n).map(rotated).collect();
    let rms = (rotated.iter().map(|y| y * y).sum::<f64>() / n as f64).sqrt();
    let nearest = |y: &f64| {
        let far = |level: &f32| (f64::from(*level) - y / rms).abs();
        let best = levels.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
        f64::from(*best.expect("there are levels"))
    };
    let chosen: Vec<f64> = rotated.iter().map(nearest).collect();
    let dot: f64 = chosen.iter().zip(&rotated).map(|(c, y)| c * y).sum();
    let scale = if rms > 0.0 { dot / chosen.iter().map(|c| c * c).sum::<f64>() } else { 0.0 };
    let back = |j: usize| (0..n).map(|i| entry(i, j) * chosen[i]).sum::<f64>() * scale;
    (0..n).map(|j| (f64::from(sign(j)) * back(j)) as f32).collect()
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
    fn transport(&self) -> Option<&dyn Transport<Store>> {
        Some(self)
    }
}

/// An entry's bytes are its keys, then its values, as floats.
impl Transport<Store> for Reference {
    fn layout(&self) -> &'static str {
        "reference"
    }

    fn entry_bytes(&self, store: &Store) -> usize {
        store.spec.heads * store.spec.width * 8
    }

    fn export(&self, store: &Store, slot: SlotId, entries: Range<u32>) -> Vec<u8> {
        let stored = entries.map(|entry| &store.entries[store.cell(slot, entry)]);
        let floats = stored.flat_map(|(keys, values)| keys.iter().chain(values));
        floats.flat_map(|x| x.to_le_bytes()).collect()
    }

    fn import(&self, store: &mut Store, slot: SlotId, first: u32, bytes: &[u8]) {
        let floats: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let side = store.spec.heads * store.spec.width;
        for (entry, both) in (first..).zip(floats.chunks_exact(2 * side)) {
            let cell = store.cell(slot, entry);
            store.entries[cell] = (both[..side].to_vec(), both[side..].to_vec());
        }
    }
}
