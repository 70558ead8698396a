//! Rows that are stored together or not at all: all of a request, all points of a scrape.
//!
//! # Invariants
//!
//! - After a crash all batches of a call and its checkpoint, if any, are there, or none.
//! - A call never waits for room: who has the rows is told to come again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::{EntityId, MetricPoint, Table, TelemetryRecord, telemetry_codec};

use super::TelemetryRecorder;
use crate::identity::RackIdentity;
use crate::spool::{RecordingError, SourceCheckpoint, SpoolBatch};
use crate::telemetry::{BATCH_BYTES, DURABLE_BYTES, MetricRow};

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
    /// [`RecordingError::Full`] if there is no room, [`RecordingError::ExceedsSpool`] if there never will be,
    /// [`RecordingError::Closed`] if the Rack stops.
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

    /// Records points of an owner together, and returns when they are on disk.
    ///
    /// # Errors
    /// As of [`record_encoded`](Self::record_encoded), and [`RecordingError::TooLarge`] if one of them is.
    pub(crate) async fn record_points(
        &self,
        owner: RackIdentity,
        mut points: Vec<MetricRow>,
    ) -> Result<(), RecordingError> {
        points.iter_mut().for_each(|row| self.tag(&mut row.labels));
        let entity = owner.entity_id;
        let encoding = tokio::task::spawn_blocking(move || encode_points(points, &owner));
        let batches = encoding
            .await
            .map_err(|error| RecordingError::Encode(error.to_string()))??;
        if batches.is_empty() {
            return Ok(());
        }
        self.record_encoded(entity, batches, None).await
    }
}

fn encode_points(points: Vec<MetricRow>, owner: &RackIdentity) -> Result<Vec<EncodedBatch>, RecordingError> {
    let (mut batches, mut bytes) = (Vec::new(), 0);
    let mut part: Vec<MetricPoint> = Vec::new();
    for row in points {
        let size = row.size();
        if !part.is_empty() && bytes + size > BATCH_BYTES {
            batches.push(encode_part(&part)?);
            part.clear();
            bytes = 0;
        }
        bytes += size;
        part.push(row.owned_by(owner));
    }
    if !part.is_empty() {
        batches.push(encode_part(&part)?);
    }
    Ok(batches)
}

fn encode_part(points: &[MetricPoint]) -> Result<EncodedBatch, RecordingError> {
    let columns = MetricPoint::to_batch(points).map_err(|error| RecordingError::Encode(error.to_string()))?;
    let payload = telemetry_codec::encode_arrow(&[columns]);
    let payload = payload.map_err(|error| RecordingError::Encode(error.to_string()))?;
    if payload.len() > DURABLE_BYTES {
        return Err(RecordingError::TooLarge { bytes: payload.len() });
    }
    Ok(EncodedBatch {
        table: Table::Metrics,
        rows: u32::try_from(points.len()).unwrap_or(u32::MAX),
        payload,
    })
}
