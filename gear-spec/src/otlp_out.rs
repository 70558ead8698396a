//! `otlp_out` as data: its manifest and its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::gear_manifest::{self, GearConfig, GearManifest};
use model::{HumanDuration, Level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_out::{self, BreakerConfig, HttpOutConfig, HttpRetryConfig};

/// The most bytes of an answer that are read: it says little.
const MAX_ANSWER: u32 = 64 << 10;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "otlp_out",
    summary: "sends each message as a log record of OpenTelemetry (OTLP over HTTP) to a collector",
    inputs: &["in"],
    outputs: &[],
    doc: "The body of the record is the message's value, or its bytes as text where they are that; its attributes are the message's metadata, `flux_id` and `messaging.message.id`, and it is in the message's trace. \
          The resource has `service.name`, the name of the Rack, and what `resource` says. 2xx is done, 429, 502, 503, 504 and no answer are tried again, after what `Retry-After` says; other answers, \
          and one that says that the record was refused, reject the message: on a guaranteed wire it becomes a dead letter. A message that is sent again has the same bytes. Requests are protobuf, one for each message: \
          a collector makes batches of them. Values of secret headers are `${NAME}` references to the environment of the Rack.",
    example: include_str!("../../examples/gears/otlp_out.yaml"),
    schema: gear_manifest::schema::<OtlpOutConfig>,
    check: gear_manifest::check::<OtlpOutConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `otlp_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpOutConfig {
    /// Where the collector takes logs, such as `http://collector.example:4318/v1/logs`.
    #[schemars(extend("x-access" = "url"))]
    pub url: String,
    /// The level of the records.
    #[serde(default = "default_level")]
    pub level: Level,
    /// Attributes of the resource, such as `service.name` and `deployment.environment.name`.
    #[serde(default)]
    pub resource: BTreeMap<String, String>,
    /// Whether requests are packed with gzip.
    #[serde(default = "default_gzip")]
    pub gzip: bool,
    /// More headers. `${NAME}` is the variable NAME in the environment of the Rack, which its `policy.env` must allow; the values of headers whose names have authorization, cookie,
    /// credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    pub headers: BTreeMap<String, String>,
    /// How long one attempt may take, its answer included.
    #[serde(default = "http_out::default_timeout")]
    pub timeout: HumanDuration,
    /// How often and when a message is tried again.
    #[serde(default)]
    pub retry: HttpRetryConfig,
    /// When a collector that keeps failing is left alone.
    #[serde(default)]
    pub breaker: BreakerConfig,
    /// How many requests may be under way at a time; with more than 1, messages may overtake each other.
    #[serde(default = "http_out::default_in_flight")]
    pub in_flight: u8,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's, beneath a folder of the Rack's `policy.read_roots`.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub ca_file: Option<PathBuf>,
    /// Must be true where `url` is `http://`, not to a loopback address, and a header has a `${NAME}` reference: anybody on the way reads it.
    #[serde(default)]
    pub allow_insecure: bool,
}

const fn default_level() -> Level {
    Level::Info
}

const fn default_gzip() -> bool {
    true
}

impl OtlpOutConfig {
    /// How its requests are sent.
    #[must_use]
    pub fn transport(&self) -> HttpOutConfig {
        HttpOutConfig {
            url: self.url.clone(),
            method: "POST".to_owned(),
            headers: self.headers.clone(),
            timeout: self.timeout,
            retry: self.retry,
            breaker: self.breaker,
            in_flight: self.in_flight,
            max_answer: MAX_ANSWER,
            ca_file: self.ca_file.clone(),
            allow_insecure: self.allow_insecure,
        }
    }
}

impl GearConfig for OtlpOutConfig {
    fn validate(&self) -> Result<(), String> {
        if self.resource.keys().any(String::is_empty) {
            return Err("resource has an attribute without a name".into());
        }
        self.transport().validate()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_its_requests_is_refused_with_the_key() {
        for (config, says) in [
            (json!({ "url": "collector:4318" }), "must begin with http://"),
            (json!({ "url": "http://x", "in_flight": 0 }), "in_flight"),
            (json!({ "url": "http://x", "resource": { "": "x" } }), "without a name"),
            (
                json!({ "url": "http://x", "headers": { "api-key": "${KEY}" } }),
                "headers.api-key has a value of the Rack's environment",
            ),
            (json!({ "url": "http://x", "method": "PUT" }), "method"),
        ] {
            let error = gear_manifest::config::<OtlpOutConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        let good = json!({ "url": "https://x/v1/logs", "headers": { "api-key": "${KEY}" }, "level": "error" });
        let good = gear_manifest::config::<OtlpOutConfig>(good.as_object().unwrap()).unwrap();
        assert_eq!(
            (good.level, good.gzip, good.transport().method.as_str()),
            (Level::Error, true, "POST")
        );
    }
}
