//! What holds for every text: nothing lost, nothing added, no control token out of spelled text.

use crate::support::{SPECIALS, encode, pebble, toy, toy_json, toy_metadata};
use lapidary_core::{TokenId, Value};
use lapidary_text::{Control, Tokenizer, TokenizerError};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Text of all kinds, with special tokens among it.
fn text() -> impl Strategy<Value = String> {
    let special = proptest::sample::select(&SPECIALS[..]).prop_map(str::to_owned);
    let piece = prop_oneof![any::<String>(), "[ \\n<|>a-z]{0,9}", special];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().replace('▁', "_"))
}

proptest! {
    #[test]
    fn tokens_decode_to_their_text(text in text()) {
        let toy = toy();
        for control in [Control::Spell, Control::Honour] {
            prop_assert_eq!(toy.decode(&toy.encode(&text, control)), text.clone());
        }
    }

    #[test]
    fn spelled_text_yields_no_special_token(text in text()) {
        let toy = toy();
        prop_assert!(toy.encode(&text, Control::Spell).iter().all(|id| !toy.is_special(*id)));
    }
}

#[test]
fn pebble_decodes_what_it_encodes() {
    let Some(pebble) = pebble() else { return };
    let law = |text: String| {
        for control in [Control::Spell, Control::Honour] {
            prop_assert_eq!(pebble.decode(&pebble.encode(&text, control)), text.clone());
        }
        prop_assert!(pebble.encode(&text, Control::Spell).iter().all(|id| !pebble.is_special(*id)));
        Ok(())
    };
    proptest::test_runner::TestRunner::default().run(&text(), law).expect("the law holds");
}

#[test]
fn special_text_of_users_is_spelled() {
    let toy = toy();
    for special in SPECIALS {
        let id = toy.token(special).expect("the toy has it");
        assert_eq!(toy.encode(special, Control::Honour), [id]);
        assert!(!toy.encode(special, Control::Spell).contains(&id), "{special}");
        assert!(toy.is_special(id));
        assert_eq!(toy.bytes(id), special.as_bytes());
    }
}

#[test]
fn a_control_token_of_one_character_is_spelled_too() {
    let mut file = toy_json();
    let id = file["model"]["vocab"]["a"].clone();
    let added = file["added_tokens"].as_array_mut().expect("a list");
    added.push(json!({"id": id, "content": "a", "special": true}));
    let tokenizer = Tokenizer::from_json(&file.to_string(), "<bos>", "<eos>").expect("it is sound");
    let ids = tokenizer.encode("a", Control::Spell);
    assert_eq!(ids, [tokenizer.token("<0x61>").expect("all bytes are there")]);
}

#[test]
fn the_longest_special_token_wins() {
    let mut file = toy_json();
    let added = file["added_tokens"].as_array_mut().expect("a list");
    added.push(json!({"id": 291, "content": "<bos><eos>", "special": true}));
    let tokenizer = Tokenizer::from_json(&file.to_string(), "<bos>", "<eos>").expect("it is sound");
    assert_eq!(encode(&tokenizer, "<bos><bos><eos>", Control::Honour), [2, 291]);
}

#[test]
fn special_tokens_are_found_side_by_side() {
    let toy = toy();
    let id = |text| toy.token(text).expect("the toy has it").0;
    assert_eq!(encode(&toy, "<|image|>", Control::Honour), [id("<|image|>")]);
    assert_eq!(encode(&toy, "<|image><image|>", Control::Honour), [id("<|image>"), id("<image|>")]);
    assert_eq!(encode(&toy, "<<bos>", Control::Honour), [id("<"), id("<bos>")]);
}

/// 25: wrong splits, newline runs.
#[test]
fn newline_runs_and_spaces_are_merged_as_ranked() {
    let toy = toy();
    let id = |text| toy.token(text).expect("the toy has it").0;
    let (one, two) = (id("\n"), id("\n\n"));
    assert_eq!(encode(&toy, "\n\n\n", Control::Spell), [two, one]);
    assert_eq!(encode(&toy, " the  the", Control::Spell), [id("▁the"), id("▁"), id("▁the")]);
    assert_eq!(encode(&toy, "the", Control::Spell), [id("the")], "no leading space is added");
}

#[test]
fn characters_without_a_token_become_bytes() {
    let toy = toy();
    let ids = toy.encode("é日🙂", Control::Spell);
    assert_eq!(ids.len(), 2 + 3 + 4);
    let bytes: Vec<u8> = ids.iter().flat_map(|id| toy.bytes(*id).to_vec()).collect();
    assert_eq!(bytes, "é日🙂".as_bytes());
}

#[test]
fn the_old_end_mark_is_ordinary_text() {
    let toy = toy();
    let spelled = toy.encode("</s>", Control::Spell);
    assert_eq!(toy.encode("</s>", Control::Honour), spelled);
    assert!(spelled.iter().all(|id| *id != toy.eos() && !toy.is_special(*id)));
}

/// 26: no beginning token on raw completions, two of them elsewhere.
#[test]
fn there_is_exactly_one_beginning_token() {
    let toy = toy();
    let bos = toy.bos();
    let the = toy.token("the").expect("the toy has it");
    assert_eq!(toy.encode("the", Control::Honour), [the]);
    for text in ["the", "<bos>the", "<bos><bos>the"] {
        assert_eq!(toy.with_bos(&toy.encode(text, Control::Honour)), [bos, the], "{text}");
    }
    assert_eq!(toy.with_bos(&[]), [bos]);
    assert_eq!(toy.with_bos(&[the, bos]), [bos, the, bos], "one inside a text is the author's");
}

#[test]
fn ids_outside_the_vocabulary_stand_for_nothing() {
    let toy = toy();
    for id in [toy.len() as u32, u32::MAX].map(TokenId) {
        assert!(toy.bytes(id).is_empty() && !toy.is_special(id));
    }
    assert_eq!(toy.token("no such entry"), None);
}

#[test]
fn gguf_and_json_toys_agree() {
    let gguf = Tokenizer::from_metadata(&Value::Map(toy_metadata())).expect("the toy is sound");
    let json = toy();
    for text in ["the  the\n\n\n", "<|channel>a<channel|>é</s>", "<bos>b"] {
        for control in [Control::Honour, Control::Spell] {
            assert_eq!(gguf.encode(text, control), json.encode(text, control), "{text}");
        }
    }
}

#[test]
fn beginning_and_end_are_special_whatever_their_type() {
    let mut metadata = toy_metadata();
    let mut types = metadata["tokenizer.ggml.token_type"].to_ints().expect("integers");
    types[1..3].fill(1);
    metadata.insert("tokenizer.ggml.token_type".to_owned(), Value::Ints(types));
    let gguf = Tokenizer::from_metadata(&Value::Map(metadata)).expect("the toy is sound");
    for id in [gguf.bos(), gguf.eos()] {
        assert!(gguf.is_special(id));
    }
}

#[test]
fn merges_cannot_spell_a_control_token() {
    let mut file = toy_json();
    for (entry, id) in [("bos>", 291), ("bo", 292), ("s>", 293), ("o", 294), ("s", 295), (">", 296)]
    {
        file["model"]["vocab"][entry] = id.into();
    }
    file["model"]["merges"] =
        json!([["b", "o"], ["s", ">"], ["bo", "s>"], ["<", "bos>"], ["<bos>", "a"]]);
    let tokenizer = Tokenizer::from_json(&file.to_string(), "<bos>", "<eos>").expect("it is sound");
    let opening = tokenizer.token("<").expect("the toy has it").0;
    assert_eq!(encode(&tokenizer, "<bos>", Control::Spell), [opening, 291]);
}

#[test]
fn tokenizers_and_templates_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<lapidary_text::ChatTemplate>();
}

/// Something done to a sound file.
type Change = fn(&mut Json);

/// The error that a changed toy gives.
fn json_error(change: impl FnOnce(&mut Json)) -> TokenizerError {
    let mut file = toy_json();
    change(&mut file);
    let read = Tokenizer::from_json(&file.to_string(), "<bos>", "<eos>");
    read.err().expect("the change makes the file unsound")
}

#[test]
fn unsound_files_are_errors_that_name_the_field() {
    let message = |change: Change| json_error(change).to_string();
    let cases: [(Change, &str); 14] = [
        (|f| f["model"] = Json::Null, "`model`"),
        (|f| f["model"]["type"] = "Unigram".into(), "supported: \"BPE\""),
        (|f| f["model"]["byte_fallback"] = false.into(), "`byte_fallback`"),
        (|f| f["model"]["end_of_word_suffix"] = "</w>".into(), "`end_of_word_suffix`"),
        (|f| f["normalizer"] = Json::Null, "`normalizer`"),
        (|f| f["pre_tokenizer"] = json!({"type": "ByteLevel"}), "`pre_tokenizer`"),
        (|f| f["model"]["vocab"]["huge"] = u32::MAX.into(), "\"huge\" has id 4294967295"),
        (|f| f["model"]["vocab"]["negative"] = (-1).into(), "`vocab`"),
        (|f| f["model"]["vocab"]["twin"] = 22.into(), "clashes with another entry at id 22"),
        (|f| f["model"]["merges"] = json!([["x", "y"]]), "merge 0 (\"x y\")"),
        (|f| f["model"]["merges"] = json!(["a  b"]), "merge 0 (\"a  b\")"),
        (|f| f["model"]["merges"] = json!([["<0x00>", "<0x01>"]]), "merge 0"),
        (|f| f["added_tokens"] = json!([{"id": 5}]), "`added_tokens`"),
        (|f| f["added_tokens"] = json!([{"id": 22, "content": "x"}]), "\"x\" clashes"),
    ];
    for (change, expected) in cases {
        let message = message(change);
        assert!(message.contains(expected), "{message}\nlacks {expected}");
    }
    let missing = Tokenizer::from_json(&toy_json().to_string(), "<start>", "<eos>").err();
    let missing = missing.expect("there is no such token").to_string();
    assert!(missing.contains("`bos token` names \"<start>\""), "{missing}");
}

#[test]
fn a_missing_byte_is_an_error() {
    let error = json_error(|file| {
        let vocab = file["model"]["vocab"].as_object_mut().expect("an object");
        vocab.remove("<0x41>");
    });
    assert!(matches!(error, TokenizerError::NoByte { byte: 0x41 }), "{error}");
}

#[test]
fn unsound_metadata_is_an_error_that_names_the_key() {
    let cases: [(&str, Value, &str); 8] = [
        ("model", Value::Str("llama".to_owned()), "`tokenizer.ggml.scores`"),
        ("model", Value::Str("gpt2".to_owned()), "supported: \"gemma4\" and \"llama\""),
        ("model", Value::Null, "`tokenizer.ggml.model`"),
        ("tokens", Value::Int(3), "`tokenizer.ggml.tokens`"),
        ("token_type", Value::Ints(vec![1]), "has 1 entries for 291 tokens"),
        ("bos_token_id", Value::Int(-1), "`tokenizer.ggml.bos_token_id`"),
        ("eos_token_id", Value::Int(70_000), "id 70000"),
        ("merges", crate::support::strings(["a b"].into_iter()), "does not join two tokens"),
    ];
    for (key, value, expected) in cases {
        let mut metadata = toy_metadata();
        metadata.insert(format!("tokenizer.ggml.{key}"), value);
        let error = Tokenizer::from_metadata(&Value::Map(metadata)).err();
        let message = error.expect("the change makes the metadata unsound").to_string();
        assert!(message.contains(expected), "{message}\nlacks {expected}");
    }
}

#[test]
fn one_text_with_two_ids_is_an_error() {
    let mut metadata = toy_metadata();
    let tokens = metadata["tokenizer.ggml.tokens"].to_strings().expect("strings").into_iter();
    let tokens: Vec<String> = tokens.map(str::to_owned).collect();
    let twice = tokens.iter().map(|t| if t == "b" { "a" } else { t });
    metadata.insert("tokenizer.ggml.tokens".to_owned(), crate::support::strings(twice));
    let error = Tokenizer::from_metadata(&Value::Map(metadata)).err().expect("two ids for a");
    assert!(matches!(&error, TokenizerError::Clash { token, .. } if token == "a"), "{error}");
}

#[test]
fn one_large_id_does_not_make_a_small_file_dear_to_hold() {
    let read = |file: &serde_json::Value| {
        Tokenizer::from_json(&file.to_string(), "<bos>", "<eos>").map(|_| ())
    };
    let mut far = toy_json();
    far["model"]["vocab"]["far"] = 2_000_000.into();
    let refused = read(&far).expect_err("it is refused").to_string();
    assert!(
        refused.starts_with("token \"far\" has id 2000000, and ids must be below "),
        "{refused}"
    );
    let mut near = toy_json();
    near["model"]["vocab"]["near"] = 3_000.into();
    read(&near).expect("holes are allowed");
}
