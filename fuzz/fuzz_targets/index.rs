//! See `engine::fuzz::index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::index(bytes);
});
