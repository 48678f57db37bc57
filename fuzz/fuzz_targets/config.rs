//! Any text as `config.json`. Seeds: `crates/model/tests/corpus`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| {
    if let Ok(meta) = lapidary_format::json(data) {
        lapidary_model::fuzz::config(&meta);
    }
});
