//! See `engine::fuzz::checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::checkpoint(bytes);
});
