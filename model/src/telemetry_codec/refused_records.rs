//! Bad records of a body that are kept: for the dead letters.
//!
//! # Invariants
//!
//! - At most [`KEPT`] of a body, of at most 8 MiB together: the first ones that fit.
//! - Records share the bytes of their body; those of an Arrow stream are JSON.

use arrow_array::RecordBatch;
use bytes::Bytes;

use crate::batch::{row_json, slice_bytes};

/// So many bad records of a body are kept.
pub const KEPT: usize = 1_000;
/// And so many bytes of them.
const KEPT_BYTES: usize = 8 << 20;
/// What is kept of a reason.
pub(super) const REASON_CHARS: usize = 300;

/// A record that is not stored as a row, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its position in the body, from 0.
    pub row: u64,
    /// Why.
    pub reason: String,
    /// What was sent.
    pub record: Bytes,
}

/// The bad records of a body that are kept.
#[derive(Debug, Default)]
pub(super) struct RefusedRecords {
    records: Vec<RefusedRecord>,
    bytes: usize,
}

impl RefusedRecords {
    pub(super) fn records(&self) -> &[RefusedRecord] {
        &self.records
    }

    /// Keeps a record if there is room for it.
    pub(super) fn keep(&mut self, row: u64, reason: &str, record: Bytes) {
        if self.has_room(record.len()) {
            self.bytes += record.len();
            self.records.push(RefusedRecord {
                row,
                reason: reason.chars().take(REASON_CHARS).collect(),
                record,
            });
        }
    }

    /// Keeps a row of a batch as JSON if there is room for it.
    pub(super) fn keep_row(&mut self, row: u64, reason: &str, (batch, at): (&RecordBatch, usize)) {
        if self.has_room(slice_bytes(&batch.slice(at, 1))) {
            let record = serde_json::to_vec(&row_json(batch, at)).unwrap_or_default();
            self.keep(row, reason, record.into());
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.records.len() < KEPT && self.bytes + bytes <= KEPT_BYTES
    }
}
