//! What a decoder looks like, read from a checkpoint's metadata.
//!
//! Nothing about a layer is a global constant: head widths, heads, reach, rotation and
//! feed-forward width are kept per layer, because in this family they differ per layer.

mod assistant;
mod gemma3;
mod gguf;
mod hf;
mod vision;

pub use assistant::AssistantConfig;
pub use vision::VisionConfig;

use lapidary_core::{LayerId, Reach, Value};
use thiserror::Error;

/// The shape of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture's name in files.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Entries of the vocabulary. Zero if only the embedding's shape tells.
    pub vocab: usize,
    /// The longest sequence the model was made for.
    pub context: u32,
    /// Added to the mean square inside every norm.
    pub eps: f32,
    /// Bound on the logits.
    pub softcap: Option<f32>,
    /// Experts beside the dense feed-forward, on every layer.
    pub experts: Option<ExpertsConfig>,
    /// Width of the per-layer inputs.
    pub per_layer: Option<usize>,
    /// Stands for soft rows in the per-layer table.
    pub padding: u32,
    /// Factor on query times key. It is folded into the query norm.
    pub attention_scale: f64,
    /// Added to every stored norm weight: checkpoints of Gemma 3 store the distance from one.
    pub norm_offset: f32,
    /// Whether every layer scales the stream at its end.
    pub layer_scales: bool,
    /// Whether the soft rows of an image see each other in both directions on sliding layers.
    pub two_way_images: bool,
    /// Bottom to top.
    pub layers: Vec<LayerConfig>,
}

/// The shape of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub width: usize,
    /// How far back it looks.
    pub reach: Reach,
    /// Width of the dense feed-forward.
    pub feed_forward: usize,
    /// How it rotates.
    pub rope: RopeConfig,
    /// Whether values are the raw keys.
    pub values: ValuesConfig,
    /// The layer whose entries it reads, if not its own.
    pub shares: Option<LayerId>,
}

/// Where a layer's values come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValuesConfig {
    /// A projection of their own, normed.
    Projected,
    /// A projection of their own, as it is.
    Unnormed,
    /// The raw key projection.
    RawKeys,
    /// The raw key projection exactly if the file has no value projection: GGUF has no key for it.
    ByTensor,
}

/// How a layer rotates its heads.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base frequency.
    pub theta: f64,
    /// Which pairs turn.
    pub pairs: RopePairs,
    /// Divisor of every frequency.
    pub factor: f64,
}

/// Which pairs of a head turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopePairs {
    /// Every pair.
    All,
    /// The first pairs, making up this part of the head; the exponents count the whole head.
    First(f64),
    /// Every pair, each frequency divided by its entry of the file's factor table.
    Factors,
}

/// The shape of the routed branch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExpertsConfig {
    /// How many there are.
    pub count: usize,
    /// How many a row uses.
    pub top_k: usize,
    /// Width of each.
    pub width: usize,
}

/// Metadata that does not describe a decoder of this family.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    /// Another kind of model.
    #[error("the architecture is `{found}`; this engine runs {known}")]
    Architecture {
        /// What the file says.
        found: String,
        /// What could be run.
        known: &'static str,
    },
    /// A key is absent or of the wrong type.
    #[error("the metadata key `{key}` must be {expected}")]
    Key {
        /// Which key.
        key: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A value that no model of the family has.
    #[error("the metadata key `{key}` is {found}: {reason}")]
    Value {
        /// Which key.
        key: String,
        /// What it is.
        found: String,
        /// Why that cannot be.
        reason: &'static str,
    },
}

impl Config {
    /// Reads GGUF metadata or the content of a `config.json`, told apart by
    /// `general.architecture`.
    ///
    /// # Errors
    /// The metadata lacks a key, or describes something this engine does not run.
    pub fn read(meta: &Value) -> Result<Self, ConfigError> {
        let config = if meta.get("general.architecture").is_some() {
            gguf::read(meta)?
        } else {
            hf::read(meta)?
        };
        config.check()?;
        Ok(config)
    }

    /// Checks what both readers must guarantee: nothing is zero that is divided or sized by.
    fn check(&self) -> Result<(), ConfigError> {
        let sized = |key: &'static str, n: usize| sane(key, n).map(|_| ());
        sized("hidden size", self.hidden)?;
        sized("layer count", self.layers.len())?;
        for layer in &self.layers {
            sized("head count", layer.heads)?;
            sized("key-value head count", layer.kv_heads)?;
            sized("head width", layer.width)?;
            sized("feed-forward width", layer.feed_forward)?;
            let grouped = layer.heads.is_multiple_of(layer.kv_heads);
            let paired = layer.width.is_multiple_of(2);
            if !grouped || !paired {
                return Err(ConfigError::Value {
                    key: "heads".into(),
                    found: format!(
                        "{} over {} of width {}",
                        layer.heads, layer.kv_heads, layer.width
                    ),
                    reason: "query heads divide evenly over key-value heads of even width",
                });
            }
            if layer.reach == Reach::Window(0) {
                return Err(zero("sliding window"));
            }
        }
        if let Some(experts) = self.experts {
            sized("expert count", experts.count)?;
            sized("expert width", experts.width)?;
            if experts.top_k == 0 || experts.top_k > experts.count {
                return Err(ConfigError::Value {
                    key: "experts per token".into(),
                    found: experts.top_k.to_string(),
                    reason: "at least one and at most all experts are used",
                });
            }
        }
        Ok(())
    }
}

/// What GGUF calls the architecture of drafters.
const ASSISTANT: &str = "gemma4-assistant";

/// Largest count that any model's shape may hold: products of three of them still fit 64 bits.
const LARGEST: usize = 1 << 20;

fn sane(key: &str, n: usize) -> Result<usize, ConfigError> {
    match n {
        0 => Err(zero(key)),
        1..=LARGEST => Ok(n),
        _ => Err(ConfigError::Value {
            key: key.into(),
            found: n.to_string(),
            reason: "no model is that large",
        }),
    }
}

fn zero(key: &str) -> ConfigError {
    ConfigError::Value { key: key.into(), found: "0".into(), reason: "it must be positive" }
}

/// Makes the last layers read the entries of the last layer of their kind that has its own.
fn share_entries(layers: &mut [LayerConfig], shared: usize, key: &str) -> Result<(), ConfigError> {
    let first = layers.len().checked_sub(shared).filter(|&first| first > 0 || shared == 0);
    let Some(first) = first else {
        return Err(ConfigError::Value {
            key: key.into(),
            found: shared.to_string(),
            reason: "some layer must have entries of its own",
        });
    };
    let (own, sharing) = layers.split_at_mut(first);
    for layer in sharing {
        let same = |o: &LayerConfig| (o.reach == Reach::All) == (layer.reach == Reach::All);
        let Some(owner) = own.iter().rposition(same) else {
            return Err(ConfigError::Value {
                key: key.into(),
                found: shared.to_string(),
                reason: "a sharing layer needs an earlier layer of its kind to read from",
            });
        };
        layer.shares = Some(LayerId(owner as u32));
    }
    Ok(())
}
