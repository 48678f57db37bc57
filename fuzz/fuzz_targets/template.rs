//! Any bytes as a chat template. Seeds: `crates/text/tests/corpus/template`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_text::fuzz::template(data);
});
