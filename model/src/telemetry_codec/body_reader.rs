//! A body record by record, in parts of bounded size; a bad record is named and the ones behind it are read.
//!
//! # What is a record
//!
//! A line that is not blank, an element of the JSON or CBOR array, the one JSON object, a row of the Arrow stream; counted
//! from 0. Behind bytes that are no CBOR, or no Arrow message, nothing can be told apart: what begins there counts as one
//! bad record.
//!
//! # Invariants
//!
//! - What is read from a position on depends on the body and the publisher only, whatever the parts before it were: a body of
//!   which a part is stored is read on from there.
//! - At most [`NAMED`] bad records are named, all are counted. What is held at a time is the body, one part, one record.
//! - Rows take no more than the size that was asked for, however much records grow; one that is larger is a part of its own.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::batch_builder::RecordBatchBuilder;
use super::record_format::{FoundRecord, RecordFormat};
use super::record_framing::{cbor, element, line};
use super::refused_records::{REASON_CHARS, RefusedRecord, RefusedRecords};
use super::value_count::ValueCount;
use super::writer_entities::{WriterEntities, entity_of};
use super::{BatchEncoding, DecodeError, PublisherIdentity, arrow_batches, body_error};
use crate::Table;
use crate::batch::{slice_bytes, split_conforming};

/// So many bad records of a body are named.
pub const NAMED: usize = 100;
/// The largest JSON or CBOR record: values become many times their text while they are read.
const LARGEST: usize = 8 << 20;
/// The rows of a format of others become at most so many times their body: resource attributes stand once in it, and in every row.
const REPEATED: usize = 64;
/// Or so many bytes.
const REPEATED_AT_LEAST: usize = 4 << 20;

/// A record that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordRejection {
    /// Its position in the body, from 0.
    pub row: u64,
    /// Why.
    pub reason: String,
}

/// Some good rows of a body.
#[derive(Debug, Clone)]
pub struct RecordChunk {
    /// They.
    pub batch: RecordBatch,
    /// The position of the last of them in the body.
    pub last: u64,
    /// The position behind all that was read for this part, good and bad.
    pub to: u64,
}

/// A body that is read part by part.
#[derive(Debug)]
pub struct BodyRecordReader {
    table: Table,
    publisher: PublisherIdentity,
    /// Whose rows are good; everybody's if there are none.
    writers: Option<WriterEntities>,
    body: Bytes,
    source: BodyCursor,
    rows: RecordBatchBuilder,
    /// Found, and not read as it did not fit into the part before.
    pending: Option<RawRecord>,
    /// Records read.
    next: u64,
    named: Vec<RecordRejection>,
    rejected: u64,
    /// What is kept of bad records, where that is asked for.
    refused: Option<RefusedRecords>,
    /// What the rows of formats of others may still become together.
    left: usize,
    /// Which records are bad, a bit for each position, where that is asked for.
    marks: Option<Vec<u64>>,
}

/// Where the next record begins.
#[derive(Debug)]
enum BodyCursor {
    Lines(usize),
    One,
    Array(usize),
    /// And the number of elements to come, if it was said.
    Cbor(usize, Option<u64>),
    Arrow(VecDeque<PositionedBatch>),
    Other(Box<dyn RecordFormat>),
    End,
}

/// Good rows and where they were in the body.
#[derive(Debug)]
struct PositionedBatch {
    batch: RecordBatch,
    positions: Vec<u64>,
}

/// What was found where a record should be.
#[derive(Debug)]
enum RawRecord {
    Json(Range<usize>),
    /// And where it is in the body.
    Cbor(Value, Range<usize>),
    Other(FoundRecord),
    /// And what was found there.
    Bad(String, Range<usize>),
}

impl RawRecord {
    /// Where it is in the body.
    const fn range(&self) -> &Range<usize> {
        match self {
            Self::Json(range) | Self::Cbor(_, range) | Self::Other(FoundRecord { range, .. }) | Self::Bad(_, range) => {
                range
            }
        }
    }

    /// About the bytes of its columns: a record's text is about as large.
    fn likely_bytes(&self) -> usize {
        match self {
            Self::Json(range) | Self::Other(FoundRecord { range, .. }) => range.len(),
            Self::Cbor(..) | Self::Bad(..) => 0,
        }
    }
}

impl BodyRecordReader {
    /// Begins to read a body.
    ///
    /// # Errors
    /// If it is not what its content type says from the beginning; of an Arrow stream, anywhere.
    pub fn new(
        table: Table,
        encoding: BatchEncoding,
        body: Bytes,
        publisher: PublisherIdentity,
    ) -> Result<Self, DecodeError> {
        Self::unread(table, publisher).of_records(encoding, body)
    }

    /// The same, keeping bad records as [`BodyRecordReader::keeping_refused`] does.
    ///
    /// # Errors
    /// As of [`BodyRecordReader::new`].
    pub fn new_keeping_refused(
        table: Table,
        encoding: BatchEncoding,
        body: Bytes,
        publisher: PublisherIdentity,
    ) -> Result<Self, DecodeError> {
        // The rows of an Arrow stream are looked at at once.
        Self::unread(table, publisher)
            .keeping_refused()
            .of_records(encoding, body)
    }

    /// Without a body.
    fn unread(table: Table, publisher: PublisherIdentity) -> Self {
        Self {
            table,
            publisher,
            writers: None,
            source: BodyCursor::End,
            rows: RecordBatchBuilder::new(table),
            pending: None,
            next: 0,
            named: Vec::new(),
            rejected: 0,
            refused: None,
            left: usize::MAX,
            marks: None,
            body: Bytes::new(),
        }
    }

    /// With a body of records.
    fn of_records(self, encoding: BatchEncoding, body: Bytes) -> Result<Self, DecodeError> {
        let (table, mut records) = (self.table, self);
        if !table.is_telemetry() {
            return Err(body_error(encoding, format!("{table} cannot be sent here")));
        }
        records.source = match encoding {
            BatchEncoding::Ndjson => BodyCursor::Lines(0),
            BatchEncoding::Json => {
                let start = body.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                match body.get(start) {
                    Some(b'[') => array(&body, start + 1),
                    Some(b'{') => BodyCursor::One,
                    _ => return Err(body_error(encoding, "neither an array of records nor a record")),
                }
            }
            BatchEncoding::Cbor => {
                cbor_array(&body).ok_or_else(|| body_error(encoding, "it does not begin an array"))?
            }
            BatchEncoding::Arrow => BodyCursor::Arrow(records.sifted(&body)?),
        };
        records.body = body;
        Ok(records)
    }

    /// Begins to read a body in a format of others.
    #[must_use]
    pub fn of_format(table: Table, format: Box<dyn RecordFormat>, body: Bytes, publisher: PublisherIdentity) -> Self {
        let left = body.len().saturating_mul(REPEATED).saturating_add(REPEATED_AT_LEAST);
        Self {
            source: BodyCursor::Other(format),
            left,
            body,
            ..Self::unread(table, publisher)
        }
    }

    /// Keeps the bad records, the first [`super::KEPT`] of them, and of their bytes 8 MiB.
    #[must_use]
    pub fn keeping_refused(self) -> Self {
        Self {
            refused: Some(RefusedRecords::default()),
            ..self
        }
    }

    /// Remembers of each record whether it is bad: a bit for each.
    #[must_use]
    pub fn marking_refused(self) -> Self {
        Self {
            marks: Some(Vec::new()),
            ..self
        }
    }

    /// Takes which records were marked as bad: those whose bit is set, 64 positions in each number.
    pub fn take_marks(&mut self) -> Vec<u64> {
        self.marks.take().unwrap_or_default()
    }

    /// Marks the record at a position; whether it was not marked before.
    fn mark(&mut self, position: u64) -> bool {
        let Some(marks) = &mut self.marks else { return true };
        let (at, bit) = (
            usize::try_from(position / 64).unwrap_or(usize::MAX),
            1u64 << (position % 64),
        );
        if marks.len() <= at {
            marks.resize(at.saturating_add(1), 0);
        }
        let is_new = marks.get(at).is_some_and(|marks| marks & bit == 0);
        if let Some(marks) = marks.get_mut(at) {
            *marks |= bit;
        }
        is_new
    }

    /// The bad records that were kept.
    #[must_use]
    pub fn refused(&self) -> &[RefusedRecord] {
        self.refused.as_ref().map(RefusedRecords::records).unwrap_or_default()
    }

    /// The next good rows, of at most `size` bytes, a larger record alone; `None` at the end.
    ///
    /// # Errors
    /// Only if columns do not fit the schema, a defect here.
    pub fn next_part(&mut self, size: usize) -> Result<Option<RecordChunk>, ArrowError> {
        self.part(size, u64::MAX)
    }

    /// Reads past the records before a position, about `size` bytes at a time; how many of them are good. Bad ones are named.
    ///
    /// # Errors
    /// As of [`BodyRecordReader::next_part`].
    pub fn skip_to(&mut self, position: u64, size: usize) -> Result<u64, ArrowError> {
        let mut good = 0;
        while let Some(part) = self.part(size, position)? {
            good += part.batch.num_rows() as u64;
        }
        Ok(good)
    }

    /// Only rows of these entities are good.
    #[must_use]
    pub fn with_writers(self, writers: Option<WriterEntities>) -> Self {
        Self { writers, ..self }
    }

    /// The next good rows of those before a position.
    fn part(&mut self, size: usize, before: u64) -> Result<Option<RecordChunk>, ArrowError> {
        while let Some((PositionedBatch { batch, positions }, to)) = self.chunk(size, before)? {
            let Some(writers) = &self.writers else {
                return Ok(positions.last().map(|last| RecordChunk { batch, last: *last, to }));
            };
            let (good, refused) = writers.sift(&batch)?;
            let (mut refused, mut last) = (refused.into_iter().peekable(), None);
            for (row, position) in positions.into_iter().enumerate() {
                if refused.next_if_eq(&row).is_none() {
                    last = Some(position);
                } else if self.named.len() < NAMED {
                    let entity = entity_of(&batch, row)?;
                    let reason = format!("the token may not store rows of the entity {entity}");
                    self.reject(position, &reason);
                } else {
                    self.mark(position);
                    self.rejected += 1;
                }
            }
            if let Some(last) = last {
                return Ok(Some(RecordChunk { batch: good, last, to }));
            }
        }
        Ok(None)
    }

    /// Rows that are what the table takes, whoever's they are, and the position behind all that was read for them.
    fn chunk(&mut self, size: usize, before: u64) -> Result<Option<(PositionedBatch, u64)>, ArrowError> {
        if let BodyCursor::Arrow(parts) = &mut self.source {
            return Ok(next_slice(parts, size, before));
        }
        let mut positions = Vec::new();
        while self.next < before
            && let Some(found) = self.pending.take().or_else(|| self.find())
        {
            if self.rows.len() > 0 && self.rows.bytes() + found.likely_bytes() > size {
                self.pending = Some(found);
                break;
            }
            let row = self.next;
            self.next += 1;
            let read = match &found {
                RawRecord::Json(range) if range.len() > LARGEST => Err(too_large(range.len())),
                RawRecord::Json(range) => {
                    let text = self.body.get(range.clone()).unwrap_or_default();
                    let counted = ValueCount::check_json(text);
                    counted.and_then(|()| {
                        let read = self.rows.push_json(text, &self.publisher);
                        read.map(|()| true).map_err(|error| error.to_string())
                    })
                }
                RawRecord::Cbor(value, range) => {
                    let read = self.rows.push_value(value, range.len(), &self.publisher);
                    read.map(|()| true).map_err(|error| error.to_string())
                }
                RawRecord::Other(record) => self.push_other(record),
                RawRecord::Bad(reason, _) => Err(reason.clone()),
            };
            match read {
                Ok(true) if self.rows.len() > 1 && self.rows.bytes() > size => {
                    let bytes = self.rows.bytes();
                    self.rows.pop();
                    self.left = self.left.saturating_add(bytes - self.rows.bytes());
                    self.next = row;
                    self.pending = Some(found);
                    break;
                }
                Ok(true) => positions.push(row),
                Ok(false) => {}
                Err(reason) => {
                    self.keep(row, &found, &reason);
                    self.reject(row, &reason);
                }
            }
        }
        if self.rows.len() == 0 {
            return Ok(None);
        }
        let batch = self.rows.take()?;
        Ok(Some((PositionedBatch { batch, positions }, self.next)))
    }

    /// Whether nothing follows the last part.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let is_left = matches!(&self.source, BodyCursor::Arrow(left) if !left.is_empty());
        self.pending.is_none() && !is_left
    }

    /// The first bad records, by position.
    #[must_use]
    pub fn named(&self) -> &[RecordRejection] {
        &self.named
    }

    /// All bad records.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Counts a record, or the `rows` that end with it, as bad.
    pub fn reject_rows(&mut self, last: u64, rows: u64, reason: &str) {
        self.rejected += rows;
        if self.marks.is_some() {
            // Between the rows are only records that are bad themselves.
            let (mut position, mut left) = (Some(last), rows);
            while let Some(at) = position.filter(|_| left > 0) {
                left -= u64::from(self.mark(at));
                position = at.checked_sub(1);
            }
        }
        if self.named.len() < NAMED {
            let reason = reason.chars().take(REASON_CHARS).collect();
            let at = self.named.partition_point(|other| other.row <= last);
            self.named.insert(at, RecordRejection { row: last, reason });
        }
    }

    /// Adds a record of a format of others, as long as all rows together stay what a body may become.
    fn push_other(&mut self, record: &FoundRecord) -> Result<bool, String> {
        if record.range.len() > LARGEST {
            return Err(too_large(record.range.len()));
        }
        let BodyCursor::Other(format) = &mut self.source else {
            return Err("the body was read to its end".to_owned());
        };
        let before = self.rows.bytes();
        let has_row = format.push(&self.body, record, &mut self.rows)?;
        let grown = self.rows.bytes() - before;
        if grown > LARGEST {
            self.rows.pop();
            return Err(format!("the row has {grown} bytes, more than {LARGEST}"));
        }
        if grown > self.left {
            self.rows.pop();
            return Err(format!(
                "the rows of the body become more than {REPEATED} times its bytes: send fewer records with so many shared attributes"
            ));
        }
        self.left -= grown;
        Ok(has_row)
    }

    /// Keeps a bad record if that is asked for.
    fn keep(&mut self, row: u64, found: &RawRecord, reason: &str) {
        if let (Some(refused), Some(record)) = (&mut self.refused, self.body.get(found.range().clone())) {
            let is_text = matches!(found, RawRecord::Json(_));
            let record = if is_text { record.trim_ascii() } else { record };
            refused.keep(row, reason, self.body.slice_ref(record));
        }
    }

    fn reject(&mut self, row: u64, reason: &str) {
        self.reject_rows(row, 1, reason);
    }

    fn find(&mut self) -> Option<RawRecord> {
        match self.source {
            BodyCursor::Lines(start) => {
                let (line, next) = line(&self.body, start)?;
                self.source = BodyCursor::Lines(next);
                Some(RawRecord::Json(line))
            }
            BodyCursor::One => {
                self.source = BodyCursor::End;
                Some(RawRecord::Json(0..self.body.len()))
            }
            BodyCursor::Array(start) => {
                let end = element(&self.body, start);
                let behind = self.body.get(end + 1..).unwrap_or_default();
                let (found, next) = match self.body.get(end) {
                    Some(b',') => (RawRecord::Json(start..end), BodyCursor::Array(end + 1)),
                    Some(_) if behind.trim_ascii().is_empty() => (RawRecord::Json(start..end), BodyCursor::End),
                    Some(_) => {
                        // The last element, then what should not be there.
                        let (surplus, reason) = (RawRecord::Json(end + 1..self.body.len()), "bytes follow the array");
                        self.keep(self.next + 1, &surplus, reason);
                        self.body.truncate(end + 1);
                        self.reject(self.next + 1, reason);
                        (RawRecord::Json(start..end), BodyCursor::End)
                    }
                    None => {
                        let reason = "the array is not closed".to_owned();
                        (RawRecord::Bad(reason, start..end), BodyCursor::End)
                    }
                };
                self.source = next;
                Some(found)
            }
            BodyCursor::Cbor(start, left) => self.cbor_element(start, left),
            BodyCursor::Other(ref mut format) => format.find(&self.body).map(RawRecord::Other),
            BodyCursor::Arrow(_) | BodyCursor::End => None,
        }
    }

    fn cbor_element(&mut self, start: usize, left: Option<u64>) -> Option<RawRecord> {
        const BREAK: u8 = 0xff;
        let (rest, all) = (self.body.get(start..).unwrap_or_default(), self.body.len());
        self.source = BodyCursor::End;
        if left == Some(0) || (left.is_none() && rest.first() == Some(&BREAK)) {
            let end = start + usize::from(left.is_none());
            return (end < all).then(|| RawRecord::Bad("bytes follow the array".to_owned(), end..all));
        }
        let window = rest.get(..LARGEST).unwrap_or(rest);
        let reason = match cbor::<ValueCount>(window) {
            Ok((count, sent)) => {
                let range = start..start + sent;
                self.source = BodyCursor::Cbor(start + sent, left.map(|left| left - 1));
                // Not at once a JSON value: that takes no key of more than 4 KiB from CBOR.
                let value = count.check().and_then(|()| Ok(cbor::<ciborium::Value>(window)?.0));
                let value = value.and_then(|value| value.deserialized().map_err(|error| error.to_string()));
                return Some(match value {
                    Ok(value) => RawRecord::Cbor(value, range),
                    Err(reason) => RawRecord::Bad(reason, range),
                });
            }
            Err(_) if window.len() < rest.len() => {
                format!("no CBOR within {LARGEST} bytes; nothing behind it was read")
            }
            Err(error) => format!("not CBOR: {error}; nothing behind it was read"),
        };
        Some(RawRecord::Bad(reason, start..all))
    }

    /// The good rows of an Arrow stream; the bad ones are rejected.
    fn sifted(&mut self, body: &Bytes) -> Result<VecDeque<PositionedBatch>, DecodeError> {
        let table = self.table;
        let mut all = VecDeque::new();
        for batch in arrow_batches(body)? {
            let (good, bad) =
                split_conforming(table, &batch).map_err(|source| DecodeError::Schema { table, source })?;
            let is_good = |row: &usize| bad.binary_search_by_key(row, |(other, _)| *other).is_err();
            let positions = (0..batch.num_rows()).filter(is_good);
            let positions = positions.map(|row| self.next + row as u64).collect();
            if good.num_rows() > 0 {
                all.push_back(PositionedBatch { batch: good, positions });
            }
            for (row, reason) in bad {
                let (position, reason) = (self.next + row as u64, reason.to_string());
                if let Some(refused) = &mut self.refused {
                    refused.keep_row(position, &reason, (&batch, row));
                }
                self.reject(position, &reason);
            }
            self.next += batch.num_rows() as u64;
        }
        Ok(all)
    }
}

fn too_large(bytes: usize) -> String {
    format!("the record has {bytes} bytes, more than {LARGEST}")
}

/// An array whose first element begins at `start` if there is one.
fn array(body: &[u8], start: usize) -> BodyCursor {
    let rest = body.get(start..).unwrap_or_default();
    if rest.trim_ascii() == b"]" {
        BodyCursor::End
    } else {
        BodyCursor::Array(start)
    }
}

/// The head of a CBOR array.
fn cbor_array(body: &[u8]) -> Option<BodyCursor> {
    let (first, rest) = body.split_first()?;
    let number = |bytes: usize| {
        let digits = rest.get(..bytes)?;
        Some(
            digits
                .iter()
                .fold(0, |number: u64, byte| (number << 8) | u64::from(*byte)),
        )
    };
    let (head, length) = match first {
        0x80..=0x97 => (1, Some(u64::from(first - 0x80))),
        0x98 => (2, Some(number(1)?)),
        0x99 => (3, Some(number(2)?)),
        0x9a => (5, Some(number(4)?)),
        0x9b => (9, Some(number(8)?)),
        0x9f => (1, None),
        _ => return None,
    };
    Some(BodyCursor::Cbor(head, length))
}

/// The first rows of the first batch that lie before a position, of about `size` bytes, at least one.
fn next_slice(all: &mut VecDeque<PositionedBatch>, size: usize, before: u64) -> Option<(PositionedBatch, u64)> {
    let inside = |good: &mut PositionedBatch| good.positions.first().is_some_and(|first| *first < before);
    let PositionedBatch { batch, mut positions } = all.pop_front_if(inside)?;
    let mut rows = positions.partition_point(|position| *position < before);
    while rows > 1 && slice_bytes(&batch.slice(0, rows)) > size {
        rows = rows.div_ceil(2);
    }
    let behind = positions.split_off(rows.min(positions.len()));
    if rows < batch.num_rows() {
        all.push_front(PositionedBatch {
            batch: batch.slice(rows, batch.num_rows() - rows),
            positions: behind,
        });
    }
    let to = positions.last().map_or(0, |last| last + 1);
    let batch = batch.slice(0, rows);
    Some((PositionedBatch { batch, positions }, to))
}
