//! `generator` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "generator",
    summary: "makes messages at a steady rate from a seed",
    inputs: &[],
    outputs: &["out"],
    doc: "The body of message *n* depends on the seed, *n* and the size alone.",
    example: include_str!("../../examples/gears/generator.yaml"),
    schema: gear_manifest::schema::<GeneratorConfig>,
    check: gear_manifest::check::<GeneratorConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `generator`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorConfig {
    /// Messages per second.
    #[serde(default = "default_rate")]
    pub rate: f64,
    /// The seed of the content: the same seed gives the same messages.
    #[serde(default)]
    pub seed: u64,
    /// How many messages to make in all; none for no end.
    #[serde(default)]
    pub count: Option<u64>,
    /// The body's size in bytes.
    #[serde(default = "default_size")]
    pub size: u32,
}

const fn default_rate() -> f64 {
    1.0
}

const fn default_size() -> u32 {
    64
}

impl GearConfig for GeneratorConfig {
    fn validate(&self) -> Result<(), String> {
        if !(self.rate > 0.0 && self.rate <= 1_000_000.0) {
            return Err("rate must be more than 0 and at most 1000000".into());
        }
        if self.size > 1024 * 1024 {
            Err("size must be at most 1048576".into())
        } else {
            Ok(())
        }
    }
}
