//! A model with some of its tensors stored in other types.

use std::borrow::Cow;
use std::collections::HashMap;

use lapidary_core::{BlockType, SourceError, TensorInfo, TensorSource, Value};
use lapidary_format::codec;

/// A source of which some tensors have been replaced.
pub struct Variant<'a> {
    source: &'a dyn TensorSource,
    replaced: HashMap<String, (TensorInfo, Vec<u8>)>,
}

impl<'a> Variant<'a> {
    /// The source as it is.
    pub fn of(source: &'a dyn TensorSource) -> Self {
        Self { source, replaced: HashMap::new() }
    }

    /// Stores a tensor in another type. The bytes hold its numbers in its shape.
    pub(crate) fn replace(&mut self, name: &str, (block, bytes): (BlockType, Vec<u8>)) {
        let Some(info) = self.source.info(name) else { return };
        let info = TensorInfo { block, shape: info.shape.clone() };
        assert_eq!(info.bytes(), bytes.len(), "{name} keeps its shape");
        self.replaced.insert(name.to_owned(), (info, bytes));
    }
}

impl TensorSource for Variant<'_> {
    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn meta(&self) -> &Value {
        self.source.meta()
    }

    fn names(&self) -> Vec<&str> {
        self.source.names()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.replaced.get(name).map(|(info, _)| info).or_else(|| self.source.info(name))
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        match self.replaced.get(name) {
            Some((_, bytes)) => Ok(Cow::Borrowed(bytes)),
            None => self.source.bytes(name),
        }
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        let Some((info, bytes)) = self.replaced.get(name) else { return self.source.floats(name) };
        let mut out = vec![0.0; info.elements()];
        codec::decode(info.block, bytes, &mut out).map_err(|e| SourceError::Unusable {
            name: name.to_owned(),
            origin: self.origin().to_owned(),
            reason: e.to_string(),
        })?;
        Ok(out)
    }
}
