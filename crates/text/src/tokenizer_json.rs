//! A vocabulary from a Hugging Face `tokenizer.json`.
//!
//! Only tokenizers of Gemma's kind are read: byte-pair merges with byte fallback, over text whose
//! spaces are written `▁`. The parts that add or strip tokens are not read: callers do that.

use std::borrow::Cow;
use std::collections::HashMap;

use lapidary_core::TokenId;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::tokenizer::TokenizerError;
use crate::vocabulary::{Entry, Kind, MAX_TOKENS, Merge, Parts, SPACE, byte_of, split_merge};

/// The members of an object, unread: large lists are read straight into their own types.
type Members<'a> = HashMap<String, &'a RawValue>;

/// Reads the file's text. `bos` and `eos` must be tokens of it.
pub(crate) fn read<'a>(text: &'a str, bos: &str, eos: &str) -> Result<Parts<'a>, TokenizerError> {
    let json = |field| move |source| TokenizerError::Json { field, source };
    let file: Members<'a> = serde_json::from_str(text).map_err(json("the whole"))?;
    let model = required(&file, "model")?;
    let model: Members<'a> = serde_json::from_str(model.get()).map_err(json("model"))?;
    check_model(&model)?;
    check_spaces(&file)?;
    let mut entries = entries(&model)?;
    add_tokens(&file, &mut entries)?;
    let named = |field, token: &str| {
        let mut ids = (0..).map(TokenId).zip(&entries);
        let id = ids.find(|(_, entry)| entry.kind != Kind::Hole && entry.text == token);
        let missing = || TokenizerError::NotInVocabulary { field, found: format!("{token:?}") };
        id.map(|(id, _)| id).ok_or_else(missing)
    };
    let ends = (named("bos token", bos)?, named("eos token", eos)?);
    Parts::new(entries, merges(&model)?, ends)
}

fn required<'a>(
    members: &Members<'a>,
    field: &'static str,
) -> Result<&'a RawValue, TokenizerError> {
    members.get(field).copied().ok_or(TokenizerError::Field { field, expected: "an object" })
}

/// A small member, `null` if it is absent.
fn small(members: &Members<'_>, field: &'static str) -> Result<Value, TokenizerError> {
    let Some(raw) = members.get(field) else { return Ok(Value::Null) };
    serde_json::from_str(raw.get()).map_err(|source| TokenizerError::Json { field, source })
}

fn check_model(model: &Members<'_>) -> Result<(), TokenizerError> {
    expect(model, "type", "\"BPE\"", |v| v == "BPE")?;
    expect(model, "byte_fallback", "true", |v| v == true)?;
    expect(model, "ignore_merges", "false", |v| v.is_null() || v == false)?;
    expect(model, "dropout", "null", |v| v.is_null() || v == 0.0)?;
    for affix in ["continuing_subword_prefix", "end_of_word_suffix"] {
        expect(model, affix, "null", |v| v.is_null() || v == "")?;
    }
    Ok(())
}

/// Spaces must be written `▁` before anything else happens, so that cutting at spaces cuts nothing.
fn check_spaces(file: &Members<'_>) -> Result<(), TokenizerError> {
    let replaces = |v: &Value| {
        v["type"] == "Replace" && v["pattern"]["String"] == " " && v["content"] == SPACE
    };
    let splits = |v: &Value| v["type"] == "Split" && v["pattern"]["String"] == " ";
    expect(file, "normalizer", "replacing a space by ▁", replaces)?;
    expect(file, "pre_tokenizer", "none, or splitting at a space", |v| v.is_null() || splits(v))
}

fn expect(
    members: &Members<'_>,
    field: &'static str,
    supported: &'static str,
    is_supported: impl Fn(&Value) -> bool,
) -> Result<(), TokenizerError> {
    let value = small(members, field)?;
    if is_supported(&value) {
        return Ok(());
    }
    Err(TokenizerError::Unsupported { field, found: value.to_string(), supported })
}

fn entries<'a>(model: &Members<'a>) -> Result<Vec<Entry<'a>>, TokenizerError> {
    let vocab: HashMap<String, u64> = serde_json::from_str(required(model, "vocab")?.get())
        .map_err(|source| TokenizerError::Json { field: "vocab", source })?;
    let (mut entries, limit) = (Vec::new(), id_limit(vocab.len()));
    for (text, id) in vocab {
        let kind = byte_of(&text).map_or(Kind::Ordinary, Kind::Byte);
        let slot = slot(&mut entries, limit, &text, id)?;
        if slot.kind != Kind::Hole {
            return Err(TokenizerError::Clash { token: text, id: id as usize });
        }
        *slot = Entry { text: Cow::Owned(text), kind };
    }
    Ok(entries)
}

/// Ids must be below this in a vocabulary of so many tokens: holes are allowed, but one large id
/// must not make a small file dear to hold.
fn id_limit(tokens: usize) -> usize {
    const HOLES: usize = 4096;
    tokens.saturating_mul(2).saturating_add(HOLES).min(MAX_TOKENS)
}

/// The place of `id`, with holes up to it.
fn slot<'e, 'a>(
    entries: &'e mut Vec<Entry<'a>>,
    limit: usize,
    token: &str,
    id: u64,
) -> Result<&'e mut Entry<'a>, TokenizerError> {
    let too_large = || {
        let token = token.to_owned();
        TokenizerError::IdTooLarge { token, id, limit }
    };
    let at = usize::try_from(id).ok().filter(|at| *at < limit).ok_or_else(too_large)?;
    if entries.len() <= at {
        entries.resize(at + 1, Entry::HOLE);
    }
    Ok(&mut entries[at])
}

/// Marks the added tokens among the entries, or adds them.
fn add_tokens(file: &Members<'_>, entries: &mut Vec<Entry<'_>>) -> Result<(), TokenizerError> {
    let field = "added_tokens";
    let added = small(file, field)?;
    let limit = id_limit(entries.len());
    for token in added.as_array().into_iter().flatten() {
        let (Some(text), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) else {
            return Err(TokenizerError::Field { field, expected: "objects with content and id" });
        };
        let kind = if token["special"] == true { Kind::Control } else { Kind::Defined };
        let slot = slot(entries, limit, text, id)?;
        if slot.kind != Kind::Hole && slot.text != text {
            return Err(TokenizerError::Clash { token: text.to_owned(), id: id as usize });
        }
        *slot = Entry { text: Cow::Owned(text.to_owned()), kind };
    }
    Ok(())
}

/// Merges are pairs, or in older files one text with a space between.
fn merges<'a>(model: &Members<'a>) -> Result<Vec<Merge<'a>>, TokenizerError> {
    let raw = required(model, "merges")?.get();
    let as_pairs = match serde_json::from_str::<Vec<(String, String)>>(raw) {
        Ok(pairs) => return Ok(pairs.into_iter().map(|(l, r)| (l.into(), r.into())).collect()),
        Err(source) => TokenizerError::Json { field: "merges", source },
    };
    let lines: Vec<String> = serde_json::from_str(raw).map_err(|_| as_pairs)?;
    let pairs = lines.iter().enumerate().map(|(index, line)| split_merge((index, line)));
    pairs.map(|pair| pair.map(|(l, r)| (l.into_owned().into(), r.into_owned().into()))).collect()
}
