//! Finding a model, its vocabulary and its template.

use std::path::Path;

use lapidary_core::{TensorSource, TokenId, Value};
use lapidary_format::{Folder, Gguf, Source, json, open};
use lapidary_text::{ChatTemplate, Tokenizer};

use crate::failure::Failure;

/// The built-in model.
static PEBBLE: &[u8] = include_bytes!("../../../models/pebble/pebble-Q8_0.gguf");

/// Tokens that end a turn of these families, besides the vocabulary's own end token: the end of a
/// turn, and the call for a tool's response; Gemma 3's end of a turn.
const TURN_ENDS: [&str; 3] = ["<turn|>", "<|tool_response>", "<end_of_turn>"];

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
    /// Absent where there is no chat template.
    template: Option<ChatTemplate>,
    /// Whether the template is this program's own, for a model that brings none.
    template_assumed: bool,
    /// Tokens that end a text.
    pub(crate) end: Vec<TokenId>,
    /// Tokens the model's makers forbid.
    pub(crate) suppress: Vec<TokenId>,
}

impl Text {
    pub(crate) fn of(source: &Source) -> Result<Self, Failure> {
        Self::with_template(source, None)
    }

    /// With the chat template of a file, if one is given, instead of the model's own.
    pub(crate) fn with_template(source: &Source, file: Option<&Path>) -> Result<Self, Failure> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map_err(|e| Failure::work("template", format!("{}: {e}", path.display())))
        };
        let given = file.map(read).transpose()?;
        match source {
            Source::Gguf(gguf) => Self::of_gguf(gguf.meta(), given),
            Source::Folder(folder) => Self::of_folder(folder, given),
        }
    }

    /// The chat template. Says so on standard error where the model brings none and its family's
    /// is used.
    pub(crate) fn template(&self) -> Result<&ChatTemplate, Failure> {
        if self.template_assumed {
            eprintln!(
                "note: the model brings no chat template; the published one of Gemma 3 is used"
            );
        }
        self.template.as_ref().ok_or_else(|| {
            let message = "the model has no chat template; give one with --chat-template, or use \
                `run --raw` to continue a prompt as it is";
            Failure::work("no_template", message)
        })
    }

    fn of_gguf(meta: &Value, given: Option<String>) -> Result<Self, Failure> {
        let tokenizer = Tokenizer::from_metadata(meta).map_err(unusable_text)?;
        let own = meta.get("tokenizer.chat_template").and_then(Value::as_str);
        let template = given.or_else(|| own.map(str::to_owned));
        let suppress = meta.get("tokenizer.ggml.suppress_tokens").and_then(Value::to_ints);
        let end = ids(meta, "tokenizer.ggml.eot_token_id");
        let gemma_3 = is(meta, "general.architecture", &["gemma3"]);
        Self::with(tokenizer, template, gemma_3, &end, suppress.unwrap_or_default())
    }

    fn of_folder(folder: &Folder, given: Option<String>) -> Result<Self, Failure> {
        let read = |name| folder.text(name).map_err(|e| Failure::work("model_unreadable", e));
        let side = |name| match read(name)? {
            Some(text) => json(&text).map_err(|e| {
                Failure::work("model_unreadable", format!("{name} of {}: {e}", folder.origin()))
            }),
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
        let own = || match read("chat_template.jinja")? {
            Some(template) => Ok(Some(template)),
            None => Ok(tokens.get("chat_template").and_then(Value::as_str).map(str::to_owned)),
        };
        let template = given.map_or_else(own, |given| Ok(Some(given)))?;
        let end = [ids(folder.meta(), "eos_token_id"), ids(&generation, "eos_token_id")].concat();
        let suppress = ids(&generation, "suppress_tokens");
        let gemma_3 = is(folder.meta(), "model_type", &["gemma3", "gemma3_text"]);
        Self::with(tokenizer, template, gemma_3, &end, suppress)
    }

    fn with(
        tokenizer: Tokenizer,
        template: Option<String>,
        gemma_3: bool,
        end: &[i64],
        suppress: Vec<i64>,
    ) -> Result<Self, Failure> {
        let template_assumed = template.is_none() && gemma_3;
        let assumed = template_assumed.then_some(ChatTemplate::GEMMA_3);
        let template = template.as_deref().or(assumed);
        let template = template.map(|source| ChatTemplate::new(source, tokenizer.specials()));
        let template = template.transpose().map_err(unusable_text)?;
        let known = |id: &i64| u32::try_from(*id).ok().map(TokenId);
        let turn_ends = TURN_ENDS.iter().filter_map(|end| tokenizer.specials().token(end));
        let mut end: Vec<_> = end.iter().filter_map(known).chain(turn_ends).collect();
        end.push(tokenizer.eos());
        end.sort_unstable();
        end.dedup();
        let suppress = suppress.iter().filter_map(known).collect();
        Ok(Self { tokenizer, template, template_assumed, end, suppress })
    }
}

/// Whether a name in the metadata is one of `names`.
fn is(meta: &Value, key: &str, names: &[&str]) -> bool {
    meta.get(key).and_then(Value::as_str).is_some_and(|found| names.contains(&found))
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
