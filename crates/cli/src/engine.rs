//! From options to a running engine.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_cache::{Cache, Extent, KvBytes, KvSpec, ReserveError};
use lapidary_core::{Backend, KvLayerSpec, LayerId, Regime, TensorSource};
use lapidary_engine::{Engine, FirstCome, Limits, NoDrafts, Parts, Scheduler};
use lapidary_format::Source;
use lapidary_model::config::Config;
use lapidary_model::gemma::Gemma;
use lapidary_model::{LoadError, Model, Precision, load};

use crate::args::DeviceArgs;
use crate::failure::Failure;
use crate::memory;

/// The most context that is reserved without being asked for.
const DEFAULT_CONTEXT: u32 = 8192;
/// Rows that one step may bring: enough to use every core, few enough to answer Ctrl-C at once.
const STEP_ROWS: usize = 512;

/// A running engine and what it was made with.
pub(crate) struct Running {
    pub(crate) engine: Engine,
    /// Of all slots together.
    pub(crate) kv_bytes: KvBytes,
    pub(crate) device: String,
}

/// The context a model is given: as asked, or its own up to a default.
pub(crate) fn context(asked: Option<u32>, config: &Config) -> Result<u32, Failure> {
    let most = config.context;
    match asked {
        None => Ok(most.min(DEFAULT_CONTEXT)),
        Some(n) if (2..=most).contains(&n) => Ok(n),
        Some(n) => {
            let message = format!("--ctx {n} is out of range; this model takes 2 to {most} tokens");
            Err(Failure::usage("context", message))
        }
    }
}

/// How much a cache for one sequence of this context holds.
pub(crate) fn extent(context: u32) -> Extent {
    Extent { slots: 1, context, burst: context.min(STEP_ROWS as u32) }
}

/// The layers that store entries of their own, each with the way it stores them.
pub(crate) fn stored_layers(
    config: &Config,
    kv: &KvSpec,
) -> impl Iterator<Item = (KvLayerSpec, Regime)> {
    let layers = config.layers.iter().zip((0..).map(LayerId));
    layers.filter(|(layer, _)| layer.shares.is_none()).map(|(layer, id)| {
        let spec = KvLayerSpec {
            heads: layer.kv_heads,
            width: layer.width,
            reach: layer.reach,
            two_way: false,
        };
        (spec, kv.regime(id, &spec))
    })
}

/// Loads the model and starts an engine for one sequence.
pub(crate) fn start(source: Source, args: &DeviceArgs) -> Result<Running, Failure> {
    let config = Config::read(source.meta()).map_err(|e| Failure::work("model_unknown", e))?;
    let extent = extent(context(args.ctx, &config)?);
    memory::check(&source, &config, &args.kv, extent)?;
    let kv_bytes = KvBytes::per_slot(&extent, stored_layers(&config, &args.kv));
    let ops = cpu(args)?;
    let device = ops.name();
    let kv = args.kv.clone();
    let began = Instant::now();
    let build = move || parts(ops, &source, &kv, extent);
    let started = Engine::start(build, move || began.elapsed());
    let (engine, _) = started.map_err(|e| Failure::work("engine_not_started", e))?;
    Ok(Running { engine, kv_bytes, device })
}

/// The device that was asked for.
pub(crate) fn cpu(args: &DeviceArgs) -> Result<Cpu, Failure> {
    if args.device != "cpu" {
        let device = &args.device;
        let message = format!("this build cannot run on `{device}`; use --device cpu");
        return Err(Failure::usage("device", message));
    }
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(here, usize::from);
    let isa = args.isa.unwrap_or_else(Isa::best);
    Cpu::new(isa, threads).map_err(|e| Failure::usage("isa", e))
}

/// A model on a device, behind a progress bar.
pub(crate) fn load_model(
    ops: &Cpu,
    source: &dyn TensorSource,
    precision: Precision,
) -> Result<Gemma<Cpu>, LoadError> {
    let bar = bar("loading {bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let loaded = load(ops, source, precision, &mut progress);
    bar.finish_and_clear();
    loaded.map(|(_, model)| model)
}

/// An empty cache for a model.
pub(crate) fn cache(
    ops: &Cpu,
    model: &Gemma<Cpu>,
    kv: &KvSpec,
    extent: Extent,
) -> Result<Cache<Cpu>, ReserveError> {
    let specs = Model::<Cpu>::kv_specs(model);
    let owns = |layer| Model::<Cpu>::owns_entries(model, layer);
    let regime = |layer: LayerId| kv.regime(layer, &specs[layer.index()]);
    Cache::new(ops, specs.clone(), extent, owns, regime)
}

/// Runs in the engine's thread.
fn parts(ops: Cpu, source: &Source, kv: &KvSpec, extent: Extent) -> Result<Parts<Cpu>, String> {
    let model = load_model(&ops, source, Precision::AsStored).map_err(|e| e.to_string())?;
    let cache = cache(&ops, &model, kv, extent).map_err(|e| e.to_string())?;
    let limits = limits(extent);
    let scheduler = Scheduler::new(limits, Box::new(FirstCome)).map_err(|e| e.to_string())?;
    Ok(Parts {
        ops,
        model: Box::new(model),
        cache: Box::new(cache),
        drafter: Box::new(NoDrafts),
        scheduler,
    })
}

/// What an engine over a cache of this size may do.
pub(crate) fn limits(extent: Extent) -> Limits {
    Limits {
        slots: extent.slots,
        context: extent.context,
        burst: extent.burst as usize,
        step: STEP_ROWS.max(extent.slots),
        waiting: 1,
    }
}

/// Hidden where standard error is no terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
