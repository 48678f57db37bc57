//! Random weights in the shapes of a real model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use half::f16;
use lapidary_core::{BlockType, SourceError, TensorInfo, TensorSource, Value};
use lapidary_testkit::Rng;

/// A file that is not there: shapes and types are, contents are made up.
pub(crate) struct MadeUp {
    meta: Value,
    names: Vec<String>,
    infos: HashMap<String, TensorInfo>,
    /// Random blocks of each type, repeated through a tensor.
    patterns: HashMap<BlockType, Vec<u8>>,
}

impl MadeUp {
    /// Reads a shape.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{e}"));
        let json: serde_json::Value = serde_json::from_str(&text).expect("a shape is JSON");
        let (mut names, mut infos, mut patterns) = (Vec::new(), HashMap::new(), HashMap::new());
        for (name, entry) in json["tensors"].as_object().expect("tensors have names") {
            let shape = entry[0].as_array().expect("a shape").iter();
            let shape = shape.map(|n| n.as_u64().expect("a length") as usize).collect();
            let block = entry[1].as_str().expect("a type");
            let block = *BlockType::ALL.iter().find(|b| b.to_string() == block).expect("a type");
            patterns.entry(block).or_insert_with(|| pattern(block));
            infos.insert(name.clone(), TensorInfo { block, shape });
            names.push(name.clone());
        }
        Self { meta: meta(&json["config"]), names, infos, patterns }
    }

    /// The content of a tensor.
    pub(crate) fn fill(&self, info: &TensorInfo) -> Vec<u8> {
        let pattern = &self.patterns[&info.block];
        let mut bytes = Vec::with_capacity(info.bytes());
        while bytes.len() < info.bytes() {
            let take = pattern.len().min(info.bytes() - bytes.len());
            bytes.extend_from_slice(&pattern[..take]);
        }
        bytes
    }
}

/// Some megabytes of blocks with sane factors.
pub(crate) fn pattern(block: BlockType) -> Vec<u8> {
    let mut rng = Rng(block as u64 + 1);
    let size = block.block_bytes();
    let mut bytes: Vec<u8> = (0..size * 30_011).map(|_| rng.bits() as u8).collect();
    let factors: &[usize] = match block {
        BlockType::Q6_K => &[208],
        BlockType::Q4_K | BlockType::Q5_K | BlockType::Q4_1 | BlockType::Q5_1 => &[0, 2],
        _ => &[0],
    };
    for block_bytes in bytes.chunks_exact_mut(size) {
        if block == BlockType::F32 {
            block_bytes.copy_from_slice(&(1.0 + 0.1 * rng.signed()).to_le_bytes());
            continue;
        }
        for &at in factors {
            let d = f16::from_f32(rng.signed() * 0.002);
            block_bytes[at..at + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    bytes
}

/// The metadata that a GGUF file of this shape would have.
fn meta(config: &serde_json::Value) -> Value {
    let int = |key: &str| config[key].as_i64().unwrap_or_else(|| panic!("{key} is missing"));
    let layers = int("layers");
    let sliding = |i: i64| (i + 1) % 6 != 0;
    let per_layer = |of: &dyn Fn(i64) -> i64| Value::Ints((0..layers).map(of).collect());
    let global = |key: &str, other: &str| {
        let (a, b) = (int(key), int(other));
        per_layer(&move |i| if sliding(i) { a } else { b })
    };
    let mut map = std::collections::BTreeMap::new();
    let mut put = |key: &str, value: Value| {
        let key = if key.starts_with("general") { key.to_owned() } else { format!("gemma4.{key}") };
        map.insert(key, value);
    };
    put("general.architecture", Value::Str("gemma4".into()));
    put("block_count", Value::Int(layers));
    put("context_length", Value::Int(int("context")));
    put("embedding_length", Value::Int(int("hidden")));
    put("feed_forward_length", Value::Int(int("intermediate")));
    put("attention.head_count", Value::Int(int("heads")));
    put("attention.head_count_kv", global("kv_heads", "global_kv_heads"));
    put("attention.key_length", Value::Int(int("global_head_dim")));
    put("attention.value_length", Value::Int(int("global_head_dim")));
    put("attention.key_length_swa", Value::Int(int("head_dim")));
    put("attention.value_length_swa", Value::Int(int("head_dim")));
    put("attention.layer_norm_rms_epsilon", Value::Float(1e-6));
    put("attention.sliding_window", Value::Int(int("window")));
    let pattern = (0..layers).map(|i| Value::Bool(sliding(i))).collect();
    put("attention.sliding_window_pattern", Value::List(pattern));
    put("rope.freq_base", Value::Float(1e6));
    put("rope.freq_base_swa", Value::Float(1e4));
    put("rope.dimension_count", Value::Int(int("global_head_dim")));
    put("rope.dimension_count_swa", Value::Int(int("head_dim")));
    put("final_logit_softcapping", Value::Float(30.0));
    if config["experts"].as_i64().is_some_and(|n| n > 0) {
        put("expert_count", Value::Int(int("experts")));
        put("expert_used_count", Value::Int(int("top_k")));
        put("expert_feed_forward_length", Value::Int(int("expert_intermediate")));
    }
    Value::Map(map)
}

impl TensorSource for MadeUp {
    fn origin(&self) -> &str {
        "the shape"
    }

    fn meta(&self) -> &Value {
        &self.meta
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.infos.get(name)
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        let missing = || SourceError::Missing { name: name.into(), origin: self.origin().into() };
        Ok(Cow::Owned(self.fill(self.infos.get(name).ok_or_else(missing)?)))
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        let bytes = self.bytes(name)?;
        Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }
}
