//! `codec_json` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearManifest};

use crate::codec::CodecConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "codec_json",
    summary: "decodes JSON bodies to values, or encodes values as JSON",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A body that is not JSON is refused with line and column. What is encoded gets the content type `application/json`.",
    example: include_str!("../../examples/gears/codec_json.yaml"),
    schema: gear_manifest::schema::<CodecConfig>,
    check: gear_manifest::check::<CodecConfig>,
    passes_on: gear_manifest::always,
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_would_mean_nothing_is_refused() {
        for (config, says) in [
            (json!({}), "missing field `direction`"),
            (json!({"direction": "both"}), "unknown variant `both`"),
            (
                json!({"direction": "encode", "keep_raw": true}),
                "keep_raw belongs to direction decode",
            ),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
