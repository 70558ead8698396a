//! OTLP's attributes and values of every type, as the flat JSON that is stored.
//!
//! | value | becomes |
//! |---|---|
//! | text, bool, int, double | the same |
//! | NaN, ∞ | a text |
//! | bytes | base64 |
//! | array | an array, with objects for maps in it |
//! | map | keys joined by dots |
//! | none | null |
//!
//! # Invariants
//!
//! - Values are nested [`DEPTH`] deep at most: reading calls itself.
//! - A value that is built as JSON has at most [`VALUES`] values in it: each takes tens of bytes, however few it was sent in.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::telemetry_codec::AttributeBuffer;
use serde_json::{Map, Value};

use crate::protobuf::{FieldReader, MalformedProtobuf, MessageField};

/// How deep values may be nested.
const DEPTH: usize = 64;

/// How many values may be in an array or a map.
const VALUES: usize = 1 << 16;

/// Fields of `AnyValue`.
mod value_field {
    pub(super) const STRING: u32 = 1;
    pub(super) const BOOL: u32 = 2;
    pub(super) const INT: u32 = 3;
    pub(super) const DOUBLE: u32 = 4;
    pub(super) const ARRAY: u32 = 5;
    pub(super) const MAP: u32 = 6;
    pub(super) const BYTES: u32 = 7;
}

/// The elements of an array and of a map.
const ELEMENTS: u32 = 1;

/// A value's type and where it is.
#[derive(Debug, Clone)]
pub(super) enum TypedValue<'a> {
    None,
    Text(&'a str),
    Bool(bool),
    Int(i64),
    Double(f64),
    Array(Range<usize>),
    Map(Range<usize>),
    Bytes(&'a [u8]),
}

impl<'a> TypedValue<'a> {
    /// The value that lies in a range.
    pub(super) fn read(body: &'a [u8], range: Range<usize>) -> Result<Self, MalformedProtobuf> {
        let (mut reader, mut value) = (FieldReader::new(body, range), Self::None);
        while let Some(field) = reader.next()? {
            value = match field.number {
                value_field::STRING => Self::Text(field.text(body)?),
                value_field::BOOL => Self::Bool(field.varint()? != 0),
                value_field::INT => Self::Int(field.varint()?.cast_signed()),
                value_field::DOUBLE => Self::Double(field.double()?),
                value_field::ARRAY => Self::Array(field.range()?),
                value_field::MAP => Self::Map(field.range()?),
                value_field::BYTES => Self::Bytes(field.bytes(body)?),
                _ => value,
            };
        }
        Ok(value)
    }

    /// The value as JSON; a map as an object.
    pub(super) fn to_json(&self, body: &[u8]) -> Result<Value, String> {
        self.nested_json(body, (0, &mut 0))
    }

    fn nested_json(&self, body: &[u8], (depth, values): (usize, &mut usize)) -> Result<Value, String> {
        if depth > DEPTH {
            return Err(too_deep());
        }
        *values += 1;
        if *values > VALUES {
            return Err(format!(
                "an attribute has more than {VALUES} values: send a list as a text"
            ));
        }
        Ok(match self {
            Self::None => Value::Null,
            Self::Text(text) => Value::from(*text),
            Self::Bool(value) => Value::from(*value),
            Self::Int(value) => Value::from(*value),
            Self::Double(value) if value.is_finite() => Value::from(*value),
            Self::Double(value) => Value::from(value.to_string()),
            Self::Bytes(bytes) => Value::from(STANDARD.encode(bytes)),
            Self::Array(range) => {
                let (mut reader, mut list) = (FieldReader::new(body, range.clone()), Vec::new());
                while let Some(field) = reader.next()? {
                    if field.number == ELEMENTS {
                        let value = TypedValue::read(body, field.range()?)?;
                        list.push(value.nested_json(body, (depth + 1, &mut *values))?);
                    }
                }
                Value::Array(list)
            }
            Self::Map(range) => {
                let (mut reader, mut map) = (FieldReader::new(body, range.clone()), Map::new());
                while let Some(field) = reader.next()? {
                    if field.number == ELEMENTS {
                        let (key, value) = key_value(body, &field)?;
                        map.insert(key.to_owned(), value.nested_json(body, (depth + 1, &mut *values))?);
                    }
                }
                Value::Object(map)
            }
        })
    }
}

/// The key and the value of a `KeyValue`.
pub(super) fn key_value<'a>(
    body: &'a [u8],
    field: &MessageField,
) -> Result<(&'a str, TypedValue<'a>), MalformedProtobuf> {
    let mut reader = FieldReader::new(body, field.range()?);
    let (mut key, mut value) = ("", TypedValue::None);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => key = field.text(body)?,
            2 => value = TypedValue::read(body, field.range()?)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Sets an attribute; a map becomes several. `record` is how many bytes it was sent in.
pub(super) fn set_attribute(
    to: &mut AttributeBuffer,
    body: &[u8],
    (prefix, key): (&str, &str),
    value: &TypedValue<'_>,
    record: usize,
) -> Result<(), String> {
    match value {
        TypedValue::None => to.set(prefix, key, &()),
        TypedValue::Text(text) => to.set(prefix, key, *text),
        TypedValue::Bool(value) => to.set(prefix, key, value),
        TypedValue::Int(value) => to.set(prefix, key, value),
        TypedValue::Double(value) if value.is_finite() => to.set(prefix, key, value),
        TypedValue::Double(value) => to.set(prefix, key, value.to_string().as_str()),
        TypedValue::Bytes(bytes) => to.set(prefix, key, STANDARD.encode(bytes).as_str()),
        TypedValue::Array(_) => to.set(prefix, key, &value.to_json(body)?),
        TypedValue::Map(range) => {
            let mut path = format!("{prefix}{key}.");
            set_map(to, body, (&mut path, 1), range.clone(), record)?;
        }
    }
    to.check(record)
}

fn set_map(
    to: &mut AttributeBuffer,
    body: &[u8],
    (path, depth): (&mut String, usize),
    map: Range<usize>,
    record: usize,
) -> Result<(), String> {
    if depth > DEPTH {
        return Err(too_deep());
    }
    let mut reader = FieldReader::new(body, map);
    while let Some(field) = reader.next()? {
        if field.number != ELEMENTS {
            continue;
        }
        let (key, value) = key_value(body, &field)?;
        if let TypedValue::Map(range) = value {
            let length = path.len();
            path.push_str(key);
            path.push('.');
            set_map(to, body, (&mut *path, depth + 1), range, record)?;
            path.truncate(length);
        } else {
            set_attribute(to, body, (path.as_str(), key), &value, record)?;
        }
    }
    Ok(())
}

fn too_deep() -> String {
    format!("values are nested more than {DEPTH} deep")
}
