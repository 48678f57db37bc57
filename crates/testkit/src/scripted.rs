//! A model that says what it is told to: for tests of what stands around an engine.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lapidary_backend_cpu::{Act, Cpu, Isa};
use lapidary_cache::{Cache, Extent};
use lapidary_core::{
    Backend, Batch, CacheFull, Input, KvCache, KvLayerSpec, KvPlan, LayerId, Qkv, Reach, Regime,
    SlotId, TensorSource, TokenId, Value,
};
use lapidary_engine::{
    Drafter, Drafting, Engine, FirstCome, Limits, NgramDrafter, NoDrafts, Parts, Prefixes,
    Scheduler,
};
use lapidary_model::{Hooks, Model, NoHooks, Step};
use lapidary_text::{Control, Tokenizer};

/// The logit of the token that comes next; its neighbour in the vocabulary has one less, and every
/// other token 0.
const SURE: f32 = 20.0;

/// A reply that makes the model panic when it is about to begin.
pub const PANIC: &str = "panic!";

/// What a scripted model answers to which prompts.
pub struct Script {
    /// Spells prompts and replies.
    pub tokenizer: Arc<Tokenizer>,
    /// The token after every reply.
    pub end: TokenId,
    /// If the prompt contains the first text, the second is the reply, special tokens honoured. The
    /// first match counts; without one the reply is empty.
    pub replies: Vec<(String, String)>,
    /// How long each step takes at least.
    pub pace: Duration,
    /// The most guesses in a row, all from the text itself; zero for none.
    pub drafts: usize,
}

impl Script {
    /// An engine whose model follows the script.
    ///
    /// # Panics
    /// If the limits make no sense.
    pub fn start(self, limits: Limits) -> Engine {
        let build = move || Ok::<_, Infallible>(self.parts(limits));
        let began = Instant::now();
        Engine::start(build, move || began.elapsed()).expect("the parts are sound").0
    }

    fn parts(self, limits: Limits) -> Parts<Cpu> {
        let ops = Cpu::new(Isa::best(), 1).expect("the best instruction set is there");
        let Limits { slots, context, burst, .. } = limits;
        let extent = Extent { slots, context, burst: burst as u32 };
        let drafting = Drafting { most: self.drafts, width: 1, adaptive: false };
        let drafter: Box<dyn Drafter<Cpu>> = match self.drafts {
            0 => Box::new(NoDrafts),
            _ => Box::new(NgramDrafter::new(2)),
        };
        let scheduler = Scheduler::new(limits, Box::new(FirstCome)).expect("the limits are sound");
        let model = Scripted { script: self, slots: Mutex::default() };
        let specs = Model::<Cpu>::kv_specs(&model);
        let cache = Cache::new(&ops, specs, extent, |_| true, |_: LayerId| Regime::F32);
        Parts {
            ops,
            model: Box::new(model),
            cache: Box::new(Unforked(cache.unwrap_or_else(|e| panic!("{e}")))),
            tower: None,
            drafter,
            prefixes: Prefixes::none(),
            hooks: Box::new(NoHooks),
            scheduler: scheduler.drafting(drafting, false),
        }
    }
}

/// A cache that copies nothing from slot to slot, so that the model sees every token of a slot.
struct Unforked(Cache<Cpu>);

impl KvCache<Cpu> for Unforked {
    fn plan(&self, ops: &Cpu, batch: &Batch) -> Result<KvPlan<Cpu>, CacheFull> {
        self.0.plan(ops, batch)
    }

    fn onlook(&self, ops: &Cpu, slots: &[SlotId]) -> KvPlan<Cpu> {
        self.0.onlook(ops, slots)
    }

    fn attend(&mut self, ops: &Cpu, plan: &KvPlan<Cpu>, layer: LayerId, qkv: Qkv<Cpu>) -> Act {
        self.0.attend(ops, plan, layer, qkv)
    }

    fn attend_shared(&self, ops: &Cpu, plan: &KvPlan<Cpu>, owner: LayerId, q: Act) -> Act {
        self.0.attend_shared(ops, plan, owner, q)
    }

    fn commit(&mut self, ops: &Cpu, slot: SlotId, accepted: &[usize]) {
        self.0.commit(ops, slot, accepted);
    }

    fn committed(&self, slot: SlotId) -> u32 {
        self.0.committed(slot)
    }

    fn truncate(&mut self, slot: SlotId, len: u32) -> bool {
        self.0.truncate(slot, len)
    }

    fn clear(&mut self, slot: SlotId) {
        self.0.clear(slot);
    }
}

/// Follows a script. A hidden state is the id of the next token.
struct Scripted {
    script: Script,
    /// Each slot's tokens so far.
    slots: Mutex<HashMap<SlotId, Vec<TokenId>>>,
}

impl Scripted {
    /// The token after `known`: the reply goes on with the longest part of it that ends `known`.
    fn next(&self, known: &[TokenId]) -> TokenId {
        let tokenizer = &self.script.tokenizer;
        let text = tokenizer.decode(known);
        let found = self.script.replies.iter().find(|(needle, _)| text.contains(needle));
        let Some((_, reply)) = found else { return self.script.end };
        assert!(reply != PANIC, "a panic that the script asks for");
        let reply = tokenizer.encode(reply, Control::Honour);
        let said = (0..=reply.len()).rev().find(|n| known.ends_with(&reply[..*n]));
        reply.get(said.unwrap_or(0)).copied().unwrap_or(self.script.end)
    }
}

impl Model<Cpu> for Scripted {
    fn kv_specs(&self) -> Vec<KvLayerSpec> {
        vec![KvLayerSpec { heads: 1, width: 32, reach: Reach::All, two_way: false }]
    }

    fn hidden(&self) -> usize {
        1
    }

    fn vocab(&self) -> usize {
        self.script.tokenizer.len()
    }

    fn forward(
        &self,
        ops: &Cpu,
        _: &mut dyn KvCache<Cpu>,
        step: &Step<'_, Cpu>,
        _: &mut dyn Hooks<Cpu>,
    ) -> Act {
        std::thread::sleep(self.script.pace);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = vec![0.0; step.batch.rows().len()];
        for span in step.batch.spans() {
            let known = slots.entry(span.slot).or_default();
            known.truncate(span.base as usize);
            for (row, state) in (span.first..).zip(&mut states[span.first..][..span.len]) {
                let row = step.batch.rows()[row];
                let Input::Token(token) = row.input else { panic!("a script knows no images") };
                known.push(token);
                if row.want.logits || row.want.top > 0 {
                    *state = self.next(known).0 as f32;
                }
            }
        }
        ops.upload(&states, 1)
    }

    fn embed(&self, _: &Cpu, _: &[TokenId]) -> Act {
        unreachable!("nobody guesses along with a script")
    }

    fn logits(&self, ops: &Cpu, hidden: &Act) -> Act {
        let vocab = Model::<Cpu>::vocab(self);
        let states = ops.read(hidden).expect("the CPU does not break");
        let mut logits = vec![0.0; vocab * states.len()];
        for (state, row) in states.iter().zip(logits.chunks_exact_mut(vocab)) {
            let next = *state as usize;
            row[(next + 1) % vocab] = SURE - 1.0;
            row[next] = SURE;
        }
        ops.upload(&logits, vocab)
    }
}

/// The built-in model's vocabulary, and the source of its chat template.
///
/// # Panics
/// If the repository's own model cannot be read.
pub fn pebble_words() -> (Tokenizer, String) {
    let file = crate::repository("models/pebble/pebble-Q8_0.gguf");
    let source = lapidary_format::open(&file).unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = Tokenizer::from_metadata(source.meta()).unwrap_or_else(|e| panic!("{e}"));
    let template = source.meta().get("tokenizer.chat_template").and_then(Value::as_str);
    (tokenizer, template.expect("Pebble has a template").to_owned())
}
