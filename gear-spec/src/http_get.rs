//! `http_get` as data: its manifest and its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::header::{ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_address::parse_url;
use crate::http_headers;
use crate::poll_interval::check_interval;

/// The most bytes of an answer's body that may be asked to be kept.
const MOST_BODY: u32 = 64 << 20;

/// The headers of an answer by which it is known again, and what is asked with them.
pub const VALIDATORS: [(HeaderName, HeaderName); 2] = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "http_get",
    summary: "polls an address over HTTP; each answer that is new becomes a message",
    inputs: &[],
    outputs: &["out"],
    doc: "Messages have `http.response.status_code`, `content_type` and `http.response.header.<name>` for etag and last-modified in their meta. \
          An answer that the server says is unchanged (304, or the same ETag) makes no message; after a restart of the Rack the first answer makes one. \
          Other answers, and none, count as errors; the pause grows from `every` to 15m then, or is what `Retry-After` asks for, up to 5m. \
          Values of secret headers are `${NAME}` references to the environment of the Rack.",
    example: include_str!("../../examples/gears/http_get.yaml"),
    schema: gear_manifest::schema::<HttpGetConfig>,
    check: gear_manifest::check::<HttpGetConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `http_get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpGetConfig {
    /// What is polled, `http://` or `https://`.
    #[schemars(extend("x-access" = "url"))]
    pub url: String,
    /// The time from one poll to the next.
    #[serde(default = "default_every")]
    pub every: HumanDuration,
    /// More headers. `${NAME}` is the variable NAME in the environment of the Rack, which its `policy.env` must allow; the values of headers whose names have authorization, cookie,
    /// credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    pub headers: BTreeMap<String, String>,
    /// How long one poll may take, its answer included.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// The most bytes of an answer's body, up to 64 MiB; a larger one is an error.
    #[serde(default = "default_max_body")]
    pub max_body: u32,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's, beneath a folder of the Rack's `policy.read_roots`.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub ca_file: Option<PathBuf>,
    /// Must be true where `url` is `http://`, not to a loopback address, and a header has a `${NAME}` reference: anybody on the way reads it.
    #[serde(default)]
    pub allow_insecure: bool,
}

const fn default_every() -> HumanDuration {
    HumanDuration::from_secs(60)
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_max_body() -> u32 {
    1024 * 1024
}

impl GearConfig for HttpGetConfig {
    fn validate(&self) -> Result<(), String> {
        let url = parse_url(&self.url)?;
        http_headers::validate(&self.headers)?;
        if !self.allow_insecure {
            http_headers::check_secrecy(&url, &self.headers)?;
        }
        let asks = |name: &&String| {
            VALIDATORS
                .iter()
                .any(|(_, asked)| name.eq_ignore_ascii_case(asked.as_str()))
        };
        if let Some(name) = self.headers.keys().find(asks) {
            return Err(format!("headers.{name} is set by the gear; leave it out"));
        }
        if !(1..=MOST_BODY).contains(&self.max_body) {
            return Err(format!("max_body must be between 1 and {MOST_BODY}"));
        }
        check_interval("every", self.every)?;
        check_interval("timeout", self.timeout)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused_with_the_fix() {
        let with = |key: &str, value: Value| {
            let mut config = json!({ "url": "http://localhost" });
            config[key] = value;
            config
        };
        for (config, says) in [
            (with("url", json!("ftp://x")), "must begin with http://"),
            (
                with("url", json!("http://user:word@x")),
                "must not have a user or password",
            ),
            (with("every", json!("0s")), "every must be between"),
            (with("timeout", json!("0s")), "timeout must be between"),
            (
                with("max_body", json!(67_108_865)),
                "max_body must be between 1 and 67108864",
            ),
            (
                with("headers", json!({ "Authorization": "plain" })),
                "must not be in a scenario",
            ),
            (with("headers", json!({ "If-None-Match": "x" })), "is set by the gear"),
        ] {
            let error = gear_manifest::config::<HttpGetConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
