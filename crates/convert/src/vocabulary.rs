//! A folder's vocabulary, special tokens and chat template in GGUF's words.

mod files;

use lapidary_core::{Strings, Value};
use lapidary_format::Folder;
use lapidary_format::gguf::{GgufArray, GgufValue};

use crate::ConvertError;
use crate::metadata::{Values, text};
use files::{Files, TOKENIZER, added};

/// What a token is, as GGUF numbers it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Normal = 1,
    Control = 3,
    /// Matched whole, and shown.
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
    /// Stands for what is not in the vocabulary.
    Unknown = 2,
}

/// One entry of a vocabulary.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) kind: Kind,
}

/// Control tokens that are shown nevertheless: they are how a reply is taken apart.
const SHOWN: [&str; 7] = [
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
];

/// The score of every token of a vocabulary that is merged by rank.
const NO_SCORE: f32 = -1000.0;

/// A vocabulary that is merged by rank, as Gemma 4 has it, from `tokenizer.json`.
pub(crate) fn ranked(folder: &Folder, origin: &str) -> Result<Values, ConvertError> {
    let files = Files::read(folder, origin)?;
    let tokenizer = files.tokenizer()?;
    let model = tokenizer.get("model").filter(|model| {
        let bpe = model.get("type").and_then(Value::as_str).unwrap_or("BPE") == "BPE";
        bpe && model.get("byte_fallback").and_then(Value::as_bool) == Some(true)
    });
    let wrong = |fault: &str| files.wrong(TOKENIZER, fault);
    let model = model.ok_or_else(|| wrong("is no BPE vocabulary that falls back to bytes"))?;
    let tokens = ranked_tokens(&files, tokenizer, model)?;
    let merges = merges(model).ok_or_else(|| wrong("has merges that are no pairs of strings"))?;
    let mut values = vec![(key("model"), text("gemma4"))];
    push_tokens(&tokens, &mut values);
    values.push((key("merges"), GgufValue::Array(GgufArray::Str(merges))));
    files.push_specials(&tokens, &mut values);
    values.push((key("add_bos_token"), GgufValue::Bool(true)));
    files.push_template(&mut values);
    values.push((key("add_space_prefix"), GgufValue::Bool(false)));
    Ok(values)
}

/// A vocabulary that is merged by score, as Gemma 3 has it, from `tokenizer.model`.
pub(crate) fn scored(folder: &Folder, origin: &str) -> Result<Values, ConvertError> {
    let files = Files::read(folder, origin)?;
    let bytes = folder.file(SENTENCES)?.ok_or_else(|| {
        files.wrong(SENTENCES, "is missing, and with it the tokens' scores: fetch it too")
    })?;
    let pieces = crate::sentencepiece::pieces(&bytes);
    let mut tokens =
        pieces.ok_or_else(|| files.wrong(SENTENCES, "is no SentencePiece vocabulary"))?;
    files.add_tokens(&mut tokens);
    let mut values = vec![(key("model"), text("llama")), (key("pre"), text("default"))];
    push_tokens(&tokens, &mut values);
    files.push_specials(&tokens, &mut values);
    values.push((key("add_bos_token"), GgufValue::Bool(true)));
    values.push((key("add_eos_token"), GgufValue::Bool(false)));
    files.push_template(&mut values);
    values.push((key("add_space_prefix"), GgufValue::Bool(false)));
    Ok(values)
}

fn ranked_tokens(
    files: &Files,
    tokenizer: &Value,
    model: &Value,
) -> Result<Vec<Token>, ConvertError> {
    let wrong = |fault: &str| files.wrong(TOKENIZER, fault);
    let Some(Value::Map(vocab)) = model.get("vocab") else {
        return Err(wrong("has no `model.vocab`"));
    };
    let added = added(tokenizer);
    let special = |text: &str| {
        files.named_specials.iter().any(|special| special == text)
            || added.iter().any(|token| token.special && token.text == text)
    };
    let numbered = vocab.iter().map(|(text, id)| (id.as_usize(), text.as_str(), false));
    let outside = added.iter().filter(|token| !vocab.contains_key(token.text));
    let numbered = numbered.chain(outside.map(|token| (token.id, token.text, true)));
    let mut tokens: Vec<(usize, Token)> = Vec::new();
    for (id, text, added) in numbered {
        let id = id.ok_or_else(|| wrong("has a token whose number is none"))?;
        let kind = match text {
            _ if SHOWN.contains(&text) => Kind::UserDefined,
            _ if is_byte(text) => Kind::Byte,
            _ if special(text) => Kind::Control,
            _ if added => Kind::UserDefined,
            _ => Kind::Normal,
        };
        tokens.push((id, Token { text: text.to_owned(), score: NO_SCORE, kind }));
    }
    tokens.sort_by_key(|(id, _)| *id);
    if tokens.iter().enumerate().any(|(i, (id, _))| i != *id) {
        return Err(wrong("numbers its tokens with gaps or twice"));
    }
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// `<0x0A>` and the like.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// `left right`, with blanks inside a part shifted out of the way.
fn merges(model: &Value) -> Option<Strings> {
    let Value::List(list) = model.get("merges")? else { return None };
    let mut merges = Strings::default();
    for merge in list {
        match merge {
            Value::Str(pair) => merges.push(pair),
            Value::List(_) => {
                let parts = merge.to_strings().filter(|parts| parts.len() == 2)?;
                let parts: Vec<_> = parts.iter().map(|part| part.replace(' ', "\u{120}")).collect();
                merges.push(&parts.join(" "));
            }
            _ => return None,
        }
    }
    Some(merges)
}

fn push_tokens(tokens: &[Token], values: &mut Values) {
    let mut texts = Strings::default();
    tokens.iter().for_each(|token| texts.push(&token.text));
    let scores = tokens.iter().map(|token| token.score).collect();
    let kinds = tokens.iter().map(|token| token.kind as i32).collect();
    values.push((key("tokens"), GgufValue::Array(GgufArray::Str(texts))));
    values.push((key("scores"), GgufValue::Array(GgufArray::F32(scores))));
    values.push((key("token_type"), GgufValue::Array(GgufArray::I32(kinds))));
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

const SENTENCES: &str = "tokenizer.model";
