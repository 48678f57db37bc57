//! From options to a running engine.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lapidary_cache::{Cache, Extent, KvBytes, KvSpec};
use lapidary_core::{Backend, KvKernels, KvLayerSpec, LayerId, Regime, TensorSource};
use lapidary_engine::{Engine, FirstCome, Limits, Parts, Scheduler, StartError};
use lapidary_format::Source;
use lapidary_measure::{LayerWatch, Log, Traced};
use lapidary_model::config::Config;
use lapidary_model::gemma::Gemma;
use lapidary_model::vision::Tower;
use lapidary_model::{Hooks, Model, NoHooks, Precision, load};

use crate::args::{DeviceArgs, EngineArgs};
use crate::device::{Device, Work, run_on};
use crate::failure::Failure;
use crate::memory;
use crate::model;
use crate::sight::Eye;
use crate::trace::Watched;

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
    /// Tokens that a sequence may have.
    pub(crate) context: u32,
    /// What to wait for when the engine has stopped.
    watched: Option<Watched>,
}

impl Running {
    /// Lets go of the engine, and waits until what was watched is written.
    pub(crate) fn stop(self, options: &EngineArgs) -> Result<(), Failure> {
        drop(self.engine);
        self.watched.map_or(Ok(()), |watched| watched.finish(options.trace.trace.is_some()))
    }
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

/// Refuses a regime for layers that the model does not have.
pub(crate) fn check_layers(kv: &KvSpec, config: &Config) -> Result<(), Failure> {
    let layers = config.layers.len();
    match kv.last_named().filter(|last| last.index() >= layers) {
        None => Ok(()),
        Some(last) => {
            let (last, most) = (last.0, layers - 1);
            let message = format!("--kv names layer {last}; this model has layers 0 to {most}");
            Err(Failure::usage("kv", message))
        }
    }
}

/// For how many requests an engine has room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seats {
    /// Sequences that run at once.
    pub(crate) slots: usize,
    /// Requests that may wait for a slot.
    pub(crate) waiting: usize,
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
pub(crate) fn start(
    source: Source,
    args: &DeviceArgs,
    options: &EngineArgs,
) -> Result<Running, Failure> {
    start_for(source, args, options, Seats { slots: 1, waiting: 1 })
}

/// Loads the model and starts an engine for several sequences.
pub(crate) fn start_for(
    source: Source,
    args: &DeviceArgs,
    options: &EngineArgs,
    seats: Seats,
) -> Result<Running, Failure> {
    start_seeing(source, args, options, seats, None)
}

/// Loads the model, and a tower if it is to look at images, and starts an engine.
pub(crate) fn start_seeing(
    source: Source,
    args: &DeviceArgs,
    options: &EngineArgs,
    seats: Seats,
    eye: Option<Eye>,
) -> Result<Running, Failure> {
    options.draft.check()?;
    let config = model::config(&source)?;
    check_layers(&args.kv, &config)?;
    let mut extent = Extent { slots: seats.slots, ..extent(context(args.ctx, &config)?) };
    if let Some(eye) = &eye {
        // An image is read in one step.
        extent.burst = extent.burst.max(eye.budget.tokens() as u32).min(extent.context);
    }
    memory::check(&source, &config, args, extent)?;
    let per_slot = KvBytes::per_slot(&extent, stored_layers(&config, &args.kv));
    let all = |bytes| bytes * seats.slots as u64;
    let kv_bytes = KvBytes { global: all(per_slot.global), sliding: all(per_slot.sliding) };
    let (kv, options, waiting) = (args.kv.clone(), options.clone(), seats.waiting);
    let work = Start { source, kv, options, extent, waiting, eye };
    let (engine, device, watched) = run_on(args, work)?;
    Ok(Running { engine, kv_bytes, device, context: extent.context, watched })
}

/// Starts an engine whose parts are made in its own thread.
struct Start {
    source: Source,
    kv: KvSpec,
    options: EngineArgs,
    extent: Extent,
    waiting: usize,
    eye: Option<Eye>,
}

impl Work for Start {
    type Done = (Engine, String, Option<Watched>);

    fn on<D: Device>(self, settings: D::Settings) -> Result<Self::Done, Failure> {
        let (tell, told) = std::sync::mpsc::channel();
        let open = move || {
            let ops = D::open(settings)?;
            // Whoever started the engine waits for its name.
            let _ = tell.send(ops.name());
            Ok(ops)
        };
        let began = Instant::now();
        let clock = move || began.elapsed();
        let (started, watched) = if self.options.trace.watches() {
            let (sinks, watched) = self.options.trace.sinks()?;
            let build = move || self.watched(open()?, Log::new(clock, sinks));
            (Engine::start(build, clock), Some(watched))
        } else {
            (Engine::start(move || self.parts(open()?, Box::new(NoHooks)), clock), None)
        };
        let (engine, _) = started.map_err(|error| match error {
            StartError::Build(failure) => failure,
            error => Failure::work("engine_not_started", error),
        })?;
        let name = told.recv().map_err(|e| Failure::work("engine_not_started", e))?;
        Ok((engine, name, watched))
    }
}

/// A model on a device, behind a progress bar.
pub(crate) fn load_model<B: Backend>(
    ops: &B,
    source: &dyn TensorSource,
    precision: Precision,
) -> Result<Gemma<B>, Failure> {
    let bar = bar("loading {bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let loaded = load(ops, source, precision, &mut progress);
    bar.finish_and_clear();
    loaded.map(|(_, model)| model).map_err(|e| Failure::work("model_unreadable", e))
}

/// An empty cache for a model.
pub(crate) fn cache<B: KvKernels>(
    ops: &B,
    model: &Gemma<B>,
    kv: &KvSpec,
    extent: Extent,
) -> Result<Cache<B>, Failure> {
    let specs = model.kv_specs();
    let owns = |layer| model.owns_entries(layer);
    let regime = |layer: LayerId| kv.regime(layer, &specs[layer.index()]);
    let cache = Cache::new(ops, specs.clone(), extent, owns, regime);
    cache.map_err(|e| Failure::work("cache", e))
}

impl Start {
    /// The parts of an engine over a device that is watched.
    fn watched<B: KvKernels>(&self, ops: B, log: Log) -> Result<Parts<Traced<B>>, Failure> {
        let layers = model::config(&self.source)?.layers.len();
        let hooks = LayerWatch::new(log.clone(), layers);
        self.parts(Traced::new(ops, log), Box::new(hooks))
    }

    /// Runs in the engine's thread.
    fn parts<B: KvKernels>(&self, ops: B, hooks: Box<dyn Hooks<B>>) -> Result<Parts<B>, Failure> {
        let EngineArgs { kept, draft, .. } = &self.options;
        let prefixes = kept.prefixes(&ops, &self.source, &self.kv)?;
        let model = load_model(&ops, &self.source, Precision::AsStored)?;
        let load = |eye: &Eye| eye.load(&ops, &self.source, model.hidden);
        let tower = self.eye.as_ref().map(load).transpose()?;
        let cache = cache(&ops, &model, &self.kv, self.extent)?;
        let target = Config { vocab: model.vocab, ..model::config(&self.source)? };
        let drafter = draft.drafter(&ops, &target, self.extent)?;
        let limits = Limits { waiting: self.waiting, ..limits(self.extent) };
        let scheduler = Scheduler::new(limits, Box::new(FirstCome));
        let scheduler = scheduler.map_err(|e| Failure::work("engine_not_started", e))?;
        let scheduler = scheduler.drafting(draft.drafting(), drafter.wants_hidden());
        Ok(Parts {
            ops,
            model: Box::new(model),
            cache: Box::new(cache),
            tower: tower.map(|tower| Box::new(tower) as Box<dyn Tower<B>>),
            drafter,
            prefixes,
            hooks,
            scheduler: kept.apply(scheduler),
        })
    }
}

/// What an engine over a cache of this size may do.
pub(crate) fn limits(extent: Extent) -> Limits {
    Limits {
        slots: extent.slots,
        context: extent.context,
        burst: extent.burst as usize,
        step: step_rows(extent),
        waiting: 1,
    }
}

/// Rows of a step: where a slot may bring more than usual, an image, the others still move on.
fn step_rows(extent: Extent) -> usize {
    let burst = extent.burst as usize;
    if burst > STEP_ROWS { burst + extent.slots - 1 } else { STEP_ROWS.max(extent.slots) }
}

/// Hidden where standard error is no terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
