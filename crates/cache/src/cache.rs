//! The cache: one store per layer, and how far each slot has come.

use lapidary_core::{
    Batch, CacheFull, KvCache, KvKernels, KvLayerSpec, KvPlan, LayerId, Qkv, Reach, Regime, SlotId,
    Span, Unsupported,
};
use thiserror::Error;

use crate::Extent;
use crate::plan::{Onlooker, Sight, layer_plan, onlook_plan};

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
        Ok(Self { extent, layers, stores, committed: zeros.clone(), reached: zeros })
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
            let cells = self.extent.cells(reach);
            let onlooker = |&slot: &SlotId| Onlooker {
                slot,
                committed: self.committed[slot.index()],
                oldest: self.reached[slot.index()].saturating_sub(cells),
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
        if len > self.committed[slot.index()] {
            return false;
        }
        if len == 0 {
            KvCache::<B>::clear(self, slot);
            return true;
        }
        let reached = self.reached[slot.index()];
        let kept = |spec: &KvLayerSpec| {
            let oldest = reached.saturating_sub(self.extent.cells(spec.reach));
            let needed = spec.reach.first_visible(len)..len;
            needed.is_empty() || needed.start >= oldest
        };
        let whole = len == self.committed[slot.index()] || self.layers.iter().all(kept);
        if whole {
            self.committed[slot.index()] = len;
        }
        whole
    }

    fn clear(&mut self, slot: SlotId) {
        self.committed[slot.index()] = 0;
        self.reached[slot.index()] = 0;
    }
}

fn position_or_push<T: PartialEq>(seen: &mut Vec<T>, item: T) -> usize {
    seen.iter().position(|s| *s == item).unwrap_or_else(|| {
        seen.push(item);
        seen.len() - 1
    })
}
