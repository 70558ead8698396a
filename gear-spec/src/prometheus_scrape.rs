//! `prometheus_scrape` as data: its manifest and its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http_address::parse_url;
use crate::http_headers;
use crate::poll_interval::check_interval;

/// The most bytes of an answer that may be asked for.
const MOST_BODY: u32 = 64 << 20;
/// The most samples of an answer that may be asked for: what waits for the disk in memory is bounded.
const MOST_SAMPLES: u32 = 50_000;
/// The most targets.
const MOST_TARGETS: usize = 256;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "prometheus_scrape",
    summary: "asks targets for their metrics as Prometheus does, in its text format or OpenMetrics",
    inputs: &[],
    outputs: &[],
    doc: "Nothing is to be wired: the points go to the metrics table, as the Rack's, with the labels of their samples, of the target, and `instance` and `job`; a sample's own label of such a name becomes `exported_` and the name. \
          Counters and gauges keep the names of their samples; a histogram becomes one point for each set of labels, with `otel.bounds`, `otel.buckets` (each counted alone), `otel.count` and the sum as its value; \
          a summary a gauge for each `quantile`, and `_count` and `_sum`. Exemplars are in `otel.exemplars`. NaN and infinity are no points. \
          Each scrape adds `up` (1 or 0) and `scrape_duration_seconds` for its target; a series that a target does not show any more has no more points. A sample with a time of its own is stored when that is newer than the one of its series in the scrape before. \
          An answer with one bad line, another status than 2xx, or more than `max_body`, `max_samples` or 32 labels for each of these, is a failed scrape, and so is one for which the Rack's spool, or the memory for answers (128 MiB, and 32 MiB for the first MiB of each), has no room: nothing of it is stored. Redirects are not followed. \
          Targets on this machine, and link-local addresses, those of clouds' metadata among them, must be listed in the Rack's `policy.connect` themselves.",
    example: include_str!("../../examples/gears/prometheus_scrape.yaml"),
    schema: gear_manifest::schema::<PrometheusScrapeConfig>,
    check: gear_manifest::check::<PrometheusScrapeConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `prometheus_scrape`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrometheusScrapeConfig {
    /// What is scraped, 256 targets at most.
    pub targets: Vec<ScrapeTargetConfig>,
    /// The time from one scrape of a target to the next.
    #[serde(default = "default_interval")]
    pub interval: HumanDuration,
    /// How long a scrape may take; not longer than `interval`.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Labels of all points.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Headers of requests, such as `authorization: Bearer ${TOKEN}`. `${NAME}` is the variable NAME in the environment of the Rack, which its `policy.env` must allow; the values of
    /// headers whose names have authorization, cookie, credential, key, password, secret or token in them must be such references.
    #[serde(default)]
    #[schemars(extend("x-access" = "references"))]
    pub headers: BTreeMap<String, String>,
    /// The most bytes of an answer, up to 64 MiB.
    #[serde(default = "default_max_body")]
    pub max_body: u32,
    /// The most samples of an answer, up to 50000.
    #[serde(default = "default_max_samples")]
    pub max_samples: u32,
    /// A file of certificate authorities in PEM form that are trusted instead of the machine's, beneath a folder of the Rack's `policy.read_roots`.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub ca_file: Option<PathBuf>,
    /// Must be true where a target is `http://`, not at a loopback address, and a header has a `${NAME}` reference: anybody on the way reads it.
    #[serde(default)]
    pub allow_insecure: bool,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrapeTargetConfig {
    /// Where its metrics are, `http://host:port/metrics` or `https://`.
    #[schemars(extend("x-access" = "url"))]
    pub url: String,
    /// Labels of its points; `instance` is the host and port of `url`, and `job` the name of the gear, unless they are given here or in `labels`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

const fn default_interval() -> HumanDuration {
    HumanDuration::from_secs(15)
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_max_body() -> u32 {
    16 << 20
}

const fn default_max_samples() -> u32 {
    20_000
}

impl GearConfig for PrometheusScrapeConfig {
    fn validate(&self) -> Result<(), String> {
        if self.targets.is_empty() {
            return Err("targets must have at least one, such as { url: \"http://127.0.0.1:9100/metrics\" }".into());
        }
        if self.targets.len() > MOST_TARGETS {
            return Err(format!("targets must have at most {MOST_TARGETS}: use several gears"));
        }
        http_headers::validate(&self.headers)?;
        for target in &self.targets {
            let url = parse_url(&target.url)?;
            if !self.allow_insecure {
                http_headers::check_secrecy(&url, &self.headers)?;
            }
            target.labels.keys().try_for_each(|name| check_label(name))?;
        }
        self.labels.keys().try_for_each(|name| check_label(name))?;
        check_interval("interval", self.interval)?;
        check_interval("timeout", self.timeout)?;
        if self.timeout > self.interval {
            return Err("timeout must not be longer than interval".into());
        }
        for (key, value, most) in [
            ("max_body", self.max_body, MOST_BODY),
            ("max_samples", self.max_samples, MOST_SAMPLES),
        ] {
            if !(1..=most).contains(&value) {
                return Err(format!("{key} must be between 1 and {most}"));
            }
        }
        Ok(())
    }
}

/// Says that a label's name is none that Prometheus has.
fn check_label(name: &str) -> Result<(), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.is_empty() && name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    Err(format!(
        "labels: {name:?} is not a label's name: letters, digits and _, and no digit first"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused_with_the_fix() {
        let with = |key: &str, value: Value| {
            let mut config = json!({ "targets": [{ "url": "http://x:1/metrics" }] });
            config[key] = value;
            config
        };
        for (config, says) in [
            (json!({}), "targets"),
            (with("targets", json!([])), "at least one"),
            (
                with("targets", json!(vec![json!({ "url": "http://x" }); MOST_TARGETS + 1])),
                "targets must have at most 256",
            ),
            (with("targets", json!([{ "url": "x:1" }])), "must begin with http://"),
            (
                with("targets", json!([{ "url": "http://x", "labels": { "a.b": "c" } }])),
                "\"a.b\" is not a label's name",
            ),
            (with("labels", json!({ "1a": "c" })), "\"1a\" is not a label's name"),
            (with("timeout", json!("20s")), "timeout must not be longer"),
            (with("max_samples", json!(0)), "max_samples must be between 1 and 50000"),
            (
                with("headers", json!({ "authorization": "Bearer x" })),
                "must not be in a scenario",
            ),
            (
                with("headers", json!({ "authorization": "Bearer ${TOKEN}" })),
                "use https://, or set allow_insecure",
            ),
        ] {
            let error = gear_manifest::config::<PrometheusScrapeConfig>(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        let good = with("labels", json!({ "site": "north" }));
        assert!(gear_manifest::config::<PrometheusScrapeConfig>(good.as_object().unwrap()).is_ok());
    }
}
