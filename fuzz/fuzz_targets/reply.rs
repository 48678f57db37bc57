//! Any tokens, one a byte, as a reply. Seeds: `crates/text/tests/corpus/reply`.
#![no_main]

use std::sync::LazyLock;

use lapidary_text::Tokenizer;

/// A vocabulary of control tokens, bytes and a few words.
static WORDS: LazyLock<Tokenizer> = LazyLock::new(|| {
    let toy = include_str!("../../crates/text/tests/corpus/tokenizer/lines.json");
    Tokenizer::from_json(toy, "<bos>", "<eos>").expect("a kept input is sound")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_text::fuzz::reply(&WORDS, data);
});
