//! Named tensors, wherever they are kept.

use std::borrow::Cow;
use std::ops::Range;

use thiserror::Error;

use crate::{BlockType, Value};

/// What is known about a tensor without reading it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TensorInfo {
    /// How its elements are stored.
    pub block: BlockType,
    /// Dimensions, slowest first: `[rows, cols]` for a matrix, `[stack, rows, cols]` for a stack
    /// of matrices, `[len]` for a vector. (GGUF files list them the other way round.)
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// Number of elements. Sources guarantee that it can be counted.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes as stored. Sources guarantee whole blocks per row.
    pub fn bytes(&self) -> usize {
        self.elements() / self.block.block_len() * self.block.block_bytes()
    }
}

/// A tensor could not be had.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SourceError {
    /// No such name.
    #[error("tensor `{name}` is missing from {origin}")]
    Missing {
        /// The name asked for.
        name: String,
        /// The file or folder.
        origin: String,
    },
    /// The name exists but its content cannot be used.
    #[error("tensor `{name}` of {origin}: {reason}")]
    Unusable {
        /// The name asked for.
        name: String,
        /// The file or folder.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A model file or folder: metadata and named tensors.
///
/// Everything a source hands out has been checked against the bytes that exist: shapes can be
/// multiplied without overflow, rows are whole blocks, and ranges lie inside the data.
pub trait TensorSource {
    /// What to call the source in messages: a file or folder name.
    fn origin(&self) -> &str;
    /// The metadata: GGUF key-values, or the content of `config.json`.
    fn meta(&self) -> &Value;
    /// The names of all tensors, in the source's order.
    fn names(&self) -> Vec<&str>;
    /// Type and shape of a tensor.
    fn info(&self, name: &str) -> Option<&TensorInfo>;
    /// The stored bytes of a tensor.
    ///
    /// # Errors
    /// [`SourceError::Missing`] if there is no such name.
    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError>;
    /// Says that these bytes of a tensor will not be asked for soon, so that memory they take can
    /// be used for others. They can still be asked for.
    fn release(&self, name: &str, bytes: Range<usize>) {
        let _ = (name, bytes);
    }
    /// The elements of a tensor as numbers.
    ///
    /// # Errors
    /// [`SourceError::Missing`], or [`SourceError::Unusable`] for a type without a decoder.
    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError>;
}
