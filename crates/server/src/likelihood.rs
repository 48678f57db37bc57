//! Log-probabilities in the forms that clients read.

use lapidary_core::TokenId;
use serde_json::{Map, json};

use crate::app::App;
use crate::error::ApiError;
use crate::voice::Heard;
use crate::wire::chat::{ChatLogprob, ChatLogprobs, TopLogprob};
use crate::wire::completions::CompletionLogprobs;

/// Stands for minus infinity, which JSON cannot write.
const NEVER: f64 = -9999.0;

/// Most tokens whose log-probabilities are reported at each place.
const MOST: usize = 20;

/// A number of tokens to report, if it is not too large.
pub(crate) fn checked(field: &str, top: usize) -> Result<usize, ApiError> {
    if top <= MOST {
        return Ok(top);
    }
    let public = format!("`{field}` is {top}; give at most {MOST}");
    Err(ApiError::field(field, public))
}

/// In chat's form.
pub(crate) fn chat(heard: &[Heard], app: &App) -> ChatLogprobs {
    let content = heard.iter().filter_map(|heard| {
        let logprobs = heard.logprobs.as_ref()?;
        let (token, bytes) = spelled(heard.token, app);
        let top = logprobs.top.iter().map(|(token, logprob)| {
            let (token, bytes) = spelled(*token, app);
            TopLogprob { token, logprob: finite(*logprob), bytes }
        });
        let logprob = finite(logprobs.token);
        Some(ChatLogprob { token, logprob, bytes, top_logprobs: top.collect() })
    });
    ChatLogprobs { content: content.collect(), refusal: None }
}

/// In completions' form. `offset` is where the first token begins, in characters, and is moved to
/// where the next one will.
pub(crate) fn completions(heard: &[Heard], offset: &mut usize, app: &App) -> CompletionLogprobs {
    let mut all = CompletionLogprobs::default();
    for heard in heard {
        let Some(logprobs) = &heard.logprobs else { continue };
        let (token, _) = spelled(heard.token, app);
        let top = logprobs.top.iter().map(|(token, logprob)| {
            let (token, _) = spelled(*token, app);
            (token, json!(finite(*logprob)))
        });
        all.top_logprobs.push(Map::from_iter(top));
        all.token_logprobs.push(finite(logprobs.token));
        all.text_offset.push(*offset);
        *offset += token.chars().count();
        all.tokens.push(token);
    }
    all
}

fn spelled(token: TokenId, app: &App) -> (String, Vec<u8>) {
    let bytes = app.model().tokenizer.bytes(token).to_vec();
    (String::from_utf8_lossy(&bytes).into_owned(), bytes)
}

fn finite(logprob: f64) -> f64 {
    if logprob.is_finite() { logprob } else { NEVER }
}
