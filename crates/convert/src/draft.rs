//! A file before it is written: what it says, and what its tensors are made of.

use std::collections::BTreeMap;

use lapidary_core::{BlockType, TensorInfo, TensorSource, Value};
use lapidary_format::gguf::GgufValue;
use lapidary_format::{Folder, Gguf};
use lapidary_model::config::Config;
use lapidary_model::names;

use crate::choice::ModelFacts;
use crate::metadata::{self, Keys, Values, text};
use crate::{ConvertError, mmproj, vocabulary};

/// A file to be written: metadata, and tensors in order, none of them read yet.
pub struct Draft<'a> {
    pub(crate) source: &'a dyn TensorSource,
    pub(crate) values: Values,
    pub(crate) tensors: Vec<Planned>,
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// Dimensions, slowest first.
    pub(crate) shape: Vec<usize>,
    /// The type it has if nothing else is chosen.
    pub(crate) stored: BlockType,
    pub(crate) origin: Origin,
}

/// What a tensor is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The first numbers of a tensor of the source, each plus `add`.
    Tensor { name: String, add: f32 },
    /// A tensor of the source in another order: `from[i]` is where number `i` lies.
    Reordered { name: String, from: Vec<usize> },
    /// Numbers that no file holds.
    Made(Vec<f32>),
}

impl Planned {
    /// A tensor that is taken over as it is.
    pub(crate) fn same(name: String, from: &str, info: &TensorInfo) -> Self {
        let origin = Origin::Tensor { name: from.to_owned(), add: 0.0 };
        let stored = kept_type(&name, &info.shape, info.block);
        // A single number is a vector of one in GGUF.
        let shape = if info.shape.is_empty() { vec![1] } else { info.shape.clone() };
        Self { name, shape, stored, origin }
    }
}

/// Vectors and router matrices are kept as 32-bit floats: they are small and their errors are not.
pub(crate) fn kept_type(name: &str, shape: &[usize], block: BlockType) -> BlockType {
    let matrix = shape.len() > 1 && name.ends_with(".weight");
    let exact = !matrix || name.contains("_norm.weight") || name.contains("ffn_gate_inp.weight");
    if exact && !block.is_quantised() { BlockType::F32 } else { block }
}

impl<'a> Draft<'a> {
    /// The decoder of a Hugging Face folder: Gemma 4 in every variant, Gemma 3, or a Gemma 4
    /// assistant.
    ///
    /// # Errors
    /// The folder is no such model, or lacks a part of it.
    pub fn of_folder(folder: &'a Folder, name: &str) -> Result<Self, ConvertError> {
        let meta = folder.meta();
        let kind = meta.get("model_type").and_then(Value::as_str).unwrap_or("");
        let origin = folder.origin();
        let (mut keys, assistant) = match kind {
            "gemma4_assistant" | "gemma4_unified_assistant" => {
                (Keys::new("gemma4-assistant", "model"), true)
            }
            "gemma3" | "gemma3_text" => (Keys::new("gemma3", "model"), false),
            _ => (Keys::new("gemma4", "model"), false),
        };
        let config = if assistant { without_sharing(meta)? } else { Config::read(meta)? };
        let mut tensors = decoder_tensors(folder, &config)?;
        tensors.sort_by_cached_key(|tensor| file_order(&tensor.name));
        push_sampling(folder, &mut keys)?;
        keys.general("name", text(name));
        let shapes = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice()));
        keys.general("size_label", text(&metadata::size_label(shapes)));
        let vocabulary = if config.architecture == "gemma3" {
            metadata::gemma3(&mut keys, &config, origin)?;
            vocabulary::scored(folder, origin)?
        } else {
            let own = config.layers.iter().filter(|layer| layer.shares.is_none()).count();
            let shared = if assistant { own } else { config.layers.len() - own };
            metadata::gemma4(&mut keys, &config, shared);
            if assistant {
                let outer = meta.get("backbone_hidden_size").and_then(Value::as_usize);
                keys.count("embedding_length_out", outer.unwrap_or(0));
                keys.count("nextn_predict_layers", config.layers.len());
            } else if config.softcap.is_none() {
                return Err(ConvertError::Unspeakable {
                    origin: origin.to_owned(),
                    reason: "its logits have no soft-cap, and readers would put one in".to_owned(),
                });
            }
            vocabulary::ranked(folder, origin)?
        };
        let mut values = keys.into_values();
        values.extend(vocabulary);
        Ok(Self { source: folder, values, tensors })
    }

    /// The vision tower of a folder, as the file that goes beside the decoder's.
    ///
    /// # Errors
    /// The folder has none, or one that is not known.
    pub fn of_vision(folder: &'a Folder, name: &str) -> Result<Self, ConvertError> {
        let (values, tensors) = mmproj::draft(folder, name)?;
        Ok(Self { source: folder, values, tensors })
    }

    /// A GGUF file, to be stored in other types.
    ///
    /// # Errors
    /// The file has changed since it was opened.
    pub fn of_gguf(gguf: &'a Gguf) -> Result<Self, ConvertError> {
        let mut tensors = Vec::new();
        for name in gguf.names() {
            let Some(info) = gguf.info(name) else { continue };
            tensors.push(Planned {
                name: name.to_owned(),
                shape: info.shape.clone(),
                stored: info.block,
                origin: Origin::Tensor { name: name.to_owned(), add: 0.0 },
            });
        }
        tensors.sort_by_cached_key(|tensor| file_order(&tensor.name));
        Ok(Self { source: gguf, values: gguf.values()?, tensors })
    }

    /// What the choice of types depends on.
    pub(crate) fn facts(&self) -> ModelFacts {
        let architecture = self.value("general.architecture").and_then(|value| match value {
            GgufValue::Str(name) => Some(name.as_str()),
            _ => None,
        });
        let key = |key: &str| format!("{}.{key}", architecture.unwrap_or(""));
        let count = |name: &str| self.value(&key(name)).and_then(first_count).unwrap_or(0);
        let kv_heads = count("attention.head_count_kv").max(1);
        ModelFacts {
            layers: count("block_count"),
            experts: count("expert_count"),
            group: count("attention.head_count") / kv_heads,
        }
    }

    fn value(&self, key: &str) -> Option<&GgufValue> {
        self.values.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets a value, in its place if there is one.
    pub(crate) fn set(&mut self, key: &str, value: GgufValue) {
        match self.values.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key.to_owned(), value)),
        }
    }
}

/// A count, or the first of a list.
fn first_count(value: &GgufValue) -> Option<usize> {
    use lapidary_format::gguf::GgufArray;
    match value {
        GgufValue::Array(GgufArray::I32(list)) => usize::try_from(*list.first()?).ok(),
        GgufValue::Array(GgufArray::U32(list)) => list.first().map(|&n| n as usize),
        other => usize::try_from(other.as_int()?).ok(),
    }
}

/// Whole-model tensors by name, then layer after layer by name.
pub(crate) fn file_order(name: &str) -> (Option<usize>, String) {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
    (layer.and_then(|layer| layer.parse().ok()), name.to_owned())
}

/// An assistant's layers all read the entries of another model.
fn without_sharing(meta: &Value) -> Result<Config, ConvertError> {
    let mut text = meta.get("text_config").unwrap_or(meta).clone();
    if let Value::Map(map) = &mut text {
        map.insert("num_kv_shared_layers".to_owned(), Value::Int(0));
    }
    Ok(Config::read(&Value::Map(BTreeMap::from([("text_config".to_owned(), text)])))?)
}

fn decoder_tensors(folder: &Folder, config: &Config) -> Result<Vec<Planned>, ConvertError> {
    let origin = || folder.origin().to_owned();
    if let Some(name) = folder.skipped().iter().find(|name| !is_left_out(name)) {
        return Err(ConvertError::Skipped { name: name.clone(), origin: origin() });
    }
    let mut tensors = Vec::new();
    for from in folder.names() {
        let Some(info) = folder.info(from).filter(|_| !is_left_out(from)) else { continue };
        let Some(name) = names::to_gguf(from) else {
            return Err(ConvertError::UnknownTensor { name: from.to_owned(), origin: origin() });
        };
        let mut planned = Planned::same(name, from, info);
        if config.norm_offset != 0.0 && planned.name.ends_with("_norm.weight") {
            planned.origin = Origin::Tensor { name: from.to_owned(), add: config.norm_offset };
        }
        // Rows beyond the vocabulary are padding.
        if planned.name == "token_embd.weight" && planned.shape[0] > config.vocab {
            planned.shape[0] = config.vocab;
        }
        tensors.push(planned);
    }
    if let Some(factors) = metadata::rope_factors(config) {
        tensors.push(Planned {
            name: "rope_freqs.weight".to_owned(),
            shape: vec![factors.len()],
            stored: BlockType::F32,
            origin: Origin::Made(factors),
        });
    }
    Ok(tensors)
}

/// Tensors of a checkpoint that are no part of its decoder's file: the towers, which have a file
/// of their own, the head, which is the embedding, and an assistant's shortcut to likely tokens.
fn is_left_out(name: &str) -> bool {
    const PARTS: [&str; 8] = [
        "vision_tower.",
        "audio_tower.",
        "embed_vision.",
        "embed_audio.",
        "vision_embedder.",
        "multi_modal_projector.",
        "masked_embedding",
        "lm_head.weight",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// The makers' sampling, and the tokens that they forbid.
pub(crate) fn push_sampling(folder: &Folder, keys: &mut Keys) -> Result<(), ConvertError> {
    let Some(text) = folder.text(GENERATION)? else { return Ok(()) };
    let tree = lapidary_format::json(&text).map_err(|fault| ConvertError::Vocabulary {
        file: GENERATION,
        origin: folder.origin().to_owned(),
        fault: fault.to_string(),
    })?;
    if let Some(k) = tree.get("top_k").and_then(Value::as_int) {
        keys.general("sampling.top_k", GgufValue::I32(k as i32));
    }
    for (from, to) in [("top_p", "sampling.top_p"), ("temperature", "sampling.temp")] {
        if let Some(x) = tree.get(from).and_then(Value::as_f64) {
            keys.general(to, GgufValue::F32(x as f32));
        }
    }
    Ok(())
}

const GENERATION: &str = "generation_config.json";
