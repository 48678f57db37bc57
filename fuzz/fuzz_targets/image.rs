//! Any bytes as a picture. Seeds: `crates/media/tests/data`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lapidary_media::fuzz::image(data);
});
