//! Segments of lines for DataFusion: read from their beginning, a batch at a time, on threads that may wait for the disk.
//!
//! # Invariants
//!
//! - A segment is read as the version that the view holds; what is damaged in it is the query's error.
//! - A query that ends early stops the reading at its next batch.
//!
//! # Not here
//!
//! Which segments are read: [`crate::view_table`] leaves out those outside the window. Within one nothing is skipped.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use engine::DataFileHandle;

use crate::segment_reader::ScanMeter;
use crate::spec_tables::SpecTable;

/// The columns of a spec's table that its rows are made with.
pub(crate) type SpecProjection = (Arc<SpecTable>, Option<Vec<usize>>);

/// A plan that reads the segments, those of one share after each other; with the schema of a spec's rows if they are made so.
pub(crate) fn plan(
    schema: &SchemaRef,
    spec: Option<&SpecProjection>,
    shares: Vec<Vec<Arc<DataFileHandle>>>,
    projection: Option<&Vec<usize>>,
    meter: &Arc<ScanMeter>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let share = |segments| -> Arc<dyn PartitionStream> {
        Arc::new(NdjsonPartition {
            schema: Arc::clone(schema),
            spec: spec.cloned(),
            segments,
            meter: Arc::clone(meter),
        })
    };
    let shares = shares.into_iter().map(share).collect();
    let plan = StreamingTableExec::try_new(Arc::clone(schema), shares, projection, None, false, None)?;
    Ok(Arc::new(plan))
}

#[derive(Debug)]
struct NdjsonPartition {
    schema: SchemaRef,
    spec: Option<SpecProjection>,
    segments: Vec<Arc<DataFileHandle>>,
    meter: Arc<ScanMeter>,
}

impl PartitionStream for NdjsonPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 1);
        let (to, segments, meter) = (stream.tx(), self.segments.clone(), Arc::clone(&self.meter));
        let spec = self.spec.clone();
        stream.spawn_blocking(move || {
            let failed = |error| DataFusionError::External(Box::new(error));
            for segment in segments {
                let may = meter.charge_read(segment.id, segment.size);
                may.map_err(|enough| DataFusionError::External(Box::new(enough)))?;
                for batch in segment.lines().map_err(failed)? {
                    let mut batch = batch.map_err(failed)?;
                    if let Some((spec, asked)) = &spec {
                        batch = spec.rows(&batch, asked.as_deref())?;
                    }
                    if to.blocking_send(Ok(batch)).is_err() {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        stream.build()
    }
}
