//! A vocabulary from GGUF metadata.

use std::borrow::Cow;

use lapidary_core::{TokenId, Value};

use crate::tokenizer::TokenizerError;
use crate::vocabulary::{Entry, Kind, MAX_TOKENS, Merge, Parts, byte_of, split_merge};

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";

/// How a vocabulary ranks what joins.
pub(crate) enum Ranked {
    /// By the order of its merges; scores are ignored.
    ByMerges,
    /// By the score of what is joined, one per token.
    ByScores(Vec<f32>),
}

/// Reads the `tokenizer.ggml.*` keys.
pub(crate) fn read(metadata: &Value) -> Result<(Parts<'_>, Ranked), TokenizerError> {
    let model = metadata.get(MODEL).and_then(Value::as_str);
    let model = model.ok_or(TokenizerError::Field { field: MODEL, expected: "text" })?;
    check_spaces(metadata)?;
    let entries = entries(metadata)?;
    let (merges, ranked) = match model {
        "gemma4" => (merges(metadata)?, Ranked::ByMerges),
        "llama" => (Vec::new(), Ranked::ByScores(scores(metadata, entries.len())?)),
        other => {
            let (field, found) = (MODEL, format!("{other:?}"));
            let supported = "\"gemma4\" and \"llama\"";
            return Err(TokenizerError::Unsupported { field, found, supported });
        }
    };
    Ok((Parts::new(entries, merges, (id(metadata, BOS)?, id(metadata, EOS)?))?, ranked))
}

fn scores(metadata: &Value, tokens: usize) -> Result<Vec<f32>, TokenizerError> {
    let wrong = TokenizerError::Field { field: SCORES, expected: "numbers" };
    let Some(Value::Floats(scores)) = metadata.get(SCORES) else { return Err(wrong) };
    if scores.len() != tokens {
        return Err(TokenizerError::Length { field: SCORES, found: scores.len(), tokens });
    }
    Ok(scores.clone())
}

fn check_spaces(metadata: &Value) -> Result<(), TokenizerError> {
    if metadata.get(SPACE_PREFIX).and_then(Value::as_bool) == Some(true) {
        let (field, found) = (SPACE_PREFIX, "true".to_owned());
        return Err(TokenizerError::Unsupported { field, found, supported: "false" });
    }
    Ok(())
}

fn entries(metadata: &Value) -> Result<Vec<Entry<'_>>, TokenizerError> {
    let texts = strings(metadata, TOKENS)?;
    let types = metadata.get(TYPES).and_then(Value::to_ints);
    let types = types.ok_or(TokenizerError::Field { field: TYPES, expected: "integers" })?;
    if types.len() != texts.len() {
        let (found, tokens) = (types.len(), texts.len());
        return Err(TokenizerError::Length { field: TYPES, found, tokens });
    }
    if let Some(text) = texts.get(MAX_TOKENS) {
        let (token, id) = ((*text).to_owned(), MAX_TOKENS as u64);
        return Err(TokenizerError::IdTooLarge { token, id, limit: MAX_TOKENS });
    }
    texts.into_iter().zip(types).map(|(text, of_type)| entry(text, of_type)).collect()
}

fn entry(text: &str, of_type: i64) -> Result<Entry<'_>, TokenizerError> {
    let unsupported = |found| TokenizerError::Unsupported {
        field: TYPES,
        found,
        supported: "1 to 6, and 6 only for tokens written <0x00> to <0xFF>",
    };
    let kind = match of_type {
        // Unknown and unused tokens are spelled like ordinary ones.
        1 | 2 | 5 => Kind::Ordinary,
        3 => Kind::Control,
        4 => Kind::Defined,
        6 => Kind::Byte(byte_of(text).ok_or_else(|| unsupported(format!("6 for {text:?}")))?),
        other => return Err(unsupported(other.to_string())),
    };
    Ok(Entry { text: Cow::Borrowed(text), kind })
}

fn merges(metadata: &Value) -> Result<Vec<Merge<'_>>, TokenizerError> {
    strings(metadata, MERGES)?.into_iter().enumerate().map(split_merge).collect()
}

fn id(metadata: &Value, field: &'static str) -> Result<TokenId, TokenizerError> {
    let id = metadata.get(field).and_then(Value::as_int);
    let id = id.and_then(|id| u32::try_from(id).ok());
    id.map(TokenId).ok_or(TokenizerError::Field { field, expected: "a token id" })
}

fn strings<'a>(metadata: &'a Value, field: &'static str) -> Result<Vec<&'a str>, TokenizerError> {
    let strings = metadata.get(field).and_then(Value::to_strings);
    strings.ok_or(TokenizerError::Field { field, expected: "a list of text" })
}
