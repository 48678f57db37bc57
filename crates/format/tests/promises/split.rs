//! A split model opens as one, from its first part only.

use std::fs;
use std::path::Path;

use lapidary_core::{BlockType, TensorInfo, TensorSource, Value};
use lapidary_format::Gguf;
use lapidary_format::gguf::{GgufValue, Writer};
use tempfile::{TempDir, tempdir};

use crate::contract;

fn name(part: u16) -> String {
    format!("m-0000{part}-of-00003.gguf")
}

/// Writes part `part` of 3, from 1, with one vector.
fn write(folder: &Path, part: u16, tensor: &str, promised: i32) {
    let key = |key: &str, value| (key.to_owned(), value);
    let values = [
        key("split.no", GgufValue::U16(part - 1)),
        key("split.count", GgufValue::U16(3)),
        key("split.tensors.count", GgufValue::I32(promised)),
        key("part", GgufValue::U16(part)),
    ];
    let info = TensorInfo { block: BlockType::F32, shape: vec![1] };
    let tensors = [(tensor.to_owned(), info)];
    let mut writer = Writer::new(Vec::new(), &values, &tensors).unwrap();
    writer.tensor(tensor, &f32::from(part).to_le_bytes()).unwrap();
    fs::write(folder.join(name(part)), writer.finish().unwrap()).unwrap();
}

fn model() -> TempDir {
    let folder = tempdir().unwrap();
    for (part, tensor) in [(1, "a"), (2, "b"), (3, "c")] {
        write(folder.path(), part, tensor, 3);
    }
    folder
}

fn message(folder: &TempDir, name: &str) -> String {
    let error = Gguf::open(&folder.path().join(name)).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn all_parts_are_one_source() {
    let folder = model();
    let gguf = Gguf::open(&folder.path().join(name(1))).unwrap();
    contract::check(&gguf);
    assert_eq!(gguf.names(), ["a", "b", "c"]);
    assert_eq!(["a", "b", "c"].map(|name| gguf.floats(name).unwrap()[0]), [1.0, 2.0, 3.0]);
    assert_eq!(gguf.meta().get("part"), Some(&Value::Int(1)));
    assert_eq!(gguf.values().unwrap().len(), 4);
}

#[test]
fn a_missing_part_is_named() {
    let folder = model();
    fs::remove_file(folder.path().join(name(2))).unwrap();
    let missing = "m-00002-of-00003.gguf is missing: all 3 parts must lie in one folder";
    assert_eq!(message(&folder, &name(1)), missing);
}

#[test]
fn a_later_part_names_the_first() {
    let folder = model();
    let first = "is part 2 of 3: open the first part instead,";
    assert_eq!(
        message(&folder, &name(2)),
        format!("m-00002-of-00003.gguf {first} m-00001-of-00003.gguf")
    );
    fs::rename(folder.path().join(name(2)), folder.path().join("x.gguf")).unwrap();
    assert_eq!(
        message(&folder, "x.gguf"),
        format!("x.gguf {first} the one whose name contains -00001-of-")
    );
}

#[test]
fn a_renamed_first_part_says_what_its_name_should_be() {
    let folder = model();
    fs::rename(folder.path().join(name(1)), folder.path().join("x.gguf")).unwrap();
    assert_eq!(
        message(&folder, "x.gguf"),
        "x.gguf is the first of 3 parts: its name must end in -00001-of-00003.gguf"
    );
}

#[test]
fn parts_that_do_not_belong_together() {
    let folder = model();
    fs::copy(folder.path().join(name(2)), folder.path().join(name(3))).unwrap();
    assert_eq!(
        message(&folder, &name(1)),
        "m-00003-of-00003.gguf: key `split.no` is not the part that the file's name says"
    );
    write(folder.path(), 3, "a", 3);
    assert_eq!(
        message(&folder, &name(1)),
        "m-00003-of-00003.gguf: tensor `a` appears twice, also in m-00001-of-00003.gguf"
    );
    write(folder.path(), 3, "c", 3);
    write(folder.path(), 1, "a", 4);
    assert_eq!(
        message(&folder, &name(1)),
        "m-00001-of-00003.gguf: `split.tensors.count` is 4, but the parts hold 3 tensors"
    );
}
