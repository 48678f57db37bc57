//! Finding a model, its vocabulary and its template.

use std::path::Path;

use lapidary_core::{TensorSource, TokenId, Value};
use lapidary_format::{Folder, Gguf, Source, json, open};
use lapidary_text::{ChatTemplate, Tokenizer};

use crate::failure::Failure;

/// The built-in model.
static PEBBLE: &[u8] = include_bytes!("../../../models/pebble/pebble-Q8_0.gguf");

/// Tokens that end a turn of this family, besides the vocabulary's own end token: the end of a
/// turn, and the call for a tool's response.
const TURN_ENDS: [&str; 2] = ["<turn|>", "<|tool_response>"];

/// Opens the model at `path`, or the built-in one.
pub(crate) fn find(path: Option<&Path>) -> Result<Source, Failure> {
    let opened = match path {
        Some(path) => open(path),
        None => Gguf::from_bytes("the built-in Pebble", PEBBLE).map(Source::Gguf),
    };
    opened.map_err(|e| Failure::work("model_unreadable", e))
}

/// What stands between text and tokens.
pub(crate) struct Text {
    pub(crate) tokenizer: Tokenizer,
    /// Absent where the model has no chat template.
    pub(crate) template: Option<ChatTemplate>,
    /// Tokens that end a text.
    pub(crate) end: Vec<TokenId>,
    /// Tokens the model's makers forbid.
    pub(crate) suppress: Vec<TokenId>,
}

impl Text {
    pub(crate) fn of(source: &Source) -> Result<Self, Failure> {
        match source {
            Source::Gguf(gguf) => Self::of_gguf(gguf.meta()),
            Source::Folder(folder) => Self::of_folder(folder),
        }
    }

    fn of_gguf(meta: &Value) -> Result<Self, Failure> {
        let tokenizer = Tokenizer::from_metadata(meta).map_err(unusable_text)?;
        let template = meta.get("tokenizer.chat_template").and_then(Value::as_str);
        let suppress = meta.get("tokenizer.ggml.suppress_tokens").and_then(Value::to_ints);
        Self::with(tokenizer, template, &[], suppress.unwrap_or_default())
    }

    fn of_folder(folder: &Folder) -> Result<Self, Failure> {
        let read = |name| folder.text(name).map_err(|e| Failure::work("model_unreadable", e));
        let side = |name| match read(name)? {
            Some(text) => json(&text).map_err(|e| Failure::work("model_unreadable", e)),
            None => Ok(Value::Null),
        };
        let tokens = side("tokenizer_config.json")?;
        let generation = side("generation_config.json")?;
        let special = |key| special_text(&tokens, key);
        let missing = || {
            let origin = folder.origin();
            Failure::work("no_tokenizer", format!("{origin} has no tokenizer.json; copy it there"))
        };
        let vocabulary = read("tokenizer.json")?.ok_or_else(missing)?;
        let bos = special("bos_token").unwrap_or_else(|| "<bos>".into());
        let eos = special("eos_token").unwrap_or_else(|| "<eos>".into());
        let tokenizer = Tokenizer::from_json(&vocabulary, &bos, &eos).map_err(unusable_text)?;
        let template = match read("chat_template.jinja")? {
            Some(template) => Some(template),
            None => tokens.get("chat_template").and_then(Value::as_str).map(str::to_owned),
        };
        let end = [ids(folder.meta(), "eos_token_id"), ids(&generation, "eos_token_id")].concat();
        let suppress = ids(&generation, "suppress_tokens");
        Self::with(tokenizer, template.as_deref(), &end, suppress)
    }

    fn with(
        tokenizer: Tokenizer,
        template: Option<&str>,
        end: &[i64],
        suppress: Vec<i64>,
    ) -> Result<Self, Failure> {
        let template = template.map(|source| ChatTemplate::new(source, tokenizer.specials()));
        let template = template.transpose().map_err(unusable_text)?;
        let known = |id: &i64| u32::try_from(*id).ok().map(TokenId);
        let turn_ends = TURN_ENDS.iter().filter_map(|end| tokenizer.specials().token(end));
        let mut end: Vec<_> = end.iter().filter_map(known).chain(turn_ends).collect();
        end.push(tokenizer.eos());
        end.sort_unstable();
        end.dedup();
        let suppress = suppress.iter().filter_map(known).collect();
        Ok(Self { tokenizer, template, end, suppress })
    }
}

fn unusable_text(error: impl std::fmt::Display) -> Failure {
    Failure::work("text_unusable", error)
}

/// A special token's text: plain, or inside an object's `content`.
fn special_text(tokens: &Value, key: &str) -> Option<String> {
    let value = tokens.get(key)?;
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
}

/// One id or a list of them.
fn ids(meta: &Value, key: &str) -> Vec<i64> {
    let Some(value) = meta.get(key) else { return Vec::new() };
    value.as_int().map(|id| vec![id]).or_else(|| value.to_ints()).unwrap_or_default()
}

/// What the model's makers recommend: temperature, top-k and top-p.
pub(crate) struct Recommended {
    pub(crate) temperature: f32,
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
}

impl Recommended {
    /// From the model's own files, else what the family's makers publish.
    pub(crate) fn of(source: &Source) -> Self {
        let generation = match source {
            Source::Folder(folder) => folder.text("generation_config.json").ok().flatten(),
            Source::Gguf(_) => None,
        };
        let generation = generation.and_then(|text| json(&text).ok()).unwrap_or(Value::Null);
        let find = |gguf: &str, hf: &str| {
            source.meta().get(gguf).or_else(|| generation.get(hf)).and_then(Value::as_f64)
        };
        let temperature = find("general.sampling.temp", "temperature").unwrap_or(1.0);
        let top_k = find("general.sampling.top_k", "top_k").unwrap_or(64.0);
        let top_p = find("general.sampling.top_p", "top_p").unwrap_or(0.95);
        Self { temperature: temperature as f32, top_k: top_k as usize, top_p: top_p as f32 }
    }
}
