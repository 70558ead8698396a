//! `throttle` as data: its manifest and its configuration.

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "throttle",
    summary: "lets messages through at a rate",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A token bucket: `burst` messages may leave at once, then `rate` a second. With `wait` the senders are slowed down, with `drop` \
          what is too much is dropped and counted in `gear.messages.dropped`.",
    example: include_str!("../../examples/gears/throttle.yaml"),
    schema: gear_manifest::schema::<ThrottleConfig>,
    check: gear_manifest::check::<ThrottleConfig>,
    passes_on: waits,
};

/// With `drop` it chooses.
fn waits(config: &Map<String, Value>) -> bool {
    gear_manifest::config::<ThrottleConfig>(config).is_ok_and(|config| config.when_full == ThrottleAction::Wait)
}

/// Configuration of `throttle`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Messages per second, on average.
    pub rate: f64,
    /// How many messages may leave at once.
    #[serde(default = "default_burst")]
    pub burst: u32,
    /// What happens to a message that comes too early.
    #[serde(default)]
    pub when_full: ThrottleAction,
}

const fn default_burst() -> u32 {
    1
}

/// What happens to a message that comes too early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ThrottleAction {
    /// It waits, and so do the senders.
    #[default]
    Wait,
    /// It is dropped.
    Drop,
}

impl GearConfig for ThrottleConfig {
    fn validate(&self) -> Result<(), String> {
        if !(self.rate >= 0.001 && self.rate <= 1_000_000.0) {
            return Err("rate must be 0.001 to 1000000".into());
        }
        if self.burst == 0 {
            return Err("burst must be at least 1".into());
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
    fn rates_that_are_none_are_refused() {
        for (config, says) in [
            (json!({"rate": 0}), "rate must be 0.001 to 1000000"),
            (json!({"rate": 1, "burst": 0}), "burst must be at least 1"),
            (json!({"rate": 1, "when_full": "block"}), "unknown variant `block`"),
            (json!({}), "missing field `rate`"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
