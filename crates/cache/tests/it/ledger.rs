//! A device that computes nothing: its cells hold labels, and attending lists the labels seen.

use std::ops::Range;

use lapidary_core::{
    Backend, DeviceError, KvKernels, KvLayerSpec, LayerPlan, Matrix, Reach, Regime, Rope, SlotId,
    TokenId, Transport, Unsupported,
};

/// Tells one stored row from every other. Zero: nothing was stored.
pub(crate) type Label = u64;

/// A device of ledgers.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Cells that it keeps back from every ring it is asked for.
    pub(crate) withheld: usize,
}

/// The labels in the cells of one layer, slot after slot.
pub(crate) struct Cells {
    per_slot: usize,
    labels: Vec<Label>,
}

impl Cells {
    fn at(&self, slot: SlotId, entry: u32) -> usize {
        slot.index() * self.per_slot + entry as usize % self.per_slot
    }
}

impl KvKernels for Ledger {
    type Store = Cells;

    fn reserve(
        &self,
        _: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Cells, Unsupported> {
        let ring = matches!(spec.reach, Reach::Window(_));
        let per_slot = cells - if ring { self.withheld } else { 0 };
        if per_slot == 0 {
            return Err(Unsupported("a ring without cells".into()));
        }
        Ok(Cells { per_slot, labels: vec![0; slots * per_slot] })
    }

    fn store_bytes(&self, store: &Cells) -> usize {
        store.labels.len()
    }

    fn upload_plan(&self, plan: LayerPlan) -> LayerPlan {
        plan
    }

    fn write(&self, store: &mut Cells, plan: &LayerPlan, k: &Self::Act, v: &Self::Act) {
        assert_eq!((k, plan.writes.len()), (v, k.len()), "one write per row");
        for (&(slot, entry), row) in plan.writes.iter().zip(k) {
            let cell = store.at(slot, entry);
            store.labels[cell] = row[0].1;
        }
    }

    /// What each row sees: positions as the plan says, labels as the cells hold them.
    fn attend(&self, store: &Cells, plan: &LayerPlan, _: &Self::Act) -> Self::Act {
        let label = |slot, entry| store.labels[store.at(slot, entry)];
        let rows = plan.views.iter();
        rows.map(|v| v.entries().map(|(pos, entry)| (pos, label(v.slot, entry))).collect())
            .collect()
    }

    fn copy(&self, store: &mut Cells, slot: SlotId, from: u32, to: u32) {
        let (from, to) = (store.at(slot, from), store.at(slot, to));
        store.labels[to] = store.labels[from];
    }

    fn transport(&self) -> Option<&dyn Transport<Cells>> {
        Some(self)
    }
}

impl Transport<Cells> for Ledger {
    fn layout(&self) -> &'static str {
        "labels"
    }

    fn entry_bytes(&self, _: &Cells) -> usize {
        size_of::<Label>()
    }

    fn export(&self, store: &Cells, slot: SlotId, entries: Range<u32>) -> Vec<u8> {
        entries.flat_map(|entry| store.labels[store.at(slot, entry)].to_le_bytes()).collect()
    }

    fn import(&self, store: &mut Cells, slot: SlotId, first: u32, bytes: &[u8]) {
        for (entry, label) in (first..).zip(bytes.as_chunks().0) {
            let cell = store.at(slot, entry);
            store.labels[cell] = Label::from_le_bytes(*label);
        }
    }
}

const NO_MATHS: &str = "a cache asks for no arithmetic";

impl Backend for Ledger {
    /// `(position, label)` pairs, row after row.
    type Act = Vec<Vec<(u32, Label)>>;
    type Weight = ();
    type Vector = ();
    type Routes = ();
    type Angles = ();
    type Plan = LayerPlan;

    fn name(&self) -> String {
        "ledger".into()
    }

    fn matrix(&self, _: Matrix<'_>) -> Result<(), Unsupported> {
        unreachable!("{NO_MATHS}")
    }

    fn vector(&self, _: &[f32]) {
        unreachable!("{NO_MATHS}")
    }

    fn upload(&self, _: &[f32], _: usize) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn angles(&self, _: &Rope, _: &[[u32; 3]]) {
        unreachable!("{NO_MATHS}")
    }

    fn embed(&self, (): &(), _: &[TokenId], _: f32) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn replace_rows(&self, _: Self::Act, _: &Self::Act, _: &[(usize, usize)]) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn linear(&self, _: &Self::Act, (): &()) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn rms_norm(&self, _: &Self::Act, (): &(), _: f32) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn unit_norm(&self, _: &Self::Act, _: usize, _: f32) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn rope(&self, _: Self::Act, (): &()) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn add(&self, _: &Self::Act, _: &Self::Act) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn scale(&self, _: Self::Act, (): &()) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn gelu_mul(&self, _: &Self::Act, _: &Self::Act) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn clamp(&self, _: &Self::Act, _: f32, _: f32) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn softcap(&self, _: Self::Act, _: f32) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn route(&self, _: &Self::Act, (): &(), _: usize) {
        unreachable!("{NO_MATHS}")
    }

    fn experts(&self, _: &Self::Act, (): &(), (): &(), (): &()) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn select(&self, _: &Self::Act, _: &[usize]) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn columns(&self, _: &Self::Act, _: Range<usize>) -> Self::Act {
        unreachable!("{NO_MATHS}")
    }

    fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _: &Self::Act) -> Result<Vec<f32>, DeviceError> {
        unreachable!("{NO_MATHS}")
    }
}
