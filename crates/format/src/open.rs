//! Opens a model by its path, whatever kind of model lies there.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lapidary_core::{SourceError, TensorInfo, TensorSource, Value};

use crate::folder::CONFIG;
use crate::{Folder, Gguf, OpenError};

/// A model of either kind.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Source {
    Gguf(Gguf),
    Folder(Folder),
}

/// Opens a GGUF file (of a split one, the first part), a Hugging Face folder, or a folder that
/// holds one GGUF file and no `config.json`.
///
/// # Errors
/// There is no model at `path`, or it is damaged; see [`OpenError`].
pub fn open(path: &Path) -> Result<Source, OpenError> {
    let unreadable = |source| OpenError::Read { path: path.display().to_string(), source };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return open_file(path);
    }
    if path.join(CONFIG).exists() {
        return Folder::open(path).map(Source::Folder);
    }
    let files = gguf_files(path).map_err(unreadable)?;
    match files.as_slice() {
        [file] => Gguf::open(file).map(Source::Gguf),
        [] => Err(not_a_model(path, "holds neither config.json nor a GGUF file".to_owned())),
        many => Err(not_a_model(path, format!("holds {}; name one", listing(many)))),
    }
}

fn open_file(path: &Path) -> Result<Source, OpenError> {
    match path.extension() {
        Some(kind) if kind == "safetensors" => {
            Err(not_a_model(path, "is only the weights; name the folder that holds it".to_owned()))
        }
        _ => Gguf::open(path).map(Source::Gguf),
    }
}

fn gguf_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("gguf")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The number of files and the names of the first few.
fn listing(files: &[PathBuf]) -> String {
    let names = files.iter().take(4).filter_map(|file| file.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    let more = if files.len() > names.len() { ", …" } else { "" };
    format!("{} GGUF files ({}{more})", files.len(), names.join(", "))
}

fn not_a_model(path: &Path, found: String) -> OpenError {
    OpenError::NotAModel { path: path.display().to_string(), found }
}

impl Source {
    fn inner(&self) -> &dyn TensorSource {
        match self {
            Self::Gguf(gguf) => gguf,
            Self::Folder(folder) => folder,
        }
    }
}

impl TensorSource for Source {
    fn origin(&self) -> &str {
        self.inner().origin()
    }

    fn meta(&self) -> &Value {
        self.inner().meta()
    }

    fn names(&self) -> Vec<&str> {
        self.inner().names()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.inner().info(name)
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        self.inner().bytes(name)
    }

    fn release(&self, name: &str, bytes: Range<usize>) {
        self.inner().release(name, bytes);
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        self.inner().floats(name)
    }
}
