//! A Hugging Face folder is read, or refused by name of what is wrong in it.

use std::fs;
use std::path::Path;

use lapidary_core::{BlockType, TensorSource, Value};
use lapidary_format::Folder;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::{TempDir, tempdir};

use crate::contract;

const CONFIG: &str = r#"{"model_type":"toy","layers":[1,2],"dtype":null}"#;
const INDEX: &str =
    r#"{"metadata":{"total_size":12},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;

/// Writes a folder with one weights file: floats of three types, one scalar, and integers.
pub(crate) fn single(folder: &Path) {
    fs::write(folder.join("config.json"), CONFIG).unwrap();
    let bytes: Vec<u8> = (0..48).collect();
    let tensors = [
        ("brains", Dtype::BF16, vec![2, 3], 12),
        ("halves", Dtype::F16, vec![4], 8),
        ("floats", Dtype::F32, vec![1, 2, 1], 8),
        ("scalar", Dtype::F32, vec![], 4),
        ("ids", Dtype::I64, vec![2], 16),
    ];
    let views = tensors.map(|(name, dtype, shape, len)| {
        (name, TensorView::new(dtype, shape, &bytes[..len]).unwrap())
    });
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
}

/// Writes a folder with an index and two shards.
pub(crate) fn sharded(folder: &Path) {
    fs::write(folder.join("config.json"), CONFIG).unwrap();
    fs::write(folder.join("model.safetensors.index.json"), INDEX).unwrap();
    shard(folder, "a.safetensors", "x");
    shard(folder, "b.safetensors", "y");
}

fn shard(folder: &Path, file: &str, tensor: &str) {
    let view = TensorView::new(Dtype::F32, vec![2], &[1; 8]).unwrap();
    fs::write(folder.join(file), safetensors::serialize([(tensor, view)], None).unwrap()).unwrap();
}

fn folder(fill: impl Fn(&Path)) -> TempDir {
    let folder = tempdir().unwrap();
    fill(folder.path());
    folder
}

#[track_caller]
fn refused(folder: &TempDir, message: &str) {
    let folder = folder.path();
    let error = Folder::open(folder).unwrap_err().to_string();
    assert_eq!(error.replace(&folder.display().to_string(), "DIR"), message);
}

#[test]
fn one_file() {
    let dir = folder(single);
    let folder = Folder::open(dir.path()).unwrap();
    contract::check(&folder);
    assert_eq!(folder.skipped(), ["ids"]);
    assert_eq!(folder.info("ids"), None);
    let brains = folder.info("brains").unwrap();
    assert_eq!((brains.block, brains.shape.as_slice()), (BlockType::BF16, &[2, 3][..]));
    assert_eq!(folder.info("scalar").unwrap().elements(), 1);
    assert_eq!(folder.bytes("halves").unwrap(), [0, 1, 2, 3, 4, 5, 6, 7].as_slice());
    let scalar = f32::from_le_bytes([0, 1, 2, 3]);
    assert_eq!(folder.floats("scalar").unwrap(), [scalar]);
    assert_eq!(folder.meta().get("layers").unwrap().to_ints().unwrap(), [1, 2]);
    assert_eq!(folder.meta().get("dtype"), None);
    assert_eq!(folder.meta().get("model_type").and_then(Value::as_str), Some("toy"));
}

#[test]
fn shards() {
    let dir = folder(sharded);
    let folder = Folder::open(dir.path()).unwrap();
    contract::check(&folder);
    assert_eq!(folder.names(), ["x", "y"]);
}

#[test]
fn side_files() {
    let dir = folder(single);
    fs::write(dir.path().join("chat_template.jinja"), "{{ x }}").unwrap();
    fs::write(dir.path().join("broken.json"), [0xff]).unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    assert_eq!(folder.text("chat_template.jinja").unwrap().as_deref(), Some("{{ x }}"));
    assert_eq!(folder.text("tokenizer.json").unwrap(), None);
    let message = folder.text("broken.json").unwrap_err().to_string();
    assert!(message.ends_with("broken.json: the text is not valid UTF-8"), "{message}");
    for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "a/", "a\0"] {
        let message = folder.text(name).unwrap_err().to_string();
        let plain = format!("{}: `{name}` is not a plain file name", dir.path().display());
        assert_eq!(message, plain);
    }
}

#[test]
fn missing_files() {
    let dir = folder(|_| ());
    refused(&dir, "DIR has no config.json");
    fs::write(dir.path().join("config.json"), CONFIG).unwrap();
    refused(&dir, "DIR has no model.safetensors and no model.safetensors.index.json");
    let dir = folder(sharded);
    fs::remove_file(dir.path().join("b.safetensors")).unwrap();
    refused(&dir, "DIR: shard b.safetensors is missing: fetch it into the folder");
}

#[test]
fn texts_that_are_not_what_they_should_be() {
    let with = |name: &'static str, text: &'static str| {
        folder(move |folder| {
            sharded(folder);
            fs::write(folder.join(name), text).unwrap();
        })
    };
    let config = |text| with("config.json", text);
    refused(&config("[]"), "DIR/config.json: the text is not a JSON object");
    refused(
        &config("{"),
        "DIR/config.json: the text is not valid JSON: EOF while parsing an object at line 1 column 1",
    );
    refused(
        &config(r#"{"a":{"b":1,"b":2}}"#),
        "DIR/config.json: the text has an object with the same member twice",
    );
    let index = |text| with("model.safetensors.index.json", text);
    let file = "DIR/model.safetensors.index.json";
    refused(&index("{}"), &format!("{file}: `weight_map` is not a JSON object"));
    refused(
        &index(r#"{"weight_map":{"x":1}}"#),
        &format!("{file}: the place of tensor `x` is not a file name"),
    );
    refused(
        &index(r#"{"weight_map":{"x":"a.safetensors","x":"b.safetensors"}}"#),
        &format!("{file}: the text has an object with the same member twice"),
    );
    refused(
        &index(r#"{"weight_map":{"x":"../../a.safetensors"}}"#),
        "DIR: `../../a.safetensors` is not a plain file name",
    );
    refused(
        &index(r#"{"weight_map":{"x":"/a.safetensors"}}"#),
        "DIR: `/a.safetensors` is not a plain file name",
    );
    refused(
        &index(r#"{"weight_map":{"y":"a.safetensors"}}"#),
        "DIR: tensor `y` is not in a.safetensors, where the index places it",
    );
}

#[test]
fn a_tensor_in_two_shards() {
    let dir = folder(sharded);
    let both = [("x", TensorView::new(Dtype::F32, vec![2], &[1; 8]).unwrap())];
    let y = [("y", TensorView::new(Dtype::F32, vec![2], &[1; 8]).unwrap())];
    let file = safetensors::serialize(both.into_iter().chain(y), None).unwrap();
    fs::write(dir.path().join("b.safetensors"), file).unwrap();
    refused(&dir, "DIR/b.safetensors: tensor `x` appears twice, also in a.safetensors");
}

#[test]
fn lying_safetensors_headers() {
    let with = |header: &str, data: usize| {
        let len = (header.len() as u64).to_le_bytes();
        let file = [&len[..], header.as_bytes(), &vec![0; data]].concat();
        let dir = folder(single);
        fs::write(dir.path().join("model.safetensors"), file).unwrap();
        dir
    };
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let file = "DIR/model.safetensors";
    let wrong = |header: String, data, reason: &str| {
        refused(&with(&header, data), &format!("{file}: {reason}"));
    };
    assert!(Folder::open(with(&entry("F32", "[2]", "[0,8]"), 8).path()).is_ok());
    wrong("[]".into(), 0, "the header is not a JSON object");
    wrong(r#"{"x":1}"#.into(), 0, "tensor `x` is not described by a `dtype`");
    let shape = "tensor `x` is not described by a `shape` of whole numbers";
    wrong(entry("F32", "[-1]", "[0,8]"), 8, shape);
    wrong(entry("F32", "[1.5]", "[0,8]"), 8, shape);
    let offsets = "tensor `x` is not described by two `data_offsets`";
    wrong(entry("F32", "[2]", "[8]"), 8, offsets);
    wrong(entry("F32", "[2]", "[0,18446744073709551615]"), 8, offsets);
    let ascending = "tensor `x` is not described by ascending `data_offsets`";
    wrong(entry("F32", "[2]", "[8,0]"), 8, ascending);
    let length = "tensor `x` takes 12 bytes by its shape, but 8 by its offsets";
    wrong(entry("F32", "[3]", "[0,8]"), 8, length);
    wrong(entry("BF16", "[0]", "[0,0]"), 0, "tensor `x` has a dimension of length 0");
    let large = "tensor `x` is larger than this machine can address";
    wrong(entry("F32", "[4294967296,4294967296]", "[0,8]"), 8, large);
    let adjacent = "instead of 63: tensors must follow without gap or overlap";
    wrong(entry("F32", "[2]", "[4,12]"), 12, &format!("tensor `x` starts at 67 {adjacent}"));
    let cut = "the file is cut short or damaged";
    let end = "the data of all tensors ends at byte 70, but the file has";
    wrong(entry("F32", "[2]", "[0,8]"), 7, &format!("{end} 69: {cut}"));
    wrong(entry("F32", "[2]", "[0,8]"), 9, &format!("{end} 71: {cut}"));
    let member = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let twice = format!(r#"{{"x":{member},"x":{member}}}"#);
    wrong(twice, 4, "the header has an object with the same member twice");
}

#[test]
fn headers_that_claim_too_much() {
    let dir = folder(single);
    let file = |len: u64| fs::write(dir.path().join("model.safetensors"), len.to_le_bytes());
    file(u64::MAX).unwrap();
    let most = "bytes long, more than the 16777216 that are allowed";
    refused(&dir, &format!("DIR/model.safetensors: the header is {} {most}", u64::MAX));
    file(2).unwrap();
    let cut = "the file is cut short or damaged";
    refused(
        &dir,
        &format!("DIR/model.safetensors: the header takes 2 bytes, but 0 are left: {cut}"),
    );
}
