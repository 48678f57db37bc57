//! The shape of a vision tower, from a `config.json` or from the metadata of an mmproj file.

use lapidary_core::Value;

use super::{ConfigError, sane};

/// The shape of a Gemma 4 vision tower.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Width of the stream.
    pub hidden: usize,
    /// Width of the feed-forward.
    pub feed_forward: usize,
    /// How many layers there are.
    pub layers: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// Pixels of a side of a patch.
    pub side: usize,
    /// Patches of a side of the square that becomes one soft token.
    pub pool: usize,
    /// Base frequency of the rotation.
    pub theta: f64,
    /// Added to the mean square inside every norm.
    pub eps: f32,
    /// The most soft tokens of a picture, where the model says so.
    pub budget: Option<usize>,
}

/// What every published tower has, and mmproj files have no keys for.
const POOL: usize = 3;
const THETA: f64 = 100.0;
const EPS: f64 = 1e-6;

impl VisionConfig {
    /// Reads the metadata of an mmproj file or the content of a `config.json`. `None` if the model
    /// has no tower.
    ///
    /// # Errors
    /// The tower is of another kind, or a key is absent or makes no sense.
    pub fn read(meta: &Value) -> Result<Option<Self>, ConfigError> {
        let config = match meta.get("general.architecture").and_then(Value::as_str) {
            Some("clip") => gguf(meta)?,
            Some(_) => return Ok(None),
            None => match meta.get("vision_config") {
                None => return Ok(None),
                Some(tower) => hugging_face(meta, tower)?,
            },
        };
        config.check()?;
        Ok(Some(config))
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |key: &str, found: String, reason| {
            Err(ConfigError::Value { key: key.into(), found, reason })
        };
        if !self.width.is_multiple_of(4) {
            let reason = "half of a head turns in pairs by column, and half by row";
            return value("vision head width", self.width.to_string(), reason);
        }
        if self.theta.is_nan() || self.theta <= 0.0 {
            let reason = "a base frequency is positive";
            return value("vision rope_theta", self.theta.to_string(), reason);
        }
        Ok(())
    }
}

fn hugging_face(whole: &Value, tower: &Value) -> Result<VisionConfig, ConfigError> {
    let named = |key: &str| format!("vision_config.{key}");
    let kind = tower.get("model_type").and_then(Value::as_str).unwrap_or("not named");
    if kind != "gemma4_vision" {
        return Err(other_kind(kind));
    }
    let size = |key: &str| count(tower.get(key), &named(key));
    let optional = |key: &str| tower.get(key).map(|_| size(key)).transpose();
    let float = |value: Option<&Value>, absent| value.and_then(Value::as_f64).unwrap_or(absent);
    let (heads, hidden) = (size("num_attention_heads")?, size("hidden_size")?);
    if optional("num_key_value_heads")?.is_some_and(|shared| shared != heads) {
        return Err(ConfigError::Key {
            key: named("num_key_value_heads"),
            expected: "the number of query heads",
        });
    }
    let rope = tower.get("rope_parameters").and_then(|rope| rope.get("rope_theta"));
    let budget = whole.get("vision_soft_tokens_per_image");
    Ok(VisionConfig {
        hidden,
        feed_forward: size("intermediate_size")?,
        layers: size("num_hidden_layers")?,
        heads,
        width: optional("head_dim")?.unwrap_or(hidden / heads),
        side: size("patch_size")?,
        pool: optional("pooling_kernel_size")?.unwrap_or(POOL),
        theta: float(rope, THETA),
        eps: float(tower.get("rms_norm_eps"), EPS) as f32,
        budget: budget.map(|n| count(Some(n), "vision_soft_tokens_per_image")).transpose()?,
    })
}

fn gguf(meta: &Value) -> Result<VisionConfig, ConfigError> {
    let named = |key: &str| format!("clip.vision.{key}");
    let kind = meta.get(&named("projector_type")).and_then(Value::as_str);
    let kind = kind.or_else(|| meta.get("clip.projector_type").and_then(Value::as_str));
    if kind != Some("gemma4v") {
        return Err(other_kind(kind.unwrap_or("not named")));
    }
    let size = |key: &str| count(meta.get(&named(key)), &named(key));
    let (heads, hidden) = (size("attention.head_count")?, size("embedding_length")?);
    if !hidden.is_multiple_of(heads) {
        let (key, found) = (named("attention.head_count"), heads.to_string());
        let reason = "heads share the embedding evenly";
        return Err(ConfigError::Value { key, found, reason });
    }
    let eps = meta.get(&named("attention.layer_norm_epsilon")).and_then(Value::as_f64);
    Ok(VisionConfig {
        hidden,
        feed_forward: size("feed_forward_length")?,
        layers: size("block_count")?,
        heads,
        width: hidden / heads,
        side: size("patch_size")?,
        pool: POOL,
        theta: THETA,
        eps: eps.unwrap_or(EPS) as f32,
        budget: None,
    })
}

fn count(value: Option<&Value>, key: &str) -> Result<usize, ConfigError> {
    let n = value.and_then(Value::as_usize);
    sane(key, n.ok_or_else(|| ConfigError::Key { key: key.into(), expected: "a count" })?)
}

fn other_kind(found: &str) -> ConfigError {
    ConfigError::Architecture { found: found.into(), known: "the vision towers of Gemma 4" }
}
