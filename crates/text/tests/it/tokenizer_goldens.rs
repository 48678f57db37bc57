//! Ids equal to the reference implementation's, from every kind of file.

use std::time::{Duration, Instant};

use crate::support::{encode, gguf_metadata, pebble, reference_text};
use lapidary_core::TokenId;
use lapidary_text::{Control, Tokenizer};
use serde_json::Value as Json;

fn ids(json: &Json) -> Vec<u32> {
    let ids = json.as_array().expect("a list of ids").iter();
    ids.map(|id| id.as_u64().expect("an id") as u32).collect()
}

#[test]
fn stored_prompts_have_the_stored_ids_and_answers_decode() {
    let (Some(pebble), Some(answers)) = (pebble(), reference_text("pebble/golden/answers.jsonl"))
    else {
        return;
    };
    let mut checked = 0;
    for line in answers.lines() {
        let answer: Json = serde_json::from_str(line).expect("a line is JSON");
        let prompt = answer["prompt"].as_str().expect("a prompt is text");
        assert_eq!(
            encode(&pebble, prompt, Control::Honour),
            ids(&answer["prompt_ids"]),
            "{prompt}"
        );
        let greedy: Vec<_> = ids(&answer["greedy_ids"]).into_iter().map(TokenId).collect();
        assert_eq!(pebble.decode(&greedy), answer["greedy"].as_str().expect("text"), "{prompt}");
        checked += 1;
    }
    assert_eq!(checked, 378);
}

/// Texts that reach every branch: words, runs, controls, bytes, joined emoji, broken-looking code.
const TEXTS: [&str; 12] = [
    "",
    "The capital of France is Paris.",
    "<bos><|turn>user\nhi<turn|>\n<|turn>model\n",
    "  leading and  double   spaces ",
    "tab\tand\nnewline\n\n\n\nfour\r\n",
    "naïve café — “quotes” … ½",
    "日本語のテキスト 🙂 👩‍👩‍👧‍👦",
    "<|\"|>a<|\"|> <|tool_call>call:f{x:1}<tool_call|>",
    "</s> <s> <0x41> <|turn <|turn|> <<|turn>>",
    "\u{0}\u{1}\u{7f}\u{fdd0}\u{10ffff}",
    "▁ is a space to the vocabulary",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

#[test]
fn gguf_metadata_gives_the_ids_of_tokenizer_json() {
    let (Some(pebble), Some(metadata)) = (pebble(), gguf_metadata("pebble/gguf/pebble-Q8_0.gguf"))
    else {
        return;
    };
    let gguf = Tokenizer::from_metadata(&metadata).expect("Pebble's metadata is sound");
    assert_eq!((gguf.len(), gguf.bos(), gguf.eos()), (pebble.len(), pebble.bos(), pebble.eos()));
    for id in (0..8192).map(TokenId) {
        assert_eq!(gguf.bytes(id), pebble.bytes(id), "{id:?}");
        assert_eq!(gguf.is_special(id), pebble.is_special(id), "{id:?}");
    }
    for text in TEXTS {
        for control in [Control::Honour, Control::Spell] {
            assert_eq!(gguf.encode(text, control), pebble.encode(text, control), "{text:?}");
        }
    }
}

#[test]
fn ids_equal_the_reference_implementation_on_odd_text() {
    let Some(pebble) = pebble() else { return };
    let goldens = include_str!("data/pebble_ids.json");
    let goldens: Vec<Json> = serde_json::from_str(goldens).expect("the goldens are JSON");
    for golden in goldens {
        let text = golden["text"].as_str().expect("text");
        assert_eq!(encode(&pebble, text, Control::Honour), ids(&golden["ids"]), "{text:?}");
    }
}

#[test]
fn a_small_vocabulary_is_built_in_no_time() {
    let Some(text) = reference_text("pebble/hf/tokenizer.json") else { return };
    if cfg!(debug_assertions) {
        println!("skipped: only an optimised build is held to its time");
        return;
    }
    let time = |_| {
        let start = Instant::now();
        Tokenizer::from_json(&text, "<bos>", "<eos>").expect("the file is sound");
        start.elapsed()
    };
    let best = (0..20).map(time).min().expect("there are twenty");
    assert!(best < Duration::from_millis(10), "{best:?}");
}

#[test]
fn other_vocabularies_of_the_family_load() {
    for folder in ["fixtures/dense", "fixtures/ple", "pebble/drafter_hf"] {
        let Some(text) = reference_text(&format!("{folder}/tokenizer.json")) else { return };
        let tokenizer = Tokenizer::from_json(&text, "<bos>", "<eos>").expect("the file is sound");
        let ids = tokenizer.encode("the rain in Spain\n\n🙂", Control::Spell);
        assert_eq!(tokenizer.decode(&ids), "the rain in Spain\n\n🙂", "{folder}");
    }
}
