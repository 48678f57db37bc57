//! Kept inputs of the fuzz targets, run as an ordinary test.

use std::fs;
use std::path::Path;

use lapidary_format::fuzz;

use crate::raw::small;

#[test]
fn every_kept_input_passes_through_every_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let data = fs::read(entry.unwrap().path()).unwrap();
        fuzz::gguf(&data);
        fuzz::folder(&data);
        fuzz::saved(&data);
        inputs += 1;
    }
    assert!(inputs >= 5, "only {inputs} inputs");
}
#[test]
fn the_small_file_is_the_one_that_tests_build() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    assert_eq!(fs::read(corpus.join("small.gguf")).unwrap(), small());
}
