//! The small files of a folder that tell about its tokens.

use std::collections::HashMap;

use lapidary_core::{TensorSource, Value};
use lapidary_format::gguf::GgufValue;
use lapidary_format::{Folder, json};

use super::{Kind, NO_SCORE, Token, key};
use crate::ConvertError;
use crate::metadata::Values;

/// A token that `tokenizer.json` lists besides its vocabulary.
pub(super) struct Added<'a> {
    pub(super) id: Option<usize>,
    pub(super) text: &'a str,
    pub(super) special: bool,
}

pub(super) fn added(tokenizer: &Value) -> Vec<Added<'_>> {
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
pub(super) struct Files {
    origin: String,
    tokenizer: Option<Value>,
    config: Option<Value>,
    model: Value,
    template: Option<String>,
    /// Texts that `tokenizer_config.json` names as special.
    pub(super) named_specials: Vec<String>,
}

impl Files {
    pub(super) fn read(folder: &Folder, origin: &str) -> Result<Self, ConvertError> {
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
            model: folder.meta().clone(),
            template,
        })
    }

    pub(super) fn wrong(&self, file: &'static str, fault: &str) -> ConvertError {
        let fault = fault.to_owned();
        ConvertError::Vocabulary { file, origin: self.origin.clone(), fault }
    }

    pub(super) fn tokenizer(&self) -> Result<&Value, ConvertError> {
        self.tokenizer.as_ref().ok_or_else(|| self.wrong(TOKENIZER, "is missing"))
    }

    /// Tokens of `tokenizer.json` that a scored vocabulary lacks, or knows as ordinary.
    pub(super) fn add_tokens(&self, tokens: &mut Vec<Token>) {
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
    pub(super) fn push_specials(&self, tokens: &[Token], values: &mut Values) {
        let ids: HashMap<&str, u32> =
            (0..).zip(tokens).map(|(id, token)| (token.text.as_str(), id)).collect();
        for (role, name) in ROLES {
            let named =
                self.config.as_ref().and_then(|config| content(config, &format!("{role}_token")));
            let by_text = named.and_then(|text| ids.get(text).copied());
            let number = |tree: &Value| tree.get(&format!("{role}_token_id"))?.as_usize();
            let by_number = || {
                number(&self.model)
                    .or_else(|| number(self.model.get("text_config")?))
                    .map(|id| id as u32)
            };
            if let Some(id) = by_text.or_else(by_number).filter(|&id| (id as usize) < tokens.len())
            {
                values.push((key(&format!("{name}_token_id")), GgufValue::U32(id)));
            }
        }
    }

    pub(super) fn push_template(&self, values: &mut Values) {
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
                let text =
                    |t: &Value| Some(t.as_str().or_else(|| t.get("content")?.as_str())?.to_owned());
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

/// Roles of tokens: as Hugging Face abbreviates them, and as GGUF does.
const ROLES: [(&str, &str); 5] =
    [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"), ("mask", "mask")];
pub(super) const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
