//! What a step has to read and to multiply, counted from a file's tensors.

use lapidary_core::{TensorInfo, TensorSource};

use crate::config::{Config, LayerConfig};
use crate::names::Names;

/// Weights that every row needs, and weights of which a row needs some experts' share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Stored bytes of matrices that every step reads.
    pub dense_bytes: f64,
    /// Stored bytes of all experts.
    pub expert_bytes: f64,
    /// Weights that every row multiplies with, the head not among them.
    pub dense_weights: f64,
    /// Weights of all experts.
    pub expert_weights: f64,
    /// Weights of the head, for rows that want logits.
    pub head_weights: f64,
    /// Experts, and how many a row uses; zero without experts.
    pub experts: (f64, f64),
}

impl Traffic {
    /// Counts a source's matrices.
    pub fn of(source: &dyn TensorSource, config: &Config) -> Self {
        let names = Names::of(source);
        let is = |gguf: &str, name: &str| name == names.translate(gguf);
        let own_head = source.info("output.weight").is_some();
        let mut traffic = Self::default();
        if let Some(experts) = config.experts {
            traffic.experts = (experts.count as f64, experts.top_k as f64);
        }
        for name in source.names() {
            let Some(info) = source.info(name) else { continue };
            let (bytes, weights) = (info.bytes() as f64, info.elements() as f64);
            let looked_up = is("per_layer_token_embd.weight", name)
                || (own_head && is("token_embd.weight", name));
            if is("token_embd.weight", name) && !own_head || name == "output.weight" {
                traffic.dense_bytes += bytes;
                traffic.head_weights += weights;
            } else if is_stack(info) {
                traffic.expert_bytes += bytes;
                traffic.expert_weights += weights;
            } else if info.shape.len() == 2 && !looked_up {
                traffic.dense_bytes += bytes;
                traffic.dense_weights += weights;
            }
        }
        traffic
    }

    /// Bytes of weights that a step of `rows` rows reads, if their experts are drawn at random.
    pub fn step_bytes(&self, rows: f64) -> f64 {
        let (count, used) = self.experts;
        let touched = if count > 0.0 { 1.0 - (1.0 - used / count).powf(rows) } else { 0.0 };
        self.dense_bytes + touched * self.expert_bytes
    }

    /// Multiplications and additions of a row, attention not among them.
    pub fn row_ops(&self, with_logits: bool) -> f64 {
        let (count, used) = self.experts;
        let share = if count > 0.0 { used / count } else { 0.0 };
        let head = if with_logits { self.head_weights } else { 0.0 };
        2.0 * (self.dense_weights + share * self.expert_weights + head)
    }
}

fn is_stack(info: &TensorInfo) -> bool {
    info.shape.len() == 3
}

/// Multiplications and additions of one row's attention over `keys` visible keys.
pub fn attention_ops(layer: &LayerConfig, keys: f64) -> f64 {
    4.0 * (layer.heads * layer.width) as f64 * keys
}
