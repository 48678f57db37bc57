//! What can be typed. Nothing here touches the world.

pub(crate) mod files;

use std::cell::OnceCell;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lapidary_backend_cpu::Isa;
use lapidary_cache::KvSpec;
use lapidary_core::TokenId;
use lapidary_text::Overflow;

use crate::bench::LuckArgs;
use crate::device::{DeviceName, best_device};
use crate::draft::DraftArgs;
use crate::hub::{HubArgs, ListArgs, PullArgs, RemoveArgs};
use crate::prompt_cache::PromptCacheArgs;
use crate::sight::SightArgs;
use crate::trace::TraceArgs;
use files::{ConvertArgs, ImatrixArgs, QuantizeArgs};

/// Runs Google's Gemma 4 family from quantised weights.
#[derive(Debug, Parser)]
#[command(name = "lapidary", version, about, max_term_width = 100)]
pub(crate) struct Typed {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt, streamed.
    Run(Box<RunArgs>),
    /// Talk with a model, turn by turn; `/help` lists what can be typed.
    Chat(Box<ChatArgs>),
    /// Serve an OpenAI-compatible API, and a chat page at `/`.
    Serve(Box<crate::serve::ServeArgs>),
    /// Show how a text is cut into tokens.
    Tokenize(TokenizeArgs),
    /// Show what a model file holds and how much memory it takes.
    Info(InfoArgs),
    /// Measure what a cache regime or a file costs in quality.
    Eval(EvalArgs),
    /// Measure speed, next to what this machine allows.
    Bench(BenchArgs),
    /// Turn texts into vectors.
    Embed(EmbedArgs),
    /// Make a GGUF file from a Hugging Face folder.
    Convert(ConvertArgs),
    /// Store a GGUF file in other types.
    Quantize(QuantizeArgs),
    /// Measure how much each column of each matrix matters, for `--imatrix`.
    Imatrix(ImatrixArgs),
    /// Fetch a model from the Hugging Face hub.
    Pull(PullArgs),
    /// Show the models that have been fetched.
    List(ListArgs),
    /// Remove a fetched model.
    Rm(RemoveArgs),
    /// Show what this machine can do, and whether the built-in model answers as it should.
    Doctor(DoctorArgs),
    /// Show where the layer dumps of two runs first differ.
    Diff(DiffArgs),
}

/// Which model.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Model file (GGUF, or the first part of a split one), folder (Hugging Face layout), or the
    /// hub's name for one, owner/repo:QUANT; without it, the built-in Pebble.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hub: HubArgs,
}

/// Where and how a model runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Device to run on [default: a GPU where one can be used, else the CPU].
    #[arg(long, value_name = "cpu|cuda[:N]")]
    pub(crate) device: Option<DeviceName>,
    #[arg(skip)]
    pub(crate) chosen: OnceCell<DeviceName>,
    /// How the cache stores keys and values: f32, f16, hybrid:B, tqB or tq:kB:vB with B one of
    /// 8, 6, 5, 4; or `family=regime,…` with families global, sliding and layers:A-B.
    #[arg(long, value_name = "SPEC", default_value_t = KvSpec::default())]
    pub(crate) kv: KvSpec,
    /// Tokens that prompt and text may have together [default: the model's, at most 8192].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) ctx: Option<u32>,
    /// Threads [default: as many as this process may use].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Instruction set of the CPU kernels: plain, avx2 or avx512-vnni [default: the best here].
    #[arg(long, value_name = "ISA")]
    pub(crate) isa: Option<Isa>,
}

impl DeviceArgs {
    /// The device that was asked for, or else the best that there is. Threads and an instruction
    /// set ask for the CPU. A choice that nobody made is said aloud, once.
    pub(crate) fn device(&self) -> DeviceName {
        let for_cpu = self.threads.is_some() || self.isa.is_some();
        let asked = self.device.or(if for_cpu { Some(DeviceName::Cpu) } else { None });
        *self.chosen.get_or_init(|| asked.unwrap_or_else(best_device))
    }

    /// What they are where nothing is typed.
    pub(crate) fn untyped() -> Self {
        #[derive(Parser)]
        struct Nothing {
            #[command(flatten)]
            device: DeviceArgs,
        }
        Nothing::parse_from([""; 0]).device
    }
}

/// How tokens are chosen.
#[derive(Args, Debug)]
pub(crate) struct SamplingArgs {
    /// Where the settings below start from: greedy, or what the model recommends [default: greedy for `run`,
    /// model for `chat`].
    #[arg(long, value_name = "greedy|model")]
    pub(crate) sampling: Option<Preset>,
    /// Most tokens to produce [default: until the text ends].
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<u32>,
    /// Same seed, same text.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// 0 takes the likeliest token, 1 draws from the model's own distribution.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) temp: Option<f32>,
    /// Keep only the N likeliest tokens; 0 keeps all.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) top_k: Option<usize>,
    /// Keep the tokens about as surprising as one is on average that make up this probability.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) typical_p: Option<f32>,
    /// Keep the likeliest tokens that make up this probability.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,
    /// Drop tokens less likely than this part of the likeliest.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,
    /// Keep only tokens within this many standard deviations of the highest logit; 0 keeps all.
    #[arg(long, value_name = "X")]
    pub(crate) top_n_sigma: Option<f32>,
    /// Make recent tokens less likely; 1 changes nothing.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) repeat_penalty: Option<f32>,
    /// How many tokens are recent [default: 64].
    #[arg(long, value_name = "N")]
    pub(crate) repeat_last_n: Option<usize>,
    /// Taken from the logits of recent tokens.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// Taken from the logits of recent tokens as often as they occur.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    #[command(flatten)]
    pub(crate) dry: DryArgs,
    /// How often to drop all but the least of the tokens that --xtc-threshold calls obvious.
    #[arg(long, value_name = "P")]
    pub(crate) xtc_probability: Option<f32>,
    /// From which probability on a token is obvious [default: 0.1].
    #[arg(long, value_name = "P", requires = "xtc_probability")]
    pub(crate) xtc_threshold: Option<f32>,
    /// Change a token's logit, e.g. 42+1.5 or 42-inf (repeatable).
    #[arg(short = 'l', long, value_name = "ID(+|-)X", value_parser = logit_bias)]
    pub(crate) logit_bias: Vec<(TokenId, f32)>,
    /// End the text before this string (repeatable).
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
}

/// Against repetition: DRY.
#[derive(Args, Debug)]
pub(crate) struct DryArgs {
    /// What a token loses that makes a repetition longer than allowed; 0 changes nothing.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub(crate) dry_multiplier: f32,
    /// How the loss grows with each further token.
    #[arg(long, value_name = "X", default_value_t = 1.75)]
    pub(crate) dry_base: f32,
    /// Repetitions shorter than this are ignored.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) dry_allowed_length: usize,
    /// How many of the last tokens are looked at [default: all].
    #[arg(long, value_name = "N")]
    pub(crate) dry_penalty_last_n: Option<usize>,
    /// No repetition goes across this; one token of the vocabulary, or `none` (repeatable)
    /// [default: newline, `:`, `"` and `*`].
    #[arg(long, value_name = "TEXT")]
    pub(crate) dry_sequence_breaker: Vec<String>,
}

/// What the text must look like.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct RulesArgs {
    /// The text is JSON that this schema describes: a file, or the schema itself.
    #[arg(short = 'j', long, value_name = "FILE|TEXT")]
    pub(crate) json_schema: Option<String>,
    /// The text follows the grammar in this file: GBNF (with `::=`) or Lark.
    #[arg(long, value_name = "FILE")]
    pub(crate) grammar: Option<PathBuf>,
    /// All of the text matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub(crate) regex: Option<String>,
}

/// `ID+X` or `ID-X`, `inf` included, as in llama.cpp.
fn logit_bias(text: &str) -> Result<(TokenId, f32), String> {
    let wrong = || format!("`{text}` is no bias; write a token's id, a sign and a number: 42-1.5");
    let at = text.find(['+', '-']).ok_or_else(wrong)?;
    let id = text[..at].parse().map_err(|_| wrong())?;
    let bias = text[at..].parse().map_err(|_| wrong())?;
    Ok((TokenId(id), bias))
}

/// How a conversation is written down.
#[derive(Args, Debug)]
pub(crate) struct TemplateArgs {
    /// Jinja file to use instead of the model's own chat template.
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// System text before everything else.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Let the model think first, where its template allows that.
    #[arg(long)]
    pub(crate) think: bool,
}

/// Where sampling settings start from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Preset {
    Greedy,
    Model,
}

/// What an engine does besides answering.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) kept: PromptCacheArgs,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

/// Two layer dumps, as `--dump-layers` writes them.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// One run's dump.
    pub(crate) left: PathBuf,
    /// Another run's.
    pub(crate) right: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The prompt; without it, standard input.
    #[arg(conflicts_with = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    /// Look at an image, PNG, JPEG, WebP or GIF, before the prompt (repeatable).
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) sight: SightArgs,
    /// Continue the prompt as it stands: no chat template, special tokens honoured.
    #[arg(long, conflicts_with_all = ["system", "think", "chat_template"])]
    pub(crate) raw: bool,
    /// Fewest tokens to produce before the text may end.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) min_tokens: u32,
    /// Choose no token that ends the text: it goes on for -n tokens, or to the end of the context.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// With --json: each token's log-probability and those of the N likeliest.
    #[arg(long, value_name = "N", requires = "json")]
    pub(crate) logprobs: Option<usize>,
    /// With --json: the same for the tokens of the prompt.
    #[arg(long, value_name = "N", requires = "json")]
    pub(crate) prompt_logprobs: Option<usize>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The texts; without them, each line of standard input is one.
    #[arg(conflicts_with = "file")]
    pub(crate) texts: Vec<String>,
    /// Read texts from a file of JSON lines: strings, or objects with a `text`.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How a text's hidden states become one vector.
    #[arg(long, value_name = "mean|last", default_value = "mean")]
    pub(crate) pooling: PoolingName,
    /// Print one JSON object instead of a line of numbers per text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How hidden states become one vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum PoolingName {
    Mean,
    Last,
}

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// When the context is full: ask nothing more, or forget the oldest turns.
    #[arg(long, value_name = "stop|drop-oldest", default_value = "stop",
        value_parser = overflow)]
    pub(crate) overflow: Overflow,
    /// Go on with a conversation that `/save` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    /// Functions the model may call: a JSON list, as in OpenAI's `tools`.
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
}

fn overflow(word: &str) -> Result<Overflow, String> {
    match word {
        "stop" => Ok(Overflow::Stop),
        "drop-oldest" => Ok(Overflow::DropOldest),
        _ => Err(format!("`{word}` is no policy; use stop or drop-oldest")),
    }
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text; without it, standard input.
    pub(crate) text: Option<String>,
    /// Read `<special tokens>` in the text as such.
    #[arg(long)]
    pub(crate) special: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// How the cache would store keys and values.
    #[arg(long, value_name = "SPEC", default_value_t = KvSpec::default())]
    pub(crate) kv: KvSpec,
    /// Tokens that a sequence may have [default: the model's, at most 8192].
    #[arg(long, value_name = "N")]
    pub(crate) ctx: Option<u32>,
    /// List every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Compare every tensor with the folder or file that the model was made from.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) verify: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Compare distributions over this text, in windows of --ctx tokens, between two caches.
    #[arg(long, value_name = "TEXT", required_unless_present = "answers")]
    pub(crate) kld: Option<PathBuf>,
    /// Compare at most this many windows [default: all that the text fills].
    #[arg(long, value_name = "N")]
    pub(crate) windows: Option<NonZeroUsize>,
    /// The cache to compare with.
    #[arg(long, value_name = "SPEC", default_value_t = KvSpec::default())]
    pub(crate) against: KvSpec,
    /// Count right answers of a JSONL file (prompt_ids, expected, greedy_ids, category).
    #[arg(long, value_name = "FILE", conflicts_with = "kld")]
    pub(crate) answers: Option<PathBuf>,
    /// With --answers: questions that are answered at once.
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) slots: u16,
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// With --draft: guess as much as is allowed, whether it pays or not.
    #[arg(long)]
    pub(crate) draft_always: bool,
    /// Multiply with the stored codes, or decode all weights to floats first.
    #[arg(long, value_name = "stored|f32", default_value = "stored")]
    pub(crate) weights: Weights,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How weights are multiplied with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Weights {
    Stored,
    F32,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Random weights in the shapes of this file instead of a model, or one of the built-in
    /// shapes: moe-mini, gemma4-26b-a4b, gemma4-31b.
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "model")]
    pub(crate) shape: Option<String>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Prompt lengths to time; 0 for none.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [512])]
    pub(crate) prefill: Vec<u32>,
    /// Tokens to decode per measurement; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) decode: u32,
    /// Tokens before the first decoded one.
    #[arg(long, value_name = "D,…", value_delimiter = ',', default_values_t = [0])]
    pub(crate) depth: Vec<u32>,
    /// Sequences decoded at once.
    #[arg(long, value_name = "B,…", value_delimiter = ',', default_values_t = [1],
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch: Vec<u32>,
    /// How often each is timed, after one run that is not.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    #[command(flatten)]
    pub(crate) luck: LuckArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
