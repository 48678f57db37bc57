//! The drafter that belongs to a shape: as wide and deep as the published ones, random weights.

use std::collections::BTreeMap;

use lapidary_core::{BlockType, TensorInfo, Value};

use super::Shape;

/// Layers of every published drafter, and which of them look over a window.
const SLIDING: [bool; 4] = [true, true, true, false];
/// Width of the drafters of 12B, 26B-A4B and 31B.
const WIDTH: usize = 1024;
/// Inputs of their feed-forward's last matrix.
const FEED_FORWARD: usize = 8192;

/// What a drafter takes from its target.
struct Target {
    hidden: usize,
    vocab: usize,
    heads: usize,
    /// Widths of a head, sliding and global.
    widths: [usize; 2],
}

impl Shape {
    /// The drafter of the shape's model. `None` if the shape is not one of a whole model.
    pub fn drafter(&self) -> Option<Self> {
        let key = |key: &str| self.meta.get(&format!("gemma4.{key}"));
        let size = |name: &str| key(name)?.as_usize();
        let target = Target {
            hidden: size("embedding_length")?,
            vocab: *self.tensors.get("token_embd.weight")?.shape.first()?,
            heads: size("attention.head_count")?,
            widths: [size("attention.key_length_swa")?, size("attention.key_length")?],
        };
        let carried = |name: &str| Some((format!("gemma4-assistant.{name}"), key(name)?.clone()));
        let mut meta: BTreeMap<_, _> = [
            "context_length",
            "attention.head_count",
            "attention.key_length",
            "attention.key_length_swa",
            "attention.sliding_window",
            "attention.layer_norm_rms_epsilon",
            "rope.freq_base",
            "rope.freq_base_swa",
        ]
        .into_iter()
        .map(carried)
        .collect::<Option<_>>()?;
        let kv_heads = match key("attention.head_count_kv")? {
            Value::Ints(all) => [*all.first()?, *all.get(5)?],
            _ => return None,
        };
        let own = [
            ("block_count", Value::Int(SLIDING.len() as i64)),
            ("embedding_length", Value::Int(WIDTH as i64)),
            ("embedding_length_out", Value::Int(target.hidden as i64)),
            ("feed_forward_length", Value::Int(FEED_FORWARD as i64)),
            ("attention.sliding_window_pattern", Value::List(SLIDING.map(Value::Bool).to_vec())),
            (
                "attention.head_count_kv",
                Value::Ints(SLIDING.map(|sliding| kv_heads[usize::from(!sliding)]).to_vec()),
            ),
        ];
        meta.extend(own.map(|(name, value)| (format!("gemma4-assistant.{name}"), value)));
        meta.insert("general.architecture".into(), Value::Str("gemma4-assistant".into()));
        Some(Self {
            name: format!("{}'s drafter", self.name),
            meta: Value::Map(meta.into_iter().collect()),
            tensors: target.tensors(),
        })
    }
}

impl Target {
    /// Typed as a Q4_K_M file types its tensors.
    fn tensors(&self) -> BTreeMap<String, TensorInfo> {
        let of = |block, shape: &[usize]| TensorInfo { block, shape: shape.to_vec() };
        let vector = |n| of(BlockType::F32, &[n]);
        let matrix = |rows, cols| of(BlockType::Q4_K, &[rows, cols]);
        let mut tensors = BTreeMap::from([
            ("token_embd.weight".to_owned(), of(BlockType::Q6_K, &[self.vocab, WIDTH])),
            ("output_norm.weight".to_owned(), vector(WIDTH)),
            ("rope_freqs.weight".to_owned(), vector(self.widths[1] / 2)),
            ("nextn.pre_projection.weight".to_owned(), matrix(WIDTH, 2 * self.hidden)),
            ("nextn.post_projection.weight".to_owned(), matrix(self.hidden, WIDTH)),
        ]);
        for (i, sliding) in SLIDING.into_iter().enumerate() {
            let width = self.widths[usize::from(!sliding)];
            let queries = self.heads * width;
            let layer = [
                ("attn_norm.weight", vector(WIDTH)),
                ("attn_q.weight", matrix(queries, WIDTH)),
                ("attn_q_norm.weight", vector(width)),
                ("attn_output.weight", matrix(WIDTH, queries)),
                ("post_attention_norm.weight", vector(WIDTH)),
                ("ffn_norm.weight", vector(WIDTH)),
                ("ffn_gate.weight", matrix(FEED_FORWARD, WIDTH)),
                ("ffn_up.weight", matrix(FEED_FORWARD, WIDTH)),
                ("ffn_down.weight", of(BlockType::Q6_K, &[WIDTH, FEED_FORWARD])),
                ("post_ffw_norm.weight", vector(WIDTH)),
                ("layer_output_scale.weight", vector(1)),
            ];
            let named = layer.map(|(name, info)| (format!("blk.{i}.{name}"), info));
            tensors.extend(named);
        }
        tensors
    }
}
