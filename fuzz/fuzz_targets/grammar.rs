//! Any bytes as a grammar of every kind. Seeds: `crates/text/tests/corpus/grammar`.
#![no_main]

use std::sync::LazyLock;

use lapidary_text::{Grammars, Tokenizer, fuzz};

/// The rules apply to this vocabulary.
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| {
    let vocabulary = include_str!("../../crates/text/tests/corpus/tokenizer/pairs.json");
    Grammars::new(&Tokenizer::from_json(vocabulary, "<bos>", "<eos>").expect("the seed is sound"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::grammar(&GRAMMARS, data));
