//! A converted file answers as its folder does.

use std::collections::HashMap;
use std::path::Path;

use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_cache::Extent;
use lapidary_convert::{Draft, Mix, Recipe, Workers};
use lapidary_core::{Batch, Regime, SlotId, TensorSource, TokenId, Value, Want};
use lapidary_format::{Folder, Gguf};
use lapidary_model::Precision;
use lapidary_testkit::{Checkpoint, Loaded, Rng, shared};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

const EXTENT: Extent = Extent { slots: 1, context: 64, burst: 64 };

fn logits(source: &dyn TensorSource, tokens: &[TokenId]) -> Vec<(usize, Vec<f32>)> {
    let cpu = Cpu::new(Isa::best(), 2).unwrap();
    let mut own = Loaded::of(cpu, source, Precision::F32, EXTENT, Regime::F32);
    let batch = Batch::builder().chain(SlotId(0), 0, tokens, |_| Want::LOGITS).unwrap().build();
    own.run(&batch).logits
}

/// Converts a folder and compares the logits of both, bit for bit: widths whose roots are whole
/// are scaled alike by both.
fn assert_same_answers(folder: &Path) -> Gguf {
    let folder = Folder::open(folder).unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("x.gguf");
    let draft = Draft::of_folder(&folder, "x").unwrap();
    draft.write(&Recipe::plain(Mix::BF16), &to, &Workers::new(2).unwrap(), &mut |_| {}).unwrap();
    let made = Gguf::open(&to).unwrap();
    let vocabulary = made.info("token_embd.weight").unwrap().shape[0];
    let mut rng = Rng(9);
    let tokens: Vec<_> = (0..40).map(|_| TokenId(rng.below(vocabulary) as u32)).collect();
    assert!(logits(&folder, &tokens) == logits(&made, &tokens), "{}", folder.origin());
    made
}

#[test]
fn gemma_4_in_every_variant_answers_as_its_folder() {
    let made_up = tempfile::tempdir().unwrap();
    Checkpoint { shards: 3, ..Checkpoint::TINY }.write(made_up.path(), 4);
    assert_same_answers(made_up.path());
    for name in ["fixtures/dense", "fixtures/ple", "pebble/hf"] {
        if let Some(path) = shared(name) {
            assert_same_answers(&path);
        }
    }
}

/// A made-up Gemma 3, whose norms are stored as distances from one.
fn gemma3(folder: &Path, scalar: f64) {
    let config = json!({
        "model_type": "gemma3_text", "vocab_size": 300, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": scalar,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "sliding_window": 16,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "bos_token_id": 2, "eos_token_id": 1,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer.model"), pieces()).unwrap();
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![300, 64]),
        ("model.norm.weight".to_owned(), vec![64]),
    ];
    for layer in 0..6 {
        for (name, shape) in [
            ("self_attn.q_proj", vec![64, 64]),
            ("self_attn.k_proj", vec![32, 64]),
            ("self_attn.v_proj", vec![32, 64]),
            ("self_attn.o_proj", vec![64, 64]),
            ("self_attn.q_norm", vec![32]),
            ("self_attn.k_norm", vec![32]),
            ("mlp.gate_proj", vec![96, 64]),
            ("mlp.up_proj", vec![96, 64]),
            ("mlp.down_proj", vec![64, 96]),
            ("input_layernorm", vec![64]),
            ("post_attention_layernorm", vec![64]),
            ("pre_feedforward_layernorm", vec![64]),
            ("post_feedforward_layernorm", vec![64]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let mut rng = Rng(6);
    let bytes: Vec<Vec<u8>> = shapes
        .iter()
        .map(|(_, shape)| {
            let numbers = (0..shape.iter().product()).map(|_| rng.signed() * 0.25);
            numbers.flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect()
        })
        .collect();
    let views: HashMap<_, _> = shapes
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| {
            (name.clone(), TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
        })
        .collect();
    let file = safetensors::serialize(&views, None).unwrap();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
}

/// A SentencePiece file: pieces with scores and kinds, and another field before them.
fn pieces() -> Vec<u8> {
    let mut file = vec![0x12, 2, 0x08, 1];
    for id in 0..300_u32 {
        let (text, kind) = match id {
            0 => ("<pad>".to_owned(), 3),
            3 => ("<unk>".to_owned(), 2),
            4..260 => (format!("<0x{:02X}>", id - 4), 6),
            _ => (format!("▁piece{id}"), 1),
        };
        let mut piece = vec![0x0A, text.len() as u8];
        piece.extend(text.as_bytes());
        piece.push(0x15);
        piece.extend((-(id as f32)).to_le_bytes());
        piece.extend([0x18, kind]);
        file.extend([0x0A, piece.len() as u8]);
        file.extend(piece);
    }
    file
}

#[test]
fn gemma_3_answers_as_its_folder_and_keeps_its_scores() {
    let folder = tempfile::tempdir().unwrap();
    gemma3(folder.path(), 32.0);
    let made = assert_same_answers(folder.path());
    let meta = made.meta();
    let list = |key: &str| meta.get(key).unwrap_or_else(|| panic!("{key}")).clone();
    assert_eq!(meta.get("general.architecture").and_then(Value::as_str), Some("gemma3"));
    assert_eq!(meta.get("tokenizer.ggml.model").and_then(Value::as_str), Some("llama"));
    let Value::Floats(scores) = list("tokenizer.ggml.scores") else { panic!() };
    assert_eq!((scores.len(), scores[7]), (300, -7.0));
    let kinds = list("tokenizer.ggml.token_type").to_ints().unwrap();
    assert_eq!((kinds[0], kinds[3], kinds[4], kinds[299]), (3, 2, 6, 1));
    let Value::Strings(tokens) = list("tokenizer.ggml.tokens") else { panic!() };
    assert_eq!(tokens.get(299), Some("▁piece299"));
}

#[test]
fn a_scale_of_attention_that_gguf_cannot_say_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    gemma3(folder.path(), 48.0);
    let folder = Folder::open(folder.path()).unwrap();
    let Err(refused) = Draft::of_folder(&folder, "x") else { panic!("it is refused") };
    assert!(refused.to_string().contains("scale of attention"), "{refused}");
}

#[test]
fn scores_are_not_made_up() {
    let folder = tempfile::tempdir().unwrap();
    gemma3(folder.path(), 32.0);
    std::fs::remove_file(folder.path().join("tokenizer.model")).unwrap();
    let folder = Folder::open(folder.path()).unwrap();
    let Err(refused) = Draft::of_folder(&folder, "x") else { panic!("it is refused") };
    assert!(refused.to_string().contains("tokenizer.model"), "{refused}");
}
