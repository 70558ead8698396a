//! See `engine::fuzz::batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::batch(bytes);
});
