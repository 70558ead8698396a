//! Text of server-sent events. Those of live rows are made once for all followers, a block of rows at a time.
//!
//! # Invariants
//!
//! - A block is a part of one piece of one arrival, always the same one for the same row.
//! - Its text has its rows' events one after the other, so that a part of it is a part of the stream.

use std::sync::{Arc, OnceLock};

use arrow_array::{BooleanArray, RecordBatch};
use bytes::{BufMut, Bytes, BytesMut};
use engine::{ArrivalPosition, TailArrival, WeightedCache};
use model::Timestamp;
use serde_json::{Map, Value, json};

use super::TailRendering;
use super::resume_token::ResumeToken;
use crate::Error;
use crate::message_rendering::{self, render_json};

/// Rows of a block, at most.
const ROWS: usize = 512;
/// A block has about so many bytes of rows, at most.
const BYTES: u64 = 128 << 10;
/// How long a reader waits before it comes back, in milliseconds.
const RETRY: u32 = 1_000;

/// What is shown, the number of an arrival, and of a block's first row in it.
pub(super) type BlockKey = (TailRendering, u64, usize);

/// Some rows of an arrival.
#[derive(Debug)]
pub(super) struct TailBlock {
    pub(super) rows: RecordBatch,
    /// The number of the first of them in the arrival.
    first: usize,
    /// So many of them were passed before.
    pub(super) skip: usize,
}

impl TailBlock {
    /// The number of the row behind the last one, in the arrival.
    pub(super) fn end(&self) -> usize {
        self.first + self.rows.num_rows()
    }
}

/// The blocks of an arrival from a position on.
pub(super) fn blocks(arrival: &TailArrival, from: ArrivalPosition) -> impl Iterator<Item = TailBlock> {
    let from = if from.lsn == arrival.lsn { from.row } else { 0 };
    let most = BYTES.saturating_mul(arrival.rows as u64) / arrival.weight().max(1);
    let most = usize::try_from(most).unwrap_or(ROWS).clamp(1, ROWS);
    let mut before = 0;
    let pieces = arrival.pieces.iter().map(move |piece| {
        let first = before;
        before += piece.batch.num_rows();
        (first, piece)
    });
    pieces.flat_map(move |(start, piece)| {
        let rows = piece.batch.num_rows();
        let begin = from.saturating_sub(start).min(rows) / most * most;
        (begin..rows).step_by(most).filter_map(move |at| {
            let (first, len) = (start + at, most.min(rows - at));
            let skip = from.saturating_sub(first);
            (skip < len).then(|| TailBlock {
                rows: piece.batch.slice(at, len),
                first,
                skip,
            })
        })
    })
}

/// The text of a block's rows.
#[derive(Debug)]
pub(super) struct EventText {
    text: Bytes,
    /// Where each row's event ends.
    ends: Vec<usize>,
}

impl EventText {
    fn new(store: u32, shown: TailRendering, arrival: &TailArrival, block: &TailBlock) -> Self {
        let mut text = BytesMut::new();
        // Rows that cannot be shown so, never in practice, are shown as they are.
        let rows =
            message_rendering::render_messages(&block.rows, shown.raw, None).unwrap_or_else(|_| block.rows.clone());
        let ends = (0..block.rows.num_rows()).map(|row| {
            let behind = block.first + row + 1;
            let position = if behind < arrival.rows {
                ArrivalPosition {
                    lsn: arrival.lsn,
                    row: behind,
                }
            } else {
                ArrivalPosition {
                    lsn: arrival.lsn + 1,
                    row: 0,
                }
            };
            write_row(
                &mut text,
                &ResumeToken::live(store, position),
                &render_json(&rows, row, shown.raw),
            );
            text.len()
        });
        let ends = ends.collect();
        Self {
            text: text.freeze(),
            ends,
        }
    }

    pub(super) fn all(&self) -> Bytes {
        self.text.clone()
    }

    /// Adds the events of the rows from `skip` on that are kept.
    pub(super) fn copy(&self, to: &mut BytesMut, skip: usize, kept: Option<&BooleanArray>) {
        for (row, end) in self.ends.iter().enumerate().skip(skip) {
            if kept.is_none_or(|kept| kept.value(row)) {
                let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
                to.extend_from_slice(self.text.get(start.unwrap_or(0)..*end).unwrap_or_default());
            }
        }
    }
}

/// The last texts, for whoever needs them next.
#[derive(Debug)]
pub(super) struct EventTextCache(pub(super) WeightedCache<BlockKey, Arc<OnceLock<Arc<EventText>>>>);

impl EventTextCache {
    /// The text of a block. Who needs it while another makes it waits for that.
    pub(super) fn of(
        &self,
        store: u32,
        shown: TailRendering,
        arrival: &TailArrival,
        block: &TailBlock,
    ) -> Arc<EventText> {
        let key = (shown, arrival.lsn, block.first);
        let place = self.0.get(key).unwrap_or_else(|| {
            let place = Arc::new(OnceLock::new());
            // As JSON rows take about twice what they take in columns.
            let share = arrival.weight() * block.rows.num_rows() as u64 / arrival.rows.max(1) as u64;
            let weight = usize::try_from(2 * share).unwrap_or(usize::MAX).saturating_add(256);
            self.0.put(key, Arc::clone(&place), weight);
            place
        });
        Arc::clone(place.get_or_init(|| Arc::new(EventText::new(store, shown, arrival, block))))
    }
}

/// The event of a row.
pub(super) fn write_row(to: &mut BytesMut, id: &ResumeToken, row: &Map<String, Value>) {
    let data = serde_json::to_vec(row).unwrap_or_default();
    to.extend_from_slice(format!("id: {id}\ndata: ").as_bytes());
    to.extend_from_slice(&data);
    to.put_slice(b"\n\n");
}

fn event(name: &str, id: Option<&ResumeToken>, data: &serde_json::Value) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

/// What comes before the first row.
pub(super) fn hello(id: &ResumeToken) -> Bytes {
    format!("retry: {RETRY}\nid: {id}\n: following\n\n").into()
}

pub(super) fn heartbeat(id: &ResumeToken) -> Bytes {
    format!("id: {id}\n: hb\n\n").into()
}

/// Without an id: nothing is further than it was.
pub(super) fn keep_alive() -> Bytes {
    Bytes::from_static(b": hb\n\n")
}

pub(super) fn lagged(id: &ResumeToken, missed: u64, unseen: u64) -> Bytes {
    let mut data = json!({ "missed": missed, "resume": id.to_string() });
    if unseen > 0
        && let Some(data) = data.as_object_mut()
    {
        data.insert("unseen".to_owned(), unseen.into());
    }
    event("lagged", Some(id), &data)
}

pub(super) fn gap(id: &ResumeToken, from: Option<&ResumeToken>, since: Timestamp, reason: &str) -> Bytes {
    let from = from.map(ResumeToken::to_string);
    let data = json!({ "from": from, "since": since.to_string(), "reason": reason });
    event("gap", Some(id), &data)
}

/// Without an id: the reader comes back to where it was.
pub(super) fn error(error: &Error) -> Bytes {
    event("error", None, &json!({ "detail": error.to_string() }))
}
