//! `http_out` as data: its manifest and its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Method;
use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_address::parse_url;
use crate::http_headers;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "http_out",
    summary: "sends each message as an HTTP request; the answer becomes a message",
    inputs: &["in"],
    outputs: &["reply"],
    doc: "2xx is done, 429 and 5xx and no answer are tried again, other answers reject the message. The answer's message has the metadata of the one that was sent, \
          with `http.response.status_code` and `http.response.header.<name>`. `traceparent`, `tracestate` and `Idempotency-Key`, the id of the message, are sent along, and `Flux-Id` with `Flux-Parent` and `baggage` (`flux_id=…`), by which an `http_in` that trusts them (`trust_flux_id`) \
          goes on with the same business signal. Values of secret headers are `${NAME}` references to the environment of the Rack.",
    example: include_str!("../../examples/gears/http_out.yaml"),
    schema: gear_manifest::schema::<HttpOutConfig>,
    check: gear_manifest::check::<HttpOutConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `http_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpOutConfig {
    /// Where requests go, `http://` or `https://`.
    #[schemars(extend("x-access" = "url"))]
    pub url: String,
    /// The method.
    #[serde(default = "default_method")]
    pub method: String,
    /// More headers. `${NAME}` is the variable NAME in the environment of the Rack, which its `policy.env` must allow; the values of headers whose names have authorization, cookie,
    /// credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    pub headers: BTreeMap<String, String>,
    /// How long one attempt may take, its answer included.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// How often and when a message is tried again.
    #[serde(default)]
    pub retry: HttpRetryConfig,
    /// When a target that keeps failing is left alone.
    #[serde(default)]
    pub breaker: BreakerConfig,
    /// How many requests may be under way at a time; with more than 1, messages may overtake each other.
    #[serde(default = "default_in_flight")]
    pub in_flight: u8,
    /// The most bytes of an answer's body that are kept; the rest is cut and the message on `reply` marked `truncated`.
    #[serde(default = "default_max_answer")]
    pub max_answer: u32,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's, beneath a folder of the Rack's `policy.read_roots`.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub ca_file: Option<PathBuf>,
    /// Must be true where `url` is `http://`, not to a loopback address, and a header has a `${NAME}` reference: anybody on the way reads it.
    #[serde(default)]
    pub allow_insecure: bool,
}

/// How often and when a message is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpRetryConfig {
    /// How many more attempts follow the first one.
    pub count: u32,
    /// The pause before the second attempt; every next one is twice as long.
    pub first: HumanDuration,
    /// The longest pause, unless the target asks for a longer one.
    pub longest: HumanDuration,
}

impl Default for HttpRetryConfig {
    fn default() -> Self {
        Self {
            count: 3,
            first: HumanDuration::from_millis(200),
            longest: HumanDuration::from_secs(30),
        }
    }
}

/// When a target that keeps failing is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// After how many failures in a row.
    pub failures: u32,
    /// For how long, before one attempt is let through.
    pub open_for: HumanDuration,
    /// What becomes of messages meanwhile.
    pub when_open: OpenBreakerPolicy,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 10,
            open_for: HumanDuration::from_secs(30),
            when_open: OpenBreakerPolicy::Wait,
        }
    }
}

/// What becomes of messages for a target that is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OpenBreakerPolicy {
    /// They wait.
    #[default]
    Wait,
    /// They are rejected.
    Reject,
}

fn default_method() -> String {
    "POST".to_owned()
}

pub(crate) const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

pub(crate) const fn default_in_flight() -> u8 {
    1
}

const fn default_max_answer() -> u32 {
    1024 * 1024
}

impl HttpOutConfig {
    /// The method of requests.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn method(&self) -> Result<Method, String> {
        let known = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::GET];
        let found = known.into_iter().find(|known| known.as_str() == self.method);
        found.ok_or_else(|| format!("method {:?} must be POST, PUT, PATCH, DELETE or GET", self.method))
    }
}

impl GearConfig for HttpOutConfig {
    fn validate(&self) -> Result<(), String> {
        let url = parse_url(&self.url)?;
        self.method()?;
        http_headers::validate(&self.headers)?;
        if !self.allow_insecure {
            http_headers::check_secrecy(&url, &self.headers)?;
        }
        for (key, value) in [
            ("timeout", self.timeout),
            ("retry.first", self.retry.first),
            ("breaker.open_for", self.breaker.open_for),
        ] {
            if value.get().is_zero() {
                return Err(format!("{key} must be more than zero"));
            }
        }
        if self.retry.longest < self.retry.first {
            return Err("retry.longest must not be shorter than retry.first".into());
        }
        if self.breaker.failures == 0 {
            return Err("breaker.failures must be at least 1".into());
        }
        if self.in_flight == 0 {
            return Err("in_flight must be between 1 and 255".into());
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
            (json!({ "url": "ftp://x/" }), "must begin with http://"),
            (json!({ "url": "http:///x" }), "url"),
            (json!({ "url": "http://me:pw@x/" }), "must not have a user"),
            (
                json!({ "url": "http://x", "method": "SHOUT" }),
                "method \"SHOUT\" must be",
            ),
            (
                json!({ "url": "http://x", "headers": { "x-api-key": "plain" } }),
                "must not be in a scenario",
            ),
            (json!({ "url": "http://x", "in_flight": 0 }), "in_flight"),
            (
                json!({ "url": "http://x", "breaker": { "failures": 0 } }),
                "breaker.failures",
            ),
            (
                json!({ "url": "http://x", "retry": { "first": "2s", "longest": "1s" } }),
                "retry.longest",
            ),
            (json!({ "url": "http://x", "retry": { "cuont": 1 } }), "cuont"),
        ] {
            let error = gear_manifest::config::<HttpOutConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
