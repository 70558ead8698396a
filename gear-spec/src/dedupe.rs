//! `dedupe` as data: its manifest and its configuration.

use std::time::Duration;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "dedupe",
    summary: "drops messages whose key was seen before",
    inputs: &["in"],
    outputs: &["out", "duplicate"],
    doc: "The first message of a key leaves by `out`, unchanged; others of that key leave by `duplicate` until `ttl` is over, and where that is \
          not wired they are dropped and counted in `gear.messages.dropped`. The last `max_keys` keys are in memory: after a restart of the \
          Rack, and where the gear is replaced or fails, they are forgotten, and duplicates pass once more. Expressions are \
          [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's.",
    example: include_str!("../../examples/gears/dedupe.yaml"),
    schema: gear_manifest::schema::<DedupeConfig>,
    check: gear_manifest::check::<DedupeConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `dedupe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DedupeConfig {
    /// The expression of a key, a text, a number or a bool: messages with equal keys are duplicates.
    pub key: String,
    /// How long a key counts as seen, 1ms to 168h.
    #[serde(default = "default_ttl")]
    pub ttl: HumanDuration,
    /// The most keys that are remembered, 1 to 1000000; the oldest one is forgotten for a new one.
    #[serde(default = "default_max_keys")]
    pub max_keys: u32,
}

const fn default_ttl() -> HumanDuration {
    HumanDuration::from_secs(300)
}

const fn default_max_keys() -> u32 {
    10_000
}

impl GearConfig for DedupeConfig {
    fn validate(&self) -> Result<(), String> {
        if !(Duration::from_millis(1)..=Duration::from_secs(7 * 86_400)).contains(&self.ttl.get()) {
            return Err("ttl must be 1ms to 168h".into());
        }
        if !(1..=1_000_000).contains(&self.max_keys) {
            return Err("max_keys must be 1 to 1000000".into());
        }
        CelExpression::compile("key", &self.key).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_obeyed_is_refused_with_the_key() {
        for (config, says) in [
            (json!({}), "missing field `key`"),
            (json!({"key": "data."}), "key: at 1:6"),
            (json!({"key": "text", "ttl": "0s"}), "ttl must be 1ms to 168h"),
            (json!({"key": "text", "max_keys": 0}), "max_keys must be 1 to 1000000"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
