//! What each tensor is called in GGUF files and in Hugging Face folders.
//!
//! The loader speaks GGUF names. This table is the only place that knows the others.

mod tower;

use lapidary_core::TensorSource;

pub(crate) use tower::TowerNames;
pub use tower::to_gguf as tower_to_gguf;

/// How a source names its tensors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Names {
    /// As the loader says them.
    Gguf,
    /// By module path, under this prefix.
    HuggingFace { prefix: &'static str },
    /// Those of a vision tower.
    Tower(TowerNames),
}

/// `(GGUF, Hugging Face)` outside the layers.
const WHOLE: &[(&str, &str)] = &[
    ("token_embd.weight", "embed_tokens.weight"),
    ("output_norm.weight", "norm.weight"),
    ("per_layer_token_embd.weight", "embed_tokens_per_layer.weight"),
    ("per_layer_model_proj.weight", "per_layer_model_projection.weight"),
    ("per_layer_proj_norm.weight", "per_layer_projection_norm.weight"),
];

/// `(GGUF, Hugging Face)` of a drafter, outside its decoder.
const ASSISTANT: &[(&str, &str)] = &[
    ("nextn.pre_projection.weight", "pre_projection.weight"),
    ("nextn.post_projection.weight", "post_projection.weight"),
];

/// `(GGUF, Hugging Face)` inside a layer.
const LAYER: &[(&str, &str)] = &[
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
    ("pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"),
    ("post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"),
    ("post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"),
    ("ffn_gate_inp.weight", "router.proj.weight"),
    ("ffn_gate_inp.scale", "router.scale"),
    ("ffn_down_exps.scale", "router.per_expert_scale"),
    ("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    ("ffn_down_exps.weight", "experts.down_proj"),
    ("layer_output_scale.weight", "layer_scalar"),
    ("inp_gate.weight", "per_layer_input_gate.weight"),
    ("proj.weight", "per_layer_projection.weight"),
    ("post_norm.weight", "post_per_layer_input_norm.weight"),
];

/// Where published checkpoints keep the text decoder, multimodal ones first.
const PREFIXES: [&str; 3] = ["model.language_model.", "language_model.model.", "model."];

/// What GGUF files call a tensor of a published checkpoint's text decoder or drafter, if it is one.
pub fn to_gguf(name: &str) -> Option<String> {
    let find = |table: &[(&'static str, &str)], name: &str| {
        table.iter().find(|(_, hf)| *hf == name).map(|&(gguf, _)| gguf)
    };
    let Some(name) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) else {
        return find(ASSISTANT, name).map(str::to_owned);
    };
    match name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((layer, name)) => {
            let layer: usize = layer.parse().ok()?;
            find(LAYER, name).map(|gguf| format!("blk.{layer}.{gguf}"))
        }
        None => find(WHOLE, name).map(str::to_owned),
    }
}

impl Names {
    /// Finds out from the tensors themselves.
    pub(crate) fn of(source: &dyn TensorSource) -> Self {
        let has = |prefix: &&str| source.info(&format!("{prefix}embed_tokens.weight")).is_some();
        match PREFIXES.into_iter().find(has) {
            Some(prefix) => Self::HuggingFace { prefix },
            None => Self::Gguf,
        }
    }

    /// The source's name for the tensor that GGUF calls `gguf`.
    pub(crate) fn translate(&self, gguf: &str) -> String {
        let prefix = match self {
            Self::Gguf => return gguf.to_owned(),
            Self::Tower(tower) => return tower.translate(gguf),
            Self::HuggingFace { prefix } => prefix,
        };
        let find = |table: &[(&str, &'static str)], name: &str| {
            table.iter().find(|(gguf, _)| *gguf == name).map(|&(_, hf)| hf)
        };
        let in_layer = gguf.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let name = match in_layer {
            Some((layer, name)) => {
                find(LAYER, name).map(|hf| format!("{prefix}layers.{layer}.{hf}"))
            }
            None => find(WHOLE, gguf)
                .map(|hf| format!("{prefix}{hf}"))
                .or_else(|| find(ASSISTANT, gguf).map(str::to_owned)),
        };
        name.unwrap_or_else(|| gguf.to_owned())
    }
}
