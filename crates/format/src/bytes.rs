//! The bytes of a file, whoever keeps them: a mapping, a vector, a static in the binary.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::OpenError;

/// Shared, immutable bytes.
pub(crate) enum Bytes {
    /// A file, whose pages come and go.
    Mapped(Mmap),
    /// Anything else.
    Kept(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Bytes {
    /// Takes any owner.
    pub(crate) fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::Kept(Box::new(owner))
    }

    /// Maps a file.
    ///
    /// A file that shrinks while it is mapped ends the process with a bus error: there is no
    /// portable way to keep others from truncating it.
    pub(crate) fn map(path: &Path) -> Result<Self, OpenError> {
        map(path)
            .map(Self::Mapped)
            .map_err(|source| OpenError::Read { path: path.display().to_string(), source })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Kept(owner) => (**owner).as_ref(),
        }
    }

    /// Gives the memory of a range of a mapped file back: its bytes are read again when they are
    /// asked for again. Whether the system does so is its own affair.
    pub(crate) fn release(&self, range: Range<usize>) {
        if let Self::Mapped(map) = self {
            drop_pages(map, range);
        }
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

#[cfg(unix)]
#[expect(unsafe_code, reason = "dropping pages would lose what was written to them")]
fn drop_pages(map: &Mmap, range: Range<usize>) {
    use memmap2::UncheckedAdvice::DontNeed;
    // SAFETY: nothing is ever written through the mapping, so its pages hold what the file holds,
    // and reading them again gives the same bytes.
    let _ = unsafe { map.unchecked_advise_range(DontNeed, range.start, range.len()) };
}

#[cfg(not(unix))]
fn drop_pages(_: &Mmap, _: Range<usize>) {}
