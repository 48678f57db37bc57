//! The cache: one store per layer, and how far each slot has come.

use std::ops::Range;

use lapidary_core::{
    Batch, CacheFull, Kept, KvCache, KvKernels, KvLayerSpec, KvPlan, LayerId, Qkv, Reach, Regime,
    Section, SlotId, Span, Unsupported,
};
use thiserror::Error;

use crate::Extent;
use crate::plan::{Onlooker, Sight, layer_plan, onlook_plan};
use crate::section::{floor, is_path, kept, needed, pieces, resumable};

/// A cache could not be reserved.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ReserveError {
    /// The device refused a layer's store.
    #[error("the cache of layer {}: {reason}", layer.0)]
    Layer {
        /// Which layer.
        layer: LayerId,
        /// The device's reason.
        reason: Unsupported,
    },
    /// The extent cannot hold a single step.
    #[error("a cache needs at least one slot, one token of context and a burst of one")]
    Empty,
}

/// Keys and values of all slots and layers.
///
/// A layer that shares another's entries has no store of its own; it is served through
/// [`KvCache::attend_shared`].
pub struct Cache<B: KvKernels> {
    extent: Extent,
    layers: Vec<KvLayerSpec>,
    /// `None` for layers that share an earlier layer's entries.
    stores: Vec<Option<B::Store>>,
    /// Entries that later rows may build on, per slot.
    committed: Vec<u32>,
    /// One past the highest entry written since the slot was last cleared, per slot.
    reached: Vec<u32>,
    /// How many entries a slot was given at once; its rings hold no more of them than the next row
    /// needed.
    given: Vec<u32>,
}

impl<B: KvKernels> Cache<B> {
    /// Reserves what the layers need. `owns(layer)` says whether a layer stores entries of its
    /// own, `regime(layer)` how.
    ///
    /// # Errors
    /// The device lacks a regime or the memory, or the extent is empty.
    pub fn new(
        ops: &B,
        layers: Vec<KvLayerSpec>,
        extent: Extent,
        owns: impl Fn(LayerId) -> bool,
        regime: impl Fn(LayerId) -> Regime,
    ) -> Result<Self, ReserveError> {
        if extent.slots == 0 || extent.context == 0 || extent.burst == 0 {
            return Err(ReserveError::Empty);
        }
        let reserve = |(spec, layer): (&KvLayerSpec, LayerId)| {
            let cells = extent.cells(spec.reach) as usize;
            let store = ops.reserve(regime(layer), *spec, extent.slots, cells);
            store.map_err(|reason| ReserveError::Layer { layer, reason })
        };
        let stores = layers
            .iter()
            .zip((0..).map(LayerId))
            .map(|(spec, layer)| owns(layer).then(|| reserve((spec, layer))).transpose())
            .collect::<Result<_, _>>()?;
        let zeros = vec![0; extent.slots];
        let (committed, reached, given) = (zeros.clone(), zeros.clone(), zeros);
        Ok(Self { extent, layers, stores, committed, reached, given })
    }

    /// The size it was reserved with.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Bytes reserved by layers that see everything, and by layers that look back over a window.
    pub fn bytes(&self, ops: &B) -> (usize, usize) {
        let (mut global, mut sliding) = (0, 0);
        for (spec, store) in self.layers.iter().zip(&self.stores) {
            let bytes = store.as_ref().map_or(0, |store| ops.store_bytes(store));
            match spec.reach {
                Reach::All => global += bytes,
                Reach::Window(_) => sliding += bytes,
            }
        }
        (global, sliding)
    }

    fn admit(&self, span: &Span) -> Result<(), CacheFull> {
        let (slot, len) = (span.slot, span.len);
        let Some(&committed) = self.committed.get(slot.index()) else {
            return Err(CacheFull::NoSlot { slot });
        };
        let most = self.extent.burst as usize;
        if span.base != committed {
            return Err(CacheFull::Gap { slot, committed, base: span.base });
        }
        if len > most {
            return Err(CacheFull::Span { slot, len, most });
        }
        let (needed, context) = (u64::from(span.base) + len as u64, self.extent.context);
        if needed > u64::from(context) {
            return Err(CacheFull::Slot { slot, needed, context });
        }
        Ok(())
    }

    /// The distinct ways in which layers look at entries, and which of them each layer has.
    fn sights(&self) -> (Vec<usize>, Vec<Sight>) {
        let mut sights = Vec::new();
        let sight = |spec: &KvLayerSpec| Sight { reach: spec.reach, two_way: spec.two_way };
        let by_layer = self.layers.iter().map(|spec| position_or_push(&mut sights, sight(spec)));
        (by_layer.collect(), sights)
    }

    /// Whether a layer still holds these of the slot's entries.
    fn holds(&self, slot: SlotId, spec: &KvLayerSpec, entries: &Range<u32>) -> bool {
        entries.is_empty() || entries.start >= self.oldest(slot, spec.reach)
    }

    /// The first of the slot's entries that a layer still holds.
    fn oldest(&self, slot: SlotId, reach: Reach) -> u32 {
        let (reached, given) = (self.reached[slot.index()], self.given[slot.index()]);
        let overwritten = reached.saturating_sub(self.extent.cells(reach));
        overwritten.max(reach.first_visible(given))
    }

    /// Whether the slot has `len` entries that a row could follow.
    fn can_go_on(&self, slot: SlotId, len: u32) -> bool {
        let committed = self.committed[slot.index()];
        let held = |spec: &KvLayerSpec| self.holds(slot, spec, &needed(spec, len));
        len == committed || len < committed && self.layers.iter().all(held)
    }

    /// The slot was given `len` entries from elsewhere.
    fn give(&mut self, slot: SlotId, len: u32) {
        let i = slot.index();
        (self.committed[i], self.reached[i], self.given[i]) = (len, len, len);
    }

    /// The layers that own entries, each with its store.
    fn owners(&self) -> impl Iterator<Item = (&KvLayerSpec, &B::Store)> {
        let layers = self.layers.iter().zip(&self.stores);
        layers.filter_map(|(spec, store)| store.as_ref().map(|store| (spec, store)))
    }

    fn owners_mut(&mut self) -> impl Iterator<Item = (&KvLayerSpec, &mut B::Store)> {
        let layers = self.layers.iter().zip(&mut self.stores);
        layers.filter_map(|(spec, store)| store.as_mut().map(|store| (spec, store)))
    }

    fn store(&self, layer: LayerId) -> &B::Store {
        self.stores[layer.index()].as_ref().expect("only layers that own entries are asked")
    }
}

impl<B: KvKernels> KvCache<B> for Cache<B> {
    fn plan(&self, ops: &B, batch: &Batch) -> Result<KvPlan<B>, CacheFull> {
        batch.spans().iter().try_for_each(|span| self.admit(span))?;
        let (by_layer, sights) = self.sights();
        let upload = |sight| ops.upload_plan(layer_plan(batch, sight));
        Ok(KvPlan::new(batch, by_layer, sights.into_iter().map(upload).collect()))
    }

    fn onlook(&self, ops: &B, slots: &[SlotId]) -> KvPlan<B> {
        let (by_layer, sights) = self.sights();
        let upload = |Sight { reach, .. }: Sight| {
            let onlooker = |&slot: &SlotId| Onlooker {
                slot,
                committed: self.committed[slot.index()],
                oldest: self.oldest(slot, reach),
            };
            ops.upload_plan(onlook_plan(slots.iter().map(onlooker), reach))
        };
        KvPlan::reading(by_layer, sights.into_iter().map(upload).collect())
    }

    fn attend(&mut self, ops: &B, plan: &KvPlan<B>, layer: LayerId, qkv: Qkv<B>) -> B::Act {
        let store = self.stores[layer.index()].as_mut();
        let store = store.expect("only layers that own entries store any");
        ops.write(store, plan.layer(layer), &qkv.k, &qkv.v);
        for &(slot, end) in plan.ends() {
            let reached = &mut self.reached[slot.index()];
            *reached = (*reached).max(end);
        }
        ops.attend(store, plan.layer(layer), &qkv.q)
    }

    fn attend_shared(&self, ops: &B, plan: &KvPlan<B>, owner: LayerId, q: B::Act) -> B::Act {
        ops.attend(self.store(owner), plan.layer(owner), &q)
    }

    fn commit(&mut self, ops: &B, slot: SlotId, accepted: &[usize]) {
        let base = self.committed[slot.index()];
        let moved = accepted.iter().enumerate().filter(|&(to, &from)| to != from);
        for (to, &from) in moved {
            assert!(to < from, "accepted rows come in ascending order, {from} at place {to}");
            for store in self.stores.iter_mut().flatten() {
                ops.copy(store, slot, base + from as u32, base + to as u32);
            }
        }
        self.committed[slot.index()] = base + accepted.len() as u32;
    }

    fn committed(&self, slot: SlotId) -> u32 {
        self.committed[slot.index()]
    }

    fn truncate(&mut self, slot: SlotId, len: u32) -> bool {
        if len == 0 {
            KvCache::<B>::clear(self, slot);
            return true;
        }
        let whole = self.can_go_on(slot, len);
        if whole {
            self.committed[slot.index()] = len;
        }
        whole
    }

    fn clear(&mut self, slot: SlotId) {
        self.give(slot, 0);
    }

    fn fork(&mut self, ops: &B, from: SlotId, to: SlotId, len: u32) -> bool {
        let Some(transport) = ops.transport() else { return false };
        let there = from.index().max(to.index()) < self.extent.slots;
        if from == to || !there || !self.can_go_on(from, len) {
            return false;
        }
        for (spec, store) in self.owners_mut() {
            transport.fork(store, from, to, needed(spec, len));
        }
        self.give(to, len);
        true
    }

    fn save(&self, ops: &B, slot: SlotId, entries: Range<u32>) -> Option<Section> {
        let transport = ops.transport()?;
        let there = slot.index() < self.extent.slots;
        if !there || entries.is_empty() || !self.can_go_on(slot, entries.end) {
            return None;
        }
        let held = |spec: &KvLayerSpec, least| self.holds(slot, spec, &kept(spec, &entries, least));
        let all_held = |least: &u32| self.layers.iter().all(|spec| held(spec, *least));
        let least = resumable(&entries).find(all_held)?;
        let (mut layers, mut highest) = (Vec::new(), entries.start);
        for (spec, store) in self.owners() {
            let kept = kept(spec, &entries, least);
            highest = highest.max(floor(spec, entries.start, &kept));
            let bytes = transport.export(store, slot, kept.clone());
            if bytes.len() != kept.len() * transport.entry_bytes(store) {
                // The device failed, as whoever waits for it will see.
                return None;
            }
            layers.push(Kept { entries: kept, bytes });
        }
        Some(Section { from: entries.start, end: entries.end, floor: highest, layers })
    }

    fn restore(&mut self, ops: &B, slot: SlotId, path: &[&Section], len: u32) -> bool {
        let Some(transport) = ops.transport() else { return false };
        let fits = slot.index() < self.extent.slots && len <= self.extent.context;
        if len == 0 || !fits || !is_path(path, self.owners().count(), len) {
            return false;
        }
        let of_layer = |(layer, (spec, store)): (usize, (&KvLayerSpec, &B::Store))| {
            pieces(path, layer, needed(spec, len), transport.entry_bytes(store))
        };
        let all: Option<Vec<_>> = self.owners().enumerate().map(of_layer).collect();
        let Some(all) = all else { return false };
        for ((_, store), pieces) in self.owners_mut().zip(all) {
            for (first, bytes) in pieces {
                transport.import(store, slot, first, bytes);
            }
        }
        self.give(slot, len);
        true
    }
}

fn position_or_push<T: PartialEq>(seen: &mut Vec<T>, item: T) -> usize {
    seen.iter().position(|s| *s == item).unwrap_or_else(|| {
        seen.push(item);
        seen.len() - 1
    })
}
