//! `codec_cbor` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearManifest};

use crate::codec::CodecConfig;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "codec_cbor",
    summary: "decodes CBOR bodies to values, or encodes values as CBOR",
    inputs: &["in"],
    outputs: &["out"],
    doc: "Values are those of JSON, converted by RFC 8949, 6.1: byte strings become base64url, integer keys text, tags are left out. What is \
          encoded is deterministic and gets the content type `application/cbor`.",
    example: include_str!("../../examples/gears/codec_cbor.yaml"),
    schema: gear_manifest::schema::<CodecConfig>,
    check: gear_manifest::check::<CodecConfig>,
    passes_on: gear_manifest::always,
};
