//! Bind parameters of a client, as the querier takes them: texts, numbers, booleans, null.

use bytes::{Buf, Bytes};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Number, Value};
use uuid::Uuid;

use super::numeric;
use super::pg_error::PgError;
use super::pg_types::{FormatCode, ScalarType, days_since_1970, micros_since_1970};

/// The value of a parameter of a type that came in a form; `place` is its number, from 1.
pub(super) fn value(kind: ScalarType, form: FormatCode, bytes: Option<&Bytes>, place: usize) -> Result<Value, PgError> {
    let Some(bytes) = bytes else {
        return Ok(Value::Null);
    };
    let read = match form {
        FormatCode::Text => std::str::from_utf8(bytes).ok().and_then(|text| of_text(kind, text)),
        FormatCode::Binary => of_binary(kind, bytes),
    };
    read.ok_or_else(|| {
        PgError::error(
            "22P02",
            format!("the parameter ${place} is not a value of its type ({kind:?})"),
        )
    })
}

fn of_text(kind: ScalarType, text: &str) -> Option<Value> {
    if text.contains('\0') {
        return None;
    }
    let trimmed = text.trim();
    Some(match kind {
        ScalarType::Bool => match trimmed.to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" | "y" => Value::Bool(true),
            "f" | "false" | "0" | "off" | "no" | "n" => Value::Bool(false),
            _ => return None,
        },
        ScalarType::Int2 | ScalarType::Int4 | ScalarType::Int8 => trimmed.parse::<i64>().ok()?.into(),
        ScalarType::Float4 | ScalarType::Float8 => float(trimmed.parse().ok()?),
        ScalarType::Uuid => Uuid::try_parse(trimmed).ok()?.to_string().into(),
        _ => text.into(),
    })
}

fn of_binary(kind: ScalarType, mut bytes: &[u8]) -> Option<Value> {
    let read: Value = match kind {
        ScalarType::Bool => (bytes.try_get_u8().ok()? != 0).into(),
        ScalarType::Int2 => bytes.try_get_i16().ok()?.into(),
        ScalarType::Int4 => bytes.try_get_i32().ok()?.into(),
        ScalarType::Int8 => bytes.try_get_i64().ok()?.into(),
        ScalarType::Float4 => float(bytes.try_get_f32().ok()?.into()),
        ScalarType::Float8 => float(bytes.try_get_f64().ok()?),
        ScalarType::Numeric => return numeric::read(bytes).map(Value::from),
        ScalarType::Text => return of_text(kind, std::str::from_utf8(bytes).ok()?),
        ScalarType::Uuid => return Uuid::from_slice(bytes).ok().map(|id| id.to_string().into()),
        ScalarType::Timestamp | ScalarType::Timestamptz => {
            let at = DateTime::from_timestamp_micros(micros_since_1970(bytes.try_get_i64().ok()?))?;
            let zoned = kind == ScalarType::Timestamptz;
            let text = at.to_rfc3339_opts(SecondsFormat::Micros, true);
            let text = if zoned {
                text.as_str()
            } else {
                text.trim_end_matches('Z')
            };
            text.into()
        }
        ScalarType::Date => {
            let days = i64::from(days_since_1970(bytes.try_get_i32().ok()?));
            let at = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?;
            at.format("%Y-%m-%d").to_string().into()
        }
        ScalarType::Time => {
            let at = DateTime::from_timestamp_micros(bytes.try_get_i64().ok()?)?;
            at.format("%H:%M:%S%.6f").to_string().into()
        }
        ScalarType::Interval => {
            let (micros, days) = (bytes.try_get_i64().ok()?, bytes.try_get_i32().ok()?);
            let months = bytes.try_get_i32().ok()?;
            format!("{months} months {days} days {micros} microseconds").into()
        }
        ScalarType::Bytea => return None,
    };
    bytes.is_empty().then_some(read)
}

/// A number, or its name if it is none that is finite.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}
