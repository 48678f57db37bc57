//! How long does it take to build a tokenizer with as many entries and merges as Gemma 4's?
//!
//! The vocabulary is made up: 262,144 entries and half a million merges among them.
//! Prints the best of three for GGUF metadata and for a `tokenizer.json`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use lapidary_core::{Strings, Value};
use lapidary_text::Tokenizer;

const ENTRIES: usize = 262_144;
const MERGES: usize = 514_000;

fn main() {
    let (entries, merges) = vocabulary();
    let metadata = metadata(&entries, &merges);
    let json = json(&entries, &merges);
    let gguf = best(|| Tokenizer::from_metadata(&metadata).expect("the metadata is sound"));
    let file = best(|| Tokenizer::from_json(&json, "<bos>", "<eos>").expect("the file is sound"));
    let (entries, merges) = (entries.len(), merges.len());
    println!("{entries} entries, {merges} merges: metadata {gguf:?}, tokenizer.json {file:?}");
}

fn best(build: impl Fn() -> Tokenizer) -> Duration {
    let time = |_| {
        let start = Instant::now();
        let tokenizer = build();
        let spent = start.elapsed();
        drop(tokenizer);
        spent
    };
    (0..3).map(time).min().unwrap_or_default()
}

/// Letters, then entries joined from an earlier one and a letter or pair, with every way to split
/// them as a merge until there are enough.
fn vocabulary() -> (Vec<String>, Vec<(String, String)>) {
    let mut entries = vec!["<bos>".to_owned(), "<eos>".to_owned()];
    entries.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let letters: Vec<char> = ('a'..='z').chain('α'..='ω').chain('一'..='丸').collect();
    entries.extend(letters.iter().map(char::to_string));
    let mut ids: HashMap<String, usize> = entries.iter().cloned().zip(0..).collect();
    let mut merges = Vec::new();
    for at in 258.. {
        let left = entries[at].clone();
        for letter in &letters {
            if entries.len() == ENTRIES {
                break;
            }
            let joined = format!("{left}{letter}");
            ids.insert(joined.clone(), entries.len());
            entries.push(joined);
        }
        if entries.len() == ENTRIES {
            break;
        }
    }
    for entry in &entries[258..] {
        let splits = entry.char_indices().skip(1).map(|(cut, _)| entry.split_at(cut));
        let known = splits.filter(|(l, r)| ids.contains_key(*l) && ids.contains_key(*r));
        merges.extend(known.map(|(l, r)| (l.to_owned(), r.to_owned())));
    }
    merges.truncate(MERGES);
    (entries, merges)
}

fn metadata(entries: &[String], merges: &[(String, String)]) -> Value {
    let strings = |items: &mut dyn Iterator<Item = String>| {
        let mut strings = Strings::default();
        items.for_each(|item| strings.push(&item));
        Value::Strings(strings)
    };
    let of_type = |at: usize| [3, 6, 1][usize::from(at >= 2) + usize::from(at >= 258)];
    let pairs = [
        ("model", Value::Str("gemma4".to_owned())),
        ("tokens", strings(&mut entries.iter().cloned())),
        ("token_type", Value::Ints((0..entries.len()).map(of_type).collect())),
        ("merges", strings(&mut merges.iter().map(|(l, r)| format!("{l} {r}")))),
        ("bos_token_id", Value::Int(0)),
        ("eos_token_id", Value::Int(1)),
    ];
    let keyed = pairs.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value));
    Value::Map(keyed.collect::<BTreeMap<_, _>>())
}

fn json(entries: &[String], merges: &[(String, String)]) -> String {
    let vocab: serde_json::Map<_, _> =
        entries.iter().enumerate().map(|(id, entry)| (entry.clone(), id.into())).collect();
    let added = [("<bos>", 0), ("<eos>", 1)]
        .map(|(content, id)| serde_json::json!({"id": id, "content": content, "special": true}));
    serde_json::json!({
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": merges},
    })
    .to_string()
}
