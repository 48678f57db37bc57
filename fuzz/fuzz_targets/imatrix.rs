//! Any bytes as a file of importance. Seeds: `crates/convert/tests/corpus/imatrix`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_convert::fuzz::imatrix(data);
});
