//! What the configurations of the codecs share.

use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which way a codec works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodecDirection {
    /// From bytes to a value.
    Decode,
    /// From a value to bytes.
    Encode,
}

/// Configuration of a codec that needs no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodecConfig {
    /// `decode` makes a value of the bytes, `encode` makes bytes of the value.
    pub direction: CodecDirection,
    /// Whether the bytes are kept beside the value that was made of them.
    #[serde(default)]
    pub keep_raw: bool,
}

impl GearConfig for CodecConfig {
    fn validate(&self) -> Result<(), String> {
        check_keep_raw(self.direction, self.keep_raw)
    }
}

/// Refuses a key that would mean nothing.
pub(crate) fn check_keep_raw(direction: CodecDirection, keep_raw: bool) -> Result<(), String> {
    if keep_raw && direction == CodecDirection::Encode {
        Err("keep_raw belongs to direction decode; encode makes new bytes".into())
    } else {
        Ok(())
    }
}
