//! See `engine::fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::json(bytes);
});
