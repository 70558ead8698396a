//! `file_tail` as data: its manifest and its configuration.

use std::path::PathBuf;

use model::gear_manifest::{self, GearConfig, GearManifest};
use model::{HumanDuration, Level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "file_tail",
    summary: "follows a text file through rotation and truncation; each line becomes a log record and a message",
    inputs: &[],
    outputs: &["out"],
    doc: "Rotated and truncated files are followed; where a file was read to is remembered over restarts. Records whose first word is a level have that level.",
    example: include_str!("../../examples/gears/file_tail.yaml"),
    schema: gear_manifest::schema::<FileTailConfig>,
    check: gear_manifest::check::<FileTailConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `file_tail`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileTailConfig {
    /// The file to follow, beneath a folder of the Rack's `policy.read_roots`; a relative path is one beneath the first of them. It need not exist yet.
    #[schemars(extend("x-access" = "read"))]
    pub path: PathBuf,
    /// Where to begin in a file that was never followed before.
    #[serde(default)]
    pub from: TailStart,
    /// A regular expression that a record's first line matches; other lines are appended to the record before.
    #[serde(default)]
    pub multiline_start: Option<String>,
    /// The longest a record may wait for more lines.
    #[serde(default = "default_multiline_timeout")]
    pub multiline_timeout: HumanDuration,
    /// How often the file is looked at.
    #[serde(default = "default_poll")]
    pub poll_interval: HumanDuration,
    /// The longest line in bytes; the rest of a longer one is cut and the record marked `truncated`.
    #[serde(default = "default_max_line")]
    pub max_line_bytes: u32,
    /// The level of a record that does not begin with one.
    #[serde(default = "default_level")]
    pub level: Level,
}

/// Where `file_tail` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TailStart {
    /// At the first byte.
    #[default]
    Start,
    /// At the end: only new lines.
    End,
}

fn default_multiline_timeout() -> HumanDuration {
    HumanDuration::from_secs(1)
}

fn default_poll() -> HumanDuration {
    HumanDuration::from_millis(200)
}

const fn default_max_line() -> u32 {
    256 * 1024
}

const fn default_level() -> Level {
    Level::Info
}

impl GearConfig for FileTailConfig {
    fn validate(&self) -> Result<(), String> {
        if self.path.as_os_str().is_empty() {
            return Err("path is empty".into());
        }
        if self.max_line_bytes == 0 || self.max_line_bytes > 1024 * 1024 {
            return Err("max_line_bytes must be between 1 and 1048576".into());
        }
        if self.poll_interval.get().is_zero() {
            return Err("poll_interval must be more than zero".into());
        }
        Ok(())
    }
}
