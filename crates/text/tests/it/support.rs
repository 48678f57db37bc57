//! What the tests of this crate share: a toy vocabulary, reference material, a GGUF metadata reader.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lapidary_core::{Strings, Value};
use lapidary_text::{Control, Conversation, Message, Specials, Tokenizer};
use serde_json::{Value as Json, json};

/// A file of the reference material, or `None` with the reason printed.
pub(crate) fn reference(path: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let file = root.join(path);
    if !file.exists() {
        println!("skipped: the reference material has no {path} here");
        return None;
    }
    Some(file)
}

/// The text of a reference file.
pub(crate) fn reference_text(path: &str) -> Option<String> {
    let file = reference(path)?;
    Some(std::fs::read_to_string(file).expect("reference files are readable text"))
}

/// The special tokens of Gemma 4's chat format.
pub(crate) const SPECIALS: [&str; 21] = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<|turn>",
    "<turn|>",
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|image>",
    "<|image|>",
    "<image|>",
    "<|audio|>",
    "<|video|>",
];

/// The ordinary entries of the toy, after the specials and the bytes.
const WORDS: [&str; 14] =
    ["\n", "\n\n", "▁", "▁▁", "a", "b", "h", "e", "t", "he", "the", "▁the", "<", "</s>"];

const MERGES: [(&str, &str); 5] = [("h", "e"), ("t", "he"), ("▁", "the"), ("\n", "\n"), ("▁", "▁")];

/// A `tokenizer.json` with all of the chat format's tokens and hardly any words.
pub(crate) fn toy_json() -> Json {
    let bytes = (0..=255).map(|b| format!("<0x{b:02X}>"));
    let texts = SPECIALS.iter().map(|s| (*s).to_owned()).chain(bytes);
    let texts = texts.chain(WORDS.iter().map(|s| (*s).to_owned()));
    let vocab: serde_json::Map<_, _> = texts.enumerate().map(|(id, t)| (t, json!(id))).collect();
    let added: Vec<Json> = SPECIALS
        .iter()
        .enumerate()
        .map(|(id, content)| json!({"id": id, "content": content, "special": true}))
        .collect();
    json!({
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null,
        "model": {
            "type": "BPE", "byte_fallback": true, "vocab": vocab,
            "merges": MERGES.iter().map(|(l, r)| json!([l, r])).collect::<Vec<_>>(),
        },
    })
}

/// The toy vocabulary.
pub(crate) fn toy() -> Tokenizer {
    Tokenizer::from_json(&toy_json().to_string(), "<bos>", "<eos>").expect("the toy is sound")
}

/// The toy vocabulary as GGUF metadata.
pub(crate) fn toy_metadata() -> BTreeMap<String, Value> {
    let bytes: Vec<String> = (0..=255).map(|b| format!("<0x{b:02X}>")).collect();
    let texts = SPECIALS.into_iter().chain(bytes.iter().map(String::as_str)).chain(WORDS);
    let special = SPECIALS.iter().map(|s| if s.contains("channel") { 4 } else { 3 });
    let types = special.chain([6; 256]).chain([1; WORDS.len()]);
    let merges: Vec<String> = MERGES.iter().map(|(l, r)| format!("{l} {r}")).collect();
    let pairs = [
        ("tokenizer.ggml.model", Value::Str("gemma4".to_owned())),
        ("tokenizer.ggml.tokens", strings(texts)),
        ("tokenizer.ggml.token_type", Value::Ints(types.collect())),
        ("tokenizer.ggml.merges", strings(merges.iter().map(String::as_str))),
        ("tokenizer.ggml.bos_token_id", Value::Int(2)),
        ("tokenizer.ggml.eos_token_id", Value::Int(1)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A compact list of strings.
pub(crate) fn strings<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    let mut strings = Strings::default();
    items.for_each(|item| strings.push(item));
    Value::Strings(strings)
}

/// The toy's special tokens.
pub(crate) fn specials() -> Specials {
    toy().specials().clone()
}

/// Pebble's vocabulary, from its Hugging Face folder.
pub(crate) fn pebble() -> Option<Tokenizer> {
    let text = reference_text("pebble/hf/tokenizer.json")?;
    Some(Tokenizer::from_json(&text, "<bos>", "<eos>").expect("Pebble's tokenizer.json is sound"))
}

/// Ids as plain numbers.
pub(crate) fn encode(tokenizer: &Tokenizer, text: &str, control: Control) -> Vec<u32> {
    tokenizer.encode(text, control).iter().map(|id| id.0).collect()
}

/// The conversation of a stored rendering.
pub(crate) fn conversation(case: &Json) -> Conversation {
    let options = &case["options"];
    let flag = |name: &str| options[name].as_bool().unwrap_or(false);
    Conversation {
        messages: Message::list_from_json(&case["messages"]).expect("stored messages are sound"),
        tools: options["tools"].as_array().cloned().unwrap_or_default(),
        add_generation_prompt: flag("add_generation_prompt"),
        enable_thinking: flag("enable_thinking"),
        extra: serde_json::Map::new(),
    }
}

/// The metadata of a GGUF file, by the obvious reading of the format.
pub(crate) fn gguf_metadata(path: &str) -> Option<Value> {
    let bytes = std::fs::read(reference(path)?).expect("reference files are readable");
    let mut reader = Reader(&bytes[16..]);
    let count = reader.int(8);
    let mut metadata = BTreeMap::new();
    for _ in 0..count {
        let key = reader.text();
        let of_type = reader.int(4);
        metadata.insert(key, reader.value(of_type));
    }
    Some(Value::Map(metadata))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, n: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken
    }

    fn int(&mut self, width: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width));
        u64::from_le_bytes(bytes)
    }

    fn text(&mut self) -> String {
        let n = self.int(8) as usize;
        String::from_utf8(self.take(n).to_vec()).expect("GGUF strings are UTF-8")
    }

    fn value(&mut self, of_type: u64) -> Value {
        match of_type {
            0 | 1 => Value::Int(self.int(1) as i64),
            2 | 3 => Value::Int(self.int(2) as i64),
            4 | 5 => Value::Int(self.int(4) as u32 as i64),
            6 => Value::Float(f32::from_bits(self.int(4) as u32).into()),
            7 => Value::Bool(self.int(1) != 0),
            8 => Value::Str(self.text()),
            9 => {
                let (of_items, n) = (self.int(4), self.int(8));
                Value::List((0..n).map(|_| self.value(of_items)).collect())
            }
            10 | 11 => Value::Int(self.int(8) as i64),
            12 => Value::Float(f64::from_bits(self.int(8))),
            other => panic!("GGUF has no type {other}"),
        }
    }
}
