//! From what was typed to how tokens are chosen.

use lapidary_core::TokenId;
use lapidary_engine::{Dry, Sampling, Xtc};
use lapidary_format::Source;

use crate::args::{DryArgs, Preset, SamplingArgs};
use crate::failure::Failure;
use crate::model::{Recommended, Text};

/// From which probability on a token is obvious, unless said otherwise; as in llama.cpp.
const XTC_THRESHOLD: f32 = 0.1;
/// What no repetition goes across, unless said otherwise; as in llama.cpp.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// The settings that were typed, over those of `preset` unless another was typed too.
pub(crate) fn sampling(
    args: &SamplingArgs,
    preset: Preset,
    source: &Source,
    text: &Text,
) -> Result<Sampling, Failure> {
    let recommended = Recommended::of(source);
    let start = match args.sampling.unwrap_or(preset) {
        Preset::Greedy => Sampling::default(),
        Preset::Model => Sampling {
            temperature: recommended.temperature,
            top_k: recommended.top_k,
            top_p: recommended.top_p,
            ..Sampling::default()
        },
    };
    let xtc =
        |probability| Xtc { probability, threshold: args.xtc_threshold.unwrap_or(XTC_THRESHOLD) };
    let sampling = Sampling {
        seed: args.seed,
        temperature: args.temp.unwrap_or(start.temperature),
        top_k: args.top_k.unwrap_or(start.top_k),
        typical_p: args.typical_p.unwrap_or(start.typical_p),
        top_p: args.top_p.unwrap_or(start.top_p),
        min_p: args.min_p.unwrap_or(start.min_p),
        top_n_sigma: args.top_n_sigma.unwrap_or(start.top_n_sigma),
        repeat_penalty: args.repeat_penalty.unwrap_or(start.repeat_penalty),
        repeat_last: args.repeat_last_n.unwrap_or(start.repeat_last),
        presence_penalty: args.presence_penalty.unwrap_or(start.presence_penalty),
        frequency_penalty: args.frequency_penalty.unwrap_or(start.frequency_penalty),
        dry: dry(&args.dry, text)?,
        xtc: args.xtc_probability.map(xtc),
        suppress: text.suppress.clone(),
        bias: bias(args, text)?,
        ..start
    };
    sampling.check().map_err(|e| Failure::usage("sampling", e))?;
    Ok(sampling)
}

fn bias(args: &SamplingArgs, text: &Text) -> Result<Vec<(TokenId, f32)>, Failure> {
    let entries = text.tokenizer.len();
    match args.logit_bias.iter().find(|(token, _)| token.index() >= entries) {
        Some((token, _)) => {
            let id = token.0;
            let message = format!("--logit-bias names token {id}, but there are only {entries}");
            Err(Failure::usage("sampling", message))
        }
        None => Ok(args.logit_bias.clone()),
    }
}

fn dry(args: &DryArgs, text: &Text) -> Result<Option<Dry>, Failure> {
    if args.dry_multiplier == 0.0 {
        return Ok(None);
    }
    let spelled = |breaker: &String| {
        text.tokenizer.token(&breaker.replace(' ', "▁")).ok_or_else(|| {
            let message = format!("--dry-sequence-breaker {breaker:?} is no token of this model");
            Failure::usage("sampling", message)
        })
    };
    let named = match args.dry_sequence_breaker.as_slice() {
        [] => Ok(BREAKERS.iter().filter_map(|breaker| text.tokenizer.token(breaker)).collect()),
        [none] if none == "none" => Ok(Vec::new()),
        named => named.iter().map(spelled).collect(),
    };
    Ok(Some(Dry {
        multiplier: args.dry_multiplier,
        base: args.dry_base,
        allowed: args.dry_allowed_length,
        range: args.dry_penalty_last_n.unwrap_or(usize::MAX),
        breakers: named?,
    }))
}
