//! From a request's fields to the engine's settings.

use lapidary_core::TokenId;
use lapidary_engine::{BadSampling, Dry, Sampling, Xtc};
use lapidary_text::Control;
use serde_json::{Map, Value};

use crate::app::App;
use crate::error::ApiError;
use crate::wire::common::{SamplingFields, Stop};

/// Most stop texts of a request.
const MOST_STOPS: usize = 16;
/// Most tokens whose logits a request may change.
const MOST_BIASES: usize = 1024;
/// How far a bias may go, as OpenAI has it.
const BIAS: std::ops::RangeInclusive<f64> = -100.0..=100.0;

/// How tokens are chosen.
pub(crate) fn sampling(fields: &SamplingFields, app: &App) -> Result<Sampling, ApiError> {
    let defaults = app.model().defaults;
    let mut suppress = app.model().suppress.clone();
    if fields.ignore_eos == Some(true) {
        suppress.extend(&app.model().end);
    }
    let sampling = Sampling {
        seed: fields.seed.map_or_else(|| (app.world().random)() >> 11, |seed| seed as u64),
        temperature: fields.temperature.unwrap_or(defaults.temperature),
        top_k: fields.top_k.unwrap_or(defaults.top_k),
        typical_p: fields.typical_p.unwrap_or(1.0),
        top_p: fields.top_p.unwrap_or(defaults.top_p),
        min_p: fields.min_p.unwrap_or(defaults.min_p),
        repeat_penalty: fields.repeat_penalty.unwrap_or(1.0),
        presence_penalty: fields.presence_penalty.unwrap_or(0.0),
        frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
        top_n_sigma: fields.top_n_sigma.unwrap_or(0.0),
        dry: dry(fields, app),
        xtc: xtc(fields),
        suppress,
        bias: bias(fields.logit_bias.as_ref(), app)?,
        ..Sampling::default()
    };
    sampling.check().map_err(|error| match &error {
        BadSampling::OutOfRange { name, .. } => ApiError::field(*name, error.to_string()),
        BadSampling::Bias { .. } => ApiError::field("logit_bias", error.to_string()),
    })?;
    Ok(sampling)
}

/// Weakens what would go on with a repetition, if the request says how much.
fn dry(fields: &SamplingFields, app: &App) -> Option<Dry> {
    let multiplier = fields.dry_multiplier.filter(|multiplier| *multiplier != 0.0)?;
    let tokenizer = &app.model().tokenizer;
    let breakers = ["\n", ":", "\"", "*"].map(|text| tokenizer.encode(text, Control::Spell));
    Some(Dry {
        multiplier,
        base: fields.dry_base.unwrap_or(1.75),
        allowed: fields.dry_allowed_length.unwrap_or(2),
        range: fields.dry_penalty_last_n.unwrap_or(usize::MAX),
        breakers: breakers.into_iter().filter_map(|ids| ids.first().copied()).collect(),
    })
}

/// Now and then excludes the obvious, if the request says how often.
fn xtc(fields: &SamplingFields) -> Option<Xtc> {
    let probability = fields.xtc_probability.filter(|probability| *probability != 0.0)?;
    Some(Xtc { probability, threshold: fields.xtc_threshold.unwrap_or(0.1) })
}

fn bias(given: Option<&Map<String, Value>>, app: &App) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let wrong = |what: String| ApiError::field("logit_bias", what);
    if given.len() > MOST_BIASES {
        let count = given.len();
        return Err(wrong(format!("logit_bias has {count} entries; give at most {MOST_BIASES}")));
    }
    let vocab = app.model().tokenizer.len();
    let entry = |(key, value): (&String, &Value)| {
        let token = key.parse().ok().filter(|id| (*id as usize) < vocab);
        let token = token.ok_or_else(|| {
            wrong(format!("logit_bias names token {key:?}; ids are numbers below {vocab}"))
        })?;
        let bias = value.as_f64().filter(|bias| BIAS.contains(bias)).ok_or_else(|| {
            wrong(format!("logit_bias of token {key} is {value}; give a number from -100 to 100"))
        })?;
        Ok((TokenId(token), bias as f32))
    };
    given.iter().map(entry).collect()
}

/// The most guesses in a row, if the request says.
pub(crate) fn drafts(fields: &SamplingFields, app: &App) -> Result<Option<usize>, ApiError> {
    let Some(asked) = fields.draft.as_ref().filter(|asked| !asked.is_null()) else {
        return Ok(None);
    };
    if asked == "none" {
        return Ok(Some(0));
    }
    let members = asked.as_object().filter(|members| members.len() == 1);
    let len = members.and_then(|members| members.get("len")?.as_u64());
    let wrong = |what: &str| Err(ApiError::field("draft", what));
    match (len, app.settings().drafts) {
        (None | Some(0), _) => wrong("`draft` must be \"none\" or {\"len\": N} with N from 1 up"),
        (Some(_), 0) => wrong(
            "`draft` asks for guesses, but the server has no drafter; leave it out, or start the \
             server with --draft",
        ),
        (Some(len), most) if len > most as u64 => {
            let public =
                format!("`draft.len` is {len}; this server guesses at most {most} tokens in a row");
            wrong(&public)
        }
        (Some(len), _) => Ok(Some(len as usize)),
    }
}

/// The texts that end an answer.
pub(crate) fn stops(fields: &SamplingFields) -> Result<Vec<String>, ApiError> {
    let stops = match fields.stop.clone() {
        None => Vec::new(),
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Several(stops)) => stops,
    };
    if stops.len() > MOST_STOPS {
        let count = stops.len();
        let public = format!("`stop` has {count} texts; give at most {MOST_STOPS}");
        return Err(ApiError::field("stop", public));
    }
    Ok(stops)
}

/// Most texts of a request.
const MOST_SAMPLES: u32 = 128;

/// How many texts to make.
pub(crate) fn samples(asked: Option<u32>) -> Result<u32, ApiError> {
    match asked.unwrap_or(1) {
        samples @ 1..=MOST_SAMPLES => Ok(samples),
        samples => {
            let public = format!("`n` is {samples}; give a number from 1 to {MOST_SAMPLES}");
            Err(ApiError::field("n", public))
        }
    }
}

/// A field that means something everywhere but here.
pub(crate) fn unavailable(name: &str) -> ApiError {
    ApiError::unsupported(name, format!("`{name}` has no effect in this server; leave it out"))
}
