//! Whole files: names, types, metadata and bytes of those that llama.cpp makes.

use std::path::Path;

use lapidary_convert::{Draft, Mix, Recipe, Workers};
use lapidary_core::{BlockType, TensorSource, Value};
use lapidary_format::{Folder, Gguf};
use lapidary_testkit::shared;
use sha2::{Digest, Sha256};

/// Writes a draft into a folder that disappears with the test, and opens it.
pub(crate) fn written(draft: Draft<'_>, recipe: &Recipe<'_>, at: &Path) -> Gguf {
    let path = at.join("model.gguf");
    draft.write(recipe, &path, &Workers::new(2).unwrap(), &mut |_| {}).unwrap();
    let listed: Vec<_> = std::fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(listed, ["model.gguf"], "nothing else is left");
    Gguf::open(&path).unwrap()
}

fn digest(gguf: &Gguf, name: &str) -> String {
    format!("{:x}", Sha256::digest(gguf.bytes(name).unwrap()))
}

#[test]
fn every_mix_of_pebble_has_llama_cpps_types_and_bytes() {
    let Some(golden) = shared("pebble/quantize_golden.json") else { return };
    let Some(path) = shared("pebble/hf") else { return };
    let golden: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    let folder = Folder::open(&path).unwrap();
    for (mix, tensors) in golden["mixes"].as_object().unwrap() {
        let recipe = Recipe::plain(mix.parse().unwrap());
        let scratch = tempfile::tempdir().unwrap();
        let draft = Draft::of_folder(&folder, "Pebble").unwrap();
        let made = written(draft, &recipe, scratch.path());
        let tensors = tensors.as_object().unwrap();
        assert_eq!(made.names().len(), tensors.len(), "{mix}");
        for (name, entry) in tensors {
            let info = made.info(name).unwrap_or_else(|| panic!("{mix} has {name}"));
            assert_eq!(info.block.to_string(), entry[0].as_str().unwrap(), "{mix} {name}");
            assert_eq!(digest(&made, name), entry[1].as_str().unwrap(), "{mix} {name}");
        }
    }
}

/// Metadata of two files, apart from keys that say how a file came to be.
fn assert_same_meta(ours: &Gguf, theirs: &Gguf) {
    let (Value::Map(ours), Value::Map(theirs)) = (ours.meta(), theirs.meta()) else { panic!() };
    for (key, value) in theirs {
        assert_eq!(ours.get(key), Some(value), "{key}");
    }
    for key in ours.keys() {
        assert!(theirs.contains_key(key), "{key} is ours alone");
    }
}

fn assert_same_file(ours: &Gguf, theirs: &Gguf) {
    assert_same_meta(ours, theirs);
    let sorted = |gguf: &Gguf| {
        let mut names: Vec<_> = gguf.names().into_iter().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(ours), sorted(theirs));
    for name in theirs.names() {
        assert_eq!(ours.info(name), theirs.info(name), "{name}");
        assert!(ours.bytes(name).unwrap() == theirs.bytes(name).unwrap(), "{name}");
    }
}

#[test]
fn pebble_from_its_folder_is_the_file_that_llama_cpp_makes() {
    for mix in [Mix::Q8_0, Mix::Q4_K_M] {
        let Some(theirs) = shared(&format!("pebble/gguf/pebble-{mix}.gguf")) else { return };
        let Some(folder) = shared("pebble/hf") else { return };
        let folder = Folder::open(&folder).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let draft = Draft::of_folder(&folder, "Pebble").unwrap();
        let ours = written(draft, &Recipe::plain(mix), scratch.path());
        assert_same_file(&ours, &Gguf::open(&theirs).unwrap());
    }
}

#[test]
fn pebbles_vision_tower_and_drafter_are_the_files_that_llama_cpp_makes() {
    let Some(tower) = shared("pebble/gguf/pebble-mmproj-f16.gguf") else { return };
    let Some(drafter) = shared("pebble/gguf/pebble-drafter-bf16.gguf") else { return };
    let folder = Folder::open(&shared("pebble/hf").unwrap()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let draft = Draft::of_vision(&folder, "Pebble vision").unwrap();
    let ours = written(draft, &Recipe::plain(Mix::F16), scratch.path());
    assert_same_file(&ours, &Gguf::open(&tower).unwrap());
    let folder = Folder::open(&shared("pebble/drafter_hf").unwrap()).unwrap();
    let draft = Draft::of_folder(&folder, "Pebble drafter").unwrap();
    let ours = written(draft, &Recipe::plain(Mix::BF16), scratch.path());
    assert_same_file(&ours, &Gguf::open(&drafter).unwrap());
}

#[test]
fn dense_and_ple_keep_every_number() {
    for name in ["dense", "ple"] {
        let Some(path) = shared(&format!("fixtures/{name}")) else { return };
        let folder = Folder::open(&path).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let draft = Draft::of_folder(&folder, name).unwrap();
        let made = written(draft, &Recipe::plain(Mix::BF16), scratch.path());
        let from = |gguf: &str| {
            let mut names = folder.names().into_iter();
            names.find(|hf| lapidary_model::names::to_gguf(hf).as_deref() == Some(gguf))
        };
        for name in made.names().into_iter().filter(|name| *name != "rope_freqs.weight") {
            let hf = from(name).unwrap_or_else(|| panic!("{name} comes from somewhere"));
            assert_eq!(made.floats(name).unwrap(), folder.floats(hf).unwrap(), "{name}");
            let vector = made.info(name).unwrap().shape.len() == 1;
            assert!(!vector || made.info(name).unwrap().block == BlockType::F32, "{name}");
        }
        let read = |meta: &Value| lapidary_model::config::Config::read(meta).unwrap();
        let (ours, theirs) = (read(made.meta()), read(folder.meta()));
        assert_eq!(ours.hidden, theirs.hidden);
        assert_eq!(ours.per_layer, theirs.per_layer);
        for (ours, theirs) in ours.layers.iter().zip(&theirs.layers) {
            assert_eq!((ours.heads, ours.kv_heads), (theirs.heads, theirs.kv_heads));
            assert_eq!((ours.width, ours.reach), (theirs.width, theirs.reach));
            assert_eq!((ours.feed_forward, ours.shares), (theirs.feed_forward, theirs.shares));
        }
    }
}
