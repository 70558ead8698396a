//! `correlate` as data: its manifest and its configuration.

use std::time::Duration;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::CelExpression;

/// The input of requests; what else arrives is a reply.
pub const REQUEST: &str = "request";

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "correlate",
    summary: "finds the request of each reply by a key and restores its context",
    inputs: &[REQUEST, "reply"],
    outputs: &["out", "matched", "expired", "unmatched"],
    doc: "Requests pass by `out`. A reply with the key of one leaves by `matched` with the request's signal and trace, and its metadata \
          as `request.…`; other replies by `unmatched`. A request without a reply within `ttl` leaves by `expired`, earlier where there is no \
          room. Outputs that are not wired are counted as dropped. Requests are parked in memory. Where they may come faster than they are \
          answered, put a `throttle` in front that is slower: a cycle whose inboxes are all full stands still. Expressions are \
          [CEL](https://cel.dev): `data`, `text`, `meta`, `hops`, `ts` and `flux_id` are the message's.",
    example: include_str!("../../examples/gears/correlate.yaml"),
    schema: gear_manifest::schema::<CorrelateConfig>,
    check: gear_manifest::check::<CorrelateConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `correlate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrelateConfig {
    /// The expression of a request's key: a text, a number or a bool.
    request_key: String,
    /// The expression of a reply's key; equal keys belong together.
    reply_key: String,
    /// How long a request waits for its reply.
    #[serde(default = "default_ttl")]
    pub ttl: HumanDuration,
    /// The most requests that wait. The oldest one makes room for a new one and leaves by `expired`.
    #[serde(default = "default_max_parked")]
    pub max_parked: u32,
    /// The most bytes of requests that wait; the oldest ones make room.
    #[serde(default = "default_max_parked_bytes")]
    pub max_parked_bytes: u64,
}

const fn default_ttl() -> HumanDuration {
    HumanDuration::from_secs(30)
}

const fn default_max_parked() -> u32 {
    10_000
}

const fn default_max_parked_bytes() -> u64 {
    64 * 1024 * 1024
}

impl CorrelateConfig {
    /// Its expressions, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<(CelExpression, CelExpression), String> {
        let request = CelExpression::compile("request_key", &self.request_key)?;
        Ok((request, CelExpression::compile("reply_key", &self.reply_key)?))
    }
}

impl GearConfig for CorrelateConfig {
    fn validate(&self) -> Result<(), String> {
        if self.ttl.get() < Duration::from_millis(1) || self.ttl.get() > Duration::from_secs(7 * 86_400) {
            return Err("ttl must be 1ms to 168h".into());
        }
        if self.max_parked == 0 || self.max_parked > 1_000_000 {
            return Err("max_parked must be 1 to 1000000".into());
        }
        if self.max_parked_bytes < 4096 || self.max_parked_bytes > 4 << 30 {
            return Err("max_parked_bytes must be 4096 to 4294967296".into());
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
    fn a_configuration_that_cannot_be_obeyed_is_refused() {
        for (more, says) in [
            (json!({"request_key": "data."}), "request_key: at 1:6"),
            (
                json!({"reply_key": "nothing"}),
                "reply_key: at 1:1: there is no variable nothing",
            ),
            (json!({"ttl": "0s"}), "ttl must be 1ms to 168h"),
            (json!({"max_parked": 0}), "max_parked must be"),
            (json!({"max_parked_bytes": 1}), "max_parked_bytes must be"),
        ] {
            let mut config = json!({"request_key": "data", "reply_key": "data"});
            config
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
