//! Damaged and hostile folders: one error that names the thing, and nothing left behind.

use std::fs;
use std::path::Path;

use lapidary_convert::{Draft, Mix, Recipe, Workers};
use lapidary_format::{Folder, Gguf};
use lapidary_testkit::Checkpoint;

/// Converts a folder, and returns what went wrong.
fn refused(folder: &Path, mix: Mix) -> String {
    let out = tempfile::tempdir().unwrap();
    let result = || -> Result<(), Box<dyn std::error::Error>> {
        let folder = Folder::open(folder)?;
        let draft = Draft::of_folder(&folder, "x")?;
        let to = out.path().join("x.gguf");
        draft.write(&Recipe::plain(mix), &to, &Workers::new(2)?, &mut |_| {})?;
        Ok(())
    };
    let error = result().expect_err("it is refused").to_string();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "{error}: nothing is left behind");
    error
}

/// A checkpoint, changed.
fn folder(shape: Checkpoint, change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    shape.write(folder.path(), 1);
    change(folder.path());
    folder
}

fn edit(folder: &Path, name: &str, from: &str, to: &str) {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{name} has {from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

const WEIGHTS: &str = "model.safetensors";
const TWO: Checkpoint = Checkpoint { shards: 2, ..Checkpoint::TINY };

/// Overwrites a number of a tensor with another BF16.
fn overwrite(folder: &Path, tensor: &str, element: usize, bits: u16) {
    let path = folder.join(WEIGHTS);
    let mut bytes = fs::read(&path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let start = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[8 + len + start + 2 * element..][..2].copy_from_slice(&bits.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_weight_that_is_no_number_is_named() {
    for mix in [Mix::BF16, Mix::Q8_0, Mix::Q4_K_M] {
        for bits in [0x7FC0, 0xFF80] {
            let gate = "model.layers.1.mlp.gate_proj.weight";
            let made = folder(Checkpoint::TINY, |at| overwrite(at, gate, 77, bits));
            let error = refused(made.path(), mix);
            let named = error.contains("blk.1.ffn_gate.weight") && error.contains("element 77");
            assert!(named, "{mix}: {error}");
        }
    }
}

#[test]
fn a_shard_that_is_cut_short_is_refused() {
    let cut = |at: &Path| {
        let path = at.join("model-00002-of-00002.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 100]).unwrap();
    };
    let error = refused(folder(TWO, cut).path(), Mix::Q8_0);
    assert!(error.contains("model-00002-of-00002.safetensors"), "{error}");
}

#[test]
fn an_index_that_lies_is_refused() {
    const INDEX: &str = "model.safetensors.index.json";
    let norm = |shard: &str| format!(r#""model.norm.weight":"{shard}""#);
    let first = norm("model-00001-of-00002.safetensors");
    for (to, named) in [
        (norm("model-00002-of-00002.safetensors"), "model.norm.weight"),
        (norm("model-00009-of-00002.safetensors"), "model-00009"),
        (norm("../../secret.safetensors"), "../../secret"),
        (norm("/etc/passwd"), "/etc/passwd"),
    ] {
        let made = folder(TWO, |at| edit(at, INDEX, &first, &to));
        let error = refused(made.path(), Mix::Q8_0);
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let made = folder(TWO, |at| {
        let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        fs::copy(at.join(shards[0]), at.join(shards[1])).unwrap();
        let places = serde_json::json!({ "weight_map": {
            "model.embed_tokens.weight": shards[0], "model.norm.weight": shards[1],
        } });
        fs::write(at.join("model.safetensors.index.json"), places.to_string()).unwrap();
    });
    let error = refused(made.path(), Mix::Q8_0);
    assert!(error.contains("appears twice, also in model-00001"), "{error}");
}

#[test]
fn what_is_no_part_of_the_model_is_not_dropped_in_silence() {
    let made = folder(Checkpoint::TINY, |at| {
        let path = at.join(WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes[8..]).into_owned();
        assert!(text.contains("model.layers.0.layer_scalar"));
        let at = bytes.windows(27).position(|w| w == b"model.layers.0.layer_scalar").unwrap();
        let mut bytes = bytes;
        bytes[at..at + 27].copy_from_slice(b"model.layers.0.secret_scale");
        fs::write(path, bytes).unwrap();
    });
    let error = refused(made.path(), Mix::Q8_0);
    assert!(error.contains("secret_scale"), "{error}");
}

#[test]
fn a_vocabulary_with_gaps_is_refused() {
    let made = folder(Checkpoint::TINY, |at| {
        edit(at, "tokenizer.json", r#""piece299":299"#, r#""piece299":300"#);
    });
    let error = refused(made.path(), Mix::Q8_0);
    assert!(error.contains("tokenizer.json") && error.contains("gaps"), "{error}");
    let made = folder(Checkpoint::TINY, |at| {
        fs::remove_file(at.join("tokenizer.json")).unwrap();
    });
    assert!(refused(made.path(), Mix::Q8_0).contains("tokenizer.json"));
}

#[test]
fn another_architecture_is_refused() {
    let made = folder(Checkpoint::TINY, |at| {
        edit(at, "config.json", r#""model_type":"gemma4_text""#, r#""model_type":"llama""#);
    });
    let error = refused(made.path(), Mix::Q8_0);
    assert!(error.contains("llama") && error.contains("gemma4"), "{error}");
}

#[test]
fn q2_k_s_without_importance_is_refused() {
    let made = folder(Checkpoint::TINY, |_| {});
    let error = refused(made.path(), Mix::Q2_K_S);
    assert!(error.contains("lapidary imatrix"), "{error}");
}

#[test]
fn shards_make_no_difference() {
    let make = |shape: Checkpoint| {
        let folder = folder(shape, |_| {});
        let folder = Folder::open(folder.path()).unwrap();
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("x.gguf");
        let draft = Draft::of_folder(&folder, "x").unwrap();
        draft
            .write(&Recipe::plain(Mix::Q8_0), &to, &Workers::new(1).unwrap(), &mut |_| {})
            .unwrap();
        let gguf = Gguf::open(&to).unwrap();
        let names: Vec<_> =
            lapidary_core::TensorSource::names(&gguf).into_iter().map(str::to_owned).collect();
        names
    };
    assert_eq!(make(Checkpoint::TINY), make(TWO));
}

#[test]
fn the_file_does_not_depend_on_the_number_of_threads() {
    let folder = folder(Checkpoint { feed_forward: 8192, ..Checkpoint::TINY }, |_| {});
    let folder = Folder::open(folder.path()).unwrap();
    let make = |threads| {
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("x.gguf");
        let draft = Draft::of_folder(&folder, "x").unwrap();
        let workers = Workers::new(threads).unwrap();
        draft.write(&Recipe::plain(Mix::Q4_K_M), &to, &workers, &mut |_| {}).unwrap();
        fs::read(to).unwrap()
    };
    assert!(make(1) == make(3));
}

#[test]
fn codes_do_not_become_other_codes_unasked() {
    let folder = folder(Checkpoint::TINY, |_| {});
    let folder = Folder::open(folder.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (first, second) = (out.path().join("q8.gguf"), out.path().join("q4.gguf"));
    let workers = Workers::new(1).unwrap();
    let draft = Draft::of_folder(&folder, "x").unwrap();
    draft.write(&Recipe::plain(Mix::Q8_0), &first, &workers, &mut |_| {}).unwrap();
    let gguf = Gguf::open(&first).unwrap();
    let draft = || Draft::of_gguf(&gguf).unwrap();
    let mut recipe = Recipe::plain(Mix::Q4_0);
    let refused = draft().write(&recipe, &second, &workers, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("--requantize"), "{refused}");
    recipe.again = lapidary_convert::Again::Allow;
    draft().write(&recipe, &second, &workers, &mut |_| {}).unwrap();
    assert!(Gguf::open(&second).is_ok());
}
