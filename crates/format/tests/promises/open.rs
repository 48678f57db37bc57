//! Any path opens as the model that lies there, or says what lies there instead.

use std::fs;

use lapidary_core::TensorSource;
use lapidary_format::{Folder, Gguf, Source, open};
use tempfile::tempdir;

use crate::contract;
use crate::folder::single;
use crate::raw::small;

fn shareable<T: Send + Sync + 'static>() {}

#[test]
fn sources_can_be_shared_between_threads() {
    shareable::<Gguf>();
    shareable::<Folder>();
    shareable::<Source>();
}

#[test]
fn a_file_a_folder_or_a_folder_with_one_file() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.gguf");
    fs::write(&file, small()).unwrap();
    fs::write(dir.path().join("README.md"), "").unwrap();
    let source = open(&file).unwrap();
    contract::check(&source);
    assert_eq!(source.origin(), file.display().to_string());
    assert!(matches!(source, Source::Gguf(_)));
    assert_eq!(open(dir.path()).unwrap().names(), source.names());
    single(dir.path());
    let source = open(dir.path()).unwrap();
    contract::check(&source);
    assert!(matches!(source, Source::Folder(_)), "config.json makes it a folder of weights");
}

#[test]
fn anything_else_is_named() {
    let dir = tempdir().unwrap();
    let message = |name: &str| {
        let error = open(&dir.path().join(name)).unwrap_err().to_string();
        error.replace(&dir.path().display().to_string(), "DIR")
    };
    let expected =
        "expected a GGUF file, a folder with config.json, or one with a single GGUF file";
    assert!(message("x").starts_with("DIR/x cannot be read: "), "{}", message("x"));
    assert_eq!(message(""), format!("DIR/ holds neither config.json nor a GGUF file: {expected}"));
    for name in ["a.gguf", "b.GGUF"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    assert_eq!(
        message(""),
        format!("DIR/ holds 2 GGUF files (a.gguf, b.GGUF); name one: {expected}")
    );
    fs::write(dir.path().join("w.safetensors"), "").unwrap();
    let weights = "is only the weights; name the folder that holds it";
    assert_eq!(message("w.safetensors"), format!("DIR/w.safetensors {weights}: {expected}"));
    fs::write(dir.path().join("m.bin"), "PK\x03\x04").unwrap();
    let magic = r"the magic number is `PK\x03\x04` instead of `GGUF`: this is no GGUF file";
    assert_eq!(message("m.bin"), format!("DIR/m.bin: {magic}"));
}

#[test]
fn a_pipe_is_refused_rather_than_waited_for() {
    let message = open("/dev/null".as_ref()).unwrap_err().to_string();
    assert_eq!(message, "/dev/null cannot be read: it is not a regular file");
}
