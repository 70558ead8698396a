//! Panic guard: turns a panic of a decoder into an error, so that bad data does not stop the engine.

/// What `decode` says; that it panicked, if it did.
pub(crate) fn catch_panic<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!(
            "the decoder panicked: {}",
            said.unwrap_or("it did not say why")
        ))
    })
}
