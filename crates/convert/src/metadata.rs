//! A decoder's shape in GGUF's words.

use lapidary_core::{Reach, Value};
use lapidary_format::gguf::{GgufArray, GgufValue};
use lapidary_model::config::{Config, LayerConfig, RopePairs};

use crate::ConvertError;

/// Keys and values in the order of the file.
pub(crate) type Values = Vec<(String, GgufValue)>;

/// The keys of a decoder under its architecture's prefix, and the architecture itself.
pub(crate) struct Keys {
    prefix: &'static str,
    values: Values,
}

impl Keys {
    pub(crate) fn new(architecture: &'static str, kind: &str) -> Self {
        let mut keys = Self { prefix: architecture, values: Vec::new() };
        keys.general("architecture", text(architecture));
        keys.general("type", text(kind));
        keys
    }

    pub(crate) fn general(&mut self, key: &str, value: GgufValue) {
        self.values.push((format!("general.{key}"), value));
    }

    pub(crate) fn put(&mut self, key: &str, value: GgufValue) {
        self.values.push((format!("{}.{key}", self.prefix), value));
    }

    pub(crate) fn count(&mut self, key: &str, n: usize) {
        self.put(key, GgufValue::U32(n as u32));
    }

    pub(crate) fn float(&mut self, key: &str, x: f64) {
        self.put(key, GgufValue::F32(x as f32));
    }

    pub(crate) fn into_values(self) -> Values {
        self.values
    }

    /// One count if all layers agree, else a list.
    fn per_layer(&mut self, key: &str, config: &Config, of: impl Fn(&LayerConfig) -> usize) {
        let counts: Vec<_> = config.layers.iter().map(|layer| of(layer) as i32).collect();
        if counts.iter().all(|&count| count == counts[0]) {
            self.count(key, counts[0] as usize);
        } else {
            self.put(key, GgufValue::Array(GgufArray::I32(counts)));
        }
    }
}

/// A Gemma 4 decoder; `shared` layers at the end read the entries of others.
pub(crate) fn gemma4(keys: &mut Keys, config: &Config, shared: usize) {
    let whole = |layer: &&LayerConfig| layer.reach == Reach::All;
    let global = config.layers.iter().rfind(whole);
    let sliding = config.layers.iter().find(|layer| !whole(layer));
    shape(keys, config);
    keys.per_layer("attention.head_count_kv", config, |layer| layer.kv_heads);
    if let Some(experts) = config.experts {
        keys.count("expert_count", experts.count);
        keys.count("expert_used_count", experts.top_k);
        keys.count("expert_feed_forward_length", experts.width);
    }
    keys.count("attention.shared_kv_layers", shared);
    keys.count("embedding_length_per_layer_input", config.per_layer.unwrap_or(0));
    let pattern = config.layers.iter().map(|layer| layer.reach != Reach::All).collect();
    keys.put("attention.sliding_window_pattern", GgufValue::Array(GgufArray::Bool(pattern)));
    if let Some(layer) = global {
        keys.count("attention.key_length", layer.width);
        keys.count("attention.value_length", layer.width);
        keys.count("rope.dimension_count", layer.width);
    }
    if let Some(layer) = sliding {
        keys.count("attention.key_length_swa", layer.width);
        keys.count("attention.value_length_swa", layer.width);
        keys.count("rope.dimension_count_swa", layer.width);
    }
}

/// A Gemma 3 decoder.
///
/// # Errors
/// Its attention is scaled in a way that readers cannot infer, for there is no key for it.
pub(crate) fn gemma3(keys: &mut Keys, config: &Config, origin: &str) -> Result<(), ConvertError> {
    shape(keys, config);
    keys.per_layer("attention.head_count_kv", config, |layer| layer.kv_heads);
    let first = &config.layers[0];
    keys.count("attention.key_length", first.width);
    keys.count("attention.value_length", first.width);
    let global = config.layers.iter().rfind(|layer| layer.reach == Reach::All);
    if let Some(factor) = global.map(|layer| layer.rope.factor).filter(|&factor| factor != 1.0) {
        keys.put("rope.scaling.type", text("linear"));
        keys.float("rope.scaling.factor", factor);
    }
    let read = Config::read(&tree(&keys.values))?;
    let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
    let reaches = |config: &Config| config.layers.iter().map(|l| l.reach).collect::<Vec<_>>();
    if !same(read.attention_scale, config.attention_scale) || reaches(&read) != reaches(config) {
        return Err(ConvertError::Unspeakable {
            origin: origin.to_owned(),
            reason: "its scale of attention or its order of layers is none that readers infer"
                .to_owned(),
        });
    }
    Ok(())
}

/// What all decoders say.
fn shape(keys: &mut Keys, config: &Config) {
    let whole = |layer: &&LayerConfig| layer.reach == Reach::All;
    keys.count("block_count", config.layers.len());
    keys.count("context_length", config.context as usize);
    keys.count("embedding_length", config.hidden);
    keys.per_layer("feed_forward_length", config, |layer| layer.feed_forward);
    keys.per_layer("attention.head_count", config, |layer| layer.heads);
    keys.float("attention.layer_norm_rms_epsilon", config.eps.into());
    if let Some(layer) = config.layers.iter().rfind(whole) {
        keys.float("rope.freq_base", layer.rope.theta);
    }
    if let Some(layer) = config.layers.iter().find(|layer| !whole(layer)) {
        keys.float("rope.freq_base_swa", layer.rope.theta);
    }
    let window = config.layers.iter().find_map(|layer| match layer.reach {
        Reach::Window(window) => Some(window),
        Reach::All => None,
    });
    if let Some(window) = window {
        keys.put("attention.sliding_window", GgufValue::U32(window));
    }
    if let Some(cap) = config.softcap {
        keys.put("final_logit_softcapping", GgufValue::F32(cap));
    }
}

/// The factor by which every pair's frequency of global layers is divided: huge where a pair does
/// not turn.
pub(crate) fn rope_factors(config: &Config) -> Option<Vec<f32>> {
    let global = config.layers.iter().rfind(|layer| layer.reach == Reach::All)?;
    let RopePairs::First(part) = global.rope.pairs else { return None };
    let pairs = global.width / 2;
    let turning = (part * pairs as f64).floor() as usize;
    Some((0..pairs).map(|pair| if pair < turning { 1.0 } else { 1e30 }).collect())
}

/// How many numbers there are, as people say it: `17M`, or `16x10M` with experts counted once.
pub(crate) fn size_label<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> String {
    let (mut all, mut once, mut experts) = (0_usize, 0_usize, 0_usize);
    for (name, shape) in tensors {
        let size = shape.iter().product::<usize>();
        all += size;
        match shape {
            [stack, _, _] if name.contains("_exps.") => {
                experts = *stack;
                once += size / stack;
            }
            _ => once += size,
        }
    }
    if experts > 0 { format!("{experts}x{}", rounded(once)) } else { rounded(all) }
}

/// At least two digits.
fn rounded(n: usize) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    let n = n as f64;
    let (unit, name) = UNITS.into_iter().find(|&(unit, _)| n > unit).unwrap_or(UNITS[3]);
    let scaled = n / unit;
    let digits = if scaled.round() < 10.0 { 1 } else { 0 };
    format!("{scaled:.digits$}{name}")
}

pub(crate) fn text(s: &str) -> GgufValue {
    GgufValue::Str(s.to_owned())
}

/// Plain values as a tree: what a reader of the file would see.
fn tree(values: &Values) -> Value {
    let plain = |value: &GgufValue| match value {
        GgufValue::Str(text) => Some(Value::Str(text.clone())),
        GgufValue::F32(x) => Some(Value::Float((*x).into())),
        other => other.as_int().map(Value::Int),
    };
    Value::Map(values.iter().filter_map(|(k, v)| Some((k.clone(), plain(v)?))).collect())
}
