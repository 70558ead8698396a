//! Records straight into columns: the general way of JSON and CBOR, without a struct or a value tree per row. JSON in its usual
//! forms goes a quicker way ([`super::fast_path`]) to the same cells.
//!
//! # Invariants
//!
//! - A record that cannot be read leaves nothing behind: every column is as long as before it.
//! - What comes out is what the record structs ([`crate::LogRecord`] and the others) and [`crate::batch`] would make of the
//!   same records, byte by byte.
//! - The flat form of a record's attributes is bounded by the record's bytes, however deep they are nested under however long keys.

use std::fmt;
use std::str::FromStr;

use arrow_array::RecordBatch;
use arrow_buffer::NullBuffer;
use arrow_schema::ArrowError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::Value;

use super::PublisherIdentity;
use super::column_buffer::ColumnBuffer;
use super::fast_path::{self, JsonFastPath};
use super::flatten::JsonFlattener;
use crate::batch::allowed_words;
use crate::{ColumnType, SpanId, Table, TableColumn, Timestamp, TraceId};

/// Rows of one table as they grow.
#[derive(Debug)]
pub struct RecordBatchBuilder {
    table: Table,
    columns: &'static [TableColumn],
    cells: Vec<ColumnBuffer>,
    /// Per column, whether a row has a value; kept where a row may lack it.
    valid: Vec<Vec<bool>>,
    rows: usize,
    bytes: usize,
    /// The bytes of the record that is being read.
    record: usize,
    flat: JsonFlattener,
    quick: JsonFastPath,
}

impl RecordBatchBuilder {
    pub(super) fn new(table: Table) -> Self {
        let columns = table.columns();
        Self {
            table,
            columns,
            cells: columns.iter().map(|column| ColumnBuffer::new(column.kind)).collect(),
            valid: vec![Vec::new(); columns.len()],
            rows: 0,
            bytes: 0,
            record: 0,
            flat: JsonFlattener::default(),
            quick: JsonFastPath::default(),
        }
    }

    pub(super) const fn table(&self) -> Table {
        self.table
    }

    /// A column's cells, to which the caller adds one.
    pub(super) fn cell(&mut self, at: usize, is_there: bool) -> Option<&mut ColumnBuffer> {
        if self.columns.get(at)?.nullable {
            self.valid.get_mut(at)?.push(is_there);
        }
        self.cells.get_mut(at)
    }

    /// The row whose cells were added is complete.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
        self.bytes += self.last_bytes();
    }

    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    /// About how many bytes the columns have.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the record that a JSON text holds, with the publisher's identity where it names none.
    pub(super) fn push_json(&mut self, text: &[u8], publisher: &PublisherIdentity) -> Result<(), serde_json::Error> {
        let to = fast_path::ColumnTarget {
            table: self.table,
            columns: self.columns,
            cells: &mut self.cells,
            valid: &mut self.valid,
        };
        if let Some(seen) = self.quick.record(text, to) {
            return self.finish_row(Ok(seen), publisher);
        }
        self.roll_back();
        self.record = text.len();
        let mut from = serde_json::Deserializer::from_slice(text);
        let read = RecordSeed(self).deserialize(&mut from);
        let read = read.and_then(|seen| from.end().map(|()| seen));
        self.finish_row(read, publisher)
    }

    /// The same of a JSON value that was sent as so many bytes.
    pub(super) fn push_value(
        &mut self,
        value: &Value,
        sent: usize,
        publisher: &PublisherIdentity,
    ) -> Result<(), serde_json::Error> {
        self.record = sent;
        let read = RecordSeed(self).deserialize(value);
        self.finish_row(read, publisher)
    }

    /// Completes a row or takes it back.
    fn finish_row<E: Error>(&mut self, read: Result<u32, E>, publisher: &PublisherIdentity) -> Result<(), E> {
        let settled = read.and_then(|seen| {
            let lacking = |at: &usize| seen & (1 << at) == 0;
            (0..self.columns.len())
                .filter(lacking)
                .try_for_each(|at| self.complete(at, publisher))
        });
        if settled.is_ok() {
            self.end_row();
        } else {
            self.roll_back();
        }
        settled
    }

    /// Takes the newest row back.
    pub(super) fn pop(&mut self) {
        self.bytes -= self.last_bytes();
        self.rows -= 1;
        self.roll_back();
    }

    fn last_bytes(&self) -> usize {
        self.cells.iter().map(ColumnBuffer::last_bytes).sum()
    }

    /// Forgets what a record left before it turned out to be bad.
    fn roll_back(&mut self) {
        self.cells.iter_mut().for_each(|cells| cells.truncate(self.rows));
        self.valid.iter_mut().for_each(|valid| valid.truncate(self.rows));
    }

    /// What a record did not say.
    fn complete<E: Error>(&mut self, at: usize, publisher: &PublisherIdentity) -> Result<(), E> {
        let (column, cells) = (&self.columns[at], &mut self.cells[at]);
        match column.name {
            "entity_id" => cells.push_uuid(publisher.entity_id.as_bytes()),
            "entity_name" => cells.push_text(publisher.entity_name.as_bytes()),
            _ if column.kind == ColumnType::Json => cells.push_text(b"{}"),
            _ if column.nullable => {
                cells.push_nothing();
                self.valid[at].push(false);
            }
            name => return Err(E::missing_field(name)),
        }
        Ok(())
    }

    /// The rows as a batch; none are left here.
    ///
    /// # Errors
    /// Only if the columns do not fit the schema, a defect here.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let Self { cells, valid, .. } = std::mem::replace(self, Self::new(self.table));
        let columns = cells.into_iter().zip(valid).map(|(cells, valid)| {
            let nulls = (!valid.is_empty()).then(|| NullBuffer::from(valid));
            cells.finish(nulls.filter(|nulls| nulls.null_count() > 0))
        });
        RecordBatch::try_new(self.table.schema(), columns.collect::<Result<_, _>>()?)
    }
}

/// A record; gives a bit for each column that it has.
struct RecordSeed<'a>(&'a mut RecordBatchBuilder);

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = u32;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u32, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {}", self.0.table)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u32, A::Error> {
        let columns = self.0.columns;
        let (mut seen, mut likely) = (0u32, 0);
        while let Some(at) = map.next_key_seed(ColumnNameSeed { columns, likely })? {
            if seen & (1 << at) != 0 {
                return Err(A::Error::duplicate_field(columns[at].name));
            }
            map.next_value_seed(CellSeed { rows: &mut *self.0, at })?;
            seen |= 1 << at;
            likely = at + 1;
        }
        Ok(seen)
    }
}

/// A column's position by its name; `likely` is tried first.
struct ColumnNameSeed {
    columns: &'static [TableColumn],
    likely: usize,
}

impl<'de> DeserializeSeed<'de> for ColumnNameSeed {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for ColumnNameSeed {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        if self.columns.get(self.likely).is_some_and(|column| column.name == name) {
            return Ok(self.likely);
        }
        let found = self.columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| column.name).collect();
            let name: String = name.chars().take(40).collect();
            E::custom(format_args!(
                "there is no field {name:?}, known are {}",
                known.join(", ")
            ))
        })
    }
}

/// One value on its way into its column.
struct CellSeed<'a> {
    rows: &'a mut RecordBatchBuilder,
    at: usize,
}

impl CellSeed<'_> {
    const fn column(&self) -> &'static TableColumn {
        &self.rows.columns[self.at]
    }

    fn cells(&mut self) -> &mut ColumnBuffer {
        &mut self.rows.cells[self.at]
    }

    fn number<E: Error>(mut self, value: f64, narrow: f32, unexpected: Unexpected<'_>) -> Result<(), E> {
        let column = self.column().name;
        let is_finite = match self.cells() {
            ColumnBuffer::Floats(cells) if narrow.is_finite() => {
                // 0.0 of −0.0, see `crate::batch::conform`.
                cells.push(narrow + 0.0);
                true
            }
            ColumnBuffer::Doubles(cells) if value.is_finite() => {
                cells.push(value + 0.0);
                true
            }
            ColumnBuffer::Floats(_) | ColumnBuffer::Doubles(_) => false,
            _ => return Err(E::invalid_type(unexpected, &self)),
        };
        if is_finite {
            return Ok(());
        }
        Err(E::custom(format_args!(
            "{column}: {value:e} is not a finite number there"
        )))
    }

    /// A trace's or span's id in its stored form.
    fn hex_id<E: Error>(mut self, text: &str) -> Result<(), E> {
        let bad = |error: crate::BadId| E::custom(error);
        let id = match self.column().name {
            "trace_id" => TraceId::from_str(text).map_err(bad)?.to_string(),
            _ => SpanId::from_str(text).map_err(bad)?.to_string(),
        };
        self.cells().push_text(id.as_bytes());
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for CellSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CellSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.column();
        let what = match column.kind {
            ColumnType::Time => "an RFC 3339 time",
            ColumnType::Uuid => "a UUID",
            ColumnType::Text | ColumnType::Word | ColumnType::Blob => "a text",
            ColumnType::Json => "an object",
            ColumnType::Float | ColumnType::Double => "a number",
        };
        write!(f, "{what} for {}", column.name)
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        let column = self.column();
        match column.kind {
            ColumnType::Time => {
                let at: Timestamp = text.parse().map_err(E::custom)?;
                if let ColumnBuffer::Times(cells) = self.cells() {
                    cells.push(at.micros());
                }
            }
            ColumnType::Uuid => {
                let id =
                    uuid::Uuid::try_parse(text).map_err(|error| E::custom(format_args!("{}: {error}", column.name)))?;
                self.cells().push_uuid(id.as_bytes());
            }
            ColumnType::Text if column.name.ends_with("_id") => {
                let (rows, at) = (self.rows, self.at);
                CellSeed { rows: &mut *rows, at }.hex_id(text)?;
                if column.nullable {
                    rows.valid[at].push(true);
                }
                return Ok(());
            }
            ColumnType::Word
                if allowed_words(self.rows.table, column.name).is_some_and(|allowed| !allowed.contains(&text)) =>
            {
                let allowed = allowed_words(self.rows.table, column.name)
                    .unwrap_or_default()
                    .join(", ");
                let text: String = text.chars().take(40).collect();
                return Err(E::custom(format_args!(
                    "{}: {text:?} is none of {allowed}",
                    column.name
                )));
            }
            ColumnType::Text | ColumnType::Word | ColumnType::Blob => self.cells().push_text(text.as_bytes()),
            ColumnType::Json | ColumnType::Float | ColumnType::Double => {
                return Err(E::invalid_type(Unexpected::Str(text), &self));
            }
        }
        if column.nullable {
            self.rows.valid[self.at].push(true);
        }
        Ok(())
    }

    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        if !self.column().nullable {
            return Err(E::invalid_type(Unexpected::Unit, &self));
        }
        self.cells().push_nothing();
        self.rows.valid[self.at].push(false);
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "as serde casts numbers to floats")]
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.number(value as f64, value as f32, Unexpected::Signed(value))
    }

    #[allow(clippy::cast_precision_loss, reason = "as serde casts numbers to floats")]
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.number(value as f64, value as f32, Unexpected::Unsigned(value))
    }

    #[allow(clippy::cast_possible_truncation, reason = "as serde casts numbers to floats")]
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.number(value, value as f32, Unexpected::Float(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        if self.column().kind != ColumnType::Json {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let RecordBatchBuilder {
            flat, cells, record, ..
        } = self.rows;
        flat.read(map, *record)?;
        if let Some(ColumnBuffer::Texts { bytes, ends }) = cells.get_mut(self.at) {
            flat.write(bytes);
            ends.push(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &self))
    }
}
