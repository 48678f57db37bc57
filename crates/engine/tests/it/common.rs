//! A model whose logits are a hash of the whole text before them, as the cache saw it. One token
//! lost, doubled, misplaced or left from an earlier request changes everything after it.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lapidary_core::{
    Backend, Batch, CacheFull, DeviceError, Input, Kept, KvCache, KvLayerSpec, KvPlan, LayerId,
    Matrix, Qkv, Reach, Rope, Section, SlotId, TokenId, Unsupported,
};
use lapidary_engine::{Finish, Limits, Request};
use lapidary_model::{Hooks, Model, Step};

/// Entries of the fake vocabulary. Small, so that stop tokens and lucky guesses come up.
pub(crate) const VOCAB: usize = 9;
/// A token that makes the model panic.
pub(crate) const PANIC: TokenId = TokenId(7);
/// A token after which all logits are NaN.
pub(crate) const NAN: TokenId = TokenId(8);

/// Rows of `width` values.
pub(crate) struct Rows {
    width: usize,
    values: Vec<f32>,
}

/// A device that can select and read rows, and break.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    /// Makes it report a fault.
    pub(crate) broken: Arc<AtomicBool>,
    /// Makes it panic.
    pub(crate) explosive: Arc<AtomicBool>,
    /// How often a head was run.
    pub(crate) heads: Arc<AtomicUsize>,
}

impl Backend for Fake {
    type Act = Rows;
    type Weight = ();
    type Vector = ();
    type Routes = ();
    type Angles = ();
    type Plan = Batch;

    fn name(&self) -> String {
        "fake".to_owned()
    }
    fn matrix(&self, _: Matrix<'_>) -> Result<(), Unsupported> {
        unreachable!()
    }
    fn vector(&self, _: &[f32]) {
        unreachable!()
    }
    fn upload(&self, _: &[f32], _: usize) -> Rows {
        unreachable!()
    }
    fn angles(&self, _: &Rope, _: &[[u32; 3]]) {
        unreachable!()
    }
    fn embed(&self, (): &(), _: &[TokenId], _: f32) -> Rows {
        unreachable!()
    }
    fn replace_rows(&self, _: Rows, _: &Rows, _: &[(usize, usize)]) -> Rows {
        unreachable!()
    }
    fn linear(&self, _: &Rows, (): &()) -> Rows {
        unreachable!()
    }
    fn rms_norm(&self, _: &Rows, (): &(), _: f32) -> Rows {
        unreachable!()
    }
    fn unit_norm(&self, _: &Rows, _: usize, _: f32) -> Rows {
        unreachable!()
    }
    fn rope(&self, _: Rows, (): &()) -> Rows {
        unreachable!()
    }
    fn add(&self, _: &Rows, _: &Rows) -> Rows {
        unreachable!()
    }
    fn scale(&self, _: Rows, (): &()) -> Rows {
        unreachable!()
    }
    fn gelu_mul(&self, _: &Rows, _: &Rows) -> Rows {
        unreachable!()
    }
    fn clamp(&self, _: &Rows, _: f32, _: f32) -> Rows {
        unreachable!()
    }
    fn softcap(&self, _: Rows, _: f32) -> Rows {
        unreachable!()
    }
    fn route(&self, _: &Rows, (): &(), _: usize) {
        unreachable!()
    }
    fn experts(&self, _: &Rows, (): &(), (): &(), (): &()) -> Rows {
        unreachable!()
    }
    fn columns(&self, _: &Rows, _: Range<usize>) -> Rows {
        unreachable!()
    }

    fn select(&self, x: &Rows, rows: &[usize]) -> Rows {
        assert!(!self.explosive.load(Ordering::Relaxed), "a panic on the device");
        let row = |&i: &usize| &x.values[i * x.width..(i + 1) * x.width];
        Rows { width: x.width, values: rows.iter().flat_map(row).copied().collect() }
    }

    fn finish(&self) -> Result<(), DeviceError> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(DeviceError("out of smoke".to_owned()));
        }
        Ok(())
    }

    fn read(&self, x: &Rows) -> Result<Vec<f32>, DeviceError> {
        self.finish()?;
        Ok(x.values.clone())
    }
}

/// Holds each slot's tokens; attending a row hashes all that it sees.
pub(crate) struct FakeCache {
    pub(crate) context: u32,
    pub(crate) burst: usize,
    slots: Vec<Slot>,
}

#[derive(Clone, Default)]
struct Slot {
    committed: Vec<TokenId>,
    fresh: Vec<TokenId>,
}

impl FakeCache {
    pub(crate) fn new(limits: &Limits) -> Self {
        let slots = vec![Slot::default(); limits.slots];
        Self { context: limits.context, burst: limits.burst, slots }
    }

    /// Whether every row that ran has been kept or dropped.
    pub(crate) fn is_settled(&self) -> bool {
        self.slots.iter().all(|slot| slot.fresh.is_empty())
    }
}

impl KvCache<Fake> for FakeCache {
    fn onlook(&self, _: &Fake, _: &[SlotId]) -> KvPlan<Fake> {
        unreachable!("no drafter looks on")
    }
    fn plan(&self, _: &Fake, batch: &Batch) -> Result<KvPlan<Fake>, CacheFull> {
        for span in batch.spans() {
            let slot = span.slot;
            let held = self.slots.get(slot.index()).ok_or(CacheFull::NoSlot { slot })?;
            let committed = held.committed.len() as u32;
            let needed = u64::from(span.base) + span.len as u64;
            if needed > u64::from(self.context) {
                return Err(CacheFull::Slot { slot, needed, context: self.context });
            }
            if span.len > self.burst {
                return Err(CacheFull::Span { slot, len: span.len, most: self.burst });
            }
            if committed != span.base {
                return Err(CacheFull::Gap { slot, committed, base: span.base });
            }
        }
        Ok(KvPlan::new(batch, vec![0], vec![batch.clone()]))
    }

    fn attend(&mut self, _: &Fake, plan: &KvPlan<Fake>, layer: LayerId, qkv: Qkv<Fake>) -> Rows {
        let mut values = Vec::new();
        for span in plan.layer(layer).spans() {
            let slot = &mut self.slots[span.slot.index()];
            let keys = &qkv.k.values[span.first..span.first + span.len];
            slot.fresh = keys.iter().map(|&key| TokenId(key as u32)).collect();
            for i in 0..span.len {
                let lineage = span.lineage(i);
                let seen = lineage.iter().map(|&j| slot.fresh[j]);
                values.extend(state(slot.committed.iter().copied().chain(seen)));
            }
        }
        Rows { width: 2, values }
    }

    fn attend_shared(&self, _: &Fake, _: &KvPlan<Fake>, _: LayerId, _: Rows) -> Rows {
        unreachable!()
    }

    fn commit(&mut self, _: &Fake, slot: SlotId, accepted: &[usize]) {
        let slot = &mut self.slots[slot.index()];
        let fresh = std::mem::take(&mut slot.fresh);
        slot.committed.extend(accepted.iter().map(|&i| fresh[i]));
    }

    fn committed(&self, slot: SlotId) -> u32 {
        self.slots[slot.index()].committed.len() as u32
    }

    /// Refuses odd lengths, as a ring may refuse any.
    fn truncate(&mut self, slot: SlotId, len: u32) -> bool {
        let committed = &mut self.slots[slot.index()].committed;
        let can = len.is_multiple_of(2) || len as usize == committed.len();
        if can {
            committed.truncate(len as usize);
        }
        can
    }

    fn clear(&mut self, slot: SlotId) {
        self.slots[slot.index()] = Slot::default();
    }

    /// Refuses every third length.
    fn fork(&mut self, _: &Fake, from: SlotId, to: SlotId, len: u32) -> bool {
        assert!(self.slots[to.index()].fresh.is_empty(), "a running slot is not filled");
        let held = &self.slots[from.index()].committed;
        let can = from != to && len as usize <= held.len() && len % 3 != 2;
        if can {
            let committed = held[..len as usize].to_vec();
            self.slots[to.index()] = Slot { committed, fresh: Vec::new() };
        }
        can
    }

    /// Refuses every fourth length.
    fn save(&self, _: &Fake, slot: SlotId, entries: Range<u32>) -> Option<Section> {
        let Range { start: from, end } = entries;
        let held = &self.slots[slot.index()].committed;
        let tokens = held.get(from as usize..end as usize).filter(|_| end % 4 != 3)?;
        let bytes = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
        let floor = from.max(end.saturating_sub(2));
        Some(Section { from, end, floor, layers: vec![Kept { entries, bytes }] })
    }

    /// Refuses every fifth length.
    fn restore(&mut self, _: &Fake, slot: SlotId, path: &[&Section], len: u32) -> bool {
        let bytes = path.iter().flat_map(|section| &section.layers[0].bytes).copied();
        let bytes: Vec<u8> = bytes.collect();
        let tokens = bytes.as_chunks().0.iter().map(|bytes| TokenId(u32::from_le_bytes(*bytes)));
        let last = path.last().expect("a path has a section");
        assert!(last.floor <= len && len <= last.end, "{len} of {last:?}");
        if len % 5 == 4 {
            return false;
        }
        let committed = tokens.take(len as usize).collect();
        self.slots[slot.index()] = Slot { committed, fresh: Vec::new() };
        true
    }
}

/// One layer that attends, and nothing else.
pub(crate) struct FakeModel;

impl Model<Fake> for FakeModel {
    fn kv_specs(&self) -> Vec<KvLayerSpec> {
        vec![KvLayerSpec { heads: 1, width: 1, reach: Reach::All, two_way: false }]
    }
    fn hidden(&self) -> usize {
        2
    }
    fn vocab(&self) -> usize {
        VOCAB
    }
    fn embed(&self, _: &Fake, _: &[TokenId]) -> Rows {
        unreachable!("no drafter looks on")
    }

    fn forward(
        &self,
        ops: &Fake,
        cache: &mut dyn KvCache<Fake>,
        step: &Step<'_, Fake>,
        _: &mut dyn Hooks<Fake>,
    ) -> Rows {
        let token = |input| match input {
            Input::Token(token) => token,
            Input::Soft { .. } => unreachable!("the engine sends tokens"),
        };
        let rows = step.batch.rows();
        let tokens: Vec<_> = rows.iter().map(|row| token(row.input)).collect();
        assert!(!tokens.contains(&PANIC), "a panic in the model");
        let side = || Rows { width: 1, values: tokens.iter().map(|t| t.0 as f32).collect() };
        let qkv = Qkv { q: side(), k: side(), v: side() };
        let mut states = cache.attend(ops, &step.kv, LayerId(0), qkv);
        for (i, _) in tokens.iter().enumerate().filter(|(_, token)| **token == NAN) {
            states.values[2 * i] = f32::NAN;
        }
        states
    }

    fn logits(&self, ops: &Fake, hidden: &Rows) -> Rows {
        ops.heads.fetch_add(1, Ordering::Relaxed);
        let values =
            hidden.values.chunks_exact(2).flat_map(|state| logits(state.try_into().unwrap()));
        Rows { width: VOCAB, values: values.collect() }
    }
}

/// The hidden state after a text: 32 bits of hash, as two numbers that a float holds exactly.
pub(crate) fn state(text: impl Iterator<Item = TokenId>) -> [f32; 2] {
    let hash = text.fold(17, |hash, token| mix(hash ^ u64::from(token.0)));
    [(hash >> 48) as f32, (hash >> 32 & 0xFFFF) as f32]
}

/// Logits from 0 to 6 of the tokens that do no harm.
pub(crate) fn logits([high, low]: [f32; 2]) -> Vec<f32> {
    if high.is_nan() {
        return vec![f32::NAN; VOCAB];
    }
    let seed = (high as u64) << 16 | low as u64;
    let logit = |token: u64| (mix(seed * VOCAB as u64 + token) >> 40) as f32 * (6.0 / 16_777_216.0);
    let harmless = (0..PANIC.0).map(|token| logit(u64::from(token)));
    harmless.chain([f32::NEG_INFINITY; 2]).collect()
}

/// What text `sample` of a request asks for, as a request of its own.
pub(crate) fn of_sample(request: &Request, sample: u32) -> Request {
    let mut request = request.clone();
    request.samples = 1;
    request.sampling.sample += sample;
    request
}

/// Text and end of a request served by nobody: the sampler applied to the hash, again and again.
pub(crate) fn alone(request: &Request, context: u32) -> (Vec<TokenId>, Finish) {
    let mut tokens = request.prompt.clone();
    let produced = |tokens: &[TokenId]| tokens.len() - request.prompt.len();
    let most = request.max_tokens.map_or(usize::MAX, |most| most as usize);
    let finish = loop {
        if produced(&tokens) == most || tokens.len() == context as usize {
            break Finish::Length;
        }
        let logits = logits(state(tokens.iter().copied()));
        let token = request.sampling.pick(&tokens, &logits).unwrap();
        if request.stop.contains(&token) {
            break Finish::Stop { token };
        }
        tokens.push(token);
    };
    (tokens.split_off(request.prompt.len()), finish)
}

/// A small source of test data.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, range: Range<usize>) -> usize {
        range.start + self.next() as usize % range.len()
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.next().is_multiple_of(one_in)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        from[self.below(0..from.len())].borrow()
    }

    pub(crate) fn tokens(&mut self, len: usize) -> Vec<TokenId> {
        (0..len).map(|_| TokenId(self.below(0..PANIC.index()) as u32)).collect()
    }
}

pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
