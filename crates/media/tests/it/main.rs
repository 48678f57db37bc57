//! What comes out of pictures of every kind, and what is refused.

mod formats;
mod fuzz;
mod hostile;
mod scaling;

/// A stored picture.
fn stored(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of all stored pictures.
fn all_stored() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let names = entries.map(|e| e.expect("it can be read").file_name().into_string());
    let names = names.map(|name| name.expect("names are plain"));
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".bin")).collect();
    names.sort();
    names
}
