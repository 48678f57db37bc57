//! Watching changes nothing, forgets no operation, and names where a run goes astray.

use std::io::{self, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapidary_backend_cpu::Cpu;
use lapidary_cache::Extent;
use lapidary_core::{Backend, Batch, KvCache, LayerId, Regime, SlotId, TokenId, Want};
use lapidary_measure::{
    Category, LayerRow, LayerWatch, Log, Sinks, Totals, Traced, first_difference, read_layer_rows,
};
use lapidary_model::{Hooks, Outputs, Precision, StepError, run_with};
use lapidary_testkit::{Device, GOLDEN_TOY, Loaded, TOY_VOCABULARY, repository, toy};

const EXTENT: Extent = Extent { slots: 1, context: 64, burst: 32 };
const SLOT: SlotId = SlotId(0);
const LAYERS: usize = 6;

/// A file in memory.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Watched {
    outputs: Outputs,
    trace: String,
    layers: Vec<LayerRow>,
    totals: Totals,
}

/// A clock that ticks a microsecond whenever it is read.
fn ticking() -> impl Fn() -> Duration {
    let ticks = std::cell::Cell::new(0);
    move || {
        ticks.set(ticks.get() + 1);
        Duration::from_micros(ticks.get())
    }
}

fn tokens() -> Vec<TokenId> {
    (0..20).map(|i| TokenId(7 * i % TOY_VOCABULARY)).collect()
}

/// Reads the tokens in chunks over a traced device.
fn watch(seed: u64, chunk: usize) -> Watched {
    let (trace, layers, (report, reported)) = (Page::default(), Page::default(), channel());
    let sinks = Sinks {
        trace: Some(Box::new(trace.clone())),
        layers: Some(Box::new(layers.clone())),
        totals: Some(report),
        guard: true,
    };
    let log = Log::new(ticking(), sinks);
    let ops = Traced::new(Cpu::device(), log.clone());
    let mut loaded = Loaded::of(ops, &toy(seed), Precision::AsStored, EXTENT, Regime::F16);
    let mut hooks = LayerWatch::new(log, LAYERS);
    let outputs = loaded.read(SLOT, &tokens(), chunk, 0, Want::LOGITS, &mut hooks);
    drop((loaded, hooks));
    Watched {
        outputs,
        trace: trace.text(),
        layers: read_layer_rows(&layers.text()).unwrap(),
        totals: reported.recv().unwrap().unwrap(),
    }
}

#[test]
fn watching_changes_no_bit() {
    let mut plain =
        Loaded::of(Cpu::device(), &toy(GOLDEN_TOY), Precision::AsStored, EXTENT, Regime::F16);
    let plain = plain.read(SLOT, &tokens(), 20, 0, Want::LOGITS, &mut lapidary_model::NoHooks);
    assert_eq!(watch(GOLDEN_TOY, 20).outputs.logits, plain.logits);
}

#[test]
fn a_trace_has_every_operation_with_its_layer() {
    let watched = watch(GOLDEN_TOY, 20);
    let events: Vec<serde_json::Value> = serde_json::from_str(&watched.trace).unwrap();
    let attends = events.iter().filter(|event| event["name"] == "attend");
    let layers: Vec<_> = attends.map(|event| event["args"]["layer"].as_u64().unwrap()).collect();
    assert_eq!(layers, [0, 1, 2, 3, 4, 5]);
    let head = events.iter().rev().find(|event| event["name"] == "linear").unwrap();
    assert!(head["args"]["layer"].is_null(), "the head belongs to no layer: {head}");
    let matmuls = events.iter().filter(|event| event["cat"] == "matmul").count();
    let products = ["linear", "linear_many", "experts"];
    let counted: u64 = products.iter().map(|op| watched.totals.of(op).count).sum();
    assert_eq!(counted, matmuls as u64);
    assert!(watched.totals.of_category(Category::Attention) > Duration::ZERO);
    assert!(watched.totals.to_string().contains("linear (matmul)"));
}

#[test]
fn layer_dumps_of_one_text_agree_however_it_was_cut() {
    let (whole, cut) = (watch(GOLDEN_TOY, 20).layers, watch(GOLDEN_TOY, 7).layers);
    assert_eq!(whole.len(), 20 * (1 + LAYERS));
    assert_eq!(cut.len(), whole.len());
    assert_eq!(first_difference(&whole, &cut), None);
}

#[test]
fn the_first_difference_is_the_earliest_position_and_its_first_layer() {
    let left = watch(GOLDEN_TOY, 20).layers;
    let mut right = left.clone();
    for row in &mut right {
        let late = (row.pos == 11 && row.layer >= Some(3)) || row.pos > 11;
        row.checksum ^= u64::from(late);
    }
    let found = first_difference(&left, &right).unwrap();
    assert_eq!((found.left.pos, found.left.layer), (11, Some(3)));
    let other = first_difference(&left, &watch(GOLDEN_TOY + 1, 20).layers).unwrap();
    assert_eq!((other.left.pos, other.left.layer), (0, None), "other weights, other embeddings");
}

/// Guesses that came to nothing leave rows at positions that are computed again.
#[test]
fn a_row_that_was_computed_again_agrees_if_any_of_its_rows_does() {
    let left = watch(GOLDEN_TOY, 20).layers;
    let mut right = left.clone();
    let guess = |row: &LayerRow| LayerRow { checksum: !row.checksum, ..*row };
    right.extend(left.iter().filter(|row| row.pos > 15).map(guess));
    assert_eq!(first_difference(&left, &right), None);
}

#[test]
fn a_damaged_dump_names_its_line() {
    let error = read_layer_rows("1 0 0 embedding 00000000000000ff 1e0\n1 0 x 0 ff 1").unwrap_err();
    assert_eq!(error.line, 2);
}

/// Makes one value of the stream a NaN between two layers.
struct Poison(LayerWatch);

impl<B: Backend> Hooks<B> for Poison {
    fn batch(&mut self, batch: &Batch) {
        Hooks::<B>::batch(&mut self.0, batch);
    }
    fn embedded(&mut self, ops: &B, h: B::Act) -> B::Act {
        self.0.embedded(ops, h)
    }
    fn after_layer(&mut self, ops: &B, layer: LayerId, h: &B::Act) -> Option<B::Act> {
        self.0.after_layer(ops, layer, h);
        if layer != LayerId(2) {
            return None;
        }
        let mut values = ops.read(h).unwrap();
        let cols = values.len();
        values[5] = f32::NAN;
        Some(ops.upload(&values, cols))
    }
}

#[test]
fn a_guarded_run_names_the_step_layer_and_operation_that_went_astray() {
    let log = Log::new(ticking(), Sinks { guard: true, ..Sinks::default() });
    let ops = Traced::new(Cpu::device(), log.clone());
    let mut loaded = Loaded::of(ops, &toy(GOLDEN_TOY), Precision::AsStored, EXTENT, Regime::F16);
    let batch = Batch::builder().chain(SLOT, 0, &tokens()[..1], |_| Want::LOGITS).unwrap().build();
    let mut hooks = Poison(LayerWatch::new(log, LAYERS));
    let Loaded { ops, model, cache, .. } = &mut loaded;
    let failed = run_with(ops, model, cache, &batch, &[], &mut hooks).unwrap_err();
    let StepError::Device(fault) = failed else { panic!("{failed}") };
    assert!(fault.0.contains("in layer 3 gave NaN in step 1"), "{}", fault.0);
    cache.clear(SLOT);
}

/// Every method of both traits, those with a default body above all: one that is not forwarded
/// would quietly replace a device's fused kernel by its definition.
#[test]
fn every_operation_is_forwarded() {
    let read = |path| std::fs::read_to_string(repository(path)).unwrap();
    let core = read("crates/core/src/backend.rs") + &read("crates/core/src/kv.rs");
    let traced = read("crates/measure/src/trace/traced.rs");
    let mut methods = Vec::new();
    for interface in ["pub trait Backend", "pub trait KvKernels"] {
        let body = core.split(interface).nth(1).unwrap().split("\n}\n").next().unwrap();
        methods.extend(
            body.lines().filter_map(|line| {
                line.strip_prefix("    fn ")?.split('(').next().map(str::to_owned)
            }),
        );
    }
    assert!(methods.len() > 25, "{methods:?}");
    for method in methods {
        assert!(traced.contains(&format!(" {method}(")), "{method} is not forwarded");
    }
}
