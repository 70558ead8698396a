//! See `engine::fuzz::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::log(bytes);
});
