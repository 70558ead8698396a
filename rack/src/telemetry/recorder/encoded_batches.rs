//! Rows that a gear has encoded itself, all of a request's at once.
//!
//! # Invariants
//!
//! - After a crash all batches of a call and its checkpoint, if any, are there, or none.
//! - A call never waits for room: who sent the rows is told to come again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::{EntityId, Table};

use super::TelemetryRecorder;
use crate::identity::RackIdentity;
use crate::spool::{RecordingError, SourceCheckpoint, SpoolBatch};

/// How long a call waits for its turn at the writer.
const TURN_WITHIN: Duration = Duration::from_secs(5);

/// Rows of one table as an Arrow stream, of the Rack's own entity.
#[derive(Debug, Clone)]
pub(crate) struct EncodedBatch {
    pub(crate) table: Table,
    pub(crate) rows: u32,
    pub(crate) payload: Vec<u8>,
}

impl TelemetryRecorder {
    /// Who owns what is recorded; none until the Rack is adopted.
    pub(crate) fn owner(&self) -> Option<RackIdentity> {
        self.shared.identity.borrow().clone()
    }

    /// The last checkpoints whose keys begin so, also of an earlier run of the Rack.
    pub(crate) fn checkpoints(&self, prefix: &str) -> Vec<SourceCheckpoint> {
        self.shared.spool.checkpoints(prefix)
    }

    /// Records batches of an owner and perhaps a checkpoint together, and returns when they are on disk.
    ///
    /// # Errors
    /// [`RecordingError::Full`] if there is no room, [`RecordingError::ExceedsSpool`] if there never will be, [`RecordingError::Closed`] if the Rack stops.
    pub(crate) async fn record_encoded(
        &self,
        owner: EntityId,
        batches: Vec<EncodedBatch>,
        checkpoint: Option<SourceCheckpoint>,
    ) -> Result<(), RecordingError> {
        let (count, rows) = (
            batches.len() as u64,
            batches.iter().map(|batch| u64::from(batch.rows)).sum::<u64>(),
        );
        let of_spool = |batch: EncodedBatch| SpoolBatch {
            entity: owner,
            table: batch.table,
            rows: batch.rows,
            payload: batch.payload,
            checkpoints: Vec::new(),
            is_part: false,
        };
        let mut batches: Vec<SpoolBatch> = batches.into_iter().map(of_spool).collect();
        if let Some(last) = batches.last_mut() {
            last.checkpoints.extend(checkpoint);
        }
        self.shared.spool.submit_bounded(batches, TURN_WITHIN).await?;
        self.shared.counters.batches.fetch_add(count, Relaxed);
        self.shared.counters.rows.fetch_add(rows, Relaxed);
        Ok(())
    }
}
