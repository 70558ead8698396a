//! See `protocols::fuzz::otlp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocols::fuzz::otlp(bytes);
});
