//! Caught panics: what one said, and decoders whose panic is an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic said.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// Runs `decode`, and turns a panic into an error: data that no decoder survives must stop nobody.
///
/// # Errors
/// What `decode` says, or that it panicked.
pub fn catch_panic<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|panic| Err(format!("the decoder panicked: {}", panic_text(panic.as_ref()))))
}
