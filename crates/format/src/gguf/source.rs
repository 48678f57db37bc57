//! A GGUF model as a source of tensors.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use lapidary_core::{SourceError, TensorInfo, TensorSource, Value};

use super::part::{self, Part};
use super::split::{self, Split};
use super::values::{GgufValue, tree};
use crate::bytes::Bytes;
use crate::tensors::{Placed, Tensors};
use crate::{Fault, OpenError};

/// A GGUF file, or all parts of a split one.
///
/// Metadata keys are kept whole and arrays compactly. Shapes are slowest first, the other way
/// round than in the file.
#[derive(Debug)]
pub struct Gguf {
    origin: String,
    meta: Value,
    tensors: Tensors,
}

impl Gguf {
    /// Maps a file. If it is the first part of a split model, maps the other parts as well:
    /// metadata are those of the first part, tensors those of all.
    ///
    /// # Errors
    /// The file or a part of it is missing or damaged, or it is a later part; see [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let first = Part::read(path.display().to_string(), Bytes::map(path)?)?;
        match Split::of(&first)? {
            None => Self::join(vec![first]),
            Some(split) => Self::join(split::gather(path, first, split)?),
        }
    }

    /// Reads a whole file from memory; `origin` is what messages call it.
    ///
    /// # Errors
    /// The bytes are damaged or a part of a split file; see [`OpenError`].
    pub fn from_bytes(
        origin: impl Into<String>,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let part = Part::read(origin.into(), Bytes::new(bytes))?;
        match Split::of(&part)? {
            None => Self::join(vec![part]),
            Some(Split { count, .. }) => {
                Err(OpenError::PartInMemory { origin: part.origin, count })
            }
        }
    }

    /// The metadata once more, in the file's order and with GGUF's own types: what it takes to
    /// write a changed copy. Of a split model, the metadata of the first part.
    ///
    /// # Errors
    /// The file has been changed since it was opened.
    pub fn values(&self) -> Result<Vec<(String, GgufValue)>, OpenError> {
        part::read_values(&self.origin, self.tensors.file(FIRST))
    }

    fn join(parts: Vec<Part>) -> Result<Self, OpenError> {
        let origins: Vec<String> = parts.iter().map(|part| part.origin.clone()).collect();
        let mut tensors = Tensors::default();
        let mut metas = Vec::new();
        for Part { origin, bytes, values, tensors: held } in parts {
            let file = tensors.add_file(bytes);
            for part::Tensor { name, info, range } in held {
                let field = part::field(&name);
                tensors
                    .add(name, Placed { info, file, range })
                    .map_err(|other| Fault::TwiceIn(origins[other].clone()).at(&origin, field))?;
            }
            metas.push(values);
        }
        let origin = origins[FIRST].clone();
        let meta = tree(metas.swap_remove(FIRST))
            .map_err(|(key, fault)| fault.at(&origin, format!("key `{key}`")))?;
        Ok(Self { origin, meta, tensors })
    }
}

impl TensorSource for Gguf {
    fn origin(&self) -> &str {
        &self.origin
    }

    fn meta(&self) -> &Value {
        &self.meta
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.info(name)
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        self.tensors.bytes(&self.origin, name)
    }

    fn release(&self, name: &str, bytes: Range<usize>) {
        self.tensors.release(name, bytes);
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        self.tensors.floats(&self.origin, name)
    }
}

/// The part that has the metadata.
const FIRST: usize = 0;
