//! Gemma 3's vocabulary of 262,144 entries, from the scores in its real file.

use std::time::{Duration, Instant};

use lapidary_core::{TensorSource, TokenId};
use lapidary_testkit::{Rng, fetched, shared};
use lapidary_text::{Control, Tokenizer};
use serde_json::Value;

const FILE: &str = "gemma-3-270m-q4_k_m.gguf";

fn tokenizer() -> Option<Tokenizer> {
    let source = lapidary_format::open(&fetched(FILE)?).unwrap_or_else(|e| panic!("{e}"));
    Some(Tokenizer::from_metadata(source.meta()).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn stored_strings_have_the_stored_tokens() {
    let Some(tokenizer) = tokenizer() else { return };
    let Some(stored) = shared("fixtures/gemma3-270m/gemma3-tokenizer.json") else { return };
    let text = std::fs::read_to_string(stored).expect("readable");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list");
    assert_eq!(cases.len(), 30);
    for case in cases {
        let text = case["text"].as_str().expect("a text");
        let ids = case["ids"].as_array().expect("a list").iter();
        let ids: Vec<_> = ids.map(|id| TokenId(id.as_u64().expect("an id") as u32)).collect();
        assert_eq!(tokenizer.encode(text, Control::Honour), ids, "{text:?}");
    }
}

/// The vocabulary writes a space `▁`, so that character comes back as a space; everything else
/// comes back as it was.
#[test]
fn decoding_inverts_encoding_for_ten_thousand_random_strings() {
    let Some(tokenizer) = tokenizer() else { return };
    let mut rng = Rng(7);
    for _ in 0..10_000 {
        let text: String = (0..rng.below(24)).map(|_| character(&mut rng)).collect();
        let back = tokenizer.decode(&tokenizer.encode(&text, Control::Spell));
        assert_eq!(back, text.replace('▁', " "));
    }
}

/// Mostly common characters, now and then any at all.
fn character(rng: &mut Rng) -> char {
    let code = match rng.below(8) {
        0..4 => 32 + rng.below(95),
        4 => 0xa0 + rng.below(0x500),
        5 => 0x3040 + rng.below(0x6000),
        6 => [9, 10, 13, 32, 0x2581, 0x1f600][rng.below(6)],
        _ => rng.below(0x11_0000),
    };
    char::from_u32(code as u32).unwrap_or('\u{fffd}')
}

#[test]
fn the_vocabulary_is_ready_in_time() {
    let Some(path) = fetched(FILE) else { return };
    let began = Instant::now();
    let source = lapidary_format::open(&path).unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = Tokenizer::from_metadata(source.meta()).unwrap_or_else(|e| panic!("{e}"));
    let took = began.elapsed();
    println!("{} entries in {took:?}", tokenizer.len());
    assert!(took < Duration::from_millis(600), "{took:?}");
}
