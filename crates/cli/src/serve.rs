//! `lapidary serve`: an engine behind HTTP.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use lapidary_engine::Sampling;
use lapidary_format::Source;
use lapidary_server::{App, Defaults, Images, Keys, Model, Settings, Tls, World, host};
use serde_json::{Value, json};

use crate::args::{DeviceArgs, EngineArgs, ModelArgs};
use crate::engine::{Running, Seats, context, start_seeing};
use crate::failure::Failure;
use crate::hub::find_or_pull;
use crate::model::{Recommended, Text, config};
use crate::sight::{Eye, Found, SightArgs};

/// What the built-in model is called.
const BUILT_IN: &str = "pebble";

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    sight: SightArgs,
    /// Chat template to use instead of the model's own.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Address to listen at; 0.0.0.0 is every one of this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen at; 0 takes a free one and prints it.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Sequences that run at once; each has a cache of --ctx tokens.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    slots: u16,
    /// Requests that may wait for a slot; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue: usize,
    /// Another name that clients may use for the model (repeatable).
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Let the model think before it answers, where a request does not say.
    #[arg(long)]
    think: bool,
    /// Temperature of requests that give none [default: the model's].
    #[arg(long, value_name = "X")]
    temp: Option<f32>,
    /// Likewise, how many of the likeliest tokens to keep.
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Likewise, how much probability to keep.
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Likewise, the least part of the likeliest token's probability [default: 0].
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Refuse fields that mean nothing here instead of ignoring them.
    #[arg(long)]
    strict: bool,
    /// File of SHA-256 hashes of API keys, one a line, as `sha256sum` prints them.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Certificate chain (PEM): serve HTTPS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Most bytes of a request.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    max_body: usize,
    /// Connections at once; further ones wait for one to end.
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Seconds that the head of a request may take, from the connection or the last answer on.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..))]
    head_timeout: u64,
    /// Seconds of silence after which a stream sends a sign of life.
    #[arg(long, value_name = "SECONDS", default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(1..))]
    heartbeat: u64,
    /// Seconds that running answers may take once the server is told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    grace: u64,
    /// How the log is written: for people, or as JSON.
    #[arg(long, value_name = "text|json", default_value = "text")]
    log: Log,
    /// Write what people ask into the log too.
    #[arg(long)]
    log_prompts: bool,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Log {
    Text,
    Json,
}

pub(crate) fn serve(args: &ServeArgs) -> Result<u8, Failure> {
    let keys = keys(args.api_key_file.as_deref())?;
    let tls = tls(args)?;
    let source = find_or_pull(&args.model)?;
    let eye = Found::of(args.model.model.as_deref(), &source, &args.sight)?.if_any();
    let model = model(args, &source, eye.as_ref())?;
    let name = model.name.clone();
    start_log(args.log);
    let seats = Seats { slots: usize::from(args.slots), waiting: args.queue };
    let running = start_seeing(source, &args.device, &args.engine, seats, eye)?;
    let address = SocketAddr::new(args.host, args.port);
    if !args.host.is_loopback() && keys.count() == 0 {
        let open = "everybody who can reach this machine can use the model";
        eprintln!("warning: {open}; use --api-key-file, or leave out --host");
    }
    let settings = Settings {
        strict: args.strict,
        keys,
        max_body: args.max_body,
        connections: args.connections as usize,
        head_timeout: Duration::from_secs(args.head_timeout),
        heartbeat: Duration::from_secs(args.heartbeat),
        log_prompts: args.log_prompts,
        slots: usize::from(args.slots),
        kv_bytes: (running.kv_bytes.global, running.kv_bytes.sliding),
        drafts: args.engine.draft.drafting().most,
        props: configuration(args, &running),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let device = running.device.clone();
    let app = App::new(running.engine.clone(), model, settings, world());
    let ready = |at: SocketAddr| {
        eprintln!("{name} on {device}: {scheme}://{at} (chat page at /, API at /v1)");
    };
    let hosted = host(app, address, tls, Duration::from_secs(args.grace), ready);
    hosted.map_err(|e| Failure::work("serve", format!("{address}: {e}; use another --port")))?;
    running.stop(&args.engine)?;
    Ok(0)
}

fn keys(file: Option<&Path>) -> Result<Keys, Failure> {
    let Some(file) = file else { return Ok(Keys::default()) };
    let unusable = |e: &dyn std::fmt::Display| {
        Failure::usage("api_key_file", format!("{}: {e}", file.display()))
    };
    let keys = Keys::parse(&read_text(file)?).map_err(|e| unusable(&e))?;
    if keys.count() == 0 {
        return Err(unusable(&"it holds no key; add one, or leave out --api-key-file"));
    }
    Ok(keys)
}

fn tls(args: &ServeArgs) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let (certificate, key) = (read_text(certificate)?, read_text(key)?);
    let tls = Tls::from_pem(certificate.as_bytes(), key.as_bytes());
    tls.map(Some).map_err(|e| Failure::usage("tls", e))
}

fn read_text(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    text.map_err(|e| Failure::work("file_unreadable", format!("{}: {e}", file.display())))
}

fn model(args: &ServeArgs, source: &Source, eye: Option<&Eye>) -> Result<Model, Failure> {
    let config = config(source)?;
    let mut text = Text::with_template(source, args.chat_template.as_deref())?;
    let stem = args.model.model.as_deref().and_then(Path::file_stem);
    Ok(Model {
        name: stem.map_or_else(|| BUILT_IN.to_owned(), |stem| stem.to_string_lossy().into_owned()),
        aliases: args.alias.clone(),
        template: text.take_template(),
        tokenizer: text.tokenizer,
        end: text.end,
        suppress: text.suppress,
        images: eye.map(|eye| Images::new(eye.budget)),
        defaults: defaults(args, &Recommended::of(source))?,
        context: context(args.device.ctx, &config)?,
    })
}

/// Where requests that say nothing start from.
fn defaults(args: &ServeArgs, recommended: &Recommended) -> Result<Defaults, Failure> {
    let sampling = Sampling {
        temperature: args.temp.unwrap_or(recommended.temperature),
        top_k: args.top_k.unwrap_or(recommended.top_k),
        top_p: args.top_p.unwrap_or(recommended.top_p),
        min_p: args.min_p.unwrap_or(0.0),
        ..Sampling::default()
    };
    sampling.check().map_err(|e| Failure::usage("sampling", e))?;
    let Sampling { temperature, top_k, top_p, min_p, .. } = sampling;
    Ok(Defaults { temperature, top_k, top_p, min_p, thinking: args.think })
}

/// The effective configuration, for whoever asks for `/props`.
fn configuration(args: &ServeArgs, running: &Running) -> Value {
    json!({
        "device": running.device,
        "kv": args.device.kv.to_string(),
        "queue": args.queue,
        "connections": args.connections,
        "head_timeout_s": args.head_timeout,
        "heartbeat_s": args.heartbeat,
        "grace_s": args.grace,
        "tls": args.tls_cert.is_some(),
        "log_prompts": args.log_prompts,
    })
}

fn start_log(log: Log) {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    match log {
        Log::Text => lines.with_ansi(false).init(),
        Log::Json => lines.json().init(),
    }
}

/// The real world.
fn world() -> World {
    let began = Instant::now();
    World {
        unix: Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())),
        elapsed: Box::new(move || began.elapsed()),
        // Hashers differ, and their keys come from the system.
        random: Box::new(|| RandomState::new().build_hasher().finish()),
    }
}
