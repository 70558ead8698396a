//! Rows that were found while a statement was planned, as a part of its plan.
//!
//! # Invariants
//!
//! - Their memory is counted in the statement's pool for as long as the plan is there.

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
pub(super) struct HeldRows {
    batches: Vec<RecordBatch>,
    schema: SchemaRef,
    _memory: MemoryReservation,
}

impl HeldRows {
    /// Batches of one schema, and the memory that they take.
    pub(super) const fn new(batches: Vec<RecordBatch>, schema: SchemaRef, memory: MemoryReservation) -> Self {
        Self {
            batches,
            schema,
            _memory: memory,
        }
    }

    /// They as a plan.
    pub(super) fn plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::clone(&self.schema);
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(self)], None, [], false, None)?;
        Ok(Arc::new(plan))
    }
}

impl PartitionStream for HeldRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let most = task.session_config().batch_size();
        let slices = self.batches.clone().into_iter().flat_map(move |rows| {
            let starts = (0..rows.num_rows()).step_by(most);
            starts.map(move |start| Ok(rows.slice(start, most.min(rows.num_rows() - start))))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            futures::stream::iter(slices),
        ))
    }
}
