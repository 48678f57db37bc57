//! Damaged files of every kind: read or refused, without a panic, within the memory that is allowed,
//! by an error that names what is wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use lapidary_core::{Strings, TensorSource};
use lapidary_format::gguf::{GgufArray, GgufValue, Writer};
use lapidary_format::{Gguf, fuzz, json};
use lapidary_text::Tokenizer;

use crate::counting::{ROOM, alone, peak};
use crate::damage::{Noise, damaged};
use crate::raw::small;

/// Damaged headers of GGUF files.
const HEADERS: usize = if cfg!(feature = "slow") { 1_000_000 } else { 20_000 };
/// Damaged files of each other kind.
const TEXTS: usize = if cfg!(feature = "slow") { 100_000 } else { 2_000 };

/// Gives `count` damaged files, made from the seeds in turn, to `target`, which tells whether it
/// took one. Each case has its own seed, so a failing one can be run alone.
#[track_caller]
fn survive(what: &str, seeds: &[Vec<u8>], count: usize, target: impl Fn(&[u8]) -> bool) {
    let _turn = alone();
    let (mut taken, mut highest) = (0, 0);
    for (case, seed) in (0..count).zip(seeds.iter().cycle()) {
        let file = damaged(seed, &mut Noise::new(case as u64));
        let mut took = Ok(false);
        let work = || took = catch_unwind(AssertUnwindSafe(|| target(&file)));
        let held = peak(work);
        let took = took.unwrap_or_else(|_| panic!("{what}: case {case} panics"));
        let allowed = file.len() + ROOM;
        assert!(held <= allowed, "{what}: case {case} holds {held} bytes of {allowed} allowed");
        taken += usize::from(took);
        highest = highest.max(held);
    }
    println!("{what}: {count} files, {taken} taken, at most {highest} bytes held");
    assert!(taken > 0 && taken < count, "{what}: {taken} of {count} taken tells nothing");
}

fn repository(path: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

#[test]
fn gguf_headers() {
    survive("GGUF headers", &[small(), model_header()], HEADERS, |file| {
        let taken = fuzz::gguf(file);
        if let Ok(gguf) = Gguf::from_bytes("fuzz", file.to_vec()) {
            lapidary_model::fuzz::config(gguf.meta());
            lapidary_text::fuzz::tokenizer_metadata(gguf.meta());
        }
        taken
    });
}

/// Pebble's metadata with the beginning of its vocabulary, and no tensors.
fn model_header() -> Vec<u8> {
    const TOKENS: usize = 300;
    let bytes = repository("models/pebble/pebble-Q8_0.gguf");
    let pebble = Gguf::from_bytes("Pebble", bytes).expect("the built-in model is sound");
    let mut values = pebble.values().expect("it was just read");
    for (key, value) in &mut values {
        match value {
            GgufValue::Array(GgufArray::Str(items)) => {
                // Most merges are of tokens that are left out.
                let kept = if key.ends_with(".merges") { 0 } else { TOKENS };
                let mut first = Strings::default();
                items.iter().take(kept).for_each(|item| first.push(item));
                *items = first;
            }
            GgufValue::Array(GgufArray::I32(items)) => items.truncate(TOKENS),
            GgufValue::Array(GgufArray::F32(items)) => items.truncate(TOKENS),
            _ => {}
        }
    }
    let writer = Writer::new(Vec::new(), &values, &[]).expect("the keys were read from a file");
    let header = writer.finish().expect("there are no tensors");
    let gguf = Gguf::from_bytes("header", header.clone()).expect("it was just written");
    assert!(lapidary_model::fuzz::config(gguf.meta()), "the model is still one");
    assert!(Tokenizer::from_metadata(gguf.meta()).is_ok(), "so is the vocabulary");
    header
}

#[test]
fn safetensors_folders() {
    let seeds = ["single.folder", "sharded.folder"];
    let seeds = seeds.map(|name| repository(&format!("crates/format/tests/corpus/{name}")));
    survive("safetensors folders", &seeds, TEXTS, fuzz::folder);
}

#[test]
fn config_json() {
    let names = ["gemma4_dense", "gemma4_ple", "gemma4_moe", "gemma3_270m"];
    let seeds = names.map(|name| repository(&format!("crates/model/tests/corpus/{name}.json")));
    survive("config.json", &seeds, TEXTS, |file| {
        let text = String::from_utf8_lossy(file);
        json(&text).is_ok_and(|meta| lapidary_model::fuzz::config(&meta))
    });
}

#[test]
fn tokenizer_json() {
    let seeds = ["pairs", "lines"];
    let seeds =
        seeds.map(|name| repository(&format!("crates/text/tests/corpus/tokenizer/{name}.json")));
    survive("tokenizer.json", &seeds, TEXTS, lapidary_text::fuzz::tokenizer_json);
}

#[test]
fn chat_templates() {
    let seeds = ["crates/text/tests/corpus/template/pebble.jinja", "crates/text/src/gemma3.jinja"];
    survive("chat templates", &seeds.map(repository), TEXTS, lapidary_text::fuzz::template);
}
