//! A model that is cut off at any byte is refused, and never causes a panic.

use std::fs;
use std::path::Path;

use lapidary_format::{Folder, Gguf, OpenError};
use tempfile::tempdir;

use crate::folder::{sharded, single};
use crate::raw::small;

#[test]
fn gguf() {
    let file = small();
    for len in 0..file.len() {
        let error = Gguf::from_bytes("m.gguf", file[..len].to_vec()).unwrap_err();
        assert!(matches!(error, OpenError::Malformed { .. }), "{len}: {error}");
    }
    assert!(Gguf::from_bytes("m.gguf", file).is_ok());
}

#[test]
fn every_file_of_a_folder() {
    let folder = tempdir().unwrap();
    single(folder.path());
    cut(folder.path(), "model.safetensors");
    cut(folder.path(), "config.json");
    let folder = tempdir().unwrap();
    sharded(folder.path());
    cut(folder.path(), "model.safetensors.index.json");
    cut(folder.path(), "b.safetensors");
}

fn cut(folder: &Path, name: &str) {
    let path = folder.join(name);
    let whole = fs::read(&path).unwrap();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let error = Folder::open(folder).unwrap_err();
        assert!(matches!(error, OpenError::Malformed { .. }), "{name} at {len}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    assert!(Folder::open(folder).is_ok());
}
