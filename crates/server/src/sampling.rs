//! From a request's fields to the engine's settings.

use lapidary_core::TokenId;
use lapidary_engine::{BadSampling, Sampling};
use lapidary_text::StopStrings;
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
    let sampling = Sampling {
        seed: fields.seed.map_or_else(|| (app.world().random)() >> 11, |seed| seed as u64),
        temperature: fields.temperature.unwrap_or(defaults.temperature),
        top_k: fields.top_k.unwrap_or(defaults.top_k),
        top_p: fields.top_p.unwrap_or(defaults.top_p),
        min_p: fields.min_p.unwrap_or(defaults.min_p),
        repeat_penalty: fields.repeat_penalty.unwrap_or(1.0),
        suppress: app.model().suppress.clone(),
        bias: bias(fields.logit_bias.as_ref(), app)?,
        ..Sampling::default()
    };
    sampling.check().map_err(|error| match &error {
        BadSampling::OutOfRange { name, .. } => ApiError::field(*name, error.to_string()),
        BadSampling::Bias { .. } => ApiError::field("logit_bias", error.to_string()),
    })?;
    Ok(sampling)
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

/// The texts that end an answer.
pub(crate) fn stops(fields: &SamplingFields) -> Result<StopStrings, ApiError> {
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
    StopStrings::new(stops).map_err(|error| ApiError::field("stop", error.to_string()))
}

/// Refuses fields whose effect the engine does not have.
pub(crate) fn refuse_unavailable(fields: &SamplingFields) -> Result<(), ApiError> {
    let given = [
        ("presence_penalty", fields.presence_penalty.is_some_and(|x| x != 0.0)),
        ("frequency_penalty", fields.frequency_penalty.is_some_and(|x| x != 0.0)),
        ("min_tokens", fields.min_tokens.is_some_and(|n| n > 0)),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(unavailable(name)),
        None => Ok(()),
    }
}

/// A field that means something everywhere but here.
pub(crate) fn unavailable(name: &str) -> ApiError {
    ApiError::unsupported(name, format!("`{name}` has no effect in this server; leave it out"))
}
