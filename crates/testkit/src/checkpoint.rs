//! A Hugging Face folder made up from a seed, of any size: a dense Gemma 4 without experts.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Rng;

/// How large a made-up checkpoint is.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    /// Layers; every third is global.
    pub layers: usize,
    /// Width of the stream.
    pub hidden: usize,
    /// Width of the feed-forward.
    pub feed_forward: usize,
    /// Files that the tensors are spread over.
    pub shards: usize,
}

/// Width of a head, and half that of a global one.
const HEAD: usize = 32;
const HEADS: usize = 2;
const VOCABULARY: usize = 300;
/// Bytes that are made at a time.
const RUN: usize = 1 << 20;

impl Checkpoint {
    /// A few hundred kilobytes.
    pub const TINY: Self = Self { layers: 3, hidden: 64, feed_forward: 96, shards: 1 };

    /// Writes the folder: `config.json`, `tokenizer.json`, BF16 weights between -1 and 1.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, folder: &Path, seed: u64) {
        let put = |name: &str, value: &Value| {
            fs::write(folder.join(name), value.to_string()).unwrap_or_else(|e| panic!("{e}"));
        };
        put("config.json", &self.config());
        put("tokenizer.json", &tokenizer());
        let tensors = self.tensors();
        let each = tensors.len().div_ceil(self.shards);
        let mut places = Map::new();
        for (i, part) in tensors.chunks(each).enumerate() {
            let name = match self.shards {
                1 => "model.safetensors".to_owned(),
                n => format!("model-{:05}-of-{n:05}.safetensors", i + 1),
            };
            places.extend(part.iter().map(|(tensor, _)| (tensor.clone(), json!(name))));
            shard(&folder.join(name), part, &mut Rng(seed + i as u64));
        }
        if self.shards > 1 {
            put("model.safetensors.index.json", &json!({ "weight_map": places }));
        }
    }

    fn is_global(layer: usize) -> bool {
        layer % 3 == 2
    }

    fn config(&self) -> Value {
        let kind =
            |layer| if Self::is_global(layer) { "full_attention" } else { "sliding_attention" };
        let mut kinds: Vec<_> = (0..self.layers).map(kind).collect();
        if let Some(last) = kinds.last_mut() {
            *last = "full_attention";
        }
        json!({
            "model_type": "gemma4_text",
            "vocab_size": VOCABULARY,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": 1,
            "head_dim": HEAD,
            "global_head_dim": HEAD,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "sliding_window": 16,
            "layer_types": kinds,
            "final_logit_softcapping": 30.0,
            "rope_parameters": {
                "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
                "full_attention": {
                    "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
                },
            },
        })
    }

    /// Names and shapes.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, wide) = (self.hidden, self.feed_forward);
        let heads = HEADS * HEAD;
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, hidden]),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        for layer in 0..self.layers {
            let own = [
                ("self_attn.q_proj.weight", vec![heads, hidden]),
                ("self_attn.k_proj.weight", vec![HEAD, hidden]),
                ("self_attn.v_proj.weight", vec![HEAD, hidden]),
                ("self_attn.o_proj.weight", vec![hidden, heads]),
                ("self_attn.q_norm.weight", vec![HEAD]),
                ("self_attn.k_norm.weight", vec![HEAD]),
                ("mlp.gate_proj.weight", vec![wide, hidden]),
                ("mlp.up_proj.weight", vec![wide, hidden]),
                ("mlp.down_proj.weight", vec![hidden, wide]),
                ("input_layernorm.weight", vec![hidden]),
                ("post_attention_layernorm.weight", vec![hidden]),
                ("pre_feedforward_layernorm.weight", vec![hidden]),
                ("post_feedforward_layernorm.weight", vec![hidden]),
                ("layer_scalar", vec![1]),
            ];
            let named = |(name, shape)| (format!("model.layers.{layer}.{name}"), shape);
            tensors.extend(own.into_iter().map(named));
        }
        tensors
    }
}

fn tokenizer() -> Value {
    const SPECIAL: [&str; 4] = ["<pad>", "<eos>", "<bos>", "<unk>"];
    let text = |id: usize| match id {
        0..4 => SPECIAL[id].to_owned(),
        4..260 => format!("<0x{:02X}>", id - 4),
        _ => format!("piece{id}"),
    };
    let vocab: Map<_, _> = (0..VOCABULARY).map(|id| (text(id), json!(id))).collect();
    let model = json!({ "type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": [] });
    let added = |id: usize| json!({ "id": id, "content": SPECIAL[id], "special": true });
    json!({ "model": model, "added_tokens": (0..4).map(added).collect::<Vec<_>>() })
}

fn shard(path: &Path, tensors: &[(String, Vec<usize>)], rng: &mut Rng) {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        let entry = json!({ "dtype": "BF16", "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut out = BufWriter::new(File::create(path).unwrap_or_else(|e| panic!("{e}")));
    let mut put = |bytes: &[u8]| out.write_all(bytes).unwrap_or_else(|e| panic!("{e}"));
    put(&(header.len() as u64).to_le_bytes());
    put(header.as_bytes());
    // One run of numbers, begun anywhere, is random enough and quickly made.
    let run: Vec<u8> =
        (0..RUN / 2).flat_map(|_| ((rng.signed().to_bits() >> 16) as u16).to_le_bytes()).collect();
    while end > 0 {
        let from = 2 * rng.below(RUN / 2);
        let part = &run[from..];
        let part = &part[..part.len().min(end)];
        put(part);
        end -= part.len();
    }
}
