//! A model without a file: the shapes of a real one, filled with random weights in memory.

mod drafter;

use std::borrow::Cow;
use std::collections::BTreeMap;

use lapidary_core::{BlockType, SourceError, TensorInfo, TensorSource, Value};
use serde_json::Value as Json;
use thiserror::Error;

/// Shapes as read from a JSON file: `config`, and `tensors` as `name: [[dims, slowest first], type]`.
pub struct Shape {
    name: String,
    meta: Value,
    tensors: BTreeMap<String, TensorInfo>,
}

/// A shape file means nothing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("the shape {name}: {reason}")]
pub struct ShapeError {
    /// The file or name.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Shape {
    /// Reads a shape file's text.
    ///
    /// # Errors
    /// The text is no shape of the Gemma 4 family.
    pub fn parse(name: &str, text: &str) -> Result<Self, ShapeError> {
        let error = |reason: String| ShapeError { name: name.into(), reason };
        let json: Json = serde_json::from_str(text).map_err(|e| error(e.to_string()))?;
        let tensors = json["tensors"].as_object();
        let tensors = tensors.ok_or_else(|| error("`tensors` must be an object".into()))?;
        let tensors = tensors.iter().map(|(name, entry)| {
            let info = tensor(entry).ok_or_else(|| error(format!("tensor `{name}` is malformed")));
            Ok((name.clone(), info?))
        });
        let tensors = tensors.collect::<Result<_, _>>()?;
        Ok(Self { name: name.into(), meta: metadata(&json["config"]).map_err(error)?, tensors })
    }
}

fn tensor(entry: &Json) -> Option<TensorInfo> {
    let dims = entry[0].as_array()?.iter();
    let shape: Vec<usize> = dims.map(|d| Some(d.as_u64()? as usize)).collect::<Option<_>>()?;
    let block =
        BlockType::ALL.into_iter().find(|b| Some(b.to_string().as_str()) == entry[1].as_str())?;
    let whole = shape.last().is_some_and(|cols| block.row_bytes(*cols).is_some());
    (whole && shape.iter().all(|d| *d > 0)).then_some(TensorInfo { block, shape })
}

/// The GGUF keys that the configuration's fields stand for.
fn metadata(config: &Json) -> Result<Value, String> {
    let count = |key: &str| {
        let n = config[key].as_u64().filter(|n| *n < 1 << 30);
        n.map(|n| n as i64).ok_or_else(|| format!("`config.{key}` must be a count"))
    };
    let optional = |key: &str| if config[key].is_null() { Ok(0) } else { count(key) };
    let layers = count("layers")?;
    let global = |i: i64| (i + 1) % 6 == 0;
    let (kv, global_kv) = (count("kv_heads")?, count("global_kv_heads")?);
    let kv_heads = (0..layers).map(|i| if global(i) { global_kv } else { kv }).collect();
    let pattern = (0..layers).map(|i| Value::Bool(!global(i))).collect();
    let key = |key: &str| format!("gemma4.{key}");
    let keys = [
        ("general.architecture".into(), Value::Str("gemma4".into())),
        (key("block_count"), Value::Int(layers)),
        (key("context_length"), Value::Int(count("context")?)),
        (key("embedding_length"), Value::Int(count("hidden")?)),
        (key("feed_forward_length"), Value::Int(count("intermediate")?)),
        (key("attention.head_count"), Value::Int(count("heads")?)),
        (key("attention.head_count_kv"), Value::Ints(kv_heads)),
        (key("attention.key_length"), Value::Int(count("global_head_dim")?)),
        (key("attention.key_length_swa"), Value::Int(count("head_dim")?)),
        (key("attention.sliding_window"), Value::Int(count("window")?)),
        (key("attention.sliding_window_pattern"), Value::List(pattern)),
        (key("attention.layer_norm_rms_epsilon"), Value::Float(1e-6)),
        (key("rope.freq_base"), Value::Float(1e6)),
        (key("rope.freq_base_swa"), Value::Float(1e4)),
        (key("expert_count"), Value::Int(optional("experts")?)),
        (key("expert_used_count"), Value::Int(optional("top_k")?)),
        (key("expert_feed_forward_length"), Value::Int(optional("expert_intermediate")?)),
    ];
    Ok(Value::Map(keys.into_iter().collect()))
}

impl TensorSource for Shape {
    fn origin(&self) -> &str {
        &self.name
    }

    fn meta(&self) -> &Value {
        &self.meta
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, SourceError> {
        let missing = || SourceError::Missing { name: name.into(), origin: self.name.clone() };
        let info = self.info(name).ok_or_else(missing)?;
        if !info.block.is_quantised() {
            return Ok(Cow::Owned(
                self.floats(name)?.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ));
        }
        Ok(Cow::Owned(random_blocks(info, seed(name))))
    }

    /// Ones for vectors, so that norms and scales change nothing; small numbers for matrices.
    fn floats(&self, name: &str) -> Result<Vec<f32>, SourceError> {
        let missing = || SourceError::Missing { name: name.into(), origin: self.name.clone() };
        let info = self.info(name).ok_or_else(missing)?;
        if info.block != BlockType::F32 {
            let reason = format!("random {} weights are made as blocks only", info.block);
            let (name, origin) = (name.into(), self.name.clone());
            return Err(SourceError::Unusable { name, origin, reason });
        }
        if info.shape.len() == 1 {
            return Ok(vec![1.0; info.elements()]);
        }
        let mut state = seed(name);
        let small = |_| (next(&mut state) as i64 as f64 / i64::MAX as f64 * 0.02) as f32;
        Ok((0..info.elements()).map(small).collect())
    }
}

/// Random codes under scales that make weights of about a hundredth.
fn random_blocks(info: &TensorInfo, mut state: u64) -> Vec<u8> {
    let size = info.block.block_bytes();
    let mut bytes = vec![0; info.bytes()];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&next(&mut state).to_le_bytes()[..word.len()]);
    }
    let (scales, value) = half_scales(info.block);
    for block in bytes.chunks_exact_mut(size) {
        for &at in scales {
            block[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Where a block keeps its half-float factors, and the bits of one that suits its codes.
fn half_scales(block: BlockType) -> (&'static [usize], u16) {
    const HUNDREDTH: u16 = 0x211f;
    const THOUSANDTH: u16 = 0x1419;
    const TEN_THOUSANDTH: u16 = 0x068e;
    match block {
        BlockType::Q4_0 | BlockType::Q5_0 => (&[0], THOUSANDTH),
        BlockType::Q4_1 | BlockType::Q5_1 => (&[0, 2], THOUSANDTH),
        BlockType::Q8_0 | BlockType::IQ4_NL => (&[0], TEN_THOUSANDTH),
        BlockType::Q4_K | BlockType::Q5_K => (&[0, 2], TEN_THOUSANDTH),
        BlockType::Q6_K => (&[208], TEN_THOUSANDTH),
        BlockType::Q2_K => (&[80, 82], THOUSANDTH),
        BlockType::Q3_K => (&[108], TEN_THOUSANDTH),
        BlockType::IQ4_XS => (&[0], TEN_THOUSANDTH),
        BlockType::MXFP4 => (&[], 0),
        BlockType::F32 | BlockType::F16 | BlockType::BF16 => (&[], HUNDREDTH),
    }
}

/// A name's own start, so that tensors differ and runs do not.
fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
