//! Any tokens, one a byte, as a reply. Seeds: `crates/text/tests/corpus/reply`.
#![no_main]

use lapidary_text::{Tokenizer, fuzz};

/// A vocabulary of control tokens, bytes and a few words. It is small enough to be read each time.
const WORDS: &str = include_str!("../../crates/text/tests/corpus/tokenizer/lines.json");

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let words = Tokenizer::from_json(WORDS, "<bos>", "<eos>").expect("a kept input is sound");
    fuzz::reply(&words, data);
});
