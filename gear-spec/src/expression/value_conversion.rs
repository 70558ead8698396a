//! Between JSON values and the language's.
//!
//! | JSON | expression | back |
//! |---|---|---|
//! | integer | `int`, above 2^63 `uint` | integer |
//! | other number | `double` | number; what is not finite is refused |
//! | | `timestamp` | text, RFC 3339 |
//! | | `duration` | text, seconds: `1.5s` |
//! | | a type | its name |
//! | | `bytes` | refused |
//!
//! # Invariants
//!
//! - Texts are borrowed from the message, not copied.
//! - A value that comes out is at most [`MAX_DEPTH`] deep, so that every reader of a message can read it.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::Val;
use serde_json::{Map, Number, Value};

/// The deepest nesting of a value that a gear makes.
pub(super) const MAX_DEPTH: usize = 128;

/// A JSON value as the language sees it.
pub(super) fn from_json(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => from_number(number),
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(list) => Box::new(CelList::from(list.iter().map(from_json).collect::<Vec<_>>())),
        Value::Object(map) => from_map(map),
    }
}

/// A JSON object as the language sees it.
pub(super) fn from_map(map: &Map<String, Value>) -> Box<dyn Val + '_> {
    let entries: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = map
        .iter()
        .map(|(key, value)| (CelMapKey::from(key.as_str()), from_json(value)))
        .collect();
    Box::new(CelMap::from(entries))
}

fn from_number(number: &Number) -> Box<dyn Val> {
    if let Some(int) = number.as_i64() {
        Box::new(CelInt::from(int))
    } else if let Some(uint) = number.as_u64() {
        Box::new(CelUInt::from(uint))
    } else {
        Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
    }
}

/// A result as JSON, or why it has no such form.
pub(super) fn to_json(value: &cel::Value, depth: usize) -> Result<Value, String> {
    use cel::Value as Cel;
    if depth > MAX_DEPTH {
        return Err(format!("the result is nested more than {MAX_DEPTH} deep"));
    }
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(value) => (*value).into(),
        Cel::Int(value) => (*value).into(),
        Cel::UInt(value) => (*value).into(),
        Cel::Float(value) => Number::from_f64(*value)
            .ok_or_else(|| format!("the result is {value}, not a number in JSON"))?
            .into(),
        Cel::String(text) => text.as_str().into(),
        Cel::Timestamp(time) => time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true).into(),
        Cel::Duration(duration) => seconds(duration).into(),
        Cel::List(list) => {
            let items = list.iter().map(|item| to_json(item, depth + 1));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Cel::Map(map) => {
            let entries = map
                .map
                .iter()
                .map(|(key, value)| Ok((key.to_string(), to_json(value, depth + 1)?)));
            Value::Object(entries.collect::<Result<_, String>>()?)
        }
        other => {
            let kind = other.type_of();
            return Err(format!(
                "the result is of type {kind}, which has no form in JSON; use string()"
            ));
        }
    })
}

/// `1.5s`, as CEL writes durations.
fn seconds(duration: &chrono::Duration) -> String {
    let (sign, nanos) = match duration.num_nanoseconds() {
        Some(nanos) => (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs()),
        // Longer than 292 years: the fraction is of no use.
        None => return format!("{}s", duration.num_seconds()),
    };
    let fraction = format!("{:09}", nanos % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{fraction}s", nanos / 1_000_000_000)
}
