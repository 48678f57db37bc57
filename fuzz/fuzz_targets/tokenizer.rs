//! Any bytes as `tokenizer.json`. Seeds: `crates/text/tests/corpus/tokenizer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_text::fuzz::tokenizer_json(data);
});
