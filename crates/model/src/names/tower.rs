//! What the tensors of a vision tower are called in GGUF files and in Hugging Face folders.

use lapidary_core::TensorSource;

/// `(GGUF, Hugging Face)` outside the layers.
const WHOLE: &[(&str, &str)] = &[
    ("mm.input_projection.weight", "embed_vision.embedding_projection.weight"),
    ("v.patch_embd.weight", "vision_tower.patch_embedder.input_proj.weight"),
    ("v.position_embd.weight", "vision_tower.patch_embedder.position_embedding_table"),
    ("v.std_bias", "vision_tower.std_bias"),
    ("v.std_scale", "vision_tower.std_scale"),
];

/// `(GGUF, Hugging Face)` of norms inside a layer.
const NORMS: &[(&str, &str)] = &[
    ("ln1", "input_layernorm"),
    ("attn_post_norm", "post_attention_layernorm"),
    ("ln2", "pre_feedforward_layernorm"),
    ("ffn_post_norm", "post_feedforward_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
];

/// `(GGUF, Hugging Face)` of projections inside a layer, whose weight some checkpoints keep one
/// level deeper, under `linear`.
const PROJECTIONS: &[(&str, &str)] = &[
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_out", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// What belongs to a projection: its weight, or its bounds.
const SUFFIXES: [&str; 5] = ["weight", "input_max", "input_min", "output_max", "output_min"];

/// Where folders keep the layers.
const LAYERS: &str = "vision_tower.encoder.layers.";

/// What comes before every name in published checkpoints, and what some leave out.
const PREFIXES: [&str; 2] = ["model.", ""];

/// How a source names the tensors of its tower.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum TowerNames {
    /// As the loader says them.
    Gguf,
    /// By module path, under this prefix.
    HuggingFace { prefix: &'static str, linear: &'static str },
}

impl TowerNames {
    /// Finds out from the tensors themselves.
    pub(crate) fn of(source: &dyn TensorSource) -> Self {
        let has = |name: String| source.info(&name).is_some();
        let (_, embedding) = WHOLE[1];
        match PREFIXES.into_iter().find(|prefix| has(format!("{prefix}{embedding}"))) {
            None => Self::Gguf,
            Some(prefix) => {
                let deeper = has(format!("{prefix}{LAYERS}0.self_attn.q_proj.linear.weight"));
                Self::HuggingFace { prefix, linear: if deeper { ".linear" } else { "" } }
            }
        }
    }

    /// The source's name for the tensor that GGUF calls `gguf`.
    pub(crate) fn translate(&self, gguf: &str) -> String {
        let Self::HuggingFace { prefix, linear } = self else { return gguf.to_owned() };
        let find = |table: &[(&str, &'static str)], name: &str| {
            table.iter().find(|(own, _)| *own == name).map(|&(_, theirs)| theirs)
        };
        let in_layer = || {
            let (layer, rest) = gguf.strip_prefix("v.blk.")?.split_once('.')?;
            let (module, suffix) = rest.split_once('.')?;
            let path = match (find(NORMS, module), find(PROJECTIONS, module)) {
                (Some(norm), _) => norm.to_owned(),
                (_, Some(projection)) if suffix == "weight" => format!("{projection}{linear}"),
                (_, projection) => projection?.to_owned(),
            };
            Some(format!("{prefix}{LAYERS}{layer}.{path}.{suffix}"))
        };
        let whole = find(WHOLE, gguf).map(|name| format!("{prefix}{name}"));
        whole.or_else(in_layer).unwrap_or_else(|| gguf.to_owned())
    }
}

/// What GGUF files call a tensor of a published checkpoint's vision tower, if it is one.
pub fn to_gguf(name: &str) -> Option<String> {
    let name = name.strip_prefix(PREFIXES[0]).unwrap_or(name);
    if let Some((own, _)) = WHOLE.iter().find(|(_, theirs)| *theirs == name) {
        return Some((*own).to_owned());
    }
    let (layer, rest) = name.strip_prefix(LAYERS)?.split_once('.')?;
    let (module, suffix) = rest.rsplit_once('.')?;
    let module = module.strip_suffix(".linear").unwrap_or(module);
    let (own, _) = NORMS.iter().chain(PROJECTIONS).find(|(_, theirs)| *theirs == module)?;
    SUFFIXES.contains(&suffix).then(|| format!("v.blk.{layer}.{own}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_agree() {
        let names = TowerNames::HuggingFace { prefix: "model.", linear: ".linear" };
        let layer = NORMS.iter().map(|(own, _)| format!("v.blk.3.{own}.weight"));
        let linear = PROJECTIONS.iter().flat_map(|(own, _)| {
            SUFFIXES.iter().map(move |suffix| format!("v.blk.12.{own}.{suffix}"))
        });
        let whole = WHOLE.iter().map(|(own, _)| (*own).to_owned());
        for name in layer.chain(linear).chain(whole) {
            let theirs = names.translate(&name);
            assert_ne!(theirs, name);
            assert_eq!(to_gguf(&theirs), Some(name));
        }
        assert_eq!(to_gguf("model.language_model.layers.0.input_layernorm.weight"), None);
    }
}
