//! The decoders as fuzz targets.

/// What agents speak.
#[must_use]
pub fn sender_targets() -> Vec<model::fuzz::FuzzTarget> {
    crate::loki::fuzz::fuzz_targets()
}
