//! Values that a client binds, as the querier takes them: texts, numbers, booleans, null.

use bytes::{Buf, Bytes};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Number, Value};
use uuid::Uuid;

use super::fault::Fault;
use super::numeric;
use super::values::{Form, Scalar, days_since_1970, micros_since_1970};

/// The value of a parameter of a type that came in a form; `place` is its number, from 1.
pub(super) fn value(kind: Scalar, form: Form, bytes: Option<&Bytes>, place: usize) -> Result<Value, Fault> {
    let Some(bytes) = bytes else {
        return Ok(Value::Null);
    };
    let read = match form {
        Form::Text => std::str::from_utf8(bytes).ok().and_then(|text| of_text(kind, text)),
        Form::Binary => of_binary(kind, bytes),
    };
    read.ok_or_else(|| {
        Fault::error(
            "22P02",
            format!("the parameter ${place} is no value of its type ({kind:?})"),
        )
    })
}

fn of_text(kind: Scalar, text: &str) -> Option<Value> {
    if text.contains('\0') {
        return None;
    }
    let trimmed = text.trim();
    Some(match kind {
        Scalar::Bool => match trimmed.to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" | "y" => Value::Bool(true),
            "f" | "false" | "0" | "off" | "no" | "n" => Value::Bool(false),
            _ => return None,
        },
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => trimmed.parse::<i64>().ok()?.into(),
        Scalar::Float4 | Scalar::Float8 => float(trimmed.parse().ok()?),
        Scalar::Uuid => Uuid::try_parse(trimmed).ok()?.to_string().into(),
        _ => text.into(),
    })
}

fn of_binary(kind: Scalar, mut bytes: &[u8]) -> Option<Value> {
    let read: Value = match kind {
        Scalar::Bool => (bytes.try_get_u8().ok()? != 0).into(),
        Scalar::Int2 => bytes.try_get_i16().ok()?.into(),
        Scalar::Int4 => bytes.try_get_i32().ok()?.into(),
        Scalar::Int8 => bytes.try_get_i64().ok()?.into(),
        Scalar::Float4 => float(bytes.try_get_f32().ok()?.into()),
        Scalar::Float8 => float(bytes.try_get_f64().ok()?),
        Scalar::Numeric => return numeric::read(bytes).map(Value::from),
        Scalar::Text => return of_text(kind, std::str::from_utf8(bytes).ok()?),
        Scalar::Uuid => return Uuid::from_slice(bytes).ok().map(|id| id.to_string().into()),
        Scalar::Timestamp | Scalar::Timestamptz => {
            let at = DateTime::from_timestamp_micros(micros_since_1970(bytes.try_get_i64().ok()?))?;
            let zoned = kind == Scalar::Timestamptz;
            let text = at.to_rfc3339_opts(SecondsFormat::Micros, true);
            let text = if zoned {
                text.as_str()
            } else {
                text.trim_end_matches('Z')
            };
            text.into()
        }
        Scalar::Date => {
            let days = i64::from(days_since_1970(bytes.try_get_i32().ok()?));
            let at = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?;
            at.format("%Y-%m-%d").to_string().into()
        }
        Scalar::Time => {
            let at = DateTime::from_timestamp_micros(bytes.try_get_i64().ok()?)?;
            at.format("%H:%M:%S%.6f").to_string().into()
        }
        Scalar::Interval => {
            let (micros, days) = (bytes.try_get_i64().ok()?, bytes.try_get_i32().ok()?);
            let months = bytes.try_get_i32().ok()?;
            format!("{months} months {days} days {micros} microseconds").into()
        }
        Scalar::Bytea => return None,
    };
    bytes.is_empty().then_some(read)
}

/// A number, or its name if it is none that is finite.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}
