//! See `engine::fuzz::cbor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzz::cbor(bytes);
});
