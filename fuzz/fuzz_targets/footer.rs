//! See `engine::fuzz::footer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::footer(bytes);
});
