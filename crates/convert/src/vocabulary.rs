//! A folder's vocabulary, special tokens and chat template in GGUF's words.

use std::collections::HashMap;

use lapidary_core::{Strings, Value};
use lapidary_format::gguf::{GgufArray, GgufValue};
use lapidary_format::{Folder, json};

use crate::ConvertError;
use crate::metadata::{Values, text};

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

fn ranked_tokens(files: &Files, tokenizer: &Value, model: &Value) -> Result<Vec<Token>, ConvertError> {
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
                let parts: Vec<_> =
                    parts.iter().map(|part| part.replace(' ', "\u{120}")).collect();
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

/// A token that `tokenizer.json` lists besides its vocabulary.
struct Added<'a> {
    id: Option<usize>,
    text: &'a str,
    special: bool,
}

fn added(tokenizer: &Value) -> Vec<Added<'_>> {
    let Some(Value::List(list)) = tokenizer.get("added_tokens") else { return Vec::new() };
    let token = |entry| {
        Some(Added {
            id: Value::get(entry, "id").and_then(Value::as_usize),
            text: entry.get("content")?.as_str()?,
            special: entry.get("special").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    list.iter().filter_map(token).collect()
}

/// The small files around a vocabulary.
struct Files {
    origin: String,
    tokenizer: Option<Value>,
    config: Option<Value>,
    model: Value,
    template: Option<String>,
    /// Texts that `tokenizer_config.json` names as special.
    named_specials: Vec<String>,
}

impl Files {
    fn read(folder: &Folder, origin: &str) -> Result<Self, ConvertError> {
        let tree = |file: &'static str| -> Result<Option<Value>, ConvertError> {
            let Some(text) = folder.text(file)? else { return Ok(None) };
            let wrong = |fault: lapidary_format::Fault| ConvertError::Vocabulary {
                file,
                origin: origin.to_owned(),
                fault: fault.to_string(),
            };
            json(&text).map(Some).map_err(wrong)
        };
        let config = tree(TOKENIZER_CONFIG)?;
        let template = match folder.text(TEMPLATE)? {
            Some(template) => Some(template),
            None => tree("chat_template.json")?
                .and_then(|tree| Some(tree.get("chat_template")?.as_str()?.to_owned())),
        };
        Ok(Self {
            origin: origin.to_owned(),
            tokenizer: tree(TOKENIZER)?,
            named_specials: config.as_ref().map(named_specials).unwrap_or_default(),
            config,
            model: lapidary_core::TensorSource::meta(folder).clone(),
            template,
        })
    }

    fn wrong(&self, file: &'static str, fault: &str) -> ConvertError {
        let fault = fault.to_owned();
        ConvertError::Vocabulary { file, origin: self.origin.clone(), fault }
    }

    fn tokenizer(&self) -> Result<&Value, ConvertError> {
        self.tokenizer.as_ref().ok_or_else(|| self.wrong(TOKENIZER, "is missing"))
    }

    /// Tokens of `tokenizer.json` that a scored vocabulary lacks, or knows as ordinary.
    fn add_tokens(&self, tokens: &mut Vec<Token>) {
        let Some(tokenizer) = &self.tokenizer else { return };
        for Added { id, text, special } in added(tokenizer) {
            let kind = if special { Kind::Control } else { Kind::UserDefined };
            let token = Token { text: text.to_owned(), score: NO_SCORE, kind };
            match id {
                Some(id) if id < tokens.len() && tokens[id].kind == Kind::Normal => {
                    tokens[id] = token;
                }
                Some(id) if id == tokens.len() => tokens.push(token),
                _ => {}
            }
        }
    }

    /// The numbers of the tokens with a role: named by text in one file, or by number in another.
    fn push_specials(&self, tokens: &[Token], values: &mut Values) {
        let ids: HashMap<&str, u32> =
            (0..).zip(tokens).map(|(id, token)| (token.text.as_str(), id)).collect();
        for (role, name) in ROLES {
            let named = self.config.as_ref().and_then(|config| content(config, &format!("{role}_token")));
            let by_text = named.and_then(|text| ids.get(text).copied());
            let number = |tree: &Value| tree.get(&format!("{role}_token_id"))?.as_usize();
            let by_number = || {
                number(&self.model)
                    .or_else(|| number(self.model.get("text_config")?))
                    .map(|id| id as u32)
            };
            if let Some(id) = by_text.or_else(by_number).filter(|&id| (id as usize) < tokens.len()) {
                values.push((key(&format!("{name}_token_id")), GgufValue::U32(id)));
            }
        }
    }

    fn push_template(&self, values: &mut Values) {
        let own = self.config.as_ref().and_then(|config| config.get("chat_template"));
        let named = |list: &Value| -> Option<String> {
            let Value::List(list) = list else { return None };
            let is_default = |t: &&Value| t.get("name").and_then(Value::as_str) == Some("default");
            let entry = list.iter().find(is_default)?;
            Some(entry.get("template")?.as_str()?.to_owned())
        };
        let own = own.and_then(|own| own.as_str().map(str::to_owned).or_else(|| named(own)));
        if let Some(template) = own.or_else(|| self.template.clone()) {
            values.push(("tokenizer.chat_template".to_owned(), GgufValue::Str(template)));
        }
    }
}

/// The text of a token that is given as a string or as an object.
fn content<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    let token = config.get(key)?;
    token.as_str().or_else(|| token.get("content")?.as_str())
}

fn named_specials(config: &Value) -> Vec<String> {
    let roles = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];
    let singles = roles.iter().filter_map(|role| content(config, &format!("{role}_token")));
    let mut names: Vec<String> = singles.map(str::to_owned).collect();
    for list in ["additional_special_tokens", "extra_special_tokens"] {
        match config.get(list) {
            Some(Value::List(tokens)) => {
                let text = |t: &Value| Some(t.as_str().or_else(|| t.get("content")?.as_str())?.to_owned());
                names.extend(tokens.iter().filter_map(text));
            }
            Some(Value::Map(tokens)) => {
                names.extend(tokens.values().filter_map(|token| Some(token.as_str()?.to_owned())));
            }
            _ => {}
        }
    }
    names
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

/// Roles of tokens: as Hugging Face abbreviates them, and as GGUF does.
const ROLES: [(&str, &str); 5] =
    [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"), ("mask", "mask")];
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SENTENCES: &str = "tokenizer.model";
const TEMPLATE: &str = "chat_template.jinja";
