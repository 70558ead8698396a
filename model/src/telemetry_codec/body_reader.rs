//! A body record by record, in parts of bounded size; a bad record is named and the ones behind it are read.
//!
//! # Invariants
//!
//! - What is read from a position on depends on the body and the publisher only, whatever the parts before it were: a body of
//!   which a part is stored is read on from there.
//! - All bad records are counted. What is held at a time is the body, one part, one record.
//! - Rows take no more than the size that was asked for, however much records grow; one that is larger is a part of its own.
//! - Once the rows of a format of others became what they may, nothing more is decoded: what is left is refused together.
//!
//! # Not here
//!
//! Where records begin ([`super::body_cursor`]), what is remembered of bad ones ([`super::rejection_log`]).

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use bytes::Bytes;

use super::batch_builder::RecordBatchBuilder;
use super::body_cursor::{BodyCursor, PositionedBatch, RawRecord};
use super::foreign_records::ForeignRecords;
use super::record_format::RecordFormat;
use super::record_framing::{LARGEST, too_large};
use super::refused_records::RefusedRecord;
use super::rejection_log::{RecordRejection, RejectionLog};
use super::value_count::ValueCount;
use super::writer_entities::{WriterEntities, entity_of};
use super::{BatchEncoding, DecodeError, PublisherIdentity, arrow_batches, body_error};
use crate::Table;
use crate::batch::split_conforming;

/// Some good rows of a body.
#[derive(Debug, Clone)]
pub struct RecordChunk {
    /// They.
    pub batch: RecordBatch,
    /// The position of each of them in the body.
    pub positions: Vec<u64>,
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
    rejections: RejectionLog,
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
            rejections: RejectionLog::default(),
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
            BatchEncoding::Json => BodyCursor::of_json(&body)
                .ok_or_else(|| body_error(encoding, "neither an array of records nor a record"))?,
            BatchEncoding::Cbor => {
                BodyCursor::of_cbor(&body).ok_or_else(|| body_error(encoding, "it does not begin an array"))?
            }
            BatchEncoding::Arrow => BodyCursor::Arrow(records.sifted(&body)?),
        };
        records.body = body;
        Ok(records)
    }

    /// Begins to read a body in a format of others.
    #[must_use]
    pub fn of_format(table: Table, format: Box<dyn RecordFormat>, body: Bytes, publisher: PublisherIdentity) -> Self {
        Self {
            source: BodyCursor::Foreign(ForeignRecords::new(format, &body)),
            body,
            ..Self::unread(table, publisher)
        }
    }

    /// Keeps the bad records, the first [`super::KEPT`] of them, and of their bytes 8 MiB.
    #[must_use]
    pub fn keeping_refused(mut self) -> Self {
        self.rejections.keep_refused();
        self
    }

    /// Remembers of each record whether it is bad: a bit for each.
    #[must_use]
    pub fn marking_refused(mut self) -> Self {
        self.rejections.mark_refused();
        self
    }

    /// Takes which records were marked as bad: those whose bit is set, 64 positions in each number.
    pub fn take_marks(&mut self) -> Vec<u64> {
        self.rejections.take_marks()
    }

    /// The bad records that were kept.
    #[must_use]
    pub fn refused(&self) -> &[RefusedRecord] {
        self.rejections.refused()
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
                return Ok(Some(RecordChunk { batch, positions, to }));
            };
            let (good, refused) = writers.sift(&batch)?;
            let (mut refused, mut good_positions) = (refused.into_iter().peekable(), Vec::new());
            for (row, position) in positions.into_iter().enumerate() {
                if refused.next_if_eq(&row).is_none() {
                    good_positions.push(position);
                } else if self.rejections.has_room() {
                    let entity = entity_of(&batch, row)?;
                    let reason = format!("the token may not store rows of the entity {entity}");
                    self.rejections.reject(position, &reason);
                } else {
                    self.rejections.count(position);
                }
            }
            if !good_positions.is_empty() {
                return Ok(Some(RecordChunk {
                    batch: good,
                    positions: good_positions,
                    to,
                }));
            }
        }
        Ok(None)
    }

    /// Rows that are what the table takes, whoever's they are, and the position behind all that was read for them.
    fn chunk(&mut self, size: usize, before: u64) -> Result<Option<(PositionedBatch, u64)>, ArrowError> {
        if let BodyCursor::Arrow(parts) = &mut self.source {
            return Ok(BodyCursor::next_slice(parts, size, before));
        }
        let mut positions = Vec::new();
        while self.next < before
            && let Some(found) = self.pending.take().or_else(|| self.source.find(&self.body))
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
                RawRecord::Foreign(record) => match &mut self.source {
                    BodyCursor::Foreign(records) => records.push(&self.body, record, &mut self.rows),
                    _ => Err("the body was read to its end".to_owned()),
                },
                RawRecord::Bad(reason, _) => Err(reason.clone()),
            };
            match read {
                Ok(true) if self.rows.len() > 1 && self.rows.bytes() > size => {
                    let bytes = self.rows.bytes();
                    self.rows.pop();
                    if let BodyCursor::Foreign(records) = &mut self.source {
                        records.give_back(bytes - self.rows.bytes());
                    }
                    self.next = row;
                    self.pending = Some(found);
                    break;
                }
                Ok(true) => positions.push(row),
                Ok(false) => {}
                Err(reason) => {
                    self.keep(row, &found, &reason);
                    let reason = self.refuse_rest(reason);
                    self.rejections.reject(row, &reason);
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
        self.rejections.named()
    }

    /// All bad records.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejections.rejected()
    }

    /// Counts good records at some positions as bad; they are not kept.
    pub fn reject_rows(&mut self, positions: &[u64], reason: &str) {
        self.rejections.reject_rows(positions, reason);
    }

    /// Refuses what is left of a body whose rows became what they may, and says so with the reason.
    fn refuse_rest(&mut self, reason: String) -> String {
        if !matches!(&self.source, BodyCursor::Foreign(records) if records.is_full()) {
            return reason;
        }
        let first = self.next;
        while let Some(found) = self.source.find(&self.body) {
            self.keep(self.next, &found, &reason);
            self.rejections.count(self.next);
            self.next += 1;
        }
        format!(
            "{reason}; the {} records behind this one are refused, too",
            self.next - first
        )
    }

    /// Keeps a bad record if that is asked for.
    fn keep(&mut self, row: u64, found: &RawRecord, reason: &str) {
        if let Some(record) = self.body.get(found.range().clone()) {
            let is_text = matches!(found, RawRecord::Json(_));
            let record = if is_text { record.trim_ascii() } else { record };
            self.rejections.keep(row, reason, self.body.slice_ref(record));
        }
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
                self.rejections.keep_row(position, &reason, (&batch, row));
                self.rejections.reject(position, &reason);
            }
            self.next += batch.num_rows() as u64;
        }
        Ok(all)
    }
}
