//! Takes typed fields from the front of bytes that may end anywhere.

use lapidary_core::Strings;

use super::number::Number;
use crate::Fault;

/// A position in bytes. A failed read leaves the position undefined.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes taken so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, needed: u64) -> Result<&'a [u8], Fault> {
        let left = self.left();
        match usize::try_from(needed) {
            Ok(needed) if needed <= left => {
                let taken = &self.bytes[self.at..][..needed];
                self.at += needed;
                Ok(taken)
            }
            _ => Err(Fault::Truncated { needed, left: left as u64 }),
        }
    }

    pub(super) fn number<N: Number>(&mut self) -> Result<N, Fault> {
        self.take(N::BYTES as u64).map(N::read)
    }

    /// A count of entries that take at least `least` bytes each. What is returned may be used to
    /// reserve memory: the bytes are there.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, Fault> {
        let count: u64 = self.number()?;
        let left = self.left();
        match usize::try_from(count) {
            Ok(entries) if entries <= left / least => Ok(entries),
            _ => Err(Fault::Count { count, left: left as u64 }),
        }
    }

    pub(super) fn numbers<N: Number>(&mut self) -> Result<Vec<N>, Fault> {
        let count = self.count(N::BYTES)?;
        let bytes = self.take((count * N::BYTES) as u64)?;
        Ok(bytes.chunks_exact(N::BYTES).map(N::read).collect())
    }

    pub(super) fn bool(&mut self) -> Result<bool, Fault> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            byte => Err(Fault::Bool(byte)),
        }
    }

    pub(super) fn bools(&mut self) -> Result<Vec<bool>, Fault> {
        let count = self.count(1)?;
        (0..count).map(|_| self.bool()).collect()
    }

    pub(super) fn string(&mut self) -> Result<&'a str, Fault> {
        let len = self.number()?;
        str::from_utf8(self.take(len)?).map_err(|_| Fault::Utf8)
    }

    pub(super) fn strings(&mut self) -> Result<Strings, Fault> {
        let count = self.count(STRING_BYTES)?;
        let mut strings = Strings::default();
        for _ in 0..count {
            strings.push(self.string()?);
        }
        Ok(strings)
    }
}

/// Bytes of an empty string: its length.
pub(super) const STRING_BYTES: usize = size_of::<u64>();
