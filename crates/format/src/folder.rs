//! A Hugging Face folder: `config.json` and safetensors files.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use lapidary_core::{SourceError, TensorInfo, TensorSource, Value};

use crate::bytes::Bytes;
use crate::json::json;
use crate::tensors::{Placed, Tensors};
use crate::{Fault, OpenError, safetensors};

/// A folder as Hugging Face lays it out. Tensors keep the names they have in its files.
///
/// Offered are tensors of type BF16, F16 and F32. All others are listed by
/// [`skipped`](Self::skipped).
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    content: Content,
}

impl Folder {
    /// Opens a folder: `config.json`, and `model.safetensors` or, in its absence, the shards that
    /// `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// Something is missing, damaged or contradictory; see [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let folder = path.display().to_string();
        let missing = |file| OpenError::MissingFile { folder: folder.clone(), file };
        let config = read_text(path, CONFIG)?.ok_or_else(|| missing(CONFIG))?;
        let index = if path.join(SINGLE).exists() {
            None
        } else {
            Some(read_text(path, INDEX)?.ok_or_else(|| missing(NO_WEIGHTS))?)
        };
        let texts = Texts { config: &config, index: index.as_deref() };
        let content = Content::gather(folder.clone(), &texts, |shard| {
            let file = path.join(shard);
            if !file.exists() {
                return Err(OpenError::MissingShard {
                    folder: folder.clone(),
                    shard: shard.to_owned(),
                });
            }
            Bytes::map(&file)
        })?;
        Ok(Self { path: path.to_owned(), content })
    }

    /// A text file of the folder, such as `tokenizer.json`; `None` if there is none of that name.
    ///
    /// # Errors
    /// `name` leads out of the folder, or the file cannot be read or is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<String>, OpenError> {
        check_name(self.origin(), name)?;
        read_text(&self.path, name)
    }

    /// The bytes of a file of the folder, such as `tokenizer.model`; `None` if there is none of that
    /// name.
    ///
    /// # Errors
    /// `name` leads out of the folder, or the file cannot be read.
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        check_name(self.origin(), name)?;
        read_file(&self.path, name)
    }

    /// Names of tensors that are in the files but not offered, because their elements are not
    /// floats of 16 or 32 bits.
    pub fn skipped(&self) -> &[String] {
        &self.content.skipped
    }
}

impl TensorSource for Folder {
    fn origin(&self) -> &str {
        &self.content.origin
    }

    fn meta(&self) -> &Value {
        &self.content.meta
    }

    fn names(&self) -> Vec<&str> {
        self.content.tensors.names()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.content.tensors.info(name)
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        self.content.tensors.bytes(self.origin(), name)
    }

    fn release(&self, name: &str, bytes: Range<usize>) {
        self.content.tensors.release(name, bytes);
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        self.content.tensors.floats(self.origin(), name)
    }
}

/// The texts that say what a folder holds.
pub(crate) struct Texts<'a> {
    /// The content of `config.json`.
    pub(crate) config: &'a str,
    /// The content of the shard index, if the weights are not one file.
    pub(crate) index: Option<&'a str>,
}

/// What a folder holds, apart from where it is.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) origin: String,
    pub(crate) meta: Value,
    pub(crate) tensors: Tensors,
    pub(crate) skipped: Vec<String>,
}

impl Content {
    /// Puts together all shards, each obtained by name through `fetch`.
    pub(crate) fn gather(
        origin: String,
        texts: &Texts<'_>,
        mut fetch: impl FnMut(&str) -> Result<Bytes, OpenError>,
    ) -> Result<Self, OpenError> {
        let config = join(&origin, CONFIG);
        let meta = json(texts.config).map_err(|fault| fault.at(&config, "the text"))?;
        if !matches!(meta, Value::Map(_)) {
            return Err(Fault::Expected("a JSON object").at(&config, "the text"));
        }
        let shards = match texts.index {
            Some(index) => shards(&origin, index)?,
            None => BTreeMap::from([(SINGLE.to_owned(), Vec::new())]),
        };
        let names: Vec<&str> = shards.keys().map(String::as_str).collect();
        let mut content = Self { origin, meta, tensors: Tensors::default(), skipped: Vec::new() };
        for (shard, listed) in &shards {
            let bytes = fetch(shard)?;
            content.add_shard(&names, shard, bytes, listed)?;
        }
        Ok(content)
    }

    fn add_shard(
        &mut self,
        shards: &[&str],
        shard: &str,
        bytes: Bytes,
        listed: &[String],
    ) -> Result<(), OpenError> {
        let file_name = join(&self.origin, shard);
        let entries = safetensors::read(&file_name, bytes.as_slice())?;
        let present: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        if let Some(tensor) = listed.iter().find(|name| !present.contains(name.as_str())) {
            return Err(OpenError::NotInShard {
                folder: self.origin.clone(),
                tensor: tensor.clone(),
                shard: shard.to_owned(),
            });
        }
        let file = self.tensors.add_file(bytes);
        for safetensors::Entry { name, range, info } in entries {
            let Some(info) = info else {
                self.skipped.push(name);
                continue;
            };
            let field = format!("tensor `{name}`");
            self.tensors
                .add(name, Placed { info, file, range })
                .map_err(|other| Fault::TwiceIn(shards[other].to_owned()).at(&file_name, field))?;
        }
        Ok(())
    }
}

/// The shards of an index with the tensors it places in each.
fn shards(folder: &str, index: &str) -> Result<BTreeMap<String, Vec<String>>, OpenError> {
    let origin = join(folder, INDEX);
    let tree = json(index).map_err(|fault| fault.at(&origin, "the text"))?;
    let Some(Value::Map(weight_map)) = tree.get("weight_map") else {
        return Err(Fault::Expected("a JSON object").at(&origin, "`weight_map`"));
    };
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, shard) in weight_map {
        let Some(shard) = shard.as_str() else {
            let field = format!("the place of tensor `{tensor}`");
            return Err(Fault::Expected("a file name").at(&origin, field));
        };
        check_name(folder, shard)?;
        shards.entry(shard.to_owned()).or_default().push(tensor.clone());
    }
    Ok(shards)
}

/// Refuses every name that could lead out of the folder, on any system.
fn check_name(folder: &str, name: &str) -> Result<(), OpenError> {
    let mut parts = Path::new(name).components();
    let single = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if single && !name.contains(['/', '\\', ':', '\0']) {
        return Ok(());
    }
    Err(OpenError::NotAFileName { folder: folder.to_owned(), name: name.to_owned() })
}

fn read_text(folder: &Path, name: &str) -> Result<Option<String>, OpenError> {
    let Some(bytes) = read_file(folder, name)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Fault::Utf8.at(&folder.join(name).display().to_string(), "the text")),
    }
}

fn read_file(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Read { path: path.display().to_string(), source }),
    }
}

fn join(folder: &str, name: &str) -> String {
    Path::new(folder).join(name).display().to_string()
}

pub(crate) const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const NO_WEIGHTS: &str = "model.safetensors and no model.safetensors.index.json";
