//! The decoder's shape from GGUF metadata.

use lapidary_core::{Reach, Value};

use super::{
    Config, ConfigError, ExpertsConfig, LayerConfig, RopeConfig, RopePairs, ValuesConfig, gemma3,
    sane, share_entries,
};

/// Embedding widths of the variants whose images are read causally. GGUF has no key for it.
const CAUSAL_IMAGE_WIDTHS: [usize; 2] = [1536, 2560];

pub(super) fn read(meta: &Value) -> Result<Config, ConfigError> {
    let architecture = meta.get("general.architecture").and_then(Value::as_str);
    match architecture {
        Some("gemma3") => gemma3(&Keys { meta, prefix: "gemma3" }),
        Some("gemma4") => gemma4(&Keys { meta, prefix: "gemma4" }),
        found => Err(ConfigError::Architecture {
            found: found.unwrap_or("not a text").into(),
            known: "gemma3 and gemma4",
        }),
    }
}

/// A drafter's shape and the width of its target's hidden states.
pub(super) fn assistant(meta: &Value) -> Result<(Config, usize), ConfigError> {
    let keys = Keys { meta, prefix: super::ASSISTANT };
    Ok((gemma4_unshared(&keys)?, keys.size("embedding_length_out")?))
}

fn gemma4(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let mut config = gemma4_unshared(keys)?;
    let shared = "attention.shared_kv_layers";
    let count = keys.optional(shared)?.unwrap_or(0);
    share_entries(&mut config.layers, count, &keys.name(shared))?;
    Ok(config)
}

/// Without saying which layers read which others' entries.
fn gemma4_unshared(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let count = keys.size("block_count")?;
    let hidden = keys.size("embedding_length")?;
    let sliding = keys.pattern("attention.sliding_window_pattern", count)?;
    let window = keys.size("attention.sliding_window")? as u32;
    let kv_heads = keys.per_layer("attention.head_count_kv", count)?;
    let feed_forward = keys.per_layer("feed_forward_length", count)?;
    let heads = keys.per_layer("attention.head_count", count)?;
    let width = keys.size("attention.key_length")?;
    let width_swa = keys.optional("attention.key_length_swa")?.unwrap_or(width);
    let theta = keys.float("rope.freq_base")?;
    let theta_swa = keys.float("rope.freq_base_swa")?;
    let layer = |i: usize| LayerConfig {
        heads: heads[i],
        kv_heads: kv_heads[i],
        width: if sliding[i] { width_swa } else { width },
        reach: if sliding[i] { Reach::Window(window) } else { Reach::All },
        feed_forward: feed_forward[i],
        rope: RopeConfig {
            theta: if sliding[i] { theta_swa } else { theta },
            pairs: if sliding[i] { RopePairs::All } else { RopePairs::Factors },
            factor: 1.0,
        },
        values: if sliding[i] { ValuesConfig::Projected } else { ValuesConfig::ByTensor },
        shares: None,
    };
    let layers: Vec<_> = (0..count).map(layer).collect();
    Ok(Config {
        architecture: "gemma4".into(),
        hidden,
        vocab: 0,
        context: keys.size("context_length")? as u32,
        eps: keys.float("attention.layer_norm_rms_epsilon")? as f32,
        softcap: Some(keys.float_or("final_logit_softcapping", 30.0)? as f32),
        experts: experts(keys)?,
        per_layer: keys.optional("embedding_length_per_layer_input")?.filter(|&n| n > 0),
        padding: 0,
        attention_scale: 1.0,
        norm_offset: 0.0,
        layer_scales: true,
        two_way_images: !CAUSAL_IMAGE_WIDTHS.contains(&hidden),
        layers,
    })
}

/// Gemma 3: no key tells which layers are global, nor how sliding ones rotate.
fn gemma3(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let count = keys.size("block_count")?;
    let heads = keys.per_layer("attention.head_count", count)?;
    let kv_heads = keys.per_layer("attention.head_count_kv", count)?;
    let feed_forward = keys.per_layer("feed_forward_length", count)?;
    let width = keys.size("attention.key_length")?;
    let window = keys.size("attention.sliding_window")? as u32;
    let theta = keys.float("rope.freq_base")?;
    let theta_swa = keys.float_or("rope.freq_base_swa", gemma3::SLIDING_THETA)?;
    let factor = keys.float_or("rope.scaling.factor", 1.0)?;
    let hidden = keys.size("embedding_length")?;
    let layer = |i: usize| {
        let global = gemma3::is_global(i);
        LayerConfig {
            heads: heads[i],
            kv_heads: kv_heads[i],
            width,
            reach: if global { Reach::All } else { Reach::Window(window) },
            feed_forward: feed_forward[i],
            rope: RopeConfig {
                theta: if global { theta } else { theta_swa },
                pairs: RopePairs::All,
                factor: if global { factor } else { 1.0 },
            },
            values: ValuesConfig::Unnormed,
            shares: None,
        }
    };
    Ok(Config {
        architecture: "gemma3".into(),
        hidden,
        vocab: 0,
        context: keys.size("context_length")? as u32,
        eps: keys.float("attention.layer_norm_rms_epsilon")? as f32,
        softcap: keys.float_or("final_logit_softcapping", 0.0).map(gemma3::softcap)?,
        experts: None,
        per_layer: None,
        padding: 0,
        attention_scale: gemma3::attention_scale(count, hidden, heads[0], width),
        norm_offset: 0.0,
        layer_scales: false,
        two_way_images: false,
        layers: (0..count).map(layer).collect(),
    })
}

fn experts(keys: &Keys<'_>) -> Result<Option<ExpertsConfig>, ConfigError> {
    let Some(count) = keys.optional("expert_count")?.filter(|&n| n > 0) else { return Ok(None) };
    Ok(Some(ExpertsConfig {
        count,
        top_k: keys.size("expert_used_count")?,
        width: keys.size("expert_feed_forward_length")?,
    }))
}

/// The keys of one architecture.
struct Keys<'a> {
    meta: &'a Value,
    prefix: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.meta.get(&self.name(key))
    }

    fn wrong(&self, key: &str, expected: &'static str) -> ConfigError {
        ConfigError::Key { key: self.name(key), expected }
    }

    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        let n = self.value(key).and_then(Value::as_usize);
        sane(&self.name(key), n.ok_or_else(|| self.wrong(key, "a count"))?)
    }

    /// A count that may be absent or zero.
    fn optional(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_usize().ok_or_else(|| self.wrong(key, "a count"))? {
            0 => Ok(Some(0)),
            n => sane(&self.name(key), n).map(Some),
        }
    }

    fn float(&self, key: &str) -> Result<f64, ConfigError> {
        let x = self.value(key).and_then(Value::as_f64).filter(|x| x.is_finite());
        x.ok_or_else(|| self.wrong(key, "a finite number"))
    }

    fn float_or(&self, key: &str, absent: f64) -> Result<f64, ConfigError> {
        if self.value(key).is_none() { Ok(absent) } else { self.float(key) }
    }

    /// One count for all layers, or a list with one per layer.
    fn per_layer(&self, key: &str, layers: usize) -> Result<Vec<usize>, ConfigError> {
        let expected = "a count, or a list with one count per layer";
        let value = self.value(key).ok_or_else(|| self.wrong(key, expected))?;
        if value.as_int().is_some() {
            return Ok(vec![self.size(key)?; layers]);
        }
        let list = value.to_ints().filter(|list| list.len() == layers);
        let list = list.ok_or_else(|| self.wrong(key, expected))?;
        let name = self.name(key);
        list.into_iter().map(|n| sane(&name, usize::try_from(n).unwrap_or(0))).collect()
    }

    fn pattern(&self, key: &str, layers: usize) -> Result<Vec<bool>, ConfigError> {
        let list = self.value(key).and_then(Value::to_bools).filter(|list| list.len() == layers);
        list.ok_or_else(|| self.wrong(key, "a list with one truth value per layer"))
    }
}
