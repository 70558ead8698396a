//! Bind parameters of a client, as the querier takes them: texts, numbers, booleans, null, and lists of these; bytes as their hex digits.
//!
//! What they take is counted while they are read ([`BoundMemory`]): an item of a list that comes as two bytes is an object here.

use std::fmt::Write as _;

use bytes::{Buf, Bytes};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Number, Value};
use uuid::Uuid;

use super::numeric;
use super::pg_error::PgError;
use super::pg_types::{FormatCode, PgType, ScalarType, days_since_1970, micros_since_1970};

/// The most items of a list.
const MOST_ITEMS: usize = 10_000;
/// The most bytes that the values bound to the portals of a session take.
pub(super) const MOST_BOUND: usize = 4 << 20;
/// What the memory of a text takes beside it.
const ALLOCATION: usize = 16;

/// Counts what values take, up to what they may.
#[derive(Debug)]
pub(super) struct BoundMemory {
    most: usize,
    pub(super) taken: usize,
}

impl BoundMemory {
    pub(super) const fn up_to(most: usize) -> Self {
        Self { most, taken: 0 }
    }

    /// Counts some bytes, if they may be taken.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), PgError> {
        self.taken += bytes;
        self.check()
    }

    fn check(&self) -> Result<(), PgError> {
        if self.taken > self.most {
            let message = format!(
                "the values bound to portals of the session take more than {MOST_BOUND} bytes: close some of them, or bind less"
            );
            return Err(PgError::error("54000", message));
        }
        Ok(())
    }

    /// Counts a value, but for the items of a list; none if it is too much.
    fn hold(&mut self, value: Value) -> Option<Value> {
        let text = value.as_str().map_or(0, |text| text.len() + ALLOCATION);
        self.taken += size_of::<Value>() + text;
        (self.taken <= self.most).then_some(value)
    }
}

/// The value of a parameter of a type that came in a form; `place` is its number, from 1.
pub(super) fn value(
    kind: PgType,
    form: FormatCode,
    bytes: Option<&Bytes>,
    place: usize,
    memory: &mut BoundMemory,
) -> Result<Value, PgError> {
    let read = match (bytes, kind, form) {
        (None, ..) => Some(Value::Null),
        (Some(bytes), PgType::One(scalar), FormatCode::Text) => utf8(bytes).and_then(|text| of_text(scalar, text)),
        (Some(bytes), PgType::One(scalar), FormatCode::Binary) => of_binary(scalar, bytes),
        (Some(_), PgType::Array(ScalarType::Bytea), _) => None,
        (Some(bytes), PgType::Array(scalar), FormatCode::Text) => {
            utf8(bytes).and_then(|text| list_of_text(scalar, text, memory))
        }
        (Some(bytes), PgType::Array(_), FormatCode::Binary) => list_of_binary(bytes, memory),
    };
    let read = read.and_then(|value| memory.hold(value));
    memory.check()?;
    match read {
        Some(Value::Array(items)) if items.len() > MOST_ITEMS => {
            let message = format!("the parameter ${place} is a list of more than {MOST_ITEMS} items");
            Err(PgError::error("54000", message))
        }
        Some(value) => Ok(value),
        None => {
            let message = format!("the parameter ${place} is not a value of its type ({kind:?})");
            Err(PgError::error("22P02", message))
        }
    }
}

fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A list as it is written: `{a,"b c",NULL}`. Of lists within lists nothing is read, and nothing beyond one item too many.
fn list_of_text(kind: ScalarType, text: &str, memory: &mut BoundMemory) -> Option<Value> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let mut items = Vec::new();
    while !rest.is_empty() && items.len() <= MOST_ITEMS {
        let (item, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let (item, after) = quoted_item(quoted)?;
            (of_text(kind, &item)?, after.trim_start())
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (item, after) = rest.split_at(end);
            let item = item.trim();
            let item = match item {
                _ if item.is_empty() || item.contains(['{', '}', '"', '\\']) => return None,
                _ if item.eq_ignore_ascii_case("null") => Value::Null,
                _ => of_text(kind, item)?,
            };
            (item, after)
        };
        items.push(memory.hold(item)?);
        rest = match after.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            None if after.is_empty() => after,
            _ => return None,
        };
    }
    items.shrink_to_fit();
    Some(Value::Array(items))
}

/// What stands before the closing quotation mark, and what comes after it.
fn quoted_item(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((item, text.get(at + 1..)?)),
            '\\' => item.push(letters.next()?.1),
            letter => item.push(letter),
        }
    }
    None
}

/// A list of one dimension, or none.
fn list_of_binary(mut bytes: &[u8], memory: &mut BoundMemory) -> Option<Value> {
    let dimensions = bytes.try_get_i32().ok()?;
    let _has_nulls = bytes.try_get_i32().ok()?;
    let kind = ScalarType::of_oid(bytes.try_get_u32().ok()?).filter(|kind| *kind != ScalarType::Bytea)?;
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = usize::try_from(bytes.try_get_i32().ok()?).ok()?;
            let _lower_bound = bytes.try_get_i32().ok()?;
            count
        }
        _ => return None,
    };
    let mut items = Vec::new();
    for _ in 0..count.min(MOST_ITEMS + 1) {
        let Ok(length) = usize::try_from(bytes.try_get_i32().ok()?) else {
            items.push(memory.hold(Value::Null)?);
            continue;
        };
        let (item, after) = bytes.split_at_checked(length)?;
        items.push(memory.hold(of_binary(kind, item)?)?);
        bytes = after;
    }
    items.shrink_to_fit();
    (bytes.is_empty() || items.len() > MOST_ITEMS).then_some(Value::Array(items))
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
        ScalarType::Interval => interval(trimmed)?.into(),
        ScalarType::Bytea => hex_digits(trimmed)?.into(),
        _ => text.into(),
    })
}

/// The digits of bytes that are written `\x6162`.
fn hex_digits(text: &str) -> Option<String> {
    let digits = text.strip_prefix("\\x")?;
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| digits.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into memory does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// An interval with a unit behind each of its numbers, where `1 day, 2:03:04` has none for the time.
fn interval(text: &str) -> Option<String> {
    let mut parts = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        if !word.contains(':') {
            parts.push(word.to_owned());
            continue;
        }
        let (sign, clock) = match word.strip_prefix('-') {
            Some(clock) => ("-", clock),
            None => ("", word.strip_prefix('+').unwrap_or(word)),
        };
        let mut units = ["hours", "minutes", "seconds"].into_iter();
        for number in clock.split(':') {
            number.parse::<f64>().ok()?;
            parts.push(format!("{sign}{number} {}", units.next()?));
        }
    }
    Some(parts.join(" "))
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
        ScalarType::Bytea => return Some(hex(bytes).into()),
    };
    bytes.is_empty().then_some(read)
}

/// A number, or its name if it is none that is finite.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: PgType, form: FormatCode, bytes: &'static [u8]) -> Result<Value, &'static str> {
        let mut memory = BoundMemory::up_to(MOST_BOUND);
        value(kind, form, Some(&Bytes::from_static(bytes)), 1, &mut memory).map_err(|fault| fault.code)
    }

    #[test]
    fn values_count_as_what_they_take_and_not_as_what_they_came_in() {
        let texts = PgType::Array(ScalarType::Text);
        let (text, list) = (
            Bytes::from_static(b"{a,bc,null}"),
            4 * size_of::<Value>() + 2 * ALLOCATION + 3,
        );
        let twos: &[u8] = b"\0\0\0\x01\0\0\0\x01\0\0\0\x15\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x07\xff\xff\xff\xff";
        let cases = [
            (texts, FormatCode::Text, Some(text), list),
            (
                texts,
                FormatCode::Binary,
                Some(Bytes::from_static(twos)),
                3 * size_of::<Value>(),
            ),
            (
                PgType::One(ScalarType::Text),
                FormatCode::Text,
                Some(Bytes::from_static(b"abc")),
                size_of::<Value>() + ALLOCATION + 3,
            ),
            (
                PgType::One(ScalarType::Int8),
                FormatCode::Text,
                Some(Bytes::from_static(b"1234567")),
                size_of::<Value>(),
            ),
            (texts, FormatCode::Text, None, size_of::<Value>()),
        ];
        for (kind, form, bytes, taken) in cases {
            let mut memory = BoundMemory::up_to(taken);
            assert!(
                value(kind, form, bytes.as_ref(), 1, &mut memory).is_ok(),
                "{kind:?} {bytes:?}"
            );
            assert_eq!(memory.taken, taken, "{kind:?} {bytes:?}");
            let mut memory = BoundMemory::up_to(taken - 1);
            let refused = value(kind, form, bytes.as_ref(), 1, &mut memory).map_err(|fault| fault.code);
            assert_eq!(refused, Err("54000"), "{kind:?} {bytes:?}");
        }
        // The rest of a list is not made once it is too much.
        let (long, mut memory) = (
            Bytes::from(format!("{{a{}}}", ",a".repeat(9_999))),
            BoundMemory::up_to(1_000),
        );
        assert!(value(texts, FormatCode::Text, Some(&long), 1, &mut memory).is_err());
        assert!(memory.taken < 1_000 + size_of::<Value>() + ALLOCATION + 2, "{memory:?}");
    }

    #[test]
    fn lists_are_read_as_postgresql_writes_them() {
        let texts = |text: &'static str| read(PgType::Array(ScalarType::Text), FormatCode::Text, text.as_bytes());
        for (text, expected) in [
            ("{}", json!([])),
            ("{info,error}", json!(["info", "error"])),
            (
                r#"{ "a,b" , "say \"x\"\\" ,NULL,"NULL","" }"#,
                json!(["a,b", "say \"x\"\\", null, "NULL", ""]),
            ),
        ] {
            assert_eq!(texts(text), Ok(expected), "{text}");
        }
        let numbers = |text: &'static str| read(PgType::Array(ScalarType::Int8), FormatCode::Text, text.as_bytes());
        assert_eq!(numbers("{1,-2,null}"), Ok(json!([1, -2, null])));
        for text in ["", "{", "a", "{a", "{a,}", "{,a}", "{\"a}", "{\"a\"b}", "{{a}}", "{a b"] {
            assert_eq!(texts(text), Err("22P02"), "{text}");
        }
        assert_eq!(numbers("{x}"), Err("22P02"));
        let long: &'static str = format!("{{{}1}}", "1,".repeat(MOST_ITEMS)).leak();
        assert_eq!(numbers(long), Err("54000"));
    }

    #[test]
    fn bytes_are_read_as_hex_digits_of_both_forms() {
        let kind = PgType::One(ScalarType::Bytea);
        assert_eq!(read(kind, FormatCode::Binary, b"a\0\xff"), Ok(json!("6100ff")));
        assert_eq!(read(kind, FormatCode::Text, br"\x6100FF"), Ok(json!("6100FF")));
        assert_eq!(read(kind, FormatCode::Binary, b""), Ok(json!("")));
        for bad in [&b"61"[..], br"\x6", br"\xzz"] {
            assert_eq!(read(kind, FormatCode::Text, bad), Err("22P02"), "{bad:?}");
        }
        let list = PgType::Array(ScalarType::Bytea);
        assert_eq!(read(list, FormatCode::Text, b"{a}"), Err("22P02"));
        let binary = b"\0\0\0\x01\0\0\0\0\0\0\0\x11\0\0\0\x01\0\0\0\x01\0\0\0\x01a";
        assert_eq!(
            read(PgType::Array(ScalarType::Text), FormatCode::Binary, binary),
            Err("22P02")
        );
    }

    #[test]
    fn the_time_of_an_interval_gets_units() {
        let kind = PgType::One(ScalarType::Interval);
        let text = |text: &'static str| read(kind, FormatCode::Text, text.as_bytes());
        for (written, expected) in [
            ("1 day, 2:03:04.5", "1 day 2 hours 03 minutes 04.5 seconds"),
            ("-0:00:01", "-0 hours -00 minutes -01 seconds"),
            ("0 years 1 mons 2.5 secs", "0 years 1 mons 2.5 secs"),
            ("90 minutes", "90 minutes"),
        ] {
            assert_eq!(text(written), Ok(json!(expected)), "{written}");
        }
        for bad in ["1:2:3:4", "1:x"] {
            assert_eq!(text(bad), Err("22P02"), "{bad}");
        }
    }

    #[test]
    fn lists_in_binary_have_one_dimension_and_their_own_lengths() {
        let list = |bytes: &'static [u8]| read(PgType::Array(ScalarType::Int4), FormatCode::Binary, bytes);
        assert_eq!(list(b"\0\0\0\0\0\0\0\0\0\0\0\x17"), Ok(json!([])));
        let two = b"\0\0\0\x01\0\0\0\x01\0\0\0\x17\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff";
        assert_eq!(list(two), Ok(json!([7, null])));
        for bad in [
            &b""[..],
            b"\0\0\0\x02\0\0\0\0\0\0\0\x17\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01",
            b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01",
            b"\0\0\0\x01\0\0\0\0\0\0\0\x17\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\x17\0",
        ] {
            assert_eq!(list(bad), Err("22P02"), "{bad:?}");
        }
    }
}
