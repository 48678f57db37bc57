//! Any bytes as a GGUF file. Seeds: `crates/format/tests/corpus`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_format::fuzz::gguf(data);
});
