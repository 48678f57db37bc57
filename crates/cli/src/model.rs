//! Finding a model, its vocabulary and its template.

use std::path::Path;

use lapidary_core::{TensorSource, TokenId, Value};
use lapidary_format::{Folder, Gguf, Source, json, open};
use lapidary_model::config::Config;
use lapidary_text::{ChatTemplate, Conversation, Message, Role, Tokenizer};

use crate::failure::Failure;
use crate::hub::locate;

/// The built-in model.
static PEBBLE: &[u8] = include_bytes!("../../../models/pebble/pebble-Q8_0.gguf");

/// Tokens that end a turn of these families, besides the vocabulary's own end token: the end of a
/// turn, and the call for a tool's response; Gemma 3's end of a turn.
const TURN_ENDS: [&str; 3] = ["<turn|>", "<|tool_response>", "<end_of_turn>"];

/// Opens the model at `path` or of that name in the cache, or the built-in one.
pub(crate) fn find(path: Option<&Path>) -> Result<Source, Failure> {
    let opened = match path {
        Some(path) => open(&locate(path)?),
        None => Gguf::from_bytes("the built-in Pebble", PEBBLE).map(Source::Gguf),
    };
    opened.map_err(|e| Failure::work("model_unreadable", e))
}

/// The shape of a model.
pub(crate) fn config(source: &dyn TensorSource) -> Result<Config, Failure> {
    let config = Config::read(source.meta());
    config.map_err(|e| Failure::work("model_unknown", format!("{}: {e}", source.origin())))
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
            let failed = |e| Failure::work("template", format!("{}: {e}", path.display()));
            let source = text.map_err(failed)?;
            Ok(Written { source, origin: path.display().to_string() })
        };
        let given = file.map(read).transpose()?;
        let mut found = match source {
            Source::Gguf(gguf) => Found::in_gguf(gguf)?,
            Source::Folder(folder) => Found::in_folder(folder)?,
        };
        found.template = given.or(found.template);
        found.into_text()
    }

    /// The chat template. Says so on standard error where the model brings none and its family's
    /// is used.
    pub(crate) fn template(&self) -> Result<&ChatTemplate, Failure> {
        self.say_if_assumed();
        self.template.as_ref().ok_or_else(|| {
            let message = "the model has no chat template; give one with --chat-template, or use \
                `run --raw` to continue a prompt as it is";
            Failure::work("no_template", message)
        })
    }

    /// The chat template, if there is one.
    pub(crate) fn take_template(&mut self) -> Option<ChatTemplate> {
        self.say_if_assumed();
        self.template.take()
    }

    fn say_if_assumed(&self) {
        if self.template_assumed {
            eprintln!(
                "note: the model brings no chat template; the published one of Gemma 3 is used"
            );
        }
    }
}

/// What a model's files say about text.
struct Found {
    tokenizer: Tokenizer,
    template: Option<Written>,
    /// Whether the model is a Gemma 3, whose format is known.
    gemma_3: bool,
    /// Ids that end a text.
    end: Vec<i64>,
    suppress: Vec<i64>,
}

/// A chat template's text and where it was found.
struct Written {
    source: String,
    origin: String,
}

impl Found {
    fn in_gguf(gguf: &Gguf) -> Result<Self, Failure> {
        let (meta, origin) = (gguf.meta(), gguf.origin());
        let own = meta.get("tokenizer.chat_template").and_then(Value::as_str);
        let suppress = meta.get("tokenizer.ggml.suppress_tokens").and_then(Value::to_ints);
        Ok(Self {
            tokenizer: Tokenizer::from_metadata(meta).map_err(|e| unusable(origin, e))?,
            template: own.map(|own| Written { source: own.to_owned(), origin: origin.to_owned() }),
            gemma_3: is(meta, "general.architecture", &["gemma3"]),
            end: ids(meta, "tokenizer.ggml.eot_token_id"),
            suppress: suppress.unwrap_or_default(),
        })
    }

    fn in_folder(folder: &Folder) -> Result<Self, Failure> {
        let origin = folder.origin();
        let read = |name| folder.text(name).map_err(|e| Failure::work("model_unreadable", e));
        let side = |name| match read(name)? {
            Some(text) => json(&text).map_err(|e| {
                Failure::work("model_unreadable", format!("{origin}/{name}: the text {e}"))
            }),
            None => Ok(Value::Null),
        };
        let tokens = side("tokenizer_config.json")?;
        let generation = side("generation_config.json")?;
        let special = |key| special_text(&tokens, key);
        let missing = || {
            Failure::work("no_tokenizer", format!("{origin} has no tokenizer.json; copy it there"))
        };
        let vocabulary = read("tokenizer.json")?.ok_or_else(missing)?;
        let bos = special("bos_token").unwrap_or_else(|| "<bos>".into());
        let eos = special("eos_token").unwrap_or_else(|| "<eos>".into());
        let template = match read("chat_template.jinja")? {
            Some(template) => Some(template),
            None => tokens.get("chat_template").and_then(Value::as_str).map(str::to_owned),
        };
        Ok(Self {
            tokenizer: Tokenizer::from_json(&vocabulary, &bos, &eos)
                .map_err(|e| unusable(origin, e))?,
            template: template.map(|source| Written { source, origin: origin.to_owned() }),
            gemma_3: is(folder.meta(), "model_type", &["gemma3", "gemma3_text"]),
            end: [ids(folder.meta(), "eos_token_id"), ids(&generation, "eos_token_id")].concat(),
            suppress: ids(&generation, "suppress_tokens"),
        })
    }

    fn into_text(self) -> Result<Text, Failure> {
        let Self { tokenizer, template, gemma_3, end, suppress } = self;
        let template_assumed = template.is_none() && gemma_3;
        let template = template.or_else(|| template_assumed.then(Written::gemma_3));
        let template = template.map(|Written { source, origin }| {
            let template = ChatTemplate::new(&source, tokenizer.specials());
            template.map_err(|e| unusable(&origin, e))
        });
        let template = template.transpose()?;
        let known = |id: &i64| u32::try_from(*id).ok().map(TokenId);
        let turn_ends = TURN_ENDS.iter().filter_map(|end| tokenizer.specials().token(end));
        let mut end: Vec<_> = end.iter().filter_map(known).chain(turn_ends).collect();
        end.push(tokenizer.eos());
        end.sort_unstable();
        end.dedup();
        let suppress = suppress.iter().filter_map(known).collect();
        Ok(Text { tokenizer, template, template_assumed, end, suppress })
    }
}

impl Written {
    fn gemma_3() -> Self {
        Self { source: ChatTemplate::GEMMA_3.to_owned(), origin: "Gemma 3".to_owned() }
    }
}

/// Something that templates may or may not know how to ask for.
pub(crate) enum Feature<'a> {
    Thinking,
    Tools(&'a [serde_json::Value]),
}

/// Refuses what a template would pass over in silence.
pub(crate) fn noticed(template: &ChatTemplate, feature: Feature<'_>) -> Result<(), Failure> {
    let plain = Conversation::new(vec![Message::new(Role::User, "hello")]);
    let mut changed = plain.clone();
    let what = match feature {
        Feature::Thinking => {
            changed.enable_thinking = true;
            "thinking"
        }
        Feature::Tools(tools) => {
            changed.tools = tools.to_vec();
            "tools"
        }
    };
    let rendered = |chat| template.render(chat).map_err(|e| Failure::work("template", e));
    if rendered(&plain)? == rendered(&changed)? {
        let message = format!(
            "the model's chat template knows no {what}; leave it out, or give another with --chat-template"
        );
        return Err(Failure::usage("template", message));
    }
    Ok(())
}

/// Whether a name in the metadata is one of `names`.
fn is(meta: &Value, key: &str, names: &[&str]) -> bool {
    meta.get(key).and_then(Value::as_str).is_some_and(|found| names.contains(&found))
}

fn unusable(origin: &str, error: impl std::fmt::Display) -> Failure {
    Failure::work("text_unusable", format!("{origin}: {error}"))
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
