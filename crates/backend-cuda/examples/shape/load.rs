//! Loading a file of the shape from the page cache, as a user's model is loaded.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use lapidary_backend_cuda::Cuda;
use lapidary_cache::Extent;
use lapidary_core::{Backend, Regime, TensorSource, Value};
use lapidary_format::gguf::{GgufArray, GgufValue, Writer};
use lapidary_model::Precision;
use lapidary_testkit::Loaded;

use crate::made_up::MadeUp;

/// Writes the shape to a file, then loads it twice.
pub(crate) fn twice(source: &MadeUp, open: impl Fn() -> Cuda) {
    let path = std::env::temp_dir().join("lapidary-shape.gguf");
    let start = Instant::now();
    write(source, &path);
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let gib = bytes as f64 / f64::from(1 << 30);
    println!("{gib:.2} GiB written in {:.1} s", start.elapsed().as_secs_f64());
    let extent = Extent { slots: 1, context: 512, burst: 128 };
    for _ in 0..2 {
        let cuda = open();
        let start = Instant::now();
        let file = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
        let model = Loaded::of(cuda, &file, Precision::AsStored, extent, Regime::F16);
        model.ops.finish().unwrap_or_else(|e| panic!("{e}"));
        let seconds = start.elapsed().as_secs_f64();
        println!("loaded in {seconds:.2} s: {:.2} GB/s", bytes as f64 / 1e9 / seconds);
    }
    let _ = std::fs::remove_file(&path);
}

fn write(source: &MadeUp, path: &Path) {
    let Value::Map(map) = source.meta() else { unreachable!("metadata is a map") };
    let values: Vec<_> = map.iter().map(|(key, value)| (key.clone(), stored(value))).collect();
    let info = |name: &&str| {
        let info = source.info(name).expect("every name has a tensor");
        ((*name).to_owned(), info.clone())
    };
    let tensors: Vec<_> = source.names().iter().map(info).collect();
    let file = File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let out = BufWriter::with_capacity(1 << 20, file);
    let mut writer = Writer::new(out, &values, &tensors).unwrap_or_else(|e| panic!("{e}"));
    for (name, info) in &tensors {
        writer.tensor(name, &source.fill(info)).unwrap_or_else(|e| panic!("{e}"));
    }
    writer.finish().unwrap_or_else(|e| panic!("{e}"));
}

/// A value of the metadata as files store it.
fn stored(value: &Value) -> GgufValue {
    let int = |n: i64| u32::try_from(n).expect("small numbers");
    match value {
        Value::Int(n) => GgufValue::U32(int(*n)),
        Value::Float(x) => GgufValue::F32(*x as f32),
        Value::Str(text) => GgufValue::Str(text.clone()),
        Value::Ints(all) => GgufValue::Array(GgufArray::U32(all.iter().map(|n| int(*n)).collect())),
        Value::List(all) => {
            let truth = |v: &Value| matches!(v, Value::Bool(true));
            GgufValue::Array(GgufArray::Bool(all.iter().map(truth).collect()))
        }
        other => unreachable!("shapes have no {other:?}"),
    }
}
