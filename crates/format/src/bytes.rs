//! The bytes of a file, whoever keeps them: a mapping, a vector, a static in the binary.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use memmap2::Mmap;

use crate::OpenError;

/// Shared, immutable bytes.
pub(crate) struct Bytes(Box<dyn AsRef<[u8]> + Send + Sync>);

impl Bytes {
    /// Takes any owner.
    pub(crate) fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Box::new(owner))
    }

    /// Maps a file.
    ///
    /// A file that shrinks while it is mapped ends the process with a bus error: there is no
    /// portable way to keep others from truncating it.
    pub(crate) fn map(path: &Path) -> Result<Self, OpenError> {
        map(path)
            .map(Self::new)
            .map_err(|source| OpenError::Read { path: path.display().to_string(), source })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.as_slice().len())
    }
}

#[expect(unsafe_code, reason = "the language has no safe way to map a file")]
fn map(path: &Path) -> io::Result<Mmap> {
    // Asked before opening, because opening a pipe waits for its other end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is private and read-only, and this crate hands out shared slices of it
    // only while it lives. That nobody changes a model file while the engine uses it is asked of
    // the user: it is the contract of every engine that maps its weights.
    unsafe { Mmap::map(&file) }
}
