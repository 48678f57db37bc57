//! Any bytes as `tokenizer.model`. Seeds: `crates/convert/tests/corpus/sentencepiece`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_convert::fuzz::sentencepiece(data);
});
