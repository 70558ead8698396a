//! The bad records of a body: all are counted, the first ones named, and they are kept and marked where that is asked for.

use arrow_array::RecordBatch;
use bytes::Bytes;
use serde::Serialize;

use super::refused_records::{REASON_CHARS, RefusedRecord, RefusedRecords};

/// So many bad records of a body are named.
pub const NAMED: usize = 100;

/// A record that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordRejection {
    /// Its position in the body, from 0.
    pub row: u64,
    /// Why.
    pub reason: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RejectionLog {
    named: Vec<RecordRejection>,
    rejected: u64,
    /// What is kept of bad records, where that is asked for.
    refused: Option<RefusedRecords>,
    /// Which records are bad, a bit for each position, where that is asked for.
    marks: Option<Vec<u64>>,
}

impl RejectionLog {
    /// Keeps bad records from now on.
    pub(super) fn keep_refused(&mut self) {
        self.refused = Some(RefusedRecords::default());
    }

    /// Marks bad records from now on.
    pub(super) fn mark_refused(&mut self) {
        self.marks = Some(Vec::new());
    }

    pub(super) fn take_marks(&mut self) -> Vec<u64> {
        self.marks.take().unwrap_or_default()
    }

    pub(super) fn refused(&self) -> &[RefusedRecord] {
        self.refused.as_ref().map(RefusedRecords::records).unwrap_or_default()
    }

    pub(super) fn named(&self) -> &[RecordRejection] {
        &self.named
    }

    pub(super) const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Whether one more would be named.
    pub(super) const fn has_room(&self) -> bool {
        self.named.len() < NAMED
    }

    /// Counts the record at a position.
    pub(super) fn reject(&mut self, position: u64, reason: &str) {
        self.reject_rows(&[position], reason);
    }

    /// The same without a name.
    pub(super) fn count(&mut self, position: u64) {
        self.rejected += 1;
        self.mark(position);
    }

    /// Counts the records at some positions, and names the last of them.
    pub(super) fn reject_rows(&mut self, positions: &[u64], reason: &str) {
        for position in positions {
            self.count(*position);
        }
        if let Some(last) = positions.last().copied().filter(|_| self.has_room()) {
            let reason = reason.chars().take(REASON_CHARS).collect();
            let at = self.named.partition_point(|other| other.row <= last);
            self.named.insert(at, RecordRejection { row: last, reason });
        }
    }

    /// Keeps a record if that is asked for, and if there is room for it.
    pub(super) fn keep(&mut self, row: u64, reason: &str, record: Bytes) {
        if let Some(refused) = &mut self.refused {
            refused.keep(row, reason, record);
        }
    }

    /// The same of a row of a batch.
    pub(super) fn keep_row(&mut self, row: u64, reason: &str, from: (&RecordBatch, usize)) {
        if let Some(refused) = &mut self.refused {
            refused.keep_row(row, reason, from);
        }
    }

    /// Marks the record at a position.
    fn mark(&mut self, position: u64) {
        let Some(marks) = &mut self.marks else { return };
        let at = usize::try_from(position / 64).unwrap_or(usize::MAX);
        if marks.len() <= at {
            marks.resize(at.saturating_add(1), 0);
        }
        if let Some(marks) = marks.get_mut(at) {
            *marks |= 1u64 << (position % 64);
        }
    }
}
