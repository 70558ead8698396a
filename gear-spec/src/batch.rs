//! `batch` as data: its manifest and its configuration.

use std::time::Duration;

use model::HumanDuration;
use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::{CelExpression, compile_if_any};

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "batch",
    summary: "collects messages and sends them as one",
    inputs: &["in"],
    outputs: &["out"],
    doc: "A batch leaves when it has `max_messages` or `max_bytes`, when it is `max_age` old, and when the gear stops, whichever comes \
          first; a message larger than that leaves alone. It goes on in the signal and the trace of its first message, with its metadata, and \
          `batch.messages` (how many), `batch.first_ts` and `batch.last_ts` (the earliest and the latest of their times), `batch.key` where there \
          is a `key`. On a guaranteed wire a message counts as taken when its batch is durable, and comes again after a crash; up to 1,024 messages \
          or 8 MiB (a sixteenth of the outbox, if that is less) wait so, rejected ones between them included, then all open batches leave before \
          they are full. Messages of hot wires that wait when the Rack is killed are lost.",
    example: include_str!("../../examples/gears/batch.yaml"),
    schema: gear_manifest::schema::<BatchConfig>,
    check: gear_manifest::check::<BatchConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `batch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchConfig {
    /// How the messages are written into one body.
    #[serde(default)]
    pub format: BatchFormat,
    /// What stands between two messages of `concatenated`, such as `"\n"`.
    #[serde(default)]
    pub separator: String,
    /// The most messages of a batch, 1 to 100000.
    #[serde(default = "default_max_messages")]
    pub max_messages: u32,
    /// The most bytes of a batch's body, 1 to 16777216; what `max_payload_size` allows, if that is less.
    #[serde(default = "default_max_bytes")]
    pub max_bytes: u32,
    /// How long a batch waits for more after its first message, 1ms to 24h.
    #[serde(default = "default_max_age")]
    pub max_age: HumanDuration,
    /// The expression of a key, a text, a number or a bool: each key has a batch of its own. Without it there is one for all messages.
    #[serde(default)]
    key: Option<String>,
    /// The most batches that are open at a time, 1 to 10000; the oldest one makes room and leaves.
    #[serde(default = "default_max_keys")]
    pub max_keys: u32,
}

/// How the messages are written into one body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchFormat {
    /// A line of JSON for each message: its value, or its text as a JSON string.
    #[default]
    Ndjson,
    /// A JSON array of the same.
    JsonArray,
    /// The bodies as they are, values as JSON.
    Concatenated,
}

const fn default_max_messages() -> u32 {
    500
}

const fn default_max_bytes() -> u32 {
    256 * 1024
}

const fn default_max_age() -> HumanDuration {
    HumanDuration::from_secs(1)
}

const fn default_max_keys() -> u32 {
    100
}

/// The most bytes of the bodies of all open batches; beside them each has the facts of its first message.
const MAX_OPEN_BYTES: u64 = 1 << 30;

/// The longest separator.
const MAX_SEPARATOR: usize = 256;

impl BatchConfig {
    /// Its expressions, compiled.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<Option<CelExpression>, String> {
        compile_if_any("key", self.key.as_ref())
    }
}

impl GearConfig for BatchConfig {
    fn validate(&self) -> Result<(), String> {
        if !(1..=100_000).contains(&self.max_messages) {
            return Err("max_messages must be 1 to 100000".into());
        }
        if !(1..=16 << 20).contains(&self.max_bytes) {
            return Err("max_bytes must be 1 to 16777216".into());
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&self.max_age.get()) {
            return Err("max_age must be 1ms to 24h".into());
        }
        if !(1..=10_000).contains(&self.max_keys) {
            return Err("max_keys must be 1 to 10000".into());
        }
        if self.key.is_some() && u64::from(self.max_keys) * u64::from(self.max_bytes) > MAX_OPEN_BYTES {
            return Err("max_keys times max_bytes must be at most 1073741824: set one of them lower".into());
        }
        if !self.separator.is_empty() && self.format != BatchFormat::Concatenated {
            return Err("separator belongs to format concatenated; the other formats have their own".into());
        }
        if self.separator.len() > MAX_SEPARATOR {
            return Err(format!("separator must have at most {MAX_SEPARATOR} bytes"));
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
            (json!({"max_messages": 0}), "max_messages must be 1 to 100000"),
            (json!({"max_bytes": 16_777_217}), "max_bytes must be 1 to 16777216"),
            (json!({"max_age": "0s"}), "max_age must be 1ms to 24h"),
            (json!({"max_keys": 0}), "max_keys must be 1 to 10000"),
            (
                json!({"key": "text", "max_keys": 100, "max_bytes": 16_777_216}),
                "max_keys times max_bytes",
            ),
            (json!({"key": "data."}), "key: at 1:6"),
            (json!({"separator": ","}), "separator belongs to format concatenated"),
            (
                json!({"format": "concatenated", "separator": "x".repeat(257)}),
                "separator must have at most 256 bytes",
            ),
            (json!({"format": "xml"}), "unknown variant `xml`"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        assert_eq!((MANIFEST.check)(&serde_json::Map::new()), Ok(()));
    }
}
