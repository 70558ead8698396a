//! The three telemetry nouns, one struct each, fields named and ordered as the specification's columns.
//!
//! # Invariants
//!
//! - [`Attributes`] are flat: keys are dotted and unique, values are JSON scalars or arrays, never objects
//!   (nested objects break outside readers; see [`flatten`](Attributes::flatten)).
//! - What is read from outside is at most a few times as large when it is flattened: [`largest_flat`]. A long key above many small
//!   values would multiply otherwise.
//!
//! # Not here
//!
//! Columns ([`crate::Table`], [`crate::batch`]) and encodings ([`crate::telemetry_codec`]).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{BadId, EntityId, FluxId, SpanId, Table, Timestamp, TraceId, value_text};

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stored word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(BadId { what: $what, text: text.to_owned() }),
                }
            }
        }
    };
}

word_enum!(
    /// A log level; ordered, so `min_level` is a comparison.
    Level, "a level: debug, info, warn or error", {
    /// Detail for developers. Trace-level lines are stored as this too.
    Debug = "debug",
    /// Normal operation.
    Info = "info",
    /// Something to look at.
    Warn = "warn",
    /// Something failed.
    Error = "error",
});
word_enum!(
    /// A span's or message's outcome.
    SpanStatus, "a status: ok or error", {
    /// It worked.
    Ok = "ok",
    /// It failed.
    Error = "error",
});
word_enum!(
    /// What a metric's value means.
    MetricType, "a metric type: counter, gauge or histogram", {
    /// A cumulative, only growing value; resets to zero at restart.
    Counter = "counter",
    /// A value that goes up and down.
    Gauge = "gauge",
    /// A distribution: `value` is the sum; labels `otel.count`, `otel.bounds` and `otel.buckets` hold the rest.
    Histogram = "histogram",
});

/// Structured fields: a flat JSON object with dotted keys.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "NestedAttributes")]
pub struct Attributes(Map<String, Value>);

plain_schema!(Attributes, { "description": "A flat JSON object with dotted keys.", "type": "object" });

/// Fields as they are read from outside.
#[derive(Deserialize)]
struct NestedAttributes(Map<String, Value>);

/// The largest flat form of an object whose text, or that of the record it is in, has so many bytes.
pub(crate) const fn largest_flat(text: usize) -> usize {
    let most = text.saturating_mul(8).saturating_add(64 << 10);
    // What does not multiply may be of any size: as JSON each of its values has a few bytes more than as CBOR.
    let alike = text.saturating_add(512 << 10);
    let largest = if alike > LARGEST_FLAT { alike } else { LARGEST_FLAT };
    if most < largest { most } else { largest }
}

/// The largest flat form of an object that multiplies.
const LARGEST_FLAT: usize = 4 << 20;

impl Attributes {
    /// No fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field; an object value is flattened into dotted keys.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        flatten_into(key.to_owned(), value.into(), &mut self.0);
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set(key, value);
        self
    }

    /// A field's value.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The fields.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// A flat form of any JSON object: nested keys are joined with dots, a later duplicate wins.
    #[must_use]
    pub fn flatten(object: Map<String, Value>) -> Self {
        if object.values().all(|value| !value.is_object()) {
            return Self(object);
        }
        let mut flat = Map::new();
        for (key, value) in object {
            flatten_into(key, value, &mut flat);
        }
        Self(flat)
    }

    /// The JSON text that is stored.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

fn flatten_into(key: String, value: Value, into: &mut Map<String, Value>) {
    match value {
        Value::Object(inner) => {
            for (name, value) in inner {
                flatten_into(format!("{key}.{name}"), value, into);
            }
        }
        scalar => {
            into.insert(key, scalar);
        }
    }
}

impl TryFrom<NestedAttributes> for Attributes {
    type Error = FlattenError;
    fn try_from(NestedAttributes(object): NestedAttributes) -> Result<Self, FlattenError> {
        let mut sizes = ObjectSizes::default();
        object.iter().for_each(|(key, value)| sizes.add(0, key, value));
        let most = largest_flat(sizes.text);
        if sizes.flat > most {
            return Err(FlattenError { most });
        }
        Ok(Self::flatten(object))
    }
}

/// Attributes multiply when they are flattened.
#[derive(Debug, thiserror::Error)]
#[error(
    "attributes become more than {most} bytes when they are flattened (8 times what was sent and 64 KiB; 4 MiB at most, or 512 KiB more than was sent): send shorter keys, or less under each of them"
)]
pub(crate) struct FlattenError {
    pub(crate) most: usize,
}

/// About the bytes of an object as a text, nested and flat.
#[derive(Default)]
struct ObjectSizes {
    text: usize,
    flat: usize,
}

impl ObjectSizes {
    /// Adds what is under a key, which follows a path of so many bytes.
    fn add(&mut self, path: usize, key: &str, value: &Value) {
        // Two quotes, a colon and a comma; in the flat form a dot.
        self.text += key.len() + 4;
        let path = path + key.len() + 1;
        if let Value::Object(inner) = value {
            inner.iter().for_each(|(key, value)| self.add(path, key, value));
        } else {
            let bytes = text_bytes(value);
            self.text += bytes;
            self.flat += path + 3 + bytes;
        }
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|value| 1 + text_bytes(value)).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter()
                .map(|(key, value)| key.len() + 4 + text_bytes(value))
                .sum::<usize>()
                + 2
        }
    }
}

impl From<Map<String, Value>> for Attributes {
    fn from(object: Map<String, Value>) -> Self {
        Self::flatten(object)
    }
}

/// One log line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRecord {
    /// When it happened.
    pub ts: Timestamp,
    /// Whose it is.
    pub entity_id: EntityId,
    /// The entity's host name.
    pub entity_name: String,
    /// The business signal it belongs to.
    #[serde(default)]
    pub flux_id: Option<FluxId>,
    /// How grave it is.
    pub level: Level,
    /// The text.
    pub message: String,
    /// Structured fields; `gear.id`, `gear.type`, `trace_id`, `span_id` where known.
    #[serde(default)]
    pub attributes: Attributes,
}

/// One finished operation of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// When it began.
    pub ts: Timestamp,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span that caused it; none at the root.
    #[serde(default)]
    pub parent_span_id: Option<SpanId>,
    /// The business signal it belongs to.
    #[serde(default)]
    pub flux_id: Option<FluxId>,
    /// Whose it is.
    pub entity_id: EntityId,
    /// The entity's host name.
    pub entity_name: String,
    /// The operation.
    pub span_name: String,
    /// How long it took, in milliseconds.
    pub duration_ms: f32,
    /// Whether it worked.
    pub status: SpanStatus,
    /// Structured fields.
    #[serde(default)]
    pub attributes: Attributes,
}

impl Span {
    /// The attribute that names its service, as resources of OpenTelemetry do.
    pub const SERVICE_NAME: &'static str = "resource.service.name";
    /// The attribute with its kind: `server`, `client`, `producer`, `consumer` or `internal`.
    pub const KIND: &'static str = "span.kind";

    /// Its service: the text of that attribute, else the entity's name.
    #[must_use]
    pub fn service(&self) -> String {
        let named = self.attributes.get(Self::SERVICE_NAME).cloned().and_then(value_text);
        named.unwrap_or_else(|| self.entity_name.clone())
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricPoint {
    /// When it was measured.
    pub ts: Timestamp,
    /// The metric's name, OpenTelemetry style: `system.cpu.utilization`.
    pub name: String,
    /// Whose it is.
    pub entity_id: EntityId,
    /// The entity's host name.
    pub entity_name: String,
    /// What the value means.
    #[serde(rename = "type")]
    pub metric_type: MetricType,
    /// The value, in the unit that the label `otel.unit` names.
    pub value: f64,
    /// Dimensions; `otel.unit` holds the unit.
    #[serde(default)]
    pub labels: Attributes,
}

/// A row of any telemetry table.
pub trait TelemetryRecord: Sized + Send + Serialize + for<'de> Deserialize<'de> {
    /// The table it is stored in.
    const TABLE: Table;
    /// The event time.
    fn ts(&self) -> Timestamp;
    /// Rows to one column batch in the table's schema.
    ///
    /// # Errors
    /// Only if the columns do not fit the schema, which would be a defect of [`crate::batch`].
    fn to_batch(rows: &[Self]) -> Result<arrow_array::RecordBatch, arrow_schema::ArrowError>;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nested_attributes_become_flat_dotted_keys() {
        let nested: Attributes =
            serde_json::from_str(r#"{"http":{"method":"GET","status":200},"tags":["a"]}"#).unwrap();
        assert_eq!(
            nested.to_json(),
            r#"{"http.method":"GET","http.status":200,"tags":["a"]}"#
        );
    }

    #[test]
    fn levels_are_ordered_and_named_as_stored() {
        assert!(Level::Debug < Level::Info && Level::Warn < Level::Error);
        assert_eq!("warn".parse(), Ok(Level::Warn));
        assert!("WARN".parse::<Level>().is_err());
    }
}
