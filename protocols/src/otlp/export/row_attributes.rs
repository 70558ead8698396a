//! A row's attributes, divided among resource, scope and record, and given back their types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use serde_json::{Map, Value};

/// The attributes of one row. Those of the resource keep `resource.`, as its other fields are beside them.
#[derive(Debug, Default)]
pub(super) struct RowAttributes {
    pub(super) resource: Map<String, Value>,
    pub(super) scope: Map<String, Value>,
    pub(super) own: OwnAttributes,
}

impl RowAttributes {
    /// Reads the column's text. What is no JSON object has no attributes: rows are checked before they are stored.
    pub(super) fn read(text: &str) -> Self {
        let mut row = Self::default();
        let all: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        for (key, value) in all {
            if key.starts_with("resource.") {
                row.resource.insert(key, value);
            } else if let Some(key) = key.strip_prefix("otel.resource.") {
                row.resource.insert(key.to_owned(), value);
            } else if key == "otel.schema_url" {
                row.resource.insert("schema_url".to_owned(), value);
            } else if let Some(key) = key.strip_prefix("otel.scope.") {
                row.scope.insert(key.to_owned(), value);
            } else {
                row.own.0.insert(key, value);
            }
        }
        row
    }
}

/// Attributes from which fields are taken.
#[derive(Debug, Default)]
pub(super) struct OwnAttributes(pub(super) Map<String, Value>);

impl OwnAttributes {
    /// Takes an attribute if it is what a field wants; else it stays.
    pub(super) fn take<T>(&mut self, key: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let found = read(self.0.get(key)?)?;
        self.0.remove(key);
        Some(found)
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.take(key, |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn is_set(&mut self, key: &str) -> Option<bool> {
        self.take(key, Value::as_bool)
    }

    pub(super) fn double(&mut self, key: &str) -> Option<f64> {
        self.take(key, Value::as_f64)
    }

    /// A whole number that its field can hold.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, key: &str) -> Option<T> {
        self.take(key, |value| value.as_i64()?.try_into().ok())
    }

    pub(super) fn count(&mut self, key: &str) -> Option<u64> {
        self.take(key, Value::as_u64)
    }

    /// An id as hex, of so many bytes.
    pub(super) fn id(&mut self, key: &str, length: usize) -> Vec<u8> {
        let id = self.take(key, |value| id_bytes(value.as_str()?, length));
        id.unwrap_or_default()
    }

    /// A time with nanoseconds.
    pub(super) fn nanos(&mut self, key: &str) -> Option<u64> {
        self.take(key, |value| nanos(value.as_str()?))
    }

    /// A list of which every element can be read.
    pub(super) fn list<T>(&mut self, key: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        let list = self.take(key, |value| value.as_array()?.iter().map(read).collect());
        list.unwrap_or_default()
    }

    /// What is left, and the row's signal.
    pub(super) fn rest(self, flux: Option<model::FluxId>) -> Vec<KeyValue> {
        let mut rest: Vec<KeyValue> = self.0.iter().map(|(key, value)| key_value(key, value)).collect();
        rest.extend(flux.map(|id| text_value(super::FLUX_ID, &id.to_string())));
        rest
    }

    /// What is left, under keys without `prefix`.
    pub(super) fn prefixed(self, prefix: &str) -> Vec<KeyValue> {
        let rest = self.0.iter();
        rest.map(|(key, value)| key_value(key.strip_prefix(prefix).unwrap_or(key), value))
            .collect()
    }

    /// Takes every attribute below `prefix`, under the rest of its key.
    pub(super) fn below(&mut self, prefix: &str) -> Vec<KeyValue> {
        let keys: Vec<String> = self.0.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut taken = Vec::new();
        for key in keys {
            if let Some(value) = self.0.remove(&key) {
                taken.push(key_value(key.strip_prefix(prefix).unwrap_or(&key), &value));
            }
        }
        taken
    }
}

pub(in crate::otlp) fn text_value(key: &str, text: &str) -> KeyValue {
    key_value(key, &Value::from(text))
}

pub(in crate::otlp) fn key_value(key: &str, value: &Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any_value(value)),
        ..KeyValue::default()
    }
}

/// The attributes of an event, a link or an exemplar.
pub(super) fn nested_attributes(of: &Value) -> Vec<KeyValue> {
    let attributes = of.get("attributes").and_then(Value::as_object);
    let attributes = attributes.into_iter().flatten();
    attributes.map(|(key, value)| key_value(key, value)).collect()
}

/// A value of the type that it has as JSON.
pub(in crate::otlp) fn any_value(value: &Value) -> AnyValue {
    let value = match value {
        Value::Null => None,
        Value::Bool(value) => Some(AnyKind::BoolValue(*value)),
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => AnyKind::IntValue(whole),
            None => AnyKind::DoubleValue(number.as_f64().unwrap_or_default()),
        }),
        Value::String(text) => Some(AnyKind::StringValue(text.clone())),
        Value::Array(list) => Some(AnyKind::ArrayValue(ArrayValue {
            values: list.iter().map(any_value).collect(),
        })),
        Value::Object(map) => Some(AnyKind::KvlistValue(KeyValueList {
            values: map.iter().map(|(key, value)| key_value(key, value)).collect(),
        })),
    };
    AnyValue { value }
}

/// A value of the type that a body had; `None` if the text is not one of it.
pub(super) fn typed_body(kind: &str, text: &str) -> Option<AnyKind> {
    Some(match kind {
        "bool" => AnyKind::BoolValue(text.parse().ok()?),
        "int" => AnyKind::IntValue(text.parse().ok()?),
        "double" => AnyKind::DoubleValue(text.parse().ok()?),
        "bytes" => AnyKind::BytesValue(STANDARD.decode(text).ok()?),
        "array" => match serde_json::from_str(text).ok()? {
            list @ Value::Array(_) => any_value(&list).value?,
            _ => return None,
        },
        _ => return None,
    })
}

/// The bytes of an id as hex, if it has so many and is not zero.
pub(super) fn id_bytes(text: &str, length: usize) -> Option<Vec<u8>> {
    let id = model::hex::decode(text)?;
    (id.len() == length && id.iter().any(|byte| *byte != 0)).then_some(id)
}

/// A time as RFC 3339 with up to nine digits of a second.
pub(super) fn nanos(text: &str) -> Option<u64> {
    let fraction = text.strip_suffix('Z').and_then(|text| text.split_once('.'));
    let (micros, below) = match fraction {
        Some((seconds, digits)) if digits.len() == 9 => {
            let (micros, below) = digits.split_at_checked(6)?;
            (format!("{seconds}.{micros}Z"), below.parse().ok()?)
        }
        _ => (text.to_owned(), 0),
    };
    let micros = micros.parse::<Timestamp>().ok()?.micros();
    u64::try_from(micros).ok()?.checked_mul(1_000)?.checked_add(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nine_digits_or_fewer() {
        assert_eq!(nanos("1970-01-01T00:00:01.000000007Z"), Some(1_000_000_007));
        assert_eq!(nanos("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
        assert_eq!(nanos("1970-01-01T00:00:01Z"), Some(1_000_000_000));
        for bad in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:01.00000000éZ",
        ] {
            assert_eq!(nanos(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_attribute_of_another_type_than_its_name_says_stays_one() {
        let mut row = RowAttributes::read(r#"{"otel.flags":"many","otel.unit":7,"trace_id":"xy","n":-1}"#).own;
        assert_eq!(row.number::<u32>("otel.flags"), None);
        assert_eq!(row.number::<u32>("n"), None);
        assert_eq!(row.text("otel.unit"), None);
        assert!(row.id("trace_id", 16).is_empty());
        assert_eq!(row.rest(None).len(), 4);
    }
}
