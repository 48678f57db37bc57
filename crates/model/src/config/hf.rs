//! The decoder's shape from a Hugging Face `config.json`, in both published forms: global head
//! sizes under keys of their own, or under `per_layer_config`.

use lapidary_core::{Reach, Value};

use super::{
    Config, ConfigError, ExpertsConfig, LayerConfig, RopeConfig, RopePairs, ValuesConfig, gemma3,
    sane, share_entries,
};

/// Head width of global layers where no key tells it.
const GLOBAL_WIDTH: usize = 512;
/// One layer in this many is global where no key tells which.
const PERIOD: usize = 6;

pub(super) fn read(meta: &Value) -> Result<Config, ConfigError> {
    let text = Keys { meta: meta.get("text_config").unwrap_or(meta) };
    let kind = text.meta.get("model_type").and_then(Value::as_str).unwrap_or("not named");
    match kind {
        "gemma4" | "gemma4_text" | "gemma4_unified" | "gemma4_unified_text" => gemma4(&text),
        "gemma3" | "gemma3_text" => gemma3_text(&text),
        found => Err(ConfigError::Architecture { found: found.into(), known: "gemma3 and gemma4" }),
    }
}

fn gemma4(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let mut config = gemma4_unshared(keys)?;
    let shared = keys.optional("num_kv_shared_layers")?.unwrap_or(0);
    share_entries(&mut config.layers, shared, "num_kv_shared_layers")?;
    Ok(config)
}

/// Without saying which layers read which others' entries.
fn gemma4_unshared(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let count = keys.size("num_hidden_layers")?;
    let global = global_layers(keys, count, LastLayer::Global)?;
    let shared = keys.optional("num_kv_shared_layers")?.unwrap_or(0);
    let double_wide = keys.flag("use_double_wide_mlp");
    let mut layers = Vec::with_capacity(count);
    for (i, &global) in global.iter().enumerate() {
        let wide = double_wide && i >= count.saturating_sub(shared);
        layers.push(layer(keys, i, global, if wide { 2 } else { 1 })?);
    }
    let two_way = keys.meta.get("use_bidirectional_attention").and_then(Value::as_str);
    Ok(Config {
        architecture: "gemma4".into(),
        hidden: keys.size("hidden_size")?,
        vocab: keys.size("vocab_size")?,
        context: keys.size("max_position_embeddings")? as u32,
        eps: keys.float("rms_norm_eps")? as f32,
        softcap: keys.optional_float("final_logit_softcapping")?.map(|cap| cap as f32),
        experts: if keys.flag("enable_moe_block") { Some(experts(keys)?) } else { None },
        per_layer: keys.optional("hidden_size_per_layer_input")?.filter(|&n| n > 0),
        padding: keys.optional("pad_token_id")?.unwrap_or(0) as u32,
        attention_scale: 1.0,
        norm_offset: 0.0,
        layer_scales: true,
        two_way_images: two_way == Some("vision"),
        layers,
    })
}

/// A drafter's shape and the width of its target's hidden states.
pub(super) fn assistant(meta: &Value) -> Result<(Config, usize), ConfigError> {
    let text = Keys { meta: meta.get("text_config").unwrap_or(meta) };
    let backbone = Keys { meta }.size("backbone_hidden_size")?;
    Ok((gemma4_unshared(&text)?, backbone))
}

/// Gemma 3 in its older form (rotation in keys of its own) and its newer one (`rope_parameters`).
fn gemma3_text(keys: &Keys<'_>) -> Result<Config, ConfigError> {
    let count = keys.size("num_hidden_layers")?;
    let global = match keys.meta.get("layer_types") {
        Some(_) => global_layers(keys, count, LastLayer::AsListed)?,
        None => (0..count).map(gemma3::is_global).collect(),
    };
    let width = keys.size("head_dim")?;
    let scalar = keys.optional_float("query_pre_attn_scalar")?.filter(|&scalar| scalar > 0.0);
    let window = keys.size("sliding_window")? as u32;
    let layer = |&global: &bool| {
        Ok(LayerConfig {
            heads: keys.size("num_attention_heads")?,
            kv_heads: keys.size("num_key_value_heads")?,
            width,
            reach: if global { Reach::All } else { Reach::Window(window) },
            feed_forward: keys.size("intermediate_size")?,
            rope: gemma3_rope(keys, global)?,
            values: ValuesConfig::Unnormed,
            shares: None,
        })
    };
    Ok(Config {
        architecture: "gemma3".into(),
        hidden: keys.size("hidden_size")?,
        vocab: keys.size("vocab_size")?,
        context: keys.size("max_position_embeddings")? as u32,
        eps: keys.float("rms_norm_eps")? as f32,
        softcap: keys.optional_float("final_logit_softcapping")?.map(|cap| cap as f32),
        experts: None,
        per_layer: None,
        padding: 0,
        attention_scale: scalar.unwrap_or(width as f64).sqrt().recip(),
        norm_offset: 1.0,
        layer_scales: false,
        two_way_images: false,
        layers: global.iter().map(layer).collect::<Result<_, _>>()?,
    })
}

fn gemma3_rope(keys: &Keys<'_>, global: bool) -> Result<RopeConfig, ConfigError> {
    if keys.meta.get("rope_parameters").is_some() {
        return rope(keys, global);
    }
    let scaling = Keys { meta: keys.meta.get("rope_scaling").unwrap_or(&Value::Null) };
    let factor = scaling.optional_float("factor")?.unwrap_or(1.0);
    let sliding_theta = keys.optional_float("rope_local_base_freq")?;
    Ok(RopeConfig {
        theta: if global {
            keys.float("rope_theta")?
        } else {
            sliding_theta.unwrap_or(gemma3::SLIDING_THETA)
        },
        pairs: RopePairs::All,
        factor: if global { factor } else { 1.0 },
    })
}

fn layer(
    keys: &Keys<'_>,
    i: usize,
    global: bool,
    widening: usize,
) -> Result<LayerConfig, ConfigError> {
    let raw_keys = global && keys.flag("attention_k_eq_v");
    let listed = keys.meta.get("per_layer_config");
    let own = Keys { meta: listed.and_then(|all| all.get(&i.to_string())).unwrap_or(&Value::Null) };
    let width = keys.size("head_dim")?;
    let width = match (listed.is_some(), global) {
        (true, _) => own.optional("head_dim")?.unwrap_or(width),
        (false, true) => keys.optional("global_head_dim")?.unwrap_or(GLOBAL_WIDTH),
        (false, false) => width,
    };
    let kv_heads = keys.size("num_key_value_heads")?;
    let global_kv_heads = keys.optional("num_global_key_value_heads")?.filter(|_| raw_keys);
    let kv_heads = own.optional("num_key_value_heads")?.or(global_kv_heads).unwrap_or(kv_heads);
    let window = keys.size("sliding_window")? as u32;
    Ok(LayerConfig {
        heads: keys.size("num_attention_heads")?,
        kv_heads,
        width,
        reach: if global { Reach::All } else { Reach::Window(window) },
        feed_forward: widening * keys.size("intermediate_size")?,
        rope: rope(keys, global)?,
        values: if raw_keys { ValuesConfig::RawKeys } else { ValuesConfig::Projected },
        shares: None,
    })
}

fn rope(keys: &Keys<'_>, global: bool) -> Result<RopeConfig, ConfigError> {
    let kind = if global { "full_attention" } else { "sliding_attention" };
    let missing = || ConfigError::Key {
        key: format!("rope_parameters.{kind}"),
        expected: "a map with `rope_type` and `rope_theta`",
    };
    let meta = keys.meta.get("rope_parameters").and_then(|all| all.get(kind));
    let own = Keys { meta: meta.ok_or_else(missing)? };
    let pairs = match own.meta.get("rope_type").and_then(Value::as_str) {
        Some("default" | "linear") => RopePairs::All,
        Some("proportional") => RopePairs::First(own.float("partial_rotary_factor")?),
        other => {
            return Err(ConfigError::Value {
                key: format!("rope_parameters.{kind}.rope_type"),
                found: other.unwrap_or("absent").into(),
                reason: "only `default`, `linear` and `proportional` exist in this family",
            });
        }
    };
    let factor = own.optional_float("factor")?.unwrap_or(1.0);
    Ok(RopeConfig { theta: own.float("rope_theta")?, pairs, factor })
}

fn experts(keys: &Keys<'_>) -> Result<ExpertsConfig, ConfigError> {
    Ok(ExpertsConfig {
        count: keys.size("num_experts")?,
        top_k: keys.size("top_k_experts")?,
        width: keys.size("moe_intermediate_size")?,
    })
}

/// What the last layer is, whatever the list says.
#[derive(Clone, Copy, Eq, PartialEq)]
enum LastLayer {
    AsListed,
    Global,
}

/// Which layers are global: as listed, or every sixth.
fn global_layers(keys: &Keys<'_>, count: usize, last: LastLayer) -> Result<Vec<bool>, ConfigError> {
    let wrong = || ConfigError::Key {
        key: "layer_types".into(),
        expected: "one of `sliding_attention` and `full_attention` per layer",
    };
    let mut global = match keys.meta.get("layer_types") {
        None => (0..count).map(|i| (i + 1).is_multiple_of(PERIOD)).collect(),
        Some(list) => {
            let kind = |name: &str| match name {
                "full_attention" => Some(true),
                "sliding_attention" => Some(false),
                _ => None,
            };
            let names = list.to_strings().ok_or_else(wrong)?;
            let kinds: Option<Vec<_>> = names.into_iter().map(kind).collect();
            kinds.filter(|kinds| kinds.len() == count).ok_or_else(wrong)?
        }
    };
    if let (Some(layer), LastLayer::Global) = (global.last_mut(), last) {
        *layer = true;
    }
    Ok(global)
}

/// The members of one JSON object. `null` counts as absent.
struct Keys<'a> {
    meta: &'a Value,
}

impl Keys<'_> {
    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        let n = self.meta.get(key).and_then(Value::as_usize);
        sane(key, n.ok_or_else(|| ConfigError::Key { key: key.into(), expected: "a count" })?)
    }

    /// A count that may be absent or zero.
    fn optional(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.meta.get(key) else { return Ok(None) };
        let wrong = ConfigError::Key { key: key.into(), expected: "a count" };
        match value.as_usize().ok_or(wrong)? {
            0 => Ok(Some(0)),
            n => sane(key, n).map(Some),
        }
    }

    fn float(&self, key: &str) -> Result<f64, ConfigError> {
        let x = self.optional_float(key)?;
        x.ok_or_else(|| ConfigError::Key { key: key.into(), expected: "a finite number" })
    }

    fn optional_float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.meta.get(key) else { return Ok(None) };
        let wrong = ConfigError::Key { key: key.into(), expected: "a finite number" };
        value.as_f64().filter(|x| x.is_finite()).ok_or(wrong).map(Some)
    }

    fn flag(&self, key: &str) -> bool {
        self.meta.get(key).and_then(Value::as_bool).unwrap_or(false)
    }
}
