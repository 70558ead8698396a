//! Gear types as data: what each is called, its ports, and its configuration. The Mixer validates with it, the Rack runs it.
//!
//! # Invariants
//!
//! - Adding a type touches this table and one file in `rack`.
//! - A configuration is a struct that refuses unknown keys; [`Manifest::check`] parses it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::HumanDuration;

/// What a gear type is.
#[derive(Debug)]
pub struct Manifest {
    /// The type's name in a scenario.
    pub kind: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Ports that take messages.
    pub inputs: &'static [&'static str],
    /// Ports that give messages.
    pub outputs: &'static [&'static str],
    /// Parses a configuration, to say what is wrong with it.
    check: fn(&Map<String, Value>) -> Result<(), String>,
}

impl Manifest {
    /// Checks a configuration.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        (self.check)(config)
    }
}

/// Reads a gear's configuration.
///
/// # Errors
/// A sentence that names the key.
pub fn config<T: DeserializeOwned>(config: &Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(config.clone())).map_err(|error| error.to_string())
}

fn check<T: DeserializeOwned + Validate>(map: &Map<String, Value>) -> Result<(), String> {
    config::<T>(map)?.validate()
}

/// What a type cannot say with its fields alone.
trait Validate {
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Every type.
pub static MANIFESTS: &[Manifest] = &[
    Manifest {
        kind: "file_tail",
        summary: "follows a text file through rotation and truncation; each line becomes a log record and a message",
        inputs: &[],
        outputs: &["out"],
        check: check::<FileTail>,
    },
    Manifest {
        kind: "host_metrics",
        summary: "reports CPU, memory, disk, network and load of the machine under OpenTelemetry names",
        inputs: &[],
        outputs: &[],
        check: check::<HostMetrics>,
    },
    Manifest {
        kind: "generator",
        summary: "makes messages at a steady rate from a seed",
        inputs: &[],
        outputs: &["out"],
        check: check::<Generator>,
    },
    Manifest {
        kind: "http_in",
        summary: "listens on HTTP; the body of each POST becomes a message",
        inputs: &[],
        outputs: &["out"],
        check: check::<HttpIn>,
    },
    Manifest {
        kind: "log_sink",
        summary: "writes each message as a log record",
        inputs: &["in"],
        outputs: &[],
        check: check::<LogSink>,
    },
];

/// The manifest of a type.
#[must_use]
pub fn manifest(kind: &str) -> Option<&'static Manifest> {
    MANIFESTS.iter().find(|manifest| manifest.kind == kind)
}

/// The names of all types.
#[must_use]
pub fn type_names() -> Vec<&'static str> {
    MANIFESTS.iter().map(|manifest| manifest.kind).collect()
}

/// Configuration of `file_tail`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTail {
    /// The file to follow; it need not exist yet.
    pub path: PathBuf,
    /// Where to begin in a file that was never followed before.
    #[serde(default)]
    pub from: TailFrom,
    /// A regular expression that a record's first line matches; other lines are appended to the record before.
    #[serde(default)]
    pub multiline_start: Option<String>,
    /// The longest a record may wait for more lines.
    #[serde(default = "default_multiline_timeout")]
    pub multiline_timeout: HumanDuration,
    /// How often the file is looked at.
    #[serde(default = "default_poll")]
    pub poll_interval: HumanDuration,
    /// The longest line in bytes; the rest of a longer one is cut and the record marked `truncated`.
    #[serde(default = "default_max_line")]
    pub max_line_bytes: u32,
    /// The level of a record that does not begin with one.
    #[serde(default = "default_level")]
    pub level: crate::Level,
}

/// Where `file_tail` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TailFrom {
    /// At the first byte.
    #[default]
    Start,
    /// At the end: only new lines.
    End,
}

fn default_multiline_timeout() -> HumanDuration {
    HumanDuration::from_secs(1)
}

fn default_poll() -> HumanDuration {
    HumanDuration::from_millis(200)
}

const fn default_max_line() -> u32 {
    256 * 1024
}

const fn default_level() -> crate::Level {
    crate::Level::Info
}

impl Validate for FileTail {
    fn validate(&self) -> Result<(), String> {
        if self.path.as_os_str().is_empty() {
            return Err("path is empty".into());
        }
        if self.max_line_bytes == 0 || self.max_line_bytes > 1024 * 1024 {
            return Err("max_line_bytes must be between 1 and 1048576".into());
        }
        if self.poll_interval.get().is_zero() {
            return Err("poll_interval must be more than zero".into());
        }
        Ok(())
    }
}

/// Configuration of `host_metrics`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMetrics {
    /// How often everything is measured.
    #[serde(default = "default_host_interval")]
    pub interval: HumanDuration,
}

fn default_host_interval() -> HumanDuration {
    HumanDuration::from_secs(10)
}

impl Validate for HostMetrics {
    fn validate(&self) -> Result<(), String> {
        if self.interval.get().is_zero() {
            Err("interval must be more than zero".into())
        } else {
            Ok(())
        }
    }
}

/// Configuration of `generator`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Messages per second.
    #[serde(default = "default_rate")]
    pub rate: f64,
    /// The seed of the content: the same seed gives the same messages.
    #[serde(default)]
    pub seed: u64,
    /// How many messages to make in all; none for no end.
    #[serde(default)]
    pub count: Option<u64>,
    /// The body's size in bytes.
    #[serde(default = "default_size")]
    pub size: u32,
}

const fn default_rate() -> f64 {
    1.0
}

const fn default_size() -> u32 {
    64
}

impl Validate for Generator {
    fn validate(&self) -> Result<(), String> {
        if !(self.rate > 0.0 && self.rate <= 1_000_000.0) {
            return Err("rate must be more than 0 and at most 1000000".into());
        }
        if self.size > 1024 * 1024 {
            Err("size must be at most 1048576".into())
        } else {
            Ok(())
        }
    }
}

/// Configuration of `http_in`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpIn {
    /// Where to listen, `127.0.0.1:0` for any free port.
    pub listen: SocketAddr,
    /// The path that takes messages.
    #[serde(default = "default_path")]
    pub path: String,
}

fn default_path() -> String {
    "/".to_owned()
}

impl Validate for HttpIn {
    fn validate(&self) -> Result<(), String> {
        if self.path.starts_with('/') {
            Ok(())
        } else {
            Err("path must begin with /".into())
        }
    }
}

/// Configuration of `log_sink`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSink {
    /// The level of the records.
    #[serde(default = "default_level")]
    pub level: crate::Level,
}

impl Validate for LogSink {}
