//! `deadband` as data: its manifest and its configuration.

use std::time::Duration;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::{CelExpression, compile_if_any};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "deadband",
    summary: "lets a value through when it has changed enough since the last one that passed",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A message passes unchanged when its value differs from the last one of its key that passed by more than `absolute` or by more than \
          `percent`; without both, when it differs at all. Values that are not numbers pass on change. With `max_interval` the next message passes \
          after that time in any case: it is a heartbeat of sources that speak, not of silent ones. What does not pass is dropped and counted in \
          `gear.messages.dropped`. The last values are in memory: after a restart the first one of each key passes. Expressions are \
          [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's.",
    example: include_str!("../../examples/gears/deadband.yaml"),
    schema: gear_manifest::schema::<DeadbandConfig>,
    check: gear_manifest::check::<DeadbandConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `deadband`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadbandConfig {
    /// The expression of the value that is compared.
    #[serde(default = "default_value")]
    value: String,
    /// A number passes when it differs by more than this.
    #[serde(default)]
    pub absolute: Option<f64>,
    /// A number passes when it differs by more than so many hundredths of the last one.
    #[serde(default)]
    pub percent: Option<f64>,
    /// The next message passes after this time in any case, 1ms to 168h. Without it a value that does not change does not pass again.
    #[serde(default)]
    pub max_interval: Option<HumanDuration>,
    /// The expression of a key, a text, a number or a bool: values of one key are compared. Without it all are.
    #[serde(default)]
    key: Option<String>,
    /// The most keys whose values are remembered, 1 to 1000000; the one that passed longest ago is forgotten for a new one.
    #[serde(default = "default_max_keys")]
    pub max_keys: u32,
}

fn default_value() -> String {
    "data".to_owned()
}

const fn default_max_keys() -> u32 {
    10_000
}

impl DeadbandConfig {
    /// Its expressions, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<(CelExpression, Option<CelExpression>), String> {
        let value = CelExpression::compile("value", &self.value)?;
        Ok((value, compile_if_any("key", self.key.as_ref())?))
    }
}

impl GearConfig for DeadbandConfig {
    fn validate(&self) -> Result<(), String> {
        for (key, bound) in [("absolute", self.absolute), ("percent", self.percent)] {
            if bound.is_some_and(|bound| !(bound >= 0.0 && bound.is_finite())) {
                return Err(format!("{key} must be 0 or more"));
            }
        }
        let allowed = Duration::from_millis(1)..=Duration::from_secs(7 * 86_400);
        if self
            .max_interval
            .is_some_and(|interval| !allowed.contains(&interval.get()))
        {
            return Err("max_interval must be 1ms to 168h".into());
        }
        if !(1..=1_000_000).contains(&self.max_keys) {
            return Err("max_keys must be 1 to 1000000".into());
        }
        self.compile().map(drop)
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
            (json!({"value": "data."}), "value: at 1:6"),
            (json!({"key": "nothing"}), "key: at 1:1: there is no variable nothing"),
            (json!({"absolute": -1}), "absolute must be 0 or more"),
            (json!({"percent": -0.5}), "percent must be 0 or more"),
            (json!({"max_interval": "0s"}), "max_interval must be 1ms to 168h"),
            (json!({"max_keys": 0}), "max_keys must be 1 to 1000000"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
