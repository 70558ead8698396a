//! Static rows: rows that were found while a statement was planned, as a part of its plan.
//!
//! # Invariants
//!
//! - Their memory is counted in the statement's pool until the last of them is read.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

/// See the module.
#[derive(Debug)]
pub(super) struct StaticRows {
    batches: Vec<RecordBatch>,
    schema: SchemaRef,
    memory: Arc<MemoryReservation>,
}

impl StaticRows {
    /// Batches of one schema, and the memory that they take.
    pub(super) fn new(batches: Vec<RecordBatch>, schema: SchemaRef, memory: MemoryReservation) -> Self {
        Self {
            batches,
            schema,
            memory: Arc::new(memory),
        }
    }

    /// The rows of a batch, at most so many at once.
    pub(super) fn sliced(rows: &RecordBatch, most: usize, memory: MemoryReservation) -> Self {
        let starts = (0..rows.num_rows()).step_by(most.max(1));
        let batches = starts.map(|start| rows.slice(start, most.min(rows.num_rows() - start)));
        Self::new(batches.collect(), rows.schema(), memory)
    }

    /// They as a plan.
    pub(super) fn plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::clone(&self.schema);
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(self)], None, [], false, None)?;
        Ok(Arc::new(plan))
    }
}

impl PartitionStream for StaticRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        // A plan may be gone before its rows are read.
        let memory = Arc::clone(&self.memory);
        let batches = self.batches.clone().into_iter().map(move |rows| {
            let _counted = &memory;
            Ok(rows)
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(batches),
        ))
    }
}
