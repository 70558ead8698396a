//! JSON records of others into rows, as they are: lines, an array, or objects one behind the other.
//!
//! ```text
//! body ─ framing ─ object ─ shape (crate::record_shape) ─▶ log │ point │ span
//! ```
//!
//! What becomes of each field: `docs/http-ingest.md`.
//!
//! # Invariants
//!
//! - Records of ours are taken as well: what is in their `attributes` or `labels` is a field like the others.
//! - Where the next record begins depends on the body only. Behind bytes that are no JSON, objects without lines or commas cannot be
//!   told apart: what begins there is one bad record.
//! - One record at a time is held as values, of which it may have no more than one of ours.
//!
//! # Not here
//!
//! What fields of logs mean ([`crate::record_shape`]).

mod points;
mod spans;
#[cfg(test)]
mod tests;

use std::ops::Range;

use model::telemetry_codec::record_framing::{element, line};
use model::telemetry_codec::{
    AttributeBuffer, FoundRecord, LogFields, PublisherIdentity, RecordBatchBuilder, RecordFormat, check_value_count,
};
use model::{EntityId, Level, Table, Timestamp};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::SenderSettings;
use crate::record_shape::{ShapedRecord, entity_name, id_of, level_of_line, take};

/// What a record is called that ends where its body does, and one that is behind the array: parts of [`FoundRecord`].
const NOT_CLOSED: u32 = 1;
const SURPLUS: u32 = 2;
/// The column of ours, which goes before all other names of an entity …
const ENTITY_NAME: &str = "entity_name";
/// … and names that go behind those of the settings.
const HOSTS: [&str; 5] = [
    "host",
    "hostname",
    "_HOSTNAME",
    "tags.host",
    "localEndpoint.serviceName",
];

/// How records stand in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFraming {
    /// One a line.
    Lines,
    /// An array of them, or objects one behind the other.
    Document,
}

impl JsonFraming {
    /// Stands for such a body among those that a key may be of.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lines => "JSON lines of any shape",
            Self::Document => "JSON of any shape",
        }
    }
}

/// The records of a body.
#[derive(Debug)]
struct JsonRecords {
    table: Table,
    settings: SenderSettings,
    entity: Vec<String>,
    cursor: JsonCursor,
    attributes: AttributeBuffer,
}

/// Where the next record begins.
#[derive(Debug, Clone, Copy)]
enum JsonCursor {
    Lines(usize),
    Array(usize),
    /// Behind the array.
    Surplus(usize),
    Objects(usize),
    End,
}

/// Begins to read a body.
///
/// # Errors
/// If it begins neither an array nor an object.
pub fn json_records(
    table: Table,
    framing: JsonFraming,
    body: &[u8],
    settings: SenderSettings,
) -> Result<Box<dyn RecordFormat>, String> {
    let text = body.trim_ascii_start();
    let start = body.len() - text.len();
    let cursor = match (framing, text) {
        (JsonFraming::Lines, _) => JsonCursor::Lines(0),
        (JsonFraming::Document, [b'[', rest @ ..]) if rest.trim_ascii() == b"]" => JsonCursor::End,
        (JsonFraming::Document, [b'[', ..]) => JsonCursor::Array(start + 1),
        (JsonFraming::Document, [b'{', ..]) => JsonCursor::Objects(start),
        (JsonFraming::Document, _) => return Err("the body is neither an array of records nor a record".to_owned()),
    };
    let names = [ENTITY_NAME.to_owned()].into_iter();
    let names = names.chain(settings.entity.iter().cloned());
    Ok(Box::new(JsonRecords {
        table,
        entity: names.chain(HOSTS.map(str::to_owned)).collect(),
        settings,
        cursor,
        attributes: AttributeBuffer::default(),
    }))
}

impl RecordFormat for JsonRecords {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        let behind = |at: usize| body.get(at..).unwrap_or_default();
        let (range, part, next) = match self.cursor {
            JsonCursor::Lines(start) => {
                let (line, next) = line(body, start)?;
                (line, 0, JsonCursor::Lines(next))
            }
            JsonCursor::Array(start) => {
                let end = element(body, start);
                match body.get(end) {
                    Some(b',') => (start..end, 0, JsonCursor::Array(end + 1)),
                    Some(_) => (start..end, 0, JsonCursor::Surplus(end + 1)),
                    None => (start..end, NOT_CLOSED, JsonCursor::End),
                }
            }
            JsonCursor::Surplus(start) if behind(start).trim_ascii().is_empty() => return None,
            JsonCursor::Surplus(start) => (start..body.len(), SURPLUS, JsonCursor::End),
            JsonCursor::Objects(start) => {
                let mut values = serde_json::Deserializer::from_slice(behind(start)).into_iter::<IgnoredAny>();
                match values.next()? {
                    Ok(_) => {
                        let end = start + values.byte_offset();
                        (start..end, 0, JsonCursor::Objects(end))
                    }
                    Err(_) => (start..body.len(), 0, JsonCursor::End),
                }
            }
            JsonCursor::End => return None,
        };
        self.cursor = next;
        Some(FoundRecord {
            range: trimmed(body, range),
            part,
        })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        match record.part {
            NOT_CLOSED => return Err("the array is not closed".to_owned()),
            SURPLUS => return Err("bytes follow the array".to_owned()),
            _ => {}
        }
        let text = body.get(record.range.clone()).unwrap_or_default();
        check_value_count(text)?;
        let mut fields: Map<String, Value> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        // A field that is null says nothing.
        fields.retain(|_, value| !value.is_null());
        if fields.is_empty() {
            return Err("the record has no fields".to_owned());
        }
        let entity = take_entity(&mut fields, &self.entity, &self.settings.fallback)?;
        self.attributes.clear();
        let mut context = RowContext {
            entity,
            now: self.settings.now,
            attributes: &mut self.attributes,
            size: text.len(),
        };
        match self.table {
            Table::Logs => push_log(fields, &mut context, rows)?,
            Table::Metrics => points::push_point(fields, &mut context, rows)?,
            Table::Traces => spans::push_span(fields, &mut context, rows)?,
            Table::DeadLetters | Table::Messages => return Err(format!("{} are not sent this way", self.table)),
        }
        Ok(true)
    }
}

/// What a row needs beside the fields of its record.
struct RowContext<'a> {
    entity: PublisherIdentity,
    now: Timestamp,
    attributes: &'a mut AttributeBuffer,
    /// The bytes of the record.
    size: usize,
}

fn push_log(
    mut fields: Map<String, Value>,
    context: &mut RowContext<'_>,
    rows: &mut RecordBatchBuilder,
) -> Result<(), String> {
    hoist(&mut fields, &["attributes"]);
    let shaped = ShapedRecord::of(fields, &[])?;
    shaped.set_attributes(context.attributes, context.size)?;
    let message = shaped.message.as_deref().unwrap_or_default();
    let row = LogFields {
        ts: shaped.ts.unwrap_or(context.now),
        entity: &context.entity,
        flux_id: shaped.flux_id,
        level: shaped.level.or_else(|| level_of_line(message)).unwrap_or(Level::Info),
        message,
    };
    rows.push_log(row, context.attributes)
}

/// Takes what a record says of whose it is; names but for ours stay fields.
fn take_entity(
    fields: &mut Map<String, Value>,
    names: &[String],
    fallback: &PublisherIdentity,
) -> Result<PublisherIdentity, String> {
    let id = take(fields, &["entity_id"], id_of::<EntityId>);
    let name = entity_name(fields, names)?;
    if fields.get(ENTITY_NAME).is_some_and(Value::is_string) {
        fields.remove(ENTITY_NAME);
    }
    let mut entity = name.map_or_else(
        || fallback.clone(),
        |entity_name| PublisherIdentity {
            entity_id: EntityId::for_name(&entity_name),
            entity_name,
        },
    );
    entity.entity_id = id.unwrap_or(entity.entity_id);
    Ok(entity)
}

/// Makes fields of what some objects hold, where there are none of the same names.
fn hoist(fields: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        match fields.remove(*name) {
            Some(Value::Object(inner)) => {
                let (taken, free): (Map<_, _>, Map<_, _>) =
                    inner.into_iter().partition(|(key, _)| fields.contains_key(key));
                fields.extend(free);
                if !taken.is_empty() {
                    fields.insert((*name).to_owned(), taken.into());
                }
            }
            Some(other) => {
                fields.insert((*name).to_owned(), other);
            }
            None => {}
        }
    }
}

/// A range without the blanks around what is there.
fn trimmed(body: &[u8], range: Range<usize>) -> Range<usize> {
    let text = body.get(range.clone()).unwrap_or_default();
    let begun = text.trim_ascii_start();
    let start = range.start + (text.len() - begun.len());
    start..start + begun.trim_ascii_end().len()
}
