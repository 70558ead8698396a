//! The configuration of `http_out`: what it may say, and the target that it means.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hyper::Method;
use model::HumanDuration;
use model::gear_manifest::GearConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::http_client::{self, headers, parse_url};
use super::circuit_breaker;
use super::http_target::HttpTarget;

/// Configuration of `http_out`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpOutConfig {
    /// Where requests go, `http://` or `https://`.
    url: String,
    /// The method.
    #[serde(default = "default_method")]
    method: String,
    /// More headers. `${NAME}` is the variable NAME in the environment of the Rack; the values of headers whose names have authorization, cookie,
    /// credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// How long one attempt may take, its answer included.
    #[serde(default = "default_timeout")]
    timeout: HumanDuration,
    /// How often and when a message is tried again.
    #[serde(default)]
    pub(super) retry: HttpRetryConfig,
    /// When a target that keeps failing is left alone.
    #[serde(default)]
    pub(super) breaker: BreakerConfig,
    /// How many requests may be under way at a time; with more than 1, messages may overtake each other.
    #[serde(default = "default_in_flight")]
    pub(super) in_flight: u8,
    /// The most bytes of an answer's body that are kept; the rest is cut and the message on `reply` marked `truncated`.
    #[serde(default = "default_max_answer")]
    max_answer: u32,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's.
    #[serde(default)]
    ca_file: Option<PathBuf>,
}

/// How often and when a message is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpRetryConfig {
    /// How many more attempts follow the first one.
    pub(super) count: u32,
    /// The pause before the second attempt; every next one is twice as long.
    pub(super) first: HumanDuration,
    /// The longest pause, unless the target asks for a longer one.
    pub(super) longest: HumanDuration,
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
pub(super) struct BreakerConfig {
    /// After how many failures in a row.
    failures: u32,
    /// For how long, before one attempt is let through.
    open_for: HumanDuration,
    /// What becomes of messages meanwhile.
    pub(super) when_open: OpenBreakerPolicy,
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

impl BreakerConfig {
    pub(super) const fn rules(&self) -> circuit_breaker::BreakerPolicy {
        circuit_breaker::BreakerPolicy {
            failures: self.failures,
            open_for: self.open_for.get(),
        }
    }
}

/// What becomes of messages for a target that is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OpenBreakerPolicy {
    /// They wait.
    #[default]
    Wait,
    /// They are rejected.
    Reject,
}

fn default_method() -> String {
    "POST".to_owned()
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_in_flight() -> u8 {
    1
}

const fn default_max_answer() -> u32 {
    1024 * 1024
}

impl HttpOutConfig {
    fn method(&self) -> Result<Method, String> {
        let known = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::GET];
        let found = known.into_iter().find(|known| known.as_str() == self.method);
        found.ok_or_else(|| format!("method {:?} must be POST, PUT, PATCH, DELETE or GET", self.method))
    }

    /// What requests go to; reads the environment and files.
    pub(super) fn target(&self) -> Result<HttpTarget, String> {
        let url = parse_url(&self.url)?;
        Ok(HttpTarget {
            client: http_client::client(&url, self.ca_file.as_ref(), usize::from(self.in_flight))?,
            url,
            method: self.method()?,
            headers: headers::resolved(&self.headers, |name| std::env::var(name).ok())?,
            timeout: self.timeout.get(),
            max_answer: self.max_answer as usize,
        })
    }
}

impl GearConfig for HttpOutConfig {
    fn validate(&self) -> Result<(), String> {
        parse_url(&self.url)?;
        self.method()?;
        headers::validate(&self.headers)?;
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
