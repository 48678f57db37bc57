//! What can be typed to make files.

use std::path::PathBuf;

use clap::Args;
use lapidary_convert::Mix;
use lapidary_core::BlockType;

use super::{DeviceArgs, ModelArgs};

/// How a file is stored.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Importance of the columns, made with `lapidary imatrix`.
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// The type of one tensor (repeatable).
    #[arg(long, value_name = "NAME=TYPE", value_parser = tensor_type)]
    pub(crate) tensor_type: Vec<(String, BlockType)>,
    /// Threads [default: as many as this process may use].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// Hugging Face folder: config.json, tokenizer files, safetensors.
    pub(crate) folder: PathBuf,
    /// The GGUF file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Type or mix: F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q3_K_M, Q2_K, IQ4_XS and so on.
    #[arg(long, value_name = "MIX", default_value = "BF16")]
    pub(crate) quant: Mix,
    /// Write the vision tower, the file that goes beside the decoder's.
    #[arg(long)]
    pub(crate) vision: bool,
    /// What the model is called [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Args, Debug)]
pub(crate) struct QuantizeArgs {
    /// GGUF file to read.
    pub(crate) input: PathBuf,
    /// GGUF file to write.
    pub(crate) output: PathBuf,
    /// Type or mix, as for `convert`.
    #[arg(required_unless_present_any = ["target_size", "target_kld"])]
    pub(crate) mix: Option<Mix>,
    #[command(flatten)]
    pub(crate) search: TargetArgs,
    /// Also quantise what is quantised already.
    #[arg(long)]
    pub(crate) requantize: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// A type for every tensor by what its errors do to the answers.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// Choose types so that the weights take at most this, e.g. 12M or 1.5G (powers of 1000).
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["mix", "target_kld"], requires = "text")]
    pub(crate) target_size: Option<u64>,
    /// Choose types so that the mean divergence from the input is at most this, in nats.
    #[arg(long, value_name = "KLD", conflicts_with = "mix", requires = "text")]
    pub(crate) target_kld: Option<f64>,
    /// Text to measure the divergence on.
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<PathBuf>,
    /// Tokens of a window of the text; the second half of each is scored.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) window: u32,
    /// Windows to measure on.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) windows: usize,
}

#[derive(Args, Debug)]
pub(crate) struct ImatrixArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Text to run; the more like later prompts, the better.
    #[arg(short = 'f', long, value_name = "TEXT")]
    pub(crate) file: PathBuf,
    /// The file to write. If it exists and was made from the same text, it is continued.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Tokens of a chunk.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) chunk: u32,
    /// Run at most this many chunks [default: all that the text fills].
    #[arg(long, value_name = "N")]
    pub(crate) chunks: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Bytes, with K, M or G for powers of 1000.
fn size(typed: &str) -> Result<u64, String> {
    let wrong = || format!("`{typed}` is no size, such as 12M or 1.5G");
    let upper = typed.to_uppercase();
    let (number, unit) = match upper.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, upper.as_bytes().last().copied()),
        None => (upper.as_str(), None),
    };
    let factor = match unit {
        Some(b'K') => 1e3,
        Some(b'M') => 1e6,
        Some(b'G') => 1e9,
        _ => 1.0,
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    if number.is_finite() && number > 0.0 { Ok((number * factor) as u64) } else { Err(wrong()) }
}

fn tensor_type(typed: &str) -> Result<(String, BlockType), String> {
    let wrong = || format!("`{typed}` is not NAME=TYPE, such as token_embd.weight=Q8_0");
    let (name, block) = typed.split_once('=').ok_or_else(wrong)?;
    let wanted = block.to_uppercase();
    let found = BlockType::ALL.into_iter().find(|block| block.to_string() == wanted);
    Ok((name.to_owned(), found.ok_or_else(wrong)?))
}
