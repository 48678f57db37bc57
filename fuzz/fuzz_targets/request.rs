//! Any bytes as a request of every route. Seeds: `crates/server/tests/corpus/request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_server::fuzz::request(data);
});
