//! Files that other programs wrote: all open, and the same weights are the same numbers.

use std::fs;
use std::path::{Path, PathBuf};

use lapidary_core::{BlockType, TensorSource, Value};
use lapidary_format::codec::encode;
use lapidary_format::gguf::Writer;
use lapidary_format::{Folder, Gguf, json, open};
use sha2::{Digest, Sha256};

use crate::contract;
use crate::shared::shared;

#[test]
fn all_files_and_folders_open() {
    let folders = ["pebble/hf", "pebble/drafter_hf", "fixtures/dense", "fixtures/ple"];
    for path in folders.into_iter().filter_map(shared) {
        let source = open(&path).unwrap();
        contract::check(&source);
        assert!(!source.names().is_empty());
    }
    for path in ggufs() {
        let source = open(&path).unwrap();
        contract::check(&source);
        assert!(source.meta().get("general.architecture").is_some());
    }
}

fn ggufs() -> Vec<PathBuf> {
    let Some(folder) = shared("pebble/gguf") else { return Vec::new() };
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn metadata_of_a_real_file() {
    let Some(path) = shared("pebble/gguf/pebble-Q4_K_M.gguf") else { return };
    let gguf = Gguf::open(&path).unwrap();
    let meta = gguf.meta();
    assert_eq!(meta.get("general.architecture").and_then(Value::as_str), Some("gemma4"));
    assert_eq!(meta.get("gemma4.block_count").and_then(Value::as_usize), Some(6));
    let heads = meta.get("gemma4.attention.head_count_kv").and_then(Value::to_ints);
    assert_eq!(heads, Some(vec![2, 2, 1, 2, 2, 1]));
    let windows = meta.get("gemma4.attention.sliding_window_pattern").and_then(Value::to_bools);
    assert_eq!(windows, Some(vec![true, true, false, true, true, false]));
    assert_eq!(meta.get("tokenizer.ggml.tokens").and_then(Value::to_strings).unwrap().len(), 8192);
    let embedding = gguf.info("token_embd.weight").unwrap();
    assert_eq!(embedding.shape, [8192, 256]);
    let experts = gguf.info("blk.0.ffn_down_exps.weight").unwrap();
    assert_eq!(experts.shape, [16, 256, 96]);
}

#[test]
fn a_copy_is_the_same_file() {
    for path in ggufs() {
        let gguf = Gguf::open(&path).unwrap();
        let info = |name: &str| (name.to_owned(), gguf.info(name).unwrap().clone());
        let tensors: Vec<_> = gguf.names().into_iter().map(info).collect();
        let mut writer = Writer::new(Vec::new(), &gguf.values().unwrap(), &tensors).unwrap();
        for (name, _) in &tensors {
            writer.tensor(name, &gguf.bytes(name).unwrap()).unwrap();
        }
        assert!(writer.finish().unwrap() == fs::read(&path).unwrap(), "{}", path.display());
    }
}

#[test]
fn encoders_reproduce_the_digests_of_real_quantised_weights() {
    let (Some(weights), Some(golden)) =
        (shared("pebble/hf"), shared("pebble/quantize_golden.json"))
    else {
        return;
    };
    let weights = Folder::open(&weights).unwrap();
    let golden = json(&fs::read_to_string(golden).unwrap()).unwrap();
    for mix in ["F32", "F16", "BF16", "Q8_0"] {
        let Some(Value::Map(tensors)) = golden.get("mixes").and_then(|mixes| mixes.get(mix)) else {
            panic!("the golden file has no mix {mix}");
        };
        let mut checked = 0;
        for (name, expected) in tensors {
            let expected = expected.to_strings().unwrap();
            let Some(block) = block_type(expected[0]) else { panic!("{expected:?}") };
            // Made by the converter, not in the folder.
            if name == "rope_freqs.weight" {
                continue;
            }
            let values = weights.floats(&source_name(name)).unwrap();
            assert_eq!(digest(&encode(block, &values).unwrap()), expected[1], "{mix}: {name}");
            checked += 1;
        }
        assert!(checked > 100, "{mix}: only {checked}");
    }
}

#[test]
fn decoded_weights_are_near_the_originals() {
    let (Some(weights), Some(folder)) = (shared("pebble/hf"), shared("pebble/gguf")) else {
        return;
    };
    // Root of the mean squared error, relative to that of the weights: for a type of n bits
    // about 2^-n, here with room for a factor of two.
    near(&weights, &folder.join("pebble-Q8_0.gguf"), 0.01);
    near(&weights, &folder.join("pebble-Q4_K_M.gguf"), 0.12);
}

fn near(weights: &Path, gguf: &Path, most: f64) {
    let (weights, gguf) = (Folder::open(weights).unwrap(), Gguf::open(gguf).unwrap());
    for name in gguf.names().into_iter().filter(|name| *name != "rope_freqs.weight") {
        let (exact, stored) =
            (weights.floats(&source_name(name)).unwrap(), gguf.floats(name).unwrap());
        assert_eq!(exact.len(), stored.len(), "{name}");
        let power = |values: &mut dyn Iterator<Item = f32>| {
            values.map(|x| f64::from(x) * f64::from(x)).sum::<f64>()
        };
        let error = power(&mut exact.iter().zip(&stored).map(|(a, b)| a - b));
        let relative = (error / power(&mut exact.iter().copied())).sqrt();
        let plain = !gguf.info(name).unwrap().block.is_quantised();
        assert!(relative <= if plain { 0.0 } else { most }, "{name}: {relative}");
    }
}

fn block_type(name: &str) -> Option<BlockType> {
    BlockType::ALL.into_iter().find(|block| block.to_string() == name)
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name in the folder of a tensor of the GGUF file.
fn source_name(name: &str) -> String {
    let Some((layer, rest)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
    else {
        let part = if name == "token_embd.weight" { "embed_tokens" } else { "norm" };
        return format!("model.language_model.{part}.weight");
    };
    let part = match rest {
        "attn_k.weight" => "self_attn.k_proj.weight",
        "attn_k_norm.weight" => "self_attn.k_norm.weight",
        "attn_norm.weight" => "input_layernorm.weight",
        "attn_output.weight" => "self_attn.o_proj.weight",
        "attn_q.weight" => "self_attn.q_proj.weight",
        "attn_q_norm.weight" => "self_attn.q_norm.weight",
        "attn_v.weight" => "self_attn.v_proj.weight",
        "ffn_down.weight" => "mlp.down_proj.weight",
        "ffn_down_exps.scale" => "router.per_expert_scale",
        "ffn_down_exps.weight" => "experts.down_proj",
        "ffn_gate.weight" => "mlp.gate_proj.weight",
        "ffn_gate_inp.scale" => "router.scale",
        "ffn_gate_inp.weight" => "router.proj.weight",
        "ffn_gate_up_exps.weight" => "experts.gate_up_proj",
        "ffn_norm.weight" => "pre_feedforward_layernorm.weight",
        "ffn_up.weight" => "mlp.up_proj.weight",
        "layer_output_scale.weight" => "layer_scalar",
        "post_attention_norm.weight" => "post_attention_layernorm.weight",
        "post_ffw_norm.weight" => "post_feedforward_layernorm.weight",
        "post_ffw_norm_1.weight" => "post_feedforward_layernorm_1.weight",
        "post_ffw_norm_2.weight" => "post_feedforward_layernorm_2.weight",
        "pre_ffw_norm_2.weight" => "pre_feedforward_layernorm_2.weight",
        other => panic!("{other}"),
    };
    format!("model.language_model.layers.{layer}.{part}")
}
