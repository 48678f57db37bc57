//! The public GGUF form: `NAME.in_sum2` and `NAME.counts` for every matrix, and what it was made
//! from.

use std::io::BufWriter;
use std::path::Path;

use lapidary_core::{BlockType, SourceError, Strings, TensorInfo, TensorSource};
use lapidary_format::gguf::{GgufArray, GgufValue, WriteError, Writer};
use lapidary_format::{Gguf, OpenError};
use thiserror::Error;

use super::{Entry, Imatrix};
use crate::ConvertError;
use crate::metadata::text;
use crate::unfinished::Unfinished;

/// A file of importance cannot be used.
#[derive(Debug, Error)]
pub enum ImatrixError {
    /// It is no GGUF file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// One of its tensors cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is a GGUF file of another kind.
    #[error("{origin} holds no importance: make it with `lapidary imatrix`")]
    Kind {
        /// The file.
        origin: String,
    },
    /// A tensor that contradicts the others.
    #[error("{origin}: `{name}` {fault}")]
    Entry {
        /// The file.
        origin: String,
        /// The tensor.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// It cannot be written.
    #[error(transparent)]
    Output(#[from] Box<ConvertError>),
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Imatrix {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no file of importance, or damaged.
    pub fn read(path: &Path) -> Result<Self, ImatrixError> {
        Self::of(&Gguf::open(path)?)
    }

    /// Reads an open file.
    ///
    /// # Errors
    /// It is no file of importance, or damaged.
    pub fn of(gguf: &Gguf) -> Result<Self, ImatrixError> {
        let origin = || gguf.origin().to_owned();
        let meta = gguf.meta();
        let count = |key: &str| meta.get(key).and_then(|value| u32::try_from(value.as_int()?).ok());
        let kind = meta.get("general.type").and_then(|value| value.as_str());
        let (Some("imatrix"), Some(chunks), Some(chunk_size)) =
            (kind, count("imatrix.chunk_count"), count("imatrix.chunk_size"))
        else {
            return Err(ImatrixError::Kind { origin: origin() });
        };
        let datasets = meta.get("imatrix.datasets").and_then(|value| value.to_strings());
        let datasets = datasets.unwrap_or_default().into_iter().map(str::to_owned).collect();
        let mut imatrix = Self { datasets, chunk_size, chunks, ..Self::default() };
        for name in gguf.names() {
            let Some(matrix) = name.strip_suffix(SUMS) else { continue };
            let wrong = |fault| ImatrixError::Entry { origin: origin(), name: name.into(), fault };
            let sums = gguf.floats(name)?;
            let counts = gguf.floats(&format!("{matrix}{COUNTS}"))?;
            if !sums.len().is_multiple_of(counts.len()) {
                return Err(wrong("does not divide into as many matrices as have counts"));
            }
            if !sums.iter().chain(&counts).all(|x| x.is_finite() && *x >= 0.0) {
                return Err(wrong("holds what no sum of squares can be"));
            }
            imatrix.entries.insert(matrix.to_owned(), Entry { counts, sums });
        }
        Ok(imatrix)
    }

    /// Writes a file, which has its name only when it is whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ImatrixError> {
        self.try_write(path).map_err(|e| Box::new(e).into())
    }

    fn try_write(&self, path: &Path) -> Result<(), ConvertError> {
        let file = Unfinished::create(path)?;
        let wrong =
            |source: WriteError| ConvertError::Write { path: path.display().to_string(), source };
        let mut announced = Vec::new();
        for (name, Entry { counts, sums }) in &self.entries {
            let (stack, cols) = (counts.len(), sums.len() / counts.len());
            let info = |cols| TensorInfo { block: BlockType::F32, shape: vec![stack, cols] };
            announced.push((format!("{name}{SUMS}"), info(cols)));
            announced.push((format!("{name}{COUNTS}"), info(1)));
        }
        let out = BufWriter::new(file.file());
        let mut writer = Writer::new(out, &self.values(), &announced).map_err(wrong)?;
        for (name, Entry { counts, sums }) in &self.entries {
            writer.tensor(&format!("{name}{SUMS}"), &bytes(sums)).map_err(wrong)?;
            writer.tensor(&format!("{name}{COUNTS}"), &bytes(counts)).map_err(wrong)?;
        }
        writer.finish().map_err(wrong)?;
        file.keep()
    }

    fn values(&self) -> Vec<(String, GgufValue)> {
        let mut datasets = Strings::default();
        self.datasets.iter().for_each(|name| datasets.push(name));
        vec![
            ("general.type".to_owned(), text("imatrix")),
            ("imatrix.datasets".to_owned(), GgufValue::Array(GgufArray::Str(datasets))),
            ("imatrix.chunk_count".to_owned(), GgufValue::U32(self.chunks)),
            ("imatrix.chunk_size".to_owned(), GgufValue::U32(self.chunk_size)),
        ]
    }
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}
