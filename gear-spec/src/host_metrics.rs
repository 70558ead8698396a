//! `host_metrics` as data: its manifest and its configuration.

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "host_metrics",
    summary: "reports CPU, memory, disk, network and load of the machine under OpenTelemetry names",
    inputs: &[],
    outputs: &[],
    doc: "Nothing is to be wired: the points go to the metrics table under the semantic conventions of OpenTelemetry.",
    example: include_str!("../../examples/gears/host_metrics.yaml"),
    schema: gear_manifest::schema::<HostMetricsConfig>,
    check: gear_manifest::check::<HostMetricsConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `host_metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostMetricsConfig {
    /// How often everything is measured.
    #[serde(default = "default_host_interval")]
    pub interval: HumanDuration,
}

fn default_host_interval() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl GearConfig for HostMetricsConfig {
    fn validate(&self) -> Result<(), String> {
        if self.interval.get().is_zero() {
            Err("interval must be more than zero".into())
        } else {
            Ok(())
        }
    }
}
