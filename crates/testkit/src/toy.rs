//! A small random model with every structure of the family, as a GGUF file in memory.
//!
//! Six layers: sliding and global ones, a global one whose values are its raw keys, a sliding and
//! a global one that read earlier layers' entries; experts beside the dense branch, per-layer
//! inputs, layer scales of both kinds. Its matrices go through all storage types in turn.

use lapidary_core::{BlockType, TensorInfo};
use lapidary_format::Gguf;
use lapidary_format::gguf::{GgufArray, GgufValue, Writer};

use crate::{Rng, random_weights};

/// Entries of the toy's vocabulary; not a multiple of sixteen.
pub const TOY_VOCABULARY: u32 = 50;
/// Positions that a sliding layer of the toy sees.
pub const TOY_WINDOW: u32 = 5;
/// Width of the toy's residual stream.
pub const TOY_HIDDEN: usize = 256;

const LAYERS: usize = 6;
/// The last layers, which have no entries of their own.
const SHARING: usize = 2;
const HEADS: usize = 2;
const SLIDING: Heads = Heads { kv: 2, width: 32 };
const GLOBAL: Heads = Heads { kv: 1, width: 64 };
/// The global layer whose values are its raw keys.
const RAW_KEYS: usize = 1;
const FEED_FORWARD: usize = 96;
const EXPERTS: usize = 5;
const EXPERT_WIDTH: usize = 32;
const PER_LAYER: usize = 16;

/// Types for rows of 256 inputs.
const WIDE: [BlockType; 13] = [
    BlockType::Q8_0,
    BlockType::Q4_K,
    BlockType::Q6_K,
    BlockType::Q5_0,
    BlockType::BF16,
    BlockType::Q4_0,
    BlockType::Q3_K,
    BlockType::Q5_1,
    BlockType::F16,
    BlockType::Q5_K,
    BlockType::Q4_1,
    BlockType::F32,
    BlockType::Q2_K,
];
/// Types for rows of a multiple of 32 inputs.
const NARROW: [BlockType; 7] = [
    BlockType::Q8_0,
    BlockType::Q5_0,
    BlockType::F16,
    BlockType::Q4_0,
    BlockType::Q5_1,
    BlockType::BF16,
    BlockType::Q4_1,
];

#[derive(Clone, Copy)]
struct Heads {
    kv: usize,
    width: usize,
}

/// Tensors as they are made up.
struct Draft {
    rng: Rng,
    /// Matrices made so far, and where in the lists of types they begin.
    made: usize,
    tensors: Vec<(String, TensorInfo)>,
    bytes: Vec<Vec<u8>>,
}

/// The toy whose logits are stored.
pub const GOLDEN_TOY: u64 = 1;

/// A model of its own for every seed.
///
/// # Panics
/// Never: what it writes can be read.
pub fn toy(seed: u64) -> Gguf {
    Gguf::from_bytes(format!("toy {seed}"), toy_bytes(seed)).unwrap_or_else(|e| panic!("{e}"))
}

/// The file that [`toy`] reads.
///
/// # Panics
/// Never: what it describes can be written.
pub fn toy_bytes(seed: u64) -> Vec<u8> {
    let mut draft =
        Draft { rng: Rng(seed), made: seed as usize, tensors: Vec::new(), bytes: Vec::new() };
    draft.outside();
    (0..LAYERS).for_each(|layer| draft.layer(layer));
    draft.write().unwrap_or_else(|e| panic!("{e}"))
}

fn is_sliding(layer: usize) -> bool {
    layer.is_multiple_of(2)
}

impl Draft {
    fn outside(&mut self) {
        let (vocabulary, all) = (TOY_VOCABULARY as usize, LAYERS * PER_LAYER);
        self.matrix("token_embd.weight", &[vocabulary, TOY_HIDDEN]);
        self.matrix("output.weight", &[vocabulary, TOY_HIDDEN]);
        self.vector("output_norm.weight", TOY_HIDDEN, 1.0);
        self.matrix("per_layer_token_embd.weight", &[vocabulary, all]);
        self.matrix("per_layer_model_proj.weight", &[all, TOY_HIDDEN]);
        self.vector("per_layer_proj_norm.weight", PER_LAYER, 1.0);
        // Half of a global head's pairs do not turn, as in the published files.
        let turning = GLOBAL.width / 4;
        let factors = (0..GLOBAL.width / 2).map(|j| if j < turning { 1.0 } else { 1e30 });
        self.floats("rope_freqs.weight", factors.collect());
    }

    fn layer(&mut self, layer: usize) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        self.attention(layer);
        self.vector(&name("attn_norm"), TOY_HIDDEN, 1.0);
        self.vector(&name("post_attention_norm"), TOY_HIDDEN, 1.0);
        self.vector(&name("ffn_norm"), TOY_HIDDEN, 1.0);
        self.vector(&name("post_ffw_norm"), TOY_HIDDEN, 1.0);
        self.matrix(&name("ffn_gate"), &[FEED_FORWARD, TOY_HIDDEN]);
        self.matrix(&name("ffn_up"), &[FEED_FORWARD, TOY_HIDDEN]);
        self.matrix(&name("ffn_down"), &[TOY_HIDDEN, FEED_FORWARD]);
        self.experts(layer);
        self.matrix(&name("inp_gate"), &[PER_LAYER, TOY_HIDDEN]);
        self.matrix(&name("proj"), &[TOY_HIDDEN, PER_LAYER]);
        self.vector(&name("post_norm"), TOY_HIDDEN, 1.0);
        let scales = if layer.is_multiple_of(3) { 1 } else { TOY_HIDDEN };
        self.vector(&name("layer_output_scale"), scales, 0.8);
    }

    fn attention(&mut self, layer: usize) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
        let Heads { kv, width } = if is_sliding(layer) { SLIDING } else { GLOBAL };
        self.matrix(&name("attn_q"), &[HEADS * width, TOY_HIDDEN]);
        self.matrix(&name("attn_output"), &[TOY_HIDDEN, HEADS * width]);
        // Scores stay near one, so that every visible position counts.
        self.vector(&name("attn_q_norm"), width, 0.5);
        if layer >= LAYERS - SHARING {
            return;
        }
        self.matrix(&name("attn_k"), &[kv * width, TOY_HIDDEN]);
        self.vector(&name("attn_k_norm"), width, 0.5);
        if layer != RAW_KEYS {
            self.matrix(&name("attn_v"), &[kv * width, TOY_HIDDEN]);
        }
    }

    fn experts(&mut self, layer: usize) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        self.matrix(&name("ffn_gate_inp.weight"), &[EXPERTS, TOY_HIDDEN]);
        self.vector(&name("ffn_gate_inp.scale"), TOY_HIDDEN, 4.0);
        self.vector(&name("ffn_down_exps.scale"), EXPERTS, 1.0);
        self.vector(&name("pre_ffw_norm_2.weight"), TOY_HIDDEN, 1.0);
        self.vector(&name("post_ffw_norm_1.weight"), TOY_HIDDEN, 1.0);
        self.vector(&name("post_ffw_norm_2.weight"), TOY_HIDDEN, 1.0);
        let gate_up = [EXPERTS, 2 * EXPERT_WIDTH, TOY_HIDDEN];
        self.matrix(&name("ffn_gate_up_exps.weight"), &gate_up);
        self.matrix(&name("ffn_down_exps.weight"), &[EXPERTS, TOY_HIDDEN, EXPERT_WIDTH]);
    }

    /// A matrix or a stack of them, in the next type that its rows can have.
    fn matrix(&mut self, name: &str, shape: &[usize]) {
        let cols = *shape.last().expect("a matrix has columns");
        self.made += 1;
        let block = match cols {
            _ if cols.is_multiple_of(256) => WIDE[self.made % WIDE.len()],
            _ if cols.is_multiple_of(32) => NARROW[self.made % NARROW.len()],
            _ => BlockType::BF16,
        };
        let size = 1.0 / (cols as f32).sqrt();
        let bytes = random_weights(block, shape.iter().product(), size, &mut self.rng);
        self.add(name, block, shape.to_vec(), bytes);
    }

    /// Numbers around `middle`, none of them equal.
    fn vector(&mut self, name: &str, len: usize, middle: f32) {
        let values = (0..len).map(|_| middle * (1.0 + 0.2 * self.rng.signed())).collect();
        self.floats(name, values);
    }

    fn floats(&mut self, name: &str, values: Vec<f32>) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.add(name, BlockType::F32, vec![values.len()], bytes);
    }

    fn add(&mut self, name: &str, block: BlockType, shape: Vec<usize>, bytes: Vec<u8>) {
        self.tensors.push((name.to_owned(), TensorInfo { block, shape }));
        self.bytes.push(bytes);
    }

    fn write(&self) -> Result<Vec<u8>, lapidary_format::gguf::WriteError> {
        let mut writer = Writer::new(Vec::new(), &metadata(), &self.tensors)?;
        for ((name, _), bytes) in self.tensors.iter().zip(&self.bytes) {
            writer.tensor(name, bytes)?;
        }
        writer.finish()
    }
}

fn metadata() -> Vec<(String, GgufValue)> {
    let count = |n: usize| GgufValue::U32(n as u32);
    let per_layer =
        |of: fn(usize) -> u32| GgufValue::Array(GgufArray::U32((0..LAYERS).map(of).collect()));
    let kv_heads = |layer| if is_sliding(layer) { SLIDING.kv as u32 } else { GLOBAL.kv as u32 };
    let pattern = GgufArray::Bool((0..LAYERS).map(is_sliding).collect());
    let keys = [
        ("block_count", count(LAYERS)),
        ("context_length", count(4096)),
        ("embedding_length", count(TOY_HIDDEN)),
        ("embedding_length_per_layer_input", count(PER_LAYER)),
        ("feed_forward_length", count(FEED_FORWARD)),
        ("expert_count", count(EXPERTS)),
        ("expert_used_count", count(2)),
        ("expert_feed_forward_length", count(EXPERT_WIDTH)),
        ("attention.head_count", count(HEADS)),
        ("attention.head_count_kv", per_layer(kv_heads)),
        ("attention.key_length", count(GLOBAL.width)),
        ("attention.key_length_swa", count(SLIDING.width)),
        ("attention.sliding_window", GgufValue::U32(TOY_WINDOW)),
        ("attention.sliding_window_pattern", GgufValue::Array(pattern)),
        ("attention.shared_kv_layers", count(SHARING)),
        ("attention.layer_norm_rms_epsilon", GgufValue::F32(1e-6)),
        ("rope.freq_base", GgufValue::F32(1e6)),
        ("rope.freq_base_swa", GgufValue::F32(1e4)),
        ("final_logit_softcapping", GgufValue::F32(30.0)),
    ];
    let architecture = ("general.architecture".to_owned(), GgufValue::Str("gemma4".into()));
    let keys = keys.into_iter().map(|(key, value)| (format!("gemma4.{key}"), value));
    std::iter::once(architecture).chain(keys).collect()
}
