//! The shape of a drafter that was trained for a target: layers without entries of their own.

use lapidary_core::{LayerId, Reach, Value};

use super::{ASSISTANT, Config, ConfigError, LayerConfig, gguf, hf};

/// A drafter's shape, checked against its target's.
#[derive(Clone, Debug, PartialEq)]
pub struct AssistantConfig {
    /// Its own decoder. Every layer shares entries with a layer *of the target*.
    pub decoder: Config,
    /// Width of the target's hidden states.
    pub backbone: usize,
}

impl AssistantConfig {
    /// Whether metadata (GGUF, or the content of a `config.json`) describes a drafter.
    pub fn describes(meta: &Value) -> bool {
        let gguf = meta.get("general.architecture").and_then(Value::as_str);
        let hf = meta.get("model_type").and_then(Value::as_str);
        gguf == Some(ASSISTANT)
            || matches!(hf, Some("gemma4_assistant" | "gemma4_unified_assistant"))
    }

    /// Reads a drafter's metadata and ties its layers to those of its target.
    ///
    /// # Errors
    /// The metadata lacks a key, or describes a drafter for another target.
    pub fn read(meta: &Value, target: &Config) -> Result<Self, ConfigError> {
        if !Self::describes(meta) {
            let found = meta.get("general.architecture").or_else(|| meta.get("model_type"));
            return Err(ConfigError::Architecture {
                found: found.and_then(Value::as_str).unwrap_or("not named").into(),
                known: "drafters of the architecture gemma4-assistant",
            });
        }
        let is_gguf = meta.get("general.architecture").is_some();
        let (mut decoder, backbone) =
            if is_gguf { gguf::assistant(meta)? } else { hf::assistant(meta)? };
        decoder.softcap = None;
        decoder.check()?;
        for layer in &mut decoder.layers {
            layer.shares = Some(owner(layer, target)?);
        }
        if backbone != target.hidden {
            return Err(mismatch("backbone width", backbone, "the target's hidden states differ"));
        }
        Ok(Self { decoder, backbone })
    }
}

/// The target's last layer of the kind that has entries of its own.
fn owner(layer: &LayerConfig, target: &Config) -> Result<LayerId, ConfigError> {
    let global = |layer: &LayerConfig| layer.reach == Reach::All;
    let own = |o: &LayerConfig| o.shares.is_none() && global(o) == global(layer);
    let Some(i) = target.layers.iter().rposition(own) else {
        let kind = if global(layer) { "global" } else { "sliding" };
        return Err(mismatch("layer kind", kind, "the target has no such layer"));
    };
    let owner = &target.layers[i];
    if owner.width != layer.width {
        return Err(mismatch("head width", layer.width, "the target's entries differ"));
    }
    if !layer.heads.is_multiple_of(owner.kv_heads) {
        return Err(mismatch("head count", layer.heads, "the target's heads do not divide it"));
    }
    Ok(LayerId(i as u32))
}

fn mismatch(key: &str, found: impl ToString, reason: &'static str) -> ConfigError {
    ConfigError::Value { key: format!("drafter's {key}"), found: found.to_string(), reason }
}
