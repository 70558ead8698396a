//! The decoders as fuzz targets.

/// What agents speak.
#[must_use]
pub fn sender_targets() -> Vec<model::fuzz::FuzzTarget> {
    let all = [
        crate::elasticsearch::fuzz::fuzz_targets(),
        crate::loki::fuzz::fuzz_targets(),
        crate::remote_write::fuzz::fuzz_targets(),
    ];
    all.into_iter().flatten().collect()
}
