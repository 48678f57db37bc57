//! What the server counts, for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lapidary_engine::{EngineStats, Phase};
use prometheus_client::encoding::{
    EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text::encode,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::wire::common::Usage;

/// A wait for the next token that counts as a stall.
const STALL: Duration = Duration::from_secs(1);

/// Counters that handlers write; what the engine counts is copied in when somebody asks.
pub(crate) struct Metrics {
    requests: Family<Status, Counter>,
    first_token: Histogram,
    next_token: Histogram,
    stalls: Counter,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    written_tokens: Counter,
    reasoning_tokens: Counter,
    kv_bytes: (u64, u64),
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Status {
    status: u32,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Layers {
    layers: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Part {
    phase: &'static str,
}

/// What the engine has counted, as Prometheus wants it.
#[derive(Debug)]
struct Counted(lapidary_engine::Histogram);

impl EncodeMetric for Counted {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        // The encoder takes the highest number for infinity.
        let buckets: Vec<_> = self.0.buckets().map(|(b, n)| (b.min(f64::MAX), n)).collect();
        encoder.encode_histogram::<NoLabelSet>(self.0.sum(), self.0.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Metrics {
    /// Nothing counted yet. `kv_bytes` is what the cache of global and of sliding layers takes.
    pub(crate) fn new(kv_bytes: (u64, u64)) -> Self {
        Self {
            requests: Family::default(),
            first_token: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            next_token: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            stalls: Counter::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            written_tokens: Counter::default(),
            reasoning_tokens: Counter::default(),
            kv_bytes,
        }
    }

    /// A request was answered.
    pub(crate) fn request(&self, status: u16) {
        self.requests.get_or_create(&Status { status: u32::from(status) }).inc();
    }

    /// A first token came, so long after its request.
    pub(crate) fn first_token(&self, after: Duration) {
        self.first_token.observe(after.as_secs_f64());
    }

    /// Another token came, so long after the one before.
    pub(crate) fn next_token(&self, after: Duration) {
        self.next_token.observe(after.as_secs_f64());
        if after >= STALL {
            self.stalls.inc();
        }
    }

    /// A request has come to its end.
    pub(crate) fn tokens(&self, usage: &Usage) {
        self.prompt_tokens.inc_by(usage.prompt_tokens);
        self.cached_tokens.inc_by(usage.prompt_tokens_details.cached_tokens);
        self.written_tokens.inc_by(usage.completion_tokens);
        self.reasoning_tokens.inc_by(usage.completion_tokens_details.reasoning_tokens);
    }

    /// Everything, in the text format that Prometheus reads.
    pub(crate) fn text(&self, engine: &EngineStats) -> String {
        let mut registry = Registry::with_prefix("lapidary");
        self.register_own(&mut registry);
        register_engine(&mut registry, engine);
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all text");
        text
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered, by status", self.requests.clone());
        let help = "Seconds from a request to its first token";
        registry.register("time_to_first_token_seconds", help, self.first_token.clone());
        let help = "Seconds between two tokens of a text";
        registry.register("inter_token_latency_seconds", help, self.next_token.clone());
        let help = "Waits of a second or more for the next token of a text";
        registry.register("stalls", help, self.stalls.clone());
        let help = "Tokens of prompts";
        registry.register("prompt_tokens", help, self.prompt_tokens.clone());
        let help = "Tokens of prompts that were found in the cache";
        registry.register("prompt_tokens_cached", help, self.cached_tokens.clone());
        let help = "Tokens written";
        registry.register("completion_tokens", help, self.written_tokens.clone());
        let help = "Tokens of thoughts and structure among those written";
        registry.register("reasoning_tokens", help, self.reasoning_tokens.clone());
        let kv = Family::<Layers, Gauge>::default();
        for (layers, bytes) in [("global", self.kv_bytes.0), ("sliding", self.kv_bytes.1)] {
            kv.get_or_create(&Layers { layers }).set(bytes as i64);
        }
        registry.register("kv_bytes", "Bytes that the cache takes, by kind of layer", kv);
    }
}

fn register_engine(registry: &mut Registry, engine: &EngineStats) {
    let (work, prefixes) = (engine.work, engine.prefixes);
    let gauges = [
        ("requests_running", "Requests that hold a slot", work.running),
        ("requests_waiting", "Requests that wait for a slot", work.waiting),
        ("saved_prefixes", "Sections of prompts that are saved", prefixes.held),
        ("saved_prefix_bytes", "Bytes that they take", prefixes.bytes as usize),
    ];
    for (name, help, value) in gauges {
        let gauge = Gauge::<i64>::default();
        gauge.set(value as i64);
        registry.register(name, help, gauge);
    }
    let counters = [
        ("engine_steps", "Runs of the model", work.steps),
        ("engine_rows", "Rows of all runs", work.rows),
        ("engine_tokens", "Tokens chosen", work.tokens),
        ("engine_prefix_tokens", "Tokens of prompts that were not read again", work.cached),
        ("engine_drafted_tokens", "Guesses run", work.drafted),
        ("engine_accepted_tokens", "Guesses that became text", work.accepted),
        ("engine_submitted", "Requests taken", work.submitted),
        ("engine_refused", "Requests refused", work.refused),
        ("engine_finished", "Requests ended, for whatever reason", work.finished),
        ("engine_preempted", "Texts that lost their slot to another", work.preempted),
        ("saved_prefix_hits", "Texts that began with a saved prefix", prefixes.hits),
        ("saved_prefix_tokens", "Tokens of those prefixes", prefixes.tokens),
        ("saved_prefix_evictions", "Sections given up for want of room", prefixes.evicted),
        ("saved_prefix_losses", "Sections that could not be used", prefixes.lost),
    ];
    for (name, help, value) in counters {
        let counter = Counter::<u64, AtomicU64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    register_times(registry, engine);
}

fn register_times(registry: &mut Registry, engine: &EngineStats) {
    let times = &engine.times;
    let histograms = [
        ("request_queue_time_seconds", "Seconds from a request to its slot", times.queue),
        ("engine_step_seconds", "Seconds that steps took", times.step),
        ("engine_step_rows", "Rows of steps", times.rows),
    ];
    for (name, help, histogram) in histograms {
        registry.register(name, help, Counted(histogram));
    }
    let phases = Family::<Part, Counter<f64, AtomicU64>>::default();
    for phase in Phase::ALL {
        let part = Part { phase: phase.name() };
        phases.get_or_create(&part).inc_by(times.of(phase).as_secs_f64());
    }
    registry.register("engine_phase_seconds", "Seconds spent in each phase of steps", phases);
}
