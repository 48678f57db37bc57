//! What a model of any kind takes, said before it is loaded.

use std::fs;
use std::path::Path;

use lapidary_core::{TensorInfo, TensorSource};
use lapidary_format::gguf::{GgufValue, Writer};
use lapidary_format::{Folder, Gguf};
use lapidary_testkit::{repository, shared};
use serde_json::{Map, Value, json};
use tempfile::tempdir;

use crate::support::{object, said};

const PEBBLE: &str = "models/pebble/pebble-Q8_0.gguf";

/// What `info` says of a model, by the numbers that its kind of file may not change.
fn facts(model: &Path) -> Value {
    let path = model.to_str().expect("UTF-8");
    let report = object(&["info", "--json", "-m", path, "--ctx", "2048"]);
    let keys = ["parameters", "weight_bytes", "layers", "model_context", "kv_bytes_per_slot"];
    let facts = keys.iter().map(|key| ((*key).to_owned(), report[*key].clone()));
    check_fit(&report);
    facts.collect::<Map<_, _>>().into()
}

/// Where the system tells how much memory is free, the largest context that fits is known.
fn check_fit(report: &Value) {
    if report["free_bytes"].is_null() {
        assert!(report["largest_context"].is_null());
        return;
    }
    let (largest, most) = (report["largest_context"].as_u64(), report["model_context"].as_u64());
    assert!(largest >= Some(2) && largest <= most, "{report}");
}

/// Two global layers with one head of 512, four sliding ones with two of 256 and a window of 128;
/// keys and values, two bytes each; rings of window + burst - 1 cells.
fn pebble() -> Value {
    json!({ "global": 2 * 512 * 2 * 2 * 2048, "sliding": 4 * 2 * 256 * 2 * 2 * (128 + 512 - 1) })
}

#[test]
fn one_gguf_file() {
    let found = facts(&repository(PEBBLE));
    assert_eq!(found["kv_bytes_per_slot"], pebble());
    assert_eq!(found["layers"], json!({ "global": 2, "sliding": 4 }));
    assert_eq!(found["parameters"], 17_080_934);
}

#[test]
fn a_split_gguf_counts_like_the_whole() {
    let whole = Gguf::open(&repository(PEBBLE)).expect("the built-in model is sound");
    let folder = tempdir().expect("a temporary folder");
    let names = whole.names();
    let (first, second) = names.split_at(names.len() / 3);
    let part = |no: u16| folder.path().join(format!("pebble-{no:05}-of-00002.gguf"));
    let mut keys = whole.values().expect("it was just read");
    keys.extend(split_keys(0, Some(names.len())));
    write_part(&part(1), &whole, &keys, first);
    write_part(&part(2), &whole, &split_keys(1, None), second);
    assert_eq!(facts(&part(1)), facts(&repository(PEBBLE)));
}

fn split_keys(no: u16, tensors: Option<usize>) -> Vec<(String, GgufValue)> {
    let total = tensors.map(|n| ("split.tensors.count", GgufValue::I32(n as i32)));
    let keys = [("split.no", GgufValue::U16(no)), ("split.count", GgufValue::U16(2))];
    keys.into_iter().chain(total).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn write_part(path: &Path, from: &Gguf, keys: &[(String, GgufValue)], names: &[&str]) {
    let info = |name: &str| from.info(name).expect("a listed tensor").clone();
    let tensors: Vec<(String, TensorInfo)> =
        names.iter().map(|name| ((*name).to_owned(), info(name))).collect();
    let file = fs::File::create(path).expect("a temporary file");
    let mut writer = Writer::new(file, keys, &tensors).expect("the parts are sound");
    for name in names {
        let bytes = from.bytes(name).expect("a listed tensor");
        writer.tensor(name, &bytes).expect("it was announced");
    }
    writer.finish().expect("all were given");
}

/// Two global layers with one head of 128, four sliding ones with two of 64 and a window of 16.
fn dense() -> Value {
    json!({ "global": 2 * 128 * 2 * 2 * 2048, "sliding": 4 * 2 * 64 * 2 * 2 * (16 + 512 - 1) })
}

#[test]
fn a_folder() {
    let Some(folder) = shared("fixtures/dense") else { return };
    let found = facts(&folder);
    assert_eq!(found["kv_bytes_per_slot"], dense());
    assert_eq!(found["layers"], json!({ "global": 2, "sliding": 4 }));
}

#[test]
fn a_safetensors_index_counts_like_one_file() {
    let Some(whole) = shared("fixtures/dense") else { return };
    let source = Folder::open(&whole).expect("the fixture is sound");
    let folder = tempdir().expect("a temporary folder");
    fs::copy(whole.join("config.json"), folder.path().join("config.json")).expect("it is copied");
    let names = source.names();
    let (first, second) = names.split_at(names.len() / 2);
    let mut places = Map::new();
    for (file, names) in [("a.safetensors", first), ("b.safetensors", second)] {
        fs::write(folder.path().join(file), shard(&source, names)).expect("a temporary file");
        places.extend(names.iter().map(|name| ((*name).to_owned(), json!(file))));
    }
    let index = json!({ "weight_map": places }).to_string();
    fs::write(folder.path().join("model.safetensors.index.json"), index).expect("it is written");
    assert_eq!(facts(folder.path()), facts(&whole));
}

/// The bytes of a safetensors file with these tensors.
fn shard(from: &Folder, names: &[&str]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for name in names {
        let info = from.info(name).expect("a listed tensor");
        let begin = data.len();
        data.extend_from_slice(&from.bytes(name).expect("a listed tensor"));
        let (kind, offsets) = (info.block.to_string(), [begin, data.len()]);
        let entry = json!({ "dtype": kind, "shape": info.shape, "data_offsets": offsets });
        header.insert((*name).to_owned(), entry);
    }
    let header = Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

#[test]
fn a_person_reads_what_the_cache_takes_and_what_fits() {
    let shown = said(&["info"]);
    assert!(
        shown.contains("\ncache ") && shown.contains(" global, ") && shown.contains(" sliding\n")
    );
    if std::path::Path::new("/proc/meminfo").exists() {
        assert!(shown.contains("\nfits "), "{shown}");
    }
}
