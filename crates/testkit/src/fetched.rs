//! Models that are fetched, never committed: `cargo xtask fetch NAME`.

use std::path::{Path, PathBuf};

/// The fetched model `file`, or `None`, having said so on standard error, where it is absent.
pub fn fetched(file: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/fetched").join(file);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {file} is not here; `cargo xtask fetch` brings it");
    None
}
