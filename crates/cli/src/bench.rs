//! `lapidary bench`: speed, next to what the machine allows.

mod luck;

use lapidary_cache::{Extent, KvSpec, code_bytes};
use lapidary_core::{Reach, Regime, TensorSource};
use lapidary_engine::Target;
use lapidary_format::Source;
use lapidary_measure::{Ceilings, Cost, Guessing, Plan, Shape, Test, Timing};
use lapidary_model::config::Config;
use lapidary_model::{Precision, Traffic, attention_ops};
use serde_json::{Value, json};

use crate::args::BenchArgs;
use crate::device::{Device, Work, run_on};
use crate::engine::{cache, check_layers, extent, load_model, stored_layers};
use crate::failure::Failure;
use crate::memory;
use crate::model::{self, find};

pub(crate) use luck::LuckArgs;

/// Shapes that are built in.
static SHAPES: [(&str, &str); 3] = [
    ("moe-mini", include_str!("../../../shapes/moe-mini.json")),
    ("gemma4-26b-a4b", include_str!("../../../shapes/gemma4-26b-a4b.json")),
    ("gemma4-31b", include_str!("../../../shapes/gemma4-31b.json")),
];

pub(crate) fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    let subject = Subject::of(args)?;
    run_on(&args.device, Timed { args, subject: &subject })
}

struct Timed<'a> {
    args: &'a BenchArgs,
    subject: &'a Subject,
}

impl Work for Timed<'_> {
    type Done = u8;

    fn on<D: Device>(self, settings: D::Settings) -> Result<u8, Failure> {
        let Self { args, subject } = self;
        let source = subject.source();
        let config = model::config(source)?;
        check_layers(&args.device.kv, &config)?;
        let extent = room(args, &config)?;
        memory::check(source, &config, &args.device, extent)?;
        let ops = D::open(settings)?;
        let model = load_model(&ops, source, Precision::AsStored)?;
        let mut cache = cache(&ops, &model, &args.device.kv, extent)?;
        let drafted = Config { vocab: model.vocab, ..config.clone() };
        let mut guesses = args.luck.guesses(&ops, subject.shape(), &drafted)?;
        let guessing = guesses.as_mut().map(|(drafter, luck)| {
            let drafter = drafter.as_mut();
            Guessing { drafter, luck: *luck }
        });
        let ceilings = ops.ceilings();
        let head =
            Head { model: source.origin(), device: ops.name(), kv: &args.device.kv, ceilings };
        let traffic = Traffic::of(source, &config);
        let costs = Costs { traffic, config: &config, kv: &args.device.kv };
        let cost = |test, n, depth, batch| costs.of(test, n, depth, batch);
        let mut told = |timing: &Timing| {
            if !args.json {
                print_row(timing);
            }
        };
        if !args.json {
            head.print();
        }
        let target = Target { ops: &ops, model: &model, cache: &mut cache };
        let plan = plan(args);
        let timings = lapidary_measure::bench(target, guessing, &plan, ceilings, &cost, &mut told);
        let timings = timings.map_err(|e| Failure::work("step", e))?;
        if args.json {
            println!("{}", head.report(&timings));
        }
        if let Some(file) = &args.html {
            let page = lapidary_measure::page(head.model, &head.facts(), &timings);
            let failed = |e| Failure::work("html", format!("{}: {e}", file.display()));
            std::fs::write(file, page).map_err(failed)?;
        }
        Ok(0)
    }
}

fn plan(args: &BenchArgs) -> Plan {
    Plan {
        prefill: args.prefill.iter().copied().filter(|rows| *rows > 0).collect(),
        decode: args.decode,
        depths: args.depth.clone(),
        batches: args.batch.clone(),
        repeats: args.repeats,
    }
}

/// A model, or shapes with random weights.
enum Subject {
    Model(Source),
    Shape(Shape),
}

impl Subject {
    fn of(args: &BenchArgs) -> Result<Self, Failure> {
        let Some(shape) = &args.shape else {
            return Ok(Self::Model(find(args.model.model.as_deref())?));
        };
        let built_in = SHAPES.iter().find(|(name, _)| name == shape);
        let text = match built_in {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(shape)
                .map_err(|e| Failure::work("shape", format!("{shape}: {e}")))?,
        };
        let shape = Shape::parse(shape, &text).map_err(|e| Failure::work("shape", e))?;
        Ok(Self::Shape(shape))
    }

    fn source(&self) -> &dyn TensorSource {
        match self {
            Self::Model(source) => source,
            Self::Shape(shape) => shape,
        }
    }

    fn shape(&self) -> Option<&Shape> {
        match self {
            Self::Model(_) => None,
            Self::Shape(shape) => Some(shape),
        }
    }
}

/// A cache that the whole plan fits.
fn room(args: &BenchArgs, config: &Config) -> Result<Extent, Failure> {
    let longest = |list: &[u32]| list.iter().copied().max().unwrap_or(0);
    let guesses = args.luck.luck().map_or(0, |luck| 2 * luck.length + 2);
    let decoded = longest(&args.depth).saturating_add(args.decode).saturating_add(guesses);
    let needed = longest(&args.prefill).max(decoded);
    if needed > config.context {
        let most = config.context;
        let message = format!("the plan needs {needed} tokens of context; this model has {most}");
        return Err(Failure::usage("context", message));
    }
    let slots = longest(&args.batch).max(1) as usize;
    Ok(Extent { slots, ..extent(needed.max(2)) })
}

/// What measurements cost at least.
struct Costs<'a> {
    traffic: Traffic,
    config: &'a Config,
    kv: &'a KvSpec,
}

impl Costs<'_> {
    fn of(&self, test: Test, n: u32, depth: u32, batch: u32) -> Cost {
        let (rows, sequences) = (f64::from(n), f64::from(batch));
        match test {
            // The prompt's weights are read once; only its last row has logits.
            Test::Prefill => Cost {
                bytes: self.traffic.step_bytes(rows),
                ops: rows * self.traffic.row_ops(false) + self.attention(0.0, rows),
            },
            Test::Decode => Cost {
                bytes: rows * self.traffic.step_bytes(sequences)
                    + sequences * self.cache_bytes(f64::from(depth), rows),
                ops: sequences
                    * (rows * self.traffic.row_ops(true) + self.attention(f64::from(depth), rows)),
            },
        }
    }

    /// Keys that rows `first..first + rows` see together on a layer.
    fn keys(reach: Reach, first: f64, rows: f64) -> f64 {
        let mean = first + (rows + 1.0) / 2.0;
        rows * match reach {
            Reach::All => mean,
            Reach::Window(window) => mean.min(f64::from(window)),
        }
    }

    fn attention(&self, first: f64, rows: f64) -> f64 {
        let layers = self.config.layers.iter();
        layers.map(|l| attention_ops(l, Self::keys(l.reach, first, rows))).sum()
    }

    fn cache_bytes(&self, first: f64, rows: f64) -> f64 {
        let bytes = |regime: Regime, width| {
            (code_bytes(regime.keys, width) + code_bytes(regime.values, width)) as f64
        };
        let stored = stored_layers(self.config, self.kv);
        let layer = |(spec, regime): (lapidary_core::KvLayerSpec, Regime)| {
            spec.heads as f64 * bytes(regime, spec.width) * Self::keys(spec.reach, first, rows)
        };
        stored.map(layer).sum()
    }
}

/// What all timings of a run have in common.
struct Head<'a> {
    model: &'a str,
    device: String,
    kv: &'a KvSpec,
    ceilings: Option<Ceilings>,
}

impl Head<'_> {
    fn report(&self, timings: &[Timing]) -> Value {
        let result = |t: &Timing| {
            let mut result = json!({
                "test": name(t.test),
                "n": t.n,
                "depth": t.depth,
                "batch": t.batch,
                "tok_s": t.tok_s,
                "spread": t.spread,
                "floor_tok_s": t.floor_tok_s,
                "bytes": t.cost.bytes,
                "ops": t.cost.ops,
            });
            if let Some(luck) = t.luck {
                result["draft_len"] = luck.length.into();
                result["accept"] = luck.accept.into();
            }
            result
        };
        json!({
            "machine": {
                "device": self.device,
                "read_bytes_per_s": self.ceilings.map(|c| c.bytes_per_s),
                "multiply_ops_per_s": self.ceilings.map(|c| c.ops_per_s),
            },
            "model": self.model,
            "kv": self.kv.to_string(),
            "results": timings.iter().map(result).collect::<Vec<_>>(),
        })
    }

    /// What is known about the run, in lines.
    fn facts(&self) -> Vec<String> {
        let rates = self.ceilings.map(|Ceilings { bytes_per_s, ops_per_s }| {
            let (read, multiplied) = (bytes_per_s / 1e9, ops_per_s / 1e9);
            format!("ceilings: {read:.1} GB/s read, {multiplied:.0} Gop/s multiplied")
        });
        let run = format!("{}, {}, cache {}", self.model, self.device, self.kv);
        std::iter::once(run).chain(rates).collect()
    }

    fn print(&self) {
        self.facts().iter().for_each(|fact| println!("{fact}"));
        let [test, n, depth, batch, rate, spread, floor] =
            ["test", "n", "depth", "batch", "tok/s", "spread", "floor"];
        println!("{test:<8} {n:>6} {depth:>6} {batch:>5} {rate:>10} {spread:>7} {floor:>10}");
    }
}

fn name(test: Test) -> &'static str {
    match test {
        Test::Prefill => "prefill",
        Test::Decode => "decode",
    }
}

fn print_row(t: &Timing) {
    let name = if t.luck.is_some() { "guessing" } else { name(t.test) };
    let spread = 100.0 * t.spread;
    let floor = t.floor_tok_s.map_or_else(|| "unknown".into(), |floor| format!("{floor:.1}"));
    println!(
        "{name:<8} {:>6} {:>6} {:>5} {:>10.1} {spread:>6.1}% {floor:>10}",
        t.n, t.depth, t.batch, t.tok_s
    );
}
