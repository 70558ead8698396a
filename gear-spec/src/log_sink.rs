//! `log_sink` as data: its manifest and its configuration.

use model::Level;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "log_sink",
    summary: "writes each message as a log record",
    inputs: &["in"],
    outputs: &[],
    doc: "Structured data is written as JSON, other bodies as text; what is cut or replaced is marked in the attributes.",
    example: include_str!("../../examples/gears/log_sink.yaml"),
    schema: gear_manifest::schema::<LogSinkConfig>,
    check: gear_manifest::check::<LogSinkConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `log_sink`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogSinkConfig {
    /// The level of the records.
    #[serde(default = "default_level")]
    pub level: Level,
}

impl GearConfig for LogSinkConfig {}

const fn default_level() -> Level {
    Level::Info
}
