//! Why a file was not made.

use std::io;

use lapidary_core::{BlockType, SourceError};
use lapidary_format::OpenError;
use lapidary_format::gguf::WriteError;
use lapidary_model::config::ConfigError;
use thiserror::Error;

use crate::quantise::QuantiseError;

/// A checkpoint could not be converted or quantised. Nothing is left behind.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// The metadata does not describe a model of this family.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of the source cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A tensor of the source cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A tensor's numbers cannot be stored as asked.
    #[error("tensor `{name}`: {reason}")]
    Numbers {
        /// The tensor, as the file to be written calls it.
        name: String,
        /// What is wrong with them.
        reason: QuantiseError,
    },
    /// A tensor with numbers that are none.
    #[error("tensor `{name}` of {origin} holds {value} at element {index}: fetch the file again")]
    NotFinite {
        /// The tensor, as the file to be written calls it.
        name: String,
        /// The file or folder.
        origin: String,
        /// Which element.
        index: usize,
        /// The element.
        value: f32,
    },
    /// A tensor that no part of a known model is made of.
    #[error("tensor `{name}` of {origin} belongs to no part of a Gemma model that is known here")]
    UnknownTensor {
        /// The tensor.
        name: String,
        /// The file or folder.
        origin: String,
    },
    /// Elements of a kind that cannot be converted.
    #[error(
        "tensor `{name}` of {origin} is stored in a kind that is not read: use a BF16, F16 or F32 checkpoint"
    )]
    Skipped {
        /// The tensor.
        name: String,
        /// The file or folder.
        origin: String,
    },
    /// The vocabulary cannot be carried over.
    #[error("{file} of {origin} {fault}")]
    Vocabulary {
        /// Which of its files.
        file: &'static str,
        /// The folder.
        origin: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A model that GGUF has no words for.
    #[error("{origin} cannot be written as GGUF: {reason}")]
    Unspeakable {
        /// The file or folder.
        origin: String,
        /// What it has no words for.
        reason: String,
    },
    /// A choice that does not fit the tensor.
    #[error("tensor `{name}` has rows of {cols}, which {block} cannot hold")]
    Ragged {
        /// The tensor.
        name: String,
        /// Length of a row.
        cols: usize,
        /// The type chosen for it.
        block: BlockType,
    },
    /// Codes that are to become other codes.
    #[error(
        "tensor `{name}` is stored as {from}, and errors of {to} would come on top: quantise the original, or pass --requantize"
    )]
    Again {
        /// The tensor.
        name: String,
        /// How it is stored.
        from: BlockType,
        /// How it was to be stored.
        to: BlockType,
    },
    /// A mix that is worthless without importance.
    #[error("{0} needs importance: make it with `lapidary imatrix` and pass it with --imatrix")]
    NeedsImportance(crate::Mix),
    /// Importance for another model.
    #[error(
        "the importance file has no entry for tensor `{name}` with {cols} columns: it was made with another model"
    )]
    NoImportance {
        /// The tensor.
        name: String,
        /// Length of a row.
        cols: usize,
    },
    /// The output would not be written.
    #[error("{path}: {source}")]
    Output {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The output was refused by the format.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What is wrong.
        source: WriteError,
    },
}
