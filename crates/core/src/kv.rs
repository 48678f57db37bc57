//! The cache contract, in three parts: what a layer needs ([`KvLayerSpec`]), what a device stores
//! ([`Regime`], [`KvKernels`]), and what a model sees ([`KvCache`]).

use std::fmt;
use std::ops::Range;

use thiserror::Error;

use crate::{Backend, Batch, LayerId, Section, SlotId, Span, Transport, Unsupported};

/// How far back a layer's attention reaches.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reach {
    /// The whole sequence.
    All,
    /// The last `n` positions, the row's own included.
    Window(u32),
}

impl Reach {
    /// First position that a row at `pos` sees.
    pub fn first_visible(self, pos: u32) -> u32 {
        match self {
            Self::All => 0,
            Self::Window(window) => (pos + 1).saturating_sub(window),
        }
    }
}

/// One layer's demand on the cache.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct KvLayerSpec {
    /// Key-value heads.
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// How far back it looks.
    pub reach: Reach,
    /// Whether rows of one two-way block (an image) see each other whatever their order.
    pub two_way: bool,
}

/// How one side of the cache, keys or values, is stored.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// 32-bit floats: what came in.
    F32,
    /// 16-bit floats.
    F16,
    /// Rotated by a signed Walsh-Hadamard transform, normed, each value coded in this many bits.
    Rotated(u8),
}

/// A way of storing keys and values. Rows attend to what is *stored*: the whole round trip,
/// rotation and back included, happens inside the backend's `attend`, once.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Regime {
    /// Of the keys.
    pub keys: Code,
    /// Of the values.
    pub values: Code,
}

impl Regime {
    /// Both sides exactly as they came in.
    pub const F32: Self = Self { keys: Code::F32, values: Code::F32 };
    /// Both sides rounded to 16-bit floats.
    pub const F16: Self = Self { keys: Code::F16, values: Code::F16 };
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.keys, self.values) {
            (Code::F32, Code::F32) => f.write_str("f32"),
            (Code::F16, Code::F16) => f.write_str("f16"),
            (Code::F16, Code::Rotated(bits)) => write!(f, "hybrid:{bits}"),
            (Code::Rotated(k), Code::Rotated(v)) if k == v => write!(f, "tq{k}"),
            (Code::Rotated(k), Code::Rotated(v)) => write!(f, "tq:k{k}:v{v}"),
            (keys, values) => write!(f, "{keys:?}/{values:?}"),
        }
    }
}

/// What one row may read from its slot's region, oldest position first: a run of entries whose
/// number is their position, and then, for a node of a draft tree, its ancestors and itself.
///
/// Entry `e` lives in cell `e % cells`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct View {
    /// The region.
    pub slot: SlotId,
    /// The row's own position.
    pub pos: u32,
    /// Visible entries whose position equals their entry number. In a two-way block it may reach
    /// past `pos`.
    pub run: Range<u32>,
    /// Further entries, at positions `pos + 1 - lineage.len()..=pos`. Empty for a chain.
    pub lineage: Vec<u32>,
}

impl View {
    /// Every visible entry with its position, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let first = (self.pos + 1).saturating_sub(self.lineage.len() as u32);
        let tail = self.lineage.iter().zip(first..).map(|(&entry, pos)| (pos, entry));
        self.run.clone().map(|entry| (entry, entry)).chain(tail)
    }

    /// How many entries are visible.
    pub fn len(&self) -> usize {
        self.run.len() + self.lineage.len()
    }

    /// Whether nothing is visible. Never so for a view made by a cache: a row sees itself.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads and writes of one step, for all layers of one reach.
#[derive(Clone, Debug, Default)]
pub struct LayerPlan {
    /// Where row `i` goes: `(region, entry)`.
    pub writes: Vec<(SlotId, u32)>,
    /// What row `i` sees.
    pub views: Vec<View>,
}

/// The reads and writes of one step. Only a cache can make one, from a batch it has room for.
pub struct KvPlan<B: Backend> {
    by_layer: Vec<usize>,
    plans: Vec<B::Plan>,
    ends: Vec<(SlotId, u32)>,
}

impl<B: Backend> KvPlan<B> {
    /// `plans[by_layer[l]]` serves layer `l`; the rows of `batch` are what is planned.
    pub fn new(batch: &Batch, by_layer: Vec<usize>, plans: Vec<B::Plan>) -> Self {
        let end = |span: &Span| (span.slot, span.base + span.len as u32);
        Self { by_layer, plans, ends: batch.spans().iter().map(end).collect() }
    }

    /// Rows that only look: nothing is written.
    pub fn reading(by_layer: Vec<usize>, plans: Vec<B::Plan>) -> Self {
        Self { by_layer, plans, ends: Vec::new() }
    }

    /// The plan for one layer.
    pub fn layer(&self, id: LayerId) -> &B::Plan {
        &self.plans[self.by_layer[id.index()]]
    }

    /// For each slot of the step, one past the last entry that the step writes.
    pub fn ends(&self) -> &[(SlotId, u32)] {
        &self.ends
    }
}

/// Fresh queries, keys and values of a step's rows.
pub struct Qkv<B: Backend> {
    /// Normed and rotated queries.
    pub q: B::Act,
    /// Normed and rotated keys.
    pub k: B::Act,
    /// Values.
    pub v: B::Act,
}

/// Device code that stores and attends.
pub trait KvKernels: Backend {
    /// One layer's storage for all slots.
    type Store;
    /// Reserves `slots` regions of `cells` cells.
    ///
    /// # Errors
    /// The device lacks the regime for this shape, or is full.
    fn reserve(
        &self,
        regime: Regime,
        spec: KvLayerSpec,
        slots: usize,
        cells: usize,
    ) -> Result<Self::Store, Unsupported>;
    /// Bytes that a store holds.
    fn store_bytes(&self, store: &Self::Store) -> usize;
    /// Brings a plan onto the device.
    fn upload_plan(&self, plan: LayerPlan) -> Self::Plan;
    /// Stores each row's keys and values.
    fn write(&self, store: &mut Self::Store, plan: &Self::Plan, k: &Self::Act, v: &Self::Act);
    /// Attends each row to its view: `softmax(q · kᵀ) · v` per head, query head `g` reading
    /// key-value head `g / (query heads / key-value heads)`. There is no scale.
    fn attend(&self, store: &Self::Store, plan: &Self::Plan, q: &Self::Act) -> Self::Act;
    /// Copies one entry of a region over another, as stored.
    fn copy(&self, store: &mut Self::Store, slot: SlotId, from: u32, to: u32);
    /// The way in and out of a store, if the device has one. Without it no prefix is shared or
    /// saved, and prompts are read instead.
    fn transport(&self) -> Option<&dyn Transport<Self::Store>> {
        None
    }
}

/// No room for a step.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CacheFull {
    /// The span names a slot that the cache does not have.
    #[error("there is no slot {}", slot.0)]
    NoSlot {
        /// Whose span.
        slot: SlotId,
    },
    /// The sequence would outgrow its region.
    #[error("slot {} holds {context} tokens and would need {needed}", slot.0)]
    Slot {
        /// Whose span.
        slot: SlotId,
        /// Entries the span would bring it to.
        needed: u64,
        /// Entries a slot can hold.
        context: u32,
    },
    /// A span is longer than the cache was sized for.
    #[error("a step may bring {most} rows to slot {}, not {len}", slot.0)]
    Span {
        /// Whose span.
        slot: SlotId,
        /// Its rows.
        len: usize,
        /// The most rows one step may bring.
        most: usize,
    },
    /// The span does not follow the committed entries.
    #[error("slot {} holds {committed} tokens, but the span continues {base}", slot.0)]
    Gap {
        /// Whose span.
        slot: SlotId,
        /// Entries committed.
        committed: u32,
        /// What the span claims.
        base: u32,
    },
}

/// A cache as a model sees it.
pub trait KvCache<B: Backend> {
    /// Decides, once per step, where every row is written and what it sees. Changes nothing.
    ///
    /// # Errors
    /// [`CacheFull`], with nothing changed.
    fn plan(&self, ops: &B, batch: &Batch) -> Result<KvPlan<B>, CacheFull>;
    /// A plan for one row per slot that stores nothing and sees what is committed, as a row at the
    /// next position would that does not see itself: everything, or the newest `window + 1`
    /// entries that are left. That is how a drafter that has no entries of its own looks at its
    /// target's. No slot is empty.
    fn onlook(&self, ops: &B, slots: &[SlotId]) -> KvPlan<B>;
    /// Stores the rows of one layer, then attends them.
    fn attend(&mut self, ops: &B, plan: &KvPlan<B>, layer: LayerId, qkv: Qkv<B>) -> B::Act;
    /// Attends to what an earlier layer stored in this step.
    fn attend_shared(&self, ops: &B, plan: &KvPlan<B>, owner: LayerId, q: B::Act) -> B::Act;
    /// Accepts rows of the slot's last span, offsets within it, oldest first, each the parent of
    /// the next. What was not accepted is forgotten.
    fn commit(&mut self, ops: &B, slot: SlotId, accepted: &[usize]);
    /// Entries of the slot that later rows may build on.
    fn committed(&self, slot: SlotId) -> u32;
    /// Forgets the slot's entries from `len` on. `false`, with nothing changed, if a ring has
    /// overwritten what rows at `len` would need, or there are fewer entries than that.
    fn truncate(&mut self, slot: SlotId, len: u32) -> bool;
    /// Forgets everything in the slot.
    fn clear(&mut self, slot: SlotId);

    /// Makes slot `to` hold the first `len` entries of slot `from`, copied as stored, and nothing
    /// else. `false`, with nothing changed, if `from` could not be truncated to `len`, the slots
    /// are one, or the device has no [`Transport`].
    fn fork(&mut self, ops: &B, from: SlotId, to: SlotId, len: u32) -> bool {
        let _ = (ops, from, to, len);
        false
    }
    /// Takes out a slot's committed entries, as they are stored. `None` if there are none or fewer
    /// than that, the rings have lost what going on after them needs, or the device has no
    /// [`Transport`].
    fn save(&self, ops: &B, slot: SlotId, entries: Range<u32>) -> Option<Section> {
        let _ = (ops, slot, entries);
        None
    }
    /// Makes the slot hold the first `len` entries of consecutive sections, and nothing else.
    /// `false`, with nothing changed, if they do not hold what rows at `len` need, come from a
    /// cache of another shape, or the device has no [`Transport`].
    fn restore(&mut self, ops: &B, slot: SlotId, path: &[&Section], len: u32) -> bool {
        let _ = (ops, slot, path, len);
        false
    }
}
