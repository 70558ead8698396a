//! A snapshot: an immutable view of the rows in memory and the data files, as a query reads it.
//!
//! ```text
//! committer ──┐                          ┌─> ReadView of query A (holds its snapshot to its end)
//! flusher ────┴─> Snapshot, swapped whole ┴─> ReadView of query B
//! ```
//!
//! # Invariants
//!
//! - Every acknowledged row is in a snapshot exactly once: in a hot batch or in a file, never in both.
//! - A snapshot never changes. Files it names stay readable, as the versions it names, as long as it is held.
//!
//! # Not here
//!
//! How a segment's bytes are found again after its name was given to other bytes: [`crate::manifest`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use model::batch::slice_bytes;
use model::{Table, Timestamp};

use crate::SpecName;
use crate::index::LiveRollup;
use crate::manifest::DataFileHandle;
use crate::memtable::weight;

/// Rows that are durable in the log and in no data file yet.
#[derive(Debug, Clone)]
pub struct HotBatch {
    /// The rows, in order of arrival.
    pub batch: RecordBatch,
    /// Their earliest `ts`.
    pub min_ts: Timestamp,
    /// Their latest `ts`.
    pub max_ts: Timestamp,
    /// The spec that they are of, all of them.
    pub spec: Option<SpecName>,
    /// What was counted of them, once somebody asked.
    pub(crate) counts: OnceLock<LiveRollup>,
}

/// What any batch may keep alive beside its rows.
const SPARE: usize = 8 << 10;

impl HotBatch {
    /// The bytes that its rows take, as the store counts them.
    #[must_use]
    pub fn weight(&self) -> u64 {
        weight(&self.batch)
    }

    /// The same rows; copied where they keep more memory alive than they take by half: all of the body that they came in, or rows
    /// beside them that are in files already.
    pub(crate) fn owned(self) -> Self {
        let batch = &self.batch;
        let taken = slice_bytes(batch) + SPARE;
        if allocated_bytes(batch) <= taken + taken / 2 {
            return self;
        }
        // One batch alone would be a slice of itself. Were it to fail, the rows are as right.
        match concat_batches(batch.schema_ref(), [batch, &batch.slice(0, 0)]) {
            Ok(batch) => Self { batch, ..self },
            Err(_) => self,
        }
    }
}

/// The bytes of the allocations that a batch keeps alive, each once: all columns of a body share one.
fn allocated_bytes(batch: &RecordBatch) -> usize {
    let mut allocations = BTreeMap::new();
    for column in batch.columns() {
        let data = column.to_data();
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            allocations.insert(buffer.data_ptr(), buffer.capacity());
        }
    }
    allocations.values().sum()
}

/// One state of the store, as queries see it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreSnapshot {
    pub(crate) version: u64,
    pub(crate) hot: [Arc<Vec<Arc<HotBatch>>>; Table::ALL.len()],
    pub(crate) files: [Arc<Vec<Arc<DataFileHandle>>>; Table::ALL.len()],
    pub(crate) partial: Option<Arc<str>>,
}

/// A table's place in arrays over all tables.
pub(crate) const fn table_index(table: Table) -> usize {
    table.number() as usize - 1
}

/// An immutable snapshot of the store; a clone is the same snapshot. Hold one from a query's start to its end, not longer:
/// it keeps memory and displaced files alive.
#[derive(Clone)]
pub struct ReadView(Arc<StoreSnapshot>);

impl ReadView {
    pub(crate) const fn new(snapshot: Arc<StoreSnapshot>) -> Self {
        Self(snapshot)
    }

    /// The rows of `table` that are in no data file yet, in no order.
    #[must_use]
    pub fn hot(&self, table: Table) -> &[Arc<HotBatch>] {
        &self.0.hot[table_index(table)]
    }

    /// The data files of `table`, ordered by partition and number.
    #[must_use]
    pub fn files(&self, table: Table) -> &[Arc<DataFileHandle>] {
        &self.0.files[table_index(table)]
    }

    /// Grows with every change of the store's content.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// Why answers from this view lack rows, if they do: a file was found damaged and quarantined.
    #[must_use]
    pub fn partial(&self) -> Option<&str> {
        self.0.partial.as_deref()
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView")
            .field("version", &self.0.version)
            .field("files", &Table::ALL.map(|table| self.files(table).len()))
            .finish_non_exhaustive()
    }
}
