//! See `protocols::fuzz::otlp_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocols::fuzz::otlp_json(bytes);
});
