//! A batch of rows in memory: durable in the log, in no data file yet.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use model::Timestamp;
use model::batch::slice_bytes;

use super::weight;
use crate::SpecName;
use crate::index::{LiveRollup, MinuteRollup, RollupDimension};

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

    /// How many of its rows, of log records, there are in each minute; `None` if that is too much to say.
    #[must_use]
    pub fn counts(&self, by: RollupDimension) -> Option<MinuteRollup> {
        self.counts.get_or_init(|| LiveRollup::of_batch(&self.batch)).get(by)
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
