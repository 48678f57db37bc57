//! Any bytes as a folder: a line of `config.json`, a line of index, a safetensors file. Seeds:
//! `crates/format/tests/corpus`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_format::fuzz::folder(data);
});
