//! Fixtures that are too large for the repository lie in a folder beside it.

use std::path::{Path, PathBuf};

/// The fixture `path`, or `None`, having said so on standard error, where it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    eprintln!("skipped: the fixture {path} is not in {}", root.display());
    None
}

/// The file or folder `path` of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
