//! `window` as data: its manifest and its configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use model::gear_manifest::{self, GearConfig, GearManifest};
use model::{HumanDuration, stable_hash};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expression::{CelExpression, compile_if_any};

/// The most aggregates.
const MAX_AGGREGATES: usize = 16;
/// The longest name of one, in bytes.
const MAX_NAME: usize = 64;
/// What a result has beside its aggregates.
const RESERVED: [&str; 3] = ["start", "end", "key"];

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "window",
    summary: "aggregates messages over spans of time, for each key",
    inputs: &["in"],
    outputs: &["out", "late"],
    doc: "Time is cut into spans of `every`, beginning at 1970-01-01T00:00:00Z. When one has ended, a message for each key leaves by `out`: an object of \
          `start`, `end`, `key` where there is one, and each aggregate by its name. It begins a signal and a trace of its own. A message whose window has \
          ended leaves by `late`, unchanged, or is dropped and counted. Where no message comes for `idle`, what is open ends, with `window.closed_by: idle`; \
          that is so after a restart or without the bus, too, and what comes then is late. With a guaranteed wire to this gear the windows are kept \
          in the Rack's outbox and each message is aggregated exactly once, through stops and crashes; they have 1 MiB for that, and messages are \
          taken within a second. A gear that is replaced goes on with them; where it is configured otherwise, they leave at once as `window.partial`. A gear \
          that is taken out of the scenario, moved or renamed loses them, and the Rack's log says how many. With hot wires only, windows are in memory: a stop, or a gear that is \
          replaced, sends what is open as `window.partial`; a crash loses it. Expressions are [CEL](https://cel.dev).",
    example: include_str!("../../examples/gears/window.yaml"),
    schema: gear_manifest::schema::<WindowConfig>,
    check: gear_manifest::check::<WindowConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `window`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowConfig {
    /// How long a window is, 100ms to 168h.
    pub every: HumanDuration,
    /// Which time of a message counts.
    #[serde(default)]
    pub time: WindowTime,
    /// How much later than a younger one a message may come and still belong to its window, 0s to 168h. For `event` time.
    #[serde(default = "default_lateness")]
    pub lateness: HumanDuration,
    /// How long nothing may come before what is open closes, 1ms to 168h; `every` and `lateness`, or 1m if that is longer, where it is not
    /// set. For `event` time. Longer than the Rack may be without its bus, or messages that waited there come late.
    #[serde(default)]
    idle: Option<HumanDuration>,
    /// The expression of a key, a text, a number or a bool: each key has results of its own. Without it there is one for all messages.
    #[serde(default)]
    key: Option<String>,
    /// What is made of the messages of a window, by the name that it has in the result; 16 at most.
    #[serde(default = "default_aggregates")]
    aggregates: BTreeMap<String, AggregateRule>,
    /// The most windows that are open at a time, of all keys, 1 to 5000; a message that needs one more is rejected. All of them together
    /// have 1 MiB.
    #[serde(default = "default_max_keys")]
    pub max_keys: u32,
}

/// Which time of a message counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowTime {
    /// When it was made: its `ts`.
    #[default]
    Event,
    /// When it came to this gear.
    Arrival,
}

/// One aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AggregateRule {
    /// What is made of the values.
    op: AggregateOperation,
    /// The expression of a message's value; null is left out. A count has none.
    #[serde(default)]
    of: Option<String>,
}

/// What is made of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AggregateOperation {
    /// How many messages there are.
    Count,
    /// The sum of numbers.
    Sum,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// The sum of numbers divided by how many they are.
    Mean,
    /// The value that came first.
    First,
    /// The value that came last.
    Last,
}

/// An aggregate with its expression compiled.
#[derive(Debug)]
pub struct WindowAggregate {
    /// Its name in a result.
    pub name: String,
    /// What is made of the values.
    pub operation: AggregateOperation,
    /// The expression of a value; none for a count.
    pub of: Option<CelExpression>,
}

const fn default_lateness() -> HumanDuration {
    HumanDuration::from_secs(0)
}

fn default_aggregates() -> BTreeMap<String, AggregateRule> {
    let count = AggregateRule {
        op: AggregateOperation::Count,
        of: None,
    };
    BTreeMap::from([("count".to_owned(), count)])
}

const fn default_max_keys() -> u32 {
    500
}

/// How long nothing may come, at least, where it is not configured.
const LEAST_IDLE: Duration = Duration::from_secs(60);

impl WindowConfig {
    /// How long nothing may come before what is open closes.
    #[must_use]
    pub fn idle(&self) -> Duration {
        let usual = (self.every.get() + self.lateness.get()).max(LEAST_IDLE);
        self.idle.map_or(usual, HumanDuration::get)
    }

    /// A hash of what makes a window what it is; how long it is waited for, and how many there may be, does not.
    ///
    /// # Errors
    /// In words why it has none.
    pub fn identity_hash(&self) -> Result<u64, String> {
        let meaning = (
            self.every.get().as_micros().to_string(),
            self.time,
            &self.key,
            &self.aggregates,
        );
        let bytes = serde_json::to_vec(&meaning).map_err(|error| error.to_string())?;
        Ok(stable_hash(&bytes))
    }

    /// The expressions of the key and of the aggregates.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn compile(&self) -> Result<(Option<CelExpression>, Vec<WindowAggregate>), String> {
        let key = compile_if_any("key", self.key.as_ref())?;
        let aggregates = self.aggregates.iter().map(|(name, rule)| rule.compile(name));
        Ok((key, aggregates.collect::<Result<_, _>>()?))
    }
}

impl AggregateRule {
    fn compile(&self, name: &str) -> Result<WindowAggregate, String> {
        if RESERVED.contains(&name) {
            return Err(format!(
                "aggregates.{name}: a result has its own {name}; choose another name"
            ));
        }
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(format!(
                "aggregates: the name {name:?} has {} bytes; it has 1 to {MAX_NAME}",
                name.len()
            ));
        }
        match (self.op, &self.of) {
            (AggregateOperation::Count, Some(_)) => {
                return Err(format!(
                    "aggregates.{name}.of: count counts messages and takes no expression; put a filter before"
                ));
            }
            (AggregateOperation::Count, None) | (_, Some(_)) => {}
            (_, None) => return Err(format!("aggregates.{name}.of is missing: the expression of the value")),
        }
        Ok(WindowAggregate {
            name: name.to_owned(),
            operation: self.op,
            of: compile_if_any(&format!("aggregates.{name}.of"), self.of.as_ref())?,
        })
    }
}

impl GearConfig for WindowConfig {
    fn validate(&self) -> Result<(), String> {
        let week = Duration::from_secs(7 * 86_400);
        if !(Duration::from_millis(100)..=week).contains(&self.every.get()) {
            return Err("every must be 100ms to 168h".into());
        }
        if self.lateness.get() > week {
            return Err("lateness must be 0s to 168h".into());
        }
        if self.time == WindowTime::Arrival && !self.lateness.get().is_zero() {
            return Err("lateness belongs to time event: by arrival no message is late".into());
        }
        if self.aggregates.is_empty() || self.aggregates.len() > MAX_AGGREGATES {
            return Err(format!(
                "aggregates must have 1 to {MAX_AGGREGATES} entries, it has {}",
                self.aggregates.len()
            ));
        }
        if let Some(idle) = self.idle {
            if self.time == WindowTime::Arrival {
                return Err("idle belongs to time event: by arrival the clock closes windows".into());
            }
            if !(Duration::from_millis(1)..=week).contains(&idle.get()) {
                return Err("idle must be 1ms to 168h".into());
            }
        }
        if !(1..=5_000).contains(&self.max_keys) {
            return Err("max_keys must be 1 to 5000".into());
        }
        self.compile().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_obeyed_is_refused_with_the_key() {
        let of = |name: &str, op: &str, of: Value| json!({"every": "1s", "aggregates": {name: {"op": op, "of": of}}});
        for (config, says) in [
            (json!({}), "missing field `every`"),
            (json!({"every": "99ms"}), "every must be 100ms to 168h"),
            (
                json!({"every": "1s", "lateness": "169h"}),
                "lateness must be 0s to 168h",
            ),
            (
                json!({"every": "1s", "lateness": "1s", "time": "arrival"}),
                "lateness belongs to time event",
            ),
            (json!({"every": "1s", "max_keys": 0}), "max_keys must be 1 to 5000"),
            (json!({"every": "1s", "idle": "0s"}), "idle must be 1ms to 168h"),
            (
                json!({"every": "1s", "idle": "1s", "time": "arrival"}),
                "idle belongs to time event",
            ),
            (json!({"every": "1s", "key": "data."}), "key: at 1:6"),
            (
                json!({"every": "1s", "aggregates": {}}),
                "aggregates must have 1 to 16 entries, it has 0",
            ),
            (
                of("start", "count", Value::Null),
                "aggregates.start: a result has its own start",
            ),
            (of("", "count", Value::Null), "the name \"\" has 0 bytes"),
            (
                of("n", "count", json!("data")),
                "aggregates.n.of: count counts messages",
            ),
            (of("n", "sum", Value::Null), "aggregates.n.of is missing"),
            (
                of("n", "sum", json!("nothing")),
                "aggregates.n.of: at 1:1: there is no variable nothing",
            ),
            (of("n", "median", json!("data")), "unknown variant `median`"),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
    }
}
