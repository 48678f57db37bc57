//! A model on a device with a cache, ready for batches.

use std::path::Path;

use lapidary_backend_cpu::{Cpu, Isa, Reference};
use lapidary_cache::{Cache, Extent};
use lapidary_core::{
    Backend, Batch, KvCache, KvKernels, LayerId, Regime, SlotId, TensorSource, TokenId, Want,
};
use lapidary_model::config::Config;
use lapidary_model::gemma::Gemma;
use lapidary_model::{Hooks, Model, Outputs, Precision, load, run, run_with};

/// A backend that tests can make out of nothing.
pub trait Device: KvKernels {
    /// A device for tests.
    fn device() -> Self;
}

impl Device for Reference {
    fn device() -> Self {
        Self
    }
}

impl Device for Cpu {
    fn device() -> Self {
        Self::new(Isa::best(), 2).expect("the best instruction set is there")
    }
}

/// A model on a device with a cache.
pub struct Loaded<B: KvKernels> {
    /// The device.
    pub ops: B,
    /// The model.
    pub model: Gemma<B>,
    /// Its shape.
    pub config: Config,
    /// The cache.
    pub cache: Cache<B>,
}

impl<B: Device> Loaded<B> {
    /// Loads a model from a file or folder.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn open(path: &Path, precision: Precision, extent: Extent) -> Self {
        let source = lapidary_format::open(path).unwrap_or_else(|e| panic!("{e}"));
        Self::of(B::device(), &source, precision, extent, Regime::F32)
    }
}

impl<B: KvKernels> Loaded<B> {
    /// Loads a model from a source onto a given device.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn of(
        ops: B,
        source: &dyn TensorSource,
        precision: Precision,
        extent: Extent,
        regime: Regime,
    ) -> Self {
        let loaded = load(&ops, source, precision, &mut |_, _| {});
        let (config, model) = loaded.unwrap_or_else(|e| panic!("{}: {e}", source.origin()));
        let owns = |layer: LayerId| Model::<B>::owns_entries(&model, layer);
        let specs = model.kv_specs();
        let cache = Cache::new(&ops, specs, extent, owns, |_| regime);
        let cache = cache.unwrap_or_else(|e| panic!("{e}"));
        Self { ops, model, config, cache }
    }

    /// Runs a batch.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn run(&mut self, batch: &Batch) -> Outputs {
        run(&self.ops, &self.model, &mut self.cache, batch).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Runs a batch under hooks.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn run_hooked(&mut self, batch: &Batch, hooks: &mut dyn Hooks<B>) -> Outputs {
        let outputs = run_with(&self.ops, &self.model, &mut self.cache, batch, &[], hooks);
        outputs.unwrap_or_else(|e| panic!("{e}"))
    }

    /// Accepts the first `len` rows of a slot's last span.
    pub fn commit(&mut self, slot: SlotId, len: usize) {
        self.cache.commit(&self.ops, slot, &(0..len).collect::<Vec<_>>());
    }

    /// Reads `tokens` into an empty slot in chunks of `chunk`; the rows from `first` on want
    /// `want`. Returns their outputs, rows counted from the start of the tokens.
    pub fn read(
        &mut self,
        slot: SlotId,
        tokens: &[TokenId],
        chunk: usize,
        first: usize,
        want: Want,
        hooks: &mut dyn Hooks<B>,
    ) -> Outputs {
        self.cache.clear(slot);
        let mut all = Outputs::default();
        for (i, tokens) in tokens.chunks(chunk).enumerate() {
            let base = i * chunk;
            let wants = |i| if base + i >= first { want } else { Want::NOTHING };
            let batch = Batch::builder().chain(slot, base as u32, tokens, wants);
            let out = self.run_hooked(&batch.expect("chunks are not empty").build(), hooks);
            self.commit(slot, tokens.len());
            all.hidden.extend(out.hidden.into_iter().map(|(row, x)| (base + row, x)));
            all.logits.extend(out.logits.into_iter().map(|(row, x)| (base + row, x)));
        }
        all
    }

    /// Continues each prompt, always with the likeliest token (the lower id among equals), up to
    /// `most` tokens or one of `end`, which is included. As many prompts run at once as there are
    /// slots; every step mixes whatever they need.
    pub fn greedy(
        &mut self,
        prompts: &[&[TokenId]],
        most: usize,
        end: &[TokenId],
    ) -> Vec<Vec<TokenId>> {
        let slots = self.cache.extent().slots;
        let mut texts = vec![Vec::new(); prompts.len()];
        let mut waiting = (0..prompts.len()).rev().collect::<Vec<_>>();
        let mut running: Vec<Option<usize>> = vec![None; slots];
        loop {
            for (slot, running) in running.iter_mut().enumerate() {
                if running.is_none() {
                    self.cache.clear(SlotId(slot as u32));
                    *running = waiting.pop();
                }
            }
            let known = |i: usize| [prompts[i], &texts[i]].concat();
            let batch = self.next_rows(&running, known);
            if batch.rows().is_empty() {
                return texts;
            }
            let out = self.run(&batch);
            for span in batch.spans() {
                self.commit(span.slot, span.len);
            }
            for (row, logits) in out.logits {
                let slot = batch.rows()[row].slot.index();
                let i = running[slot].expect("rows belong to running prompts");
                texts[i].push(argmax(&logits));
                if texts[i].len() == most || end.contains(&argmax(&logits)) {
                    running[slot] = None;
                }
            }
        }
    }

    /// What every running sequence has not read yet, up to a burst of each.
    fn next_rows(&self, running: &[Option<usize>], known: impl Fn(usize) -> Vec<TokenId>) -> Batch {
        let burst = self.cache.extent().burst as usize;
        let mut batch = Batch::builder();
        for (slot, i) in running.iter().enumerate() {
            let Some(i) = *i else { continue };
            let slot = SlotId(slot as u32);
            let (base, tokens) = (self.cache.committed(slot), known(i));
            let unread = &tokens[base as usize..];
            let rows = &unread[..unread.len().min(burst)];
            let last = unread.len() - 1;
            let want = |i| if i == last { Want::LOGITS } else { Want::NOTHING };
            batch = batch.chain(slot, base, rows, want).expect("slots are distinct");
        }
        batch.build()
    }
}

/// The likeliest token, the lower id among equals.
///
/// # Panics
/// If there are no logits.
pub fn argmax(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).reduce(|a, b| if logits[b] > logits[a] { b } else { a });
    TokenId(best.expect("a vocabulary is not empty") as u32)
}

/// Keeps every layer's output of the rows of one batch.
pub struct Taps {
    /// One entry per layer, the scaled embeddings first.
    pub layers: Vec<Vec<f32>>,
}

impl<B: Backend> Hooks<B> for Taps {
    fn embedded(&mut self, ops: &B, h: B::Act) -> B::Act {
        self.layers.push(ops.read(&h).expect("tests run on devices that work"));
        h
    }

    fn after_layer(&mut self, ops: &B, _: LayerId, h: &B::Act) -> Option<B::Act> {
        self.layers.push(ops.read(h).expect("tests run on devices that work"));
        None
    }
}
