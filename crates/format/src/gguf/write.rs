//! Writes a GGUF file front to back, one tensor at a time.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::vec;

use lapidary_core::TensorInfo;
use thiserror::Error;

use super::number::Number;
use super::types::type_id;
use super::values::{GgufValue, MOST_NARROW, string};
use super::{ALIGNMENT, ALIGNMENT_KEY, MAGIC, MOST_DIMS, VERSION};
use crate::Fault;
use crate::layout::stored_bytes;

/// A file whose header has been written and whose tensors are to follow, in the announced order.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    alignment: usize,
    /// Tensors to come, with their bytes. The first may have been given in part.
    awaited: vec::IntoIter<(String, usize)>,
    /// Bytes given of the first.
    given: usize,
}

/// A file could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output would not take the bytes.
    #[error("the file cannot be written: {0}")]
    Output(#[from] io::Error),
    /// A key or tensor that no reader would accept.
    #[error("{field} {fault}")]
    Refused {
        /// The key or tensor.
        field: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A tensor that was not announced, or not as the next one.
    #[error("tensor `{found}` was given where {} was announced", awaited(.expected.as_deref()))]
    Order {
        /// The one given.
        found: String,
        /// The one announced, if any is left.
        expected: Option<String>,
    },
    /// A tensor with more or fewer bytes than its shape takes.
    #[error("tensor `{name}` was given {found} bytes, but its shape takes {expected}")]
    Length {
        /// The tensor.
        name: String,
        /// Bytes of its shape.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The file was finished before all tensors were given.
    #[error("tensor `{name}` was announced but never given")]
    Unfinished {
        /// The first one missing.
        name: String,
    },
}

impl<W: Write> Writer<W> {
    /// Checks everything that is announced, then writes the header.
    ///
    /// Data is aligned as the value `general.alignment` says, if there is one.
    ///
    /// # Errors
    /// [`WriteError::Refused`], with nothing written, or [`WriteError::Output`].
    pub fn new(
        mut out: W,
        values: &[(String, GgufValue)],
        tensors: &[(String, TensorInfo)],
    ) -> Result<Self, WriteError> {
        let alignment = check_values(values)?;
        let sizes = check_tensors(tensors)?;
        let header = header(values, tensors, &sizes, alignment);
        out.write_all(&header)?;
        pad(&mut out, header.len(), alignment)?;
        let names = tensors.iter().map(|(name, _)| name.clone());
        let awaited: Vec<_> = names.zip(sizes).collect();
        Ok(Self { out, alignment, awaited: awaited.into_iter(), given: 0 })
    }

    /// Writes the next tensor.
    ///
    /// # Errors
    /// [`WriteError::Order`] or [`WriteError::Length`], with nothing written, or
    /// [`WriteError::Output`].
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let (expected, found) = (self.left_of(name)?, bytes.len());
        if found != expected {
            return Err(WriteError::Length { name: name.to_owned(), expected, found });
        }
        self.piece(name, bytes)
    }

    /// Writes some more bytes of the next tensor, which ends when it has all of them.
    ///
    /// # Errors
    /// [`WriteError::Order`] or [`WriteError::Length`], with nothing written, or
    /// [`WriteError::Output`].
    pub fn piece(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let (expected, found) = (self.left_of(name)?, bytes.len());
        if found > expected {
            return Err(WriteError::Length { name: name.to_owned(), expected, found });
        }
        self.out.write_all(bytes)?;
        self.given += found;
        if found == expected {
            pad(&mut self.out, self.given, self.alignment)?;
            self.awaited.next();
            self.given = 0;
        }
        Ok(())
    }

    /// Bytes that the next tensor still lacks, if that is its name.
    fn left_of(&self, name: &str) -> Result<usize, WriteError> {
        let next = self.awaited.as_slice().first();
        match next.filter(|(expected, _)| expected == name) {
            Some((_, bytes)) => Ok(bytes - self.given),
            None => Err(WriteError::Order {
                found: name.to_owned(),
                expected: next.map(|(expected, _)| expected.clone()),
            }),
        }
    }

    /// Hands the output back, flushed.
    ///
    /// # Errors
    /// [`WriteError::Unfinished`] or [`WriteError::Output`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some((name, _)) = self.awaited.next() {
            return Err(WriteError::Unfinished { name });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Checks that a reader would take all values, and returns the alignment.
fn check_values(values: &[(String, GgufValue)]) -> Result<usize, WriteError> {
    let mut alignment = ALIGNMENT;
    let mut narrow = MOST_NARROW;
    let mut seen = HashSet::new();
    for (key, value) in values {
        let refused = |fault| WriteError::Refused { field: format!("key `{key}`"), fault };
        if !seen.insert(key) {
            return Err(refused(Fault::Twice));
        }
        value.check(&mut narrow).map_err(refused)?;
        if key == ALIGNMENT_KEY {
            alignment = match value {
                GgufValue::U32(n) if n.is_power_of_two() => *n,
                _ => return Err(refused(Fault::Expected("a power of two of type u32"))),
            };
        }
    }
    Ok(alignment as usize)
}

/// Checks that every tensor can be in a file, and returns their sizes in bytes.
fn check_tensors(tensors: &[(String, TensorInfo)]) -> Result<Vec<usize>, WriteError> {
    let mut sizes = Vec::new();
    let mut seen = HashSet::new();
    for (name, info) in tensors {
        let rank = info.shape.len();
        let size = if !seen.insert(name) {
            Err(Fault::Twice)
        } else if !(1..=MOST_DIMS).contains(&rank) {
            Err(Fault::Rank(rank))
        } else {
            stored_bytes(info)
        };
        let field = || format!("tensor `{name}`");
        sizes.push(size.map_err(|fault| WriteError::Refused { field: field(), fault })?);
    }
    Ok(sizes)
}

fn header(
    values: &[(String, GgufValue)],
    tensors: &[(String, TensorInfo)],
    sizes: &[usize],
    alignment: usize,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    VERSION.write(&mut out);
    (tensors.len() as u64).write(&mut out);
    (values.len() as u64).write(&mut out);
    for (key, value) in values {
        string(key, &mut out);
        value.write(&mut out);
    }
    let mut offset = 0;
    for ((name, info), size) in tensors.iter().zip(sizes) {
        string(name, &mut out);
        (info.shape.len() as u32).write(&mut out);
        info.shape.iter().rev().for_each(|&dim| (dim as u64).write(&mut out));
        type_id(info.block).write(&mut out);
        offset.write(&mut out);
        offset += size.next_multiple_of(alignment) as u64;
    }
    out
}

/// Fills up what follows `len` bytes to a multiple of the alignment.
fn pad(out: &mut impl Write, len: usize, alignment: usize) -> io::Result<()> {
    let padding = len.next_multiple_of(alignment) - len;
    io::copy(&mut io::repeat(0).take(padding as u64), out)?;
    Ok(())
}

fn awaited(expected: Option<&str>) -> String {
    expected.map_or_else(|| "the end of the file".to_owned(), |name| format!("`{name}`"))
}
