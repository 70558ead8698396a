//! Shape detection: what a JSON record of others says under the usual names (a time, a level, a message, whose it is, its trace).
//!
//! | field | names, the first that can be read |
//! |---|---|
//! | time | `@timestamp`, `timestamp`, `@t`, `__REALTIME_TIMESTAMP`; `time`, `ts`, `date`, `asctime`, `Timestamp` |
//! | level | `log.level`, `level`, `severity`, `severity_text`, `loglevel`, `log_level`, `levelname`, `lvl`, `@l`, `PRIORITY`, `Level`, `LogLevel` |
//! | message | `message`, `msg`, `log`, `body`, `@m`, `@mt`, `MESSAGE`, `Message`, `RenderedMessage`, `fields.message`, `short_message`, `text`, `event` |
//! | trace, span | `trace.id`, `trace_id`, `traceId`, `traceID`; `span.id`, `span_id`, `spanId`, `spanID` |
//! | signal | `flux_id` |
//!
//! A name with dots is a key with dots or a path of objects. Times are RFC 3339, also with a blank for the `T`, a comma for the
//! point or no zone (UTC), and seconds, milliseconds, micro- or nanoseconds since 1970, as numbers or texts.
//!
//! # Invariants
//!
//! - What was understood whole is not in [`ShapedRecord::rest`]. A level that is none of our four words is (`notice`), and so are
//!   ids of other forms and the field that names the entity.
//! - Numbers before 1973 are no times: `time` is often how long something took. Under `@timestamp` and `timestamp`, which mean
//!   nothing else, what is no time refuses the record.
//!
//! # Not here
//!
//! Which record is whose where nothing in it says so; OTLP, which has a schema.

use std::str::FromStr;

use model::telemetry_codec::{AttributeBuffer, MAX_ENTITY_NAME};
use model::{FluxId, Level, SpanId, Timestamp, TraceId};
use serde_json::{Map, Value};

use crate::severity;

/// Names that mean a time and nothing else …
const TIMES: [&str; 4] = ["@timestamp", "timestamp", "@t", "__REALTIME_TIMESTAMP"];
/// … and those that may mean something else.
const LIKELY_TIMES: [&str; 5] = ["time", "ts", "date", "asctime", "Timestamp"];
const LEVELS: [&str; 12] = [
    "log.level",
    "level",
    "severity",
    "severity_text",
    "loglevel",
    "log_level",
    "levelname",
    "lvl",
    "@l",
    "PRIORITY",
    "Level",
    "LogLevel",
];
const MESSAGES: [&str; 13] = [
    "message",
    "msg",
    "log",
    "body",
    "@m",
    "@mt",
    "MESSAGE",
    "Message",
    "RenderedMessage",
    "fields.message",
    "short_message",
    "text",
    "event",
];
pub(crate) const TRACE_IDS: [&str; 4] = ["trace.id", "trace_id", "traceId", "traceID"];
pub(crate) const SPAN_IDS: [&str; 4] = ["span.id", "span_id", "spanId", "spanID"];
pub(crate) const FLUX_ID: &str = "flux_id";
/// A level is looked for in so many bytes of a line.
const LINE_HEAD: usize = 4 << 10;

/// A record by what its fields mean.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShapedRecord {
    /// When it happened.
    pub ts: Option<Timestamp>,
    /// How grave it is.
    pub level: Option<Level>,
    /// The text, without the line's end.
    pub message: Option<String>,
    /// Whose it is.
    pub entity_name: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<TraceId>,
    /// The span that it belongs to.
    pub span_id: Option<SpanId>,
    /// The signal that it belongs to.
    pub flux_id: Option<FluxId>,
    /// All other fields, nested as they were.
    pub rest: Map<String, Value>,
}

impl ShapedRecord {
    /// Reads a record; `entity` are the names of fields that say whose it is, the first one that is there.
    ///
    /// # Errors
    /// What field cannot be used, and why.
    pub fn of(mut record: Map<String, Value>, entity: &[String]) -> Result<Self, String> {
        let entity_name = entity_name(&record, entity)?;
        Ok(Self {
            ts: take_time(&mut record)?,
            level: take_level(&mut record),
            message: take(&mut record, &MESSAGES, text_of),
            entity_name,
            trace_id: take(&mut record, &TRACE_IDS, id_of),
            span_id: take(&mut record, &SPAN_IDS, id_of),
            flux_id: take(&mut record, &[FLUX_ID], id_of),
            rest: record,
        })
    }

    /// Sets the attributes of a log line: the other fields under dotted keys, and the ids of its trace and span. `record` is how
    /// many bytes it was sent in.
    ///
    /// # Errors
    /// If they become too large.
    pub fn set_attributes(&self, to: &mut AttributeBuffer, record: usize) -> Result<(), String> {
        set_object(to, &mut String::new(), &self.rest, record)?;
        if let Some(id) = self.trace_id {
            to.set("", "trace_id", id.to_string().as_str());
        }
        if let Some(id) = self.span_id {
            to.set("", "span_id", id.to_string().as_str());
        }
        Ok(())
    }
}

/// The time that a value is.
#[must_use]
pub fn time_of(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) if number.is_f64() => epoch(&format!("{:.6}", number.as_f64()?)),
        Value::Number(number) => epoch(&number.to_string()),
        Value::String(text) => time_of_text(text.trim()),
        _ => None,
    }
}

/// The level that a value is: a word in any letter case, a number of syslog (0 to 7) or of pino and bunyan (10 to 60).
#[must_use]
pub fn level_of(value: &Value) -> Option<Level> {
    match value {
        Value::Number(number) => numbered_level(number.as_u64()?),
        Value::String(text) => level_of_text(text),
        _ => None,
    }
}

/// The same of a text.
pub(crate) fn level_of_text(text: &str) -> Option<Level> {
    severity::of_text(text).or_else(|| numbered_level(text.trim().parse().ok()?))
}

/// The level that a line of logfmt, JSON or plain text names: the word behind `level=`, `level:` or `"level":`. A number is one only as
/// a whole value of JSON: elsewhere it counts or measures something ("water level: 3 m", "severity: 2 of 5").
#[must_use]
pub fn level_of_line(line: &str) -> Option<Level> {
    let line = line.as_bytes();
    let head = line.get(..LINE_HEAD).unwrap_or(line);
    let separators = head.iter().enumerate().filter(|(_, byte)| matches!(byte, b'=' | b':'));
    separators.map(|(at, _)| head.split_at(at)).find_map(|(before, after)| {
        let before = before.trim_ascii_end();
        let (before, is_json) = match before.strip_suffix(b"\"") {
            Some(before) => (before, after.starts_with(b":")),
            None => (before, false),
        };
        let name = before.rsplit(|byte| !is_of_name(*byte)).next().unwrap_or_default();
        LEVELS
            .iter()
            .find(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        let value = after.get(1..)?.trim_ascii_start();
        let (value, ends) = match value.strip_prefix(b"\"") {
            Some(quoted) => (quoted, &b"\""[..]),
            None => (value, &b",} \r\n"[..]),
        };
        let word = value.split(|byte| !byte.is_ascii_alphanumeric()).next()?;
        let is_whole = value.get(word.len()).is_some_and(|byte| ends.contains(byte));
        let word = std::str::from_utf8(word).ok()?;
        severity::of_text(word).or_else(|| numbered_level(word.parse().ok().filter(|_| is_json && is_whole)?))
    })
}

/// Whether a field or label with this name says a level.
pub(crate) fn is_level_name(name: &str) -> bool {
    LEVELS.contains(&name)
}

/// The id that a text is, if it stands under one of these names.
pub(crate) fn parsed_id<T: FromStr>(names: &[&str], name: &str, text: &str) -> Option<T> {
    if names.contains(&name) { text.parse().ok() } else { None }
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'@')
}

const fn numbered_level(number: u64) -> Option<Level> {
    match number {
        0..=3 | 50 | 60 => Some(Level::Error),
        4 | 40 => Some(Level::Warn),
        5 | 6 | 30 => Some(Level::Info),
        7 | 10 | 20 => Some(Level::Debug),
        _ => None,
    }
}

/// Whose a record is: the first of some fields that is there.
pub(crate) fn entity_name(record: &Map<String, Value>, entity: &[String]) -> Result<Option<String>, String> {
    let found = entity.iter().find_map(|name| {
        let name = find(record, name)?.as_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    if let Some(name) = found.as_ref().filter(|name| name.len() > MAX_ENTITY_NAME) {
        let bytes = name.len();
        return Err(format!(
            "the entity's name has {bytes} bytes, more than {MAX_ENTITY_NAME}"
        ));
    }
    Ok(found)
}

/// What stands under a path, whose names may be keys with dots.
pub(crate) fn find<'a>(record: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    record.get(path).or_else(|| {
        path.match_indices('.').find_map(|(at, _)| {
            let inner = record.get(path.get(..at)?)?.as_object()?;
            find(inner, path.get(at + 1..)?)
        })
    })
}

/// Removes what [`find`] finds.
fn remove(record: &mut Map<String, Value>, path: &str) -> bool {
    if record.remove(path).is_some() {
        return true;
    }
    path.match_indices('.').any(|(at, _)| {
        let (first, rest) = (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        );
        let inner = record.get_mut(first).and_then(Value::as_object_mut);
        inner.is_some_and(|inner| remove(inner, rest))
    })
}

/// Takes the first field that can be read out of a record.
pub(crate) fn take<T>(
    record: &mut Map<String, Value>,
    names: &[&str],
    read: impl Fn(&Value) -> Option<T>,
) -> Option<T> {
    let (name, found) = names.iter().find_map(|name| Some((name, read(find(record, name)?)?)))?;
    remove(record, name);
    Some(found)
}

/// Takes the time out of a record.
pub(crate) fn take_time(record: &mut Map<String, Value>) -> Result<Option<Timestamp>, String> {
    let at = take(record, &TIMES, time_of);
    if at.is_some() {
        return Ok(at);
    }
    for name in TIMES {
        if let Some(value) = find(record, name).filter(|value| !value.is_null()) {
            let shown: String = value.to_string().chars().take(80).collect();
            return Err(format!(
                "{name}: {shown} is no time: send RFC 3339, or seconds to nanoseconds since 1970"
            ));
        }
    }
    Ok(take(record, &LIKELY_TIMES, time_of))
}

/// A level is taken out of the record if its word says no more.
fn take_level(record: &mut Map<String, Value>) -> Option<Level> {
    let (name, level, is_whole) = LEVELS.iter().find_map(|name| {
        let value = find(record, name)?;
        let level = level_of(value)?;
        let is_whole = value
            .as_str()
            .is_some_and(|word| word.eq_ignore_ascii_case(level.as_str()));
        Some((name, level, is_whole))
    })?;
    if is_whole {
        remove(record, name);
    }
    Some(level)
}

/// The text that a value is, without the line's end.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim_end_matches(['\n', '\r']).to_owned()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The id that a text is.
pub(crate) fn id_of<T: FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

fn time_of_text(text: &str) -> Option<Timestamp> {
    const LONGEST: usize = 64;
    if let Ok(at) = text.parse() {
        return Some(at);
    }
    if text.len() > LONGEST || !text.is_ascii() {
        return None;
    }
    if let Some(at) = epoch(text) {
        return Some(at);
    }
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let zone = time.find(['+', '-', 'Z', 'z', ' ']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone = match zone.trim() {
        "" | "UTC" | "GMT" | "z" => "Z".to_owned(),
        zone if zone.len() == 5 && !zone.contains(':') => {
            let (hours, minutes) = zone.split_at(3);
            format!("{hours}:{minutes}")
        }
        zone => zone.to_owned(),
    };
    format!("{date}T{}{zone}", time.replacen(',', ".", 1)).parse().ok()
}

/// Seconds, milliseconds, micro- or nanoseconds since 1970, which their size tells apart.
fn epoch(text: &str) -> Option<Timestamp> {
    const SECONDS: i64 = 100_000_000_000;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = whole.parse().ok()?;
    let (unit, digits) = match number {
        ..100_000_000 => return None,
        _ if number < SECONDS => (1_000_000, 6),
        _ if number < SECONDS * 1_000 => (1_000, 3),
        _ if number < SECONDS * 1_000_000 => (1, 0),
        _ => return Some(Timestamp::from_micros(number / 1_000)),
    };
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(digits).collect();
    let micros = fraction.parse::<i64>().unwrap_or_default();
    Some(Timestamp::from_micros(number * unit + micros))
}

/// Sets the fields of an object under a path and their dotted keys. Nesting is that of a JSON text, which is bounded.
pub(crate) fn set_object(
    to: &mut AttributeBuffer,
    path: &mut String,
    object: &Map<String, Value>,
    record: usize,
) -> Result<(), String> {
    for (key, value) in object {
        if let Value::Object(inner) = value {
            let length = path.len();
            path.push_str(key);
            path.push('.');
            set_object(to, path, inner, record)?;
            path.truncate(length);
        } else {
            to.set(path, key, value);
            to.check(record)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
