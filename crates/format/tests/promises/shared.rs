//! Finds reference material that is kept outside of the repository.

use std::path::{Path, PathBuf};

/// The path of a piece of reference material, or a note on why its test is skipped.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if !path.exists() {
        println!("skipped: reference material {name} is not beside the repository");
        return None;
    }
    Some(path)
}
