//! Where the next record of a body begins, in every encoding.
//!
//! # What is a record
//!
//! A line that is not blank, an element of the JSON or CBOR array, the one JSON object, a row of the Arrow stream; counted
//! from 0. Behind bytes that are no CBOR, or no Arrow message, nothing can be told apart: what begins there counts as one
//! bad record.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_array::RecordBatch;
use serde_json::Value;

use super::foreign_records::ForeignRecords;
use super::record_format::FoundRecord;
use super::record_framing::{LARGEST, cbor, element, line};
use super::value_count::ValueCount;
use crate::batch::slice_bytes;

/// Where the next record begins.
#[derive(Debug)]
pub(super) enum BodyCursor {
    Lines(usize),
    One,
    Array(usize),
    /// Behind the array.
    Surplus(usize),
    /// And the number of elements to come, if it was said.
    Cbor(usize, Option<u64>),
    Arrow(VecDeque<PositionedBatch>),
    Foreign(ForeignRecords),
    End,
}

/// Good rows and where they were in the body.
#[derive(Debug)]
pub(super) struct PositionedBatch {
    pub(super) batch: RecordBatch,
    pub(super) positions: Vec<u64>,
}

/// What was found where a record should be.
#[derive(Debug)]
pub(super) enum RawRecord {
    Json(Range<usize>),
    /// And where it is in the body.
    Cbor(Value, Range<usize>),
    Foreign(FoundRecord),
    /// And what was found there.
    Bad(String, Range<usize>),
}

impl RawRecord {
    /// Where it is in the body.
    pub(super) const fn range(&self) -> &Range<usize> {
        match self {
            Self::Json(range)
            | Self::Cbor(_, range)
            | Self::Foreign(FoundRecord { range, .. })
            | Self::Bad(_, range) => range,
        }
    }

    /// About the bytes of its columns: a record's text is about as large.
    pub(super) fn likely_bytes(&self) -> usize {
        match self {
            Self::Json(range) | Self::Foreign(FoundRecord { range, .. }) => range.len(),
            Self::Cbor(..) | Self::Bad(..) => 0,
        }
    }
}

impl BodyCursor {
    /// The beginning of JSON: an array, or one record.
    pub(super) fn of_json(body: &[u8]) -> Option<Self> {
        let text = body.trim_ascii_start();
        let start = body.len() - text.len();
        match text {
            [b'[', rest @ ..] if rest.trim_ascii() == b"]" => Some(Self::End),
            [b'[', ..] => Some(Self::Array(start + 1)),
            [b'{', ..] => Some(Self::One),
            _ => None,
        }
    }

    /// The head of a CBOR array.
    pub(super) fn of_cbor(body: &[u8]) -> Option<Self> {
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
        Some(Self::Cbor(head, length))
    }

    /// The next record; rows of an Arrow stream come as [`BodyCursor::next_slice`].
    pub(super) fn find(&mut self, body: &[u8]) -> Option<RawRecord> {
        let (found, next) = match self {
            Self::Lines(start) => {
                let (line, next) = line(body, *start)?;
                (RawRecord::Json(line), Self::Lines(next))
            }
            Self::One => (RawRecord::Json(0..body.len()), Self::End),
            Self::Array(start) => {
                let (start, end) = (*start, element(body, *start));
                match body.get(end) {
                    Some(b',') => (RawRecord::Json(start..end), Self::Array(end + 1)),
                    Some(_) => (RawRecord::Json(start..end), Self::Surplus(end + 1)),
                    None => {
                        let reason = "the array is not closed".to_owned();
                        (RawRecord::Bad(reason, start..end), Self::End)
                    }
                }
            }
            Self::Surplus(start) => {
                let rest = body.get(*start..)?.trim_ascii_start();
                let from = body.len() - rest.len();
                let range = from..from + rest.trim_ascii_end().len();
                if range.is_empty() {
                    return None;
                }
                (RawRecord::Bad("bytes follow the array".to_owned(), range), Self::End)
            }
            Self::Cbor(start, left) => cbor_element(body, *start, *left)?,
            Self::Foreign(records) => return records.find(body).map(RawRecord::Foreign),
            Self::Arrow(_) | Self::End => return None,
        };
        *self = next;
        Some(found)
    }

    /// The first rows of the first batch that lie before a position, of about `size` bytes, at least one, and the position behind them.
    pub(super) fn next_slice(
        all: &mut VecDeque<PositionedBatch>,
        size: usize,
        before: u64,
    ) -> Option<(PositionedBatch, u64)> {
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
}

/// The element of a CBOR array that begins at `start`, and what is behind it.
fn cbor_element(body: &[u8], start: usize, left: Option<u64>) -> Option<(RawRecord, BodyCursor)> {
    const BREAK: u8 = 0xff;
    let (rest, all) = (body.get(start..).unwrap_or_default(), body.len());
    let bad = |reason: String, from: usize| Some((RawRecord::Bad(reason, from..all), BodyCursor::End));
    if left == Some(0) || (left.is_none() && rest.first() == Some(&BREAK)) {
        let end = start + usize::from(left.is_none());
        return if end < all {
            bad("bytes follow the array".to_owned(), end)
        } else {
            None
        };
    }
    let window = rest.get(..LARGEST).unwrap_or(rest);
    match cbor::<ValueCount>(window) {
        Ok((count, sent)) => {
            let range = start..start + sent;
            // Not at once a JSON value: that takes no key of more than 4 KiB from CBOR.
            let value = count.check().and_then(|()| Ok(cbor::<ciborium::Value>(window)?.0));
            let value = value.and_then(|value| value.deserialized().map_err(|error| error.to_string()));
            let record = match value {
                Ok(value) => RawRecord::Cbor(value, range),
                Err(reason) => RawRecord::Bad(reason, range),
            };
            Some((record, BodyCursor::Cbor(start + sent, left.map(|left| left - 1))))
        }
        Err(_) if window.len() < rest.len() => bad(
            format!("no CBOR within {LARGEST} bytes; nothing behind it was read"),
            start,
        ),
        Err(error) => bad(format!("not CBOR: {error}; nothing behind it was read"), start),
    }
}
