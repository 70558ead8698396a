//! OTLP as JSON, into the same request as protobuf.
//!
//! ```text
//! { resourceLogs: [ { resource, scopeLogs: [ { scope, logRecords: [ record, … ] } ] } ] }
//! ```
//!
//! # Invariants
//!
//! - Each resource, scope and record is written as protobuf before the next one is read: none is held beside the text and what is written. What
//!   that takes is known before ([`json_bytes`]).
//!
//! # Not here
//!
//! What becomes of a metric (`json_metric`).

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use model::Table;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use prost::encoding::{message, string};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::OtlpError;
use super::json_metric::{LENGTH, MetricText, set_length};

/// The content type of a request as JSON.
pub const JSON: &str = "application/json";

/// The numbers of fields. Of a request: resources. Of a resource and a scope: what it is; its scopes and records; the schema of its attributes.
const RESOURCES: u8 = 1;
const SELF: u32 = 1;
const CHILDREN: u8 = 2;
const SCHEMA_URL: u32 = 3;

/// The names of the lists of a signal: of resources, of the scopes of one, of the records of one of these.
type ListKeys = [&'static str; 3];

/// About the most bytes that a request as JSON takes while it is read, beside its text: as protobuf, and what is held of it at a time.
#[must_use]
pub fn json_bytes(body: &[u8]) -> u64 {
    let mut sizes = JsonSizes::default();
    for (at, byte) in body.iter().enumerate() {
        sizes.add(at, *byte, body.get(at + 1).copied());
    }
    // What is cut off ends here.
    sizes.end_text(body.len());
    sizes.end_held(body.len());
    let text = body.len() as u64;
    // A number of eight bytes has at least nine with its name, and two in a list; what is around a short record, or around the text of a
    // point that cannot be read, counts like numbers.
    sizes.most + text + text / 8 + 8 * sizes.numbers
}

/// What a text becomes, by its brackets and commas.
#[derive(Debug, Default)]
struct JsonSizes {
    depth: u64,
    /// Where a text in quotes begins, and whether its next character is escaped.
    text: Option<usize>,
    is_escaped: bool,
    /// Where something begins that is held as a whole, how deep, and what it becomes so far.
    held: Option<(usize, u64)>,
    bytes: u64,
    /// The largest of these.
    most: u64,
    /// Whether the next value is one of a list, perhaps; and how many of these are numbers or objects.
    is_listed: bool,
    numbers: u64,
}

impl JsonSizes {
    fn add(&mut self, at: usize, byte: u8, next: Option<u8>) {
        // The largest message, that of a span, has 400 bytes; a value takes at least two bytes of text and a comma or colon.
        const MESSAGE: u64 = 400;
        const VALUE: u64 = 80;
        if self.text.is_some() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.end_text(at),
                _ => {}
            }
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        let is_counted = match byte {
            // A text, such as that of a large number or of NaN; names begin with a small letter.
            b'"' => next.is_some_and(|next| !next.is_ascii_lowercase()),
            _ => matches!(byte, b'-' | b'{' | b'0'..=b'9'),
        };
        self.numbers += u64::from(self.is_listed && is_counted);
        self.is_listed = matches!(byte, b',' | b'[');
        match byte {
            b'"' => self.text = Some(at),
            b'{' | b'[' => {
                self.depth += 1;
                if self.held.is_none() && self.is_whole(byte) {
                    (self.held, self.bytes) = (Some((at, self.depth)), 0);
                }
                self.bytes += if byte == b'{' { MESSAGE } else { VALUE };
            }
            b'}' | b']' => {
                if self.held.is_some_and(|(_, depth)| depth == self.depth) {
                    self.end_held(at);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' | b':' => self.bytes += VALUE,
            _ => {}
        }
    }

    /// Whether what begins here is read as a whole: a record, or what stands where a list or an object with one is not.
    const fn is_whole(&self, byte: u8) -> bool {
        match self.depth {
            1 | 3 | 5 => byte != b'{',
            2 | 4 | 6 => byte != b'[',
            _ => true,
        }
    }

    /// A text is copied, and its escapes before that.
    fn end_text(&mut self, at: usize) {
        if let Some(from) = self.text.take() {
            self.most = self.most.max(2 * (at - from) as u64);
        }
    }

    fn end_held(&mut self, at: usize) {
        if let Some((from, _)) = self.held.take() {
            // A metric without data gets a point that says so, which is longer than the text of the shortest ones.
            if at - from < 16 {
                self.numbers += 2;
            }
            self.most = self.most.max(self.bytes + 2 * (at - from) as u64);
        }
    }
}

/// The request as protobuf.
pub(super) fn to_protobuf(table: Table, body: &[u8]) -> Result<Bytes, OtlpError> {
    fn converted<'b, T: SignalRecord<'b>>(body: &'b [u8], keys: ListKeys) -> Result<Bytes, OtlpError> {
        let mut out = Vec::with_capacity(body.len());
        let request = RequestLevel::<T> {
            level: 0,
            keys,
            out: &mut out,
            record: PhantomData,
        };
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = request.deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|error| OtlpError::Json(error.to_string()))?;
        Ok(out.into())
    }
    match table {
        Table::Logs => converted::<LogRecord>(body, ["resourceLogs", "scopeLogs", "logRecords"]),
        Table::Traces => converted::<Span>(body, ["resourceSpans", "scopeSpans", "spans"]),
        Table::Metrics => converted::<MetricText<'_>>(body, ["resourceMetrics", "scopeMetrics", "metrics"]),
        Table::DeadLetters | Table::Messages => Err(OtlpError::Signal(table)),
    }
}

/// A record of a signal.
trait SignalRecord<'t>: Deserialize<'t> {
    /// Writes it as a field of its scope.
    fn put(&self, out: &mut Vec<u8>);
}

impl SignalRecord<'_> for LogRecord {
    fn put(&self, out: &mut Vec<u8>) {
        message::encode(CHILDREN.into(), self, out);
    }
}

impl SignalRecord<'_> for Span {
    fn put(&self, out: &mut Vec<u8>) {
        message::encode(CHILDREN.into(), self, out);
    }
}

impl<'t> SignalRecord<'t> for MetricText<'t> {
    fn put(&self, out: &mut Vec<u8>) {
        self.write_field(CHILDREN, out);
    }
}

/// The request (level 0), a resource (1) or a scope (2), which is written as it is read.
struct RequestLevel<'o, T> {
    level: usize,
    keys: ListKeys,
    out: &'o mut Vec<u8>,
    record: PhantomData<T>,
}

/// The list of a level: of resources, of scopes, or of records.
struct LevelList<'o, T>(RequestLevel<'o, T>);

impl<T> RequestLevel<'_, T> {
    fn at(&mut self, level: usize) -> RequestLevel<'_, T> {
        RequestLevel {
            level,
            keys: self.keys,
            out: &mut *self.out,
            record: PhantomData,
        }
    }

    /// Writes what a resource or scope is.
    fn put(&mut self, itself: Option<impl Message>) {
        if let Some(itself) = itself {
            message::encode(SELF, &itself, self.out);
        }
    }
}

impl<'de, T: SignalRecord<'de>> DeserializeSeed<'de> for RequestLevel<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: SignalRecord<'de>> Visitor<'de> for RequestLevel<'_, T> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let level = self.level;
        let list = self.keys.get(level).copied().unwrap_or_default();
        while let Some(key) = map.next_key::<String>()? {
            match (level, key.as_str()) {
                (_, key) if key == list => map.next_value_seed(LevelList(self.at(level)))?,
                (1, "resource") => self.put(map.next_value::<Option<Resource>>()?),
                (2, "scope") => self.put(map.next_value::<Option<InstrumentationScope>>()?),
                (1 | 2, "schemaUrl") => {
                    let url: Option<String> = map.next_value()?;
                    string::encode(SCHEMA_URL, &url.unwrap_or_default(), self.out);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl<'de, T: SignalRecord<'de>> DeserializeSeed<'de> for LevelList<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de, T: SignalRecord<'de>> Visitor<'de> for LevelList<'_, T> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self(mut above) = self;
        let level = above.level + 1;
        if level == above.keys.len() {
            while let Some(record) = list.next_element::<T>()? {
                record.put(above.out);
            }
            return Ok(());
        }
        let field = if level == 1 { RESOURCES } else { CHILDREN };
        loop {
            let begun = above.out.len();
            above.out.push(field << 3 | 2);
            above.out.extend([0; LENGTH]);
            if list.next_element_seed(above.at(level))?.is_none() {
                above.out.truncate(begun);
                return Ok(());
            }
            set_length(above.out, begun + 1);
        }
    }
}
