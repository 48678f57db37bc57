//! Named ranges of one or more files: what every source shares.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use lapidary_core::{SourceError, TensorInfo};

use crate::bytes::Bytes;
use crate::codec;

/// Where a tensor lies. `range` has the bytes that `info` asks for and lies inside file `file`.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) info: TensorInfo,
    pub(crate) file: usize,
    pub(crate) range: Range<usize>,
}

/// Tensors by name, and in order, with the bytes they lie in.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    files: Vec<Bytes>,
    order: Vec<String>,
    placed: HashMap<String, Placed>,
}

impl Tensors {
    /// Adds a file and returns its number.
    pub(crate) fn add_file(&mut self, bytes: Bytes) -> usize {
        self.files.push(bytes);
        self.files.len() - 1
    }

    /// Adds a tensor, or names the file that already has one of that name.
    pub(crate) fn add(&mut self, name: String, placed: Placed) -> Result<(), usize> {
        match self.placed.entry(name) {
            Entry::Occupied(there) => Err(there.get().file),
            Entry::Vacant(free) => {
                self.order.push(free.key().clone());
                free.insert(placed);
                Ok(())
            }
        }
    }

    pub(crate) fn file(&self, file: usize) -> &[u8] {
        self.files[file].as_slice()
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.order.iter().map(String::as_str).collect()
    }

    pub(crate) fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.placed.get(name).map(|placed| &placed.info)
    }

    pub(crate) fn bytes(&self, origin: &str, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        let (_, bytes) = self.find(origin, name)?;
        Ok(Cow::Borrowed(bytes))
    }

    pub(crate) fn floats(&self, origin: &str, name: &str) -> Result<Vec<f32>, SourceError> {
        let (info, bytes) = self.find(origin, name)?;
        let mut out = vec![0.0; info.elements()];
        match codec::decode(info.block, bytes, &mut out) {
            Ok(()) => Ok(out),
            Err(error) => Err(SourceError::Unusable {
                name: name.to_owned(),
                origin: origin.to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    /// Gives memory back, as [`Bytes::release`].
    pub(crate) fn release(&self, name: &str, bytes: Range<usize>) {
        if let Some(Placed { file, range, .. }) = self.placed.get(name) {
            let end = (range.start + bytes.end).min(range.end);
            self.files[*file].release((range.start + bytes.start).min(end)..end);
        }
    }

    fn find(&self, origin: &str, name: &str) -> Result<(&TensorInfo, &[u8]), SourceError> {
        let missing = || SourceError::Missing { name: name.to_owned(), origin: origin.to_owned() };
        let placed = self.placed.get(name).ok_or_else(missing)?;
        Ok((&placed.info, &self.file(placed.file)[placed.range.clone()]))
    }
}
