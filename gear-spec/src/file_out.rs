//! `file_out` as data: its manifest and its configuration.

use std::path::PathBuf;
use std::time::Duration;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "file_out",
    summary: "appends each message to a file as a line, with rotation",
    inputs: &["in"],
    outputs: &[],
    doc: "A line is the body as text, or the whole message as JSON. In a text, line breaks within the body are written as `\\n`. \
          While the disk is full, messages wait in the inbox. The folder must exist.",
    example: include_str!("../../examples/gears/file_out.yaml"),
    schema: gear_manifest::schema::<FileOutConfig>,
    check: gear_manifest::check::<FileOutConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `file_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileOutConfig {
    /// The file, beneath a folder of the Rack's `policy.write_roots`; a relative path is one beneath the first of them. Its folder must exist.
    #[schemars(extend("x-access" = "write"))]
    pub path: PathBuf,
    /// What a line is.
    #[serde(default)]
    pub format: LineFormat,
    /// When a new file is begun.
    #[serde(default)]
    pub rotate: RotateConfig,
    /// Whether every write is on the disk before more messages are taken. Slower; without it a power cut may take the last lines.
    #[serde(default)]
    pub fsync: bool,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LineFormat {
    /// The body as text.
    #[default]
    Body,
    /// The whole message as a JSON object.
    Json,
}

/// When a new file is begun.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RotateConfig {
    /// Before the file would have more bytes than this.
    pub size: Option<u64>,
    /// When such a period of UTC time has ended: `1h` at every full hour, `24h` at midnight.
    pub every: Option<HumanDuration>,
    /// How many old files are kept, 1 to 1000.
    pub keep: u16,
}

impl Default for RotateConfig {
    fn default() -> Self {
        Self {
            size: None,
            every: None,
            keep: 5,
        }
    }
}

impl GearConfig for FileOutConfig {
    fn validate(&self) -> Result<(), String> {
        if self.path.file_name().is_none() {
            return Err(format!(
                "path {:?} does not name a file",
                self.path.display().to_string()
            ));
        }
        if self.rotate.size == Some(0) {
            return Err("rotate.size must be more than zero".into());
        }
        if self
            .rotate
            .every
            .is_some_and(|every| every.get() < Duration::from_secs(1))
        {
            return Err("rotate.every must be at least 1s".into());
        }
        if !(1..=1000).contains(&self.rotate.keep) {
            return Err("rotate.keep must be between 1 and 1000".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_cannot_work_is_refused_with_the_key() {
        for (config, says) in [
            (json!({ "path": "/" }), "does not name a file"),
            (json!({ "path": "x", "rotate": { "size": 0 } }), "rotate.size"),
            (json!({ "path": "x", "rotate": { "every": "1ms" } }), "rotate.every"),
            (json!({ "path": "x", "rotate": { "keep": 0 } }), "rotate.keep"),
            (json!({ "path": "x", "rotate": { "siez": 1 } }), "siez"),
        ] {
            let error = gear_manifest::config::<FileOutConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
