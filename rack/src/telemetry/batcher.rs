//! Batcher: rows get their entity, are encoded per table and handed to the spool.
//!
//! # Invariants
//!
//! - Rows that nobody waits for are written at [`BATCH_ROWS`], [`BATCH_BYTES`] or after [`BATCH_LINGER`].
//! - A `log_durably` call is written at once, as one batch of its own; while one is being synced the next ones gather in the
//!   spool, so they share the following sync.
//! - On cancellation the queue is written once more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use model::{LogRecord, TelemetryRecord};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::recorder::{DurableWrite, RecorderReceiver, RowQueueReceiver};
use super::rows::TelemetryRow;
use super::{BATCH_BYTES, BATCH_LINGER, BATCH_ROWS, LogRow, RecordingError, TelemetryCounters};
use crate::identity::RackIdentity;
use crate::spool::{SpoolBatch, SpoolHandle};

/// The task between the recorder and the spool.
pub(crate) struct RowBatcher {
    pub(crate) receiver: RecorderReceiver,
    pub(crate) spool: SpoolHandle,
    pub(crate) identity: watch::Receiver<Option<RackIdentity>>,
    pub(crate) counters: Arc<TelemetryCounters>,
    pub(crate) cancel: CancellationToken,
}

enum BatcherEvent {
    Stop,
    Call(DurableWrite),
    Look,
    Linger,
}

impl RowBatcher {
    /// Runs until cancelled; then writes what waits, if the Rack has an identity.
    pub(crate) async fn run(mut self) {
        let queue = self.receiver.queue();
        if !self.wait_for_identity().await {
            return;
        }
        let mut deadline: Option<Instant> = None;
        loop {
            let next = {
                let linger = deadline.unwrap_or_else(Instant::now);
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => BatcherEvent::Stop,
                    call = self.receiver.calls.recv() => call.map_or(BatcherEvent::Stop, BatcherEvent::Call),
                    () = tokio::time::sleep_until(linger), if deadline.is_some() => BatcherEvent::Linger,
                    () = queue.wait_for_rows() => BatcherEvent::Look,
                }
            };
            match next {
                BatcherEvent::Stop => break,
                BatcherEvent::Call(call) => self.write_call(call).await,
                BatcherEvent::Look if !queue.is_batch() => {
                    deadline.get_or_insert_with(|| Instant::now() + BATCH_LINGER);
                }
                BatcherEvent::Look | BatcherEvent::Linger => {
                    deadline = None;
                    self.write_queue(&queue).await;
                }
            }
        }
        self.receiver.calls.close();
        while let Some(call) = self.receiver.calls.recv().await {
            self.write_call(call).await;
        }
        self.write_queue(&queue).await;
    }

    async fn wait_for_identity(&self) -> bool {
        let mut identity = self.identity.clone();
        tokio::select! {
            () = self.cancel.cancelled() => self.owner().is_some(),
            known = identity.wait_for(Option::is_some) => known.is_ok(),
        }
    }

    fn owner(&self) -> Option<RackIdentity> {
        self.identity.borrow().clone()
    }

    async fn write_call(&self, call: DurableWrite) {
        let Some(owner) = self.owner() else {
            let _ = call.done.send(Err(RecordingError::Closed));
            return;
        };
        let rows: Vec<LogRecord> = call.rows.into_iter().map(|row| row.owned_by(&owner)).collect();
        let batch = if rows.is_empty() {
            Ok(self.empty(&owner))
        } else {
            encode(&rows, &owner)
        };
        match batch {
            Ok(batch) => {
                let checkpoints = call.checkpoint.into_iter().collect();
                self.submit(SpoolBatch { checkpoints, ..batch }, Some(call.done)).await;
            }
            Err(reason) => {
                self.counters.unencodable.fetch_add(rows.len() as u64, Relaxed);
                let _ = call.done.send(Err(RecordingError::Encode(reason)));
            }
        }
    }

    const fn empty(&self, owner: &RackIdentity) -> SpoolBatch {
        SpoolBatch {
            entity: owner.entity_id,
            table: model::Table::Logs,
            rows: 0,
            payload: Vec::new(),
            checkpoints: Vec::new(),
            is_part: false,
        }
    }

    async fn write_queue(&self, queue: &RowQueueReceiver) {
        let Some(owner) = self.owner() else { return };
        let (mut logs, mut spans, mut metrics) = split(queue.take());
        let logs =
            RowChunks::new(&mut logs, LogRow::size).map(|rows| encode(&owned(rows, &owner, LogRow::owned_by), &owner));
        let spans = RowChunks::new(&mut spans, super::SpanRow::size)
            .map(|rows| encode(&owned(rows, &owner, super::SpanRow::owned_by), &owner));
        let metrics = RowChunks::new(&mut metrics, super::MetricRow::size)
            .map(|rows| encode(&owned(rows, &owner, super::MetricRow::owned_by), &owner));
        for batch in logs.chain(spans).chain(metrics) {
            match batch {
                Ok(batch) => self.submit(batch, None).await,
                Err(_) => {
                    self.counters.unencodable.fetch_add(1, Relaxed);
                }
            }
        }
    }

    async fn submit(&self, batch: SpoolBatch, done: Option<tokio::sync::oneshot::Sender<Result<(), RecordingError>>>) {
        let rows = u64::from(batch.rows);
        // A closed spool drops `done`, and who waits for it hears that the Rack stops.
        if self.spool.submit(batch, done).await.is_ok() && rows > 0 {
            self.counters.batches.fetch_add(1, Relaxed);
            self.counters.rows.fetch_add(rows, Relaxed);
        }
    }
}

fn owned<T, R>(rows: Vec<T>, owner: &RackIdentity, own: impl Fn(T, &RackIdentity) -> R) -> Vec<R> {
    rows.into_iter().map(|row| own(row, owner)).collect()
}

fn encode<R: TelemetryRecord>(rows: &[R], owner: &RackIdentity) -> Result<SpoolBatch, String> {
    let columns = R::to_batch(rows).map_err(|error| error.to_string())?;
    let payload = model::telemetry_codec::encode_arrow(&[columns]).map_err(|error| error.to_string())?;
    Ok(SpoolBatch {
        entity: owner.entity_id,
        table: R::TABLE,
        rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        payload,
        checkpoints: Vec::new(),
        is_part: false,
    })
}

type RowsByTable = (Vec<LogRow>, Vec<super::SpanRow>, Vec<super::MetricRow>);

fn split(rows: VecDeque<TelemetryRow>) -> RowsByTable {
    let mut split = RowsByTable::default();
    for row in rows {
        match row {
            TelemetryRow::Log(row) => split.0.push(row),
            TelemetryRow::Span(row) => split.1.push(*row),
            TelemetryRow::Metric(row) => split.2.push(row),
        }
    }
    split
}

/// Rows in pieces of one batch.
struct RowChunks<'a, T, F> {
    rows: std::vec::Drain<'a, T>,
    size: F,
    held: Option<T>,
}

impl<'a, T, F: Fn(&T) -> usize> RowChunks<'a, T, F> {
    fn new(rows: &'a mut Vec<T>, size: F) -> Self {
        Self {
            rows: rows.drain(..),
            size,
            held: None,
        }
    }
}

impl<T, F: Fn(&T) -> usize> Iterator for RowChunks<'_, T, F> {
    type Item = Vec<T>;

    fn next(&mut self) -> Option<Vec<T>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while let Some(row) = self.held.take().or_else(|| self.rows.next()) {
            bytes += (self.size)(&row);
            if !chunk.is_empty() && (chunk.len() == BATCH_ROWS || bytes > BATCH_BYTES) {
                self.held = Some(row);
                break;
            }
            chunk.push(row);
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn rows_are_cut_at_the_row_and_byte_limits_and_none_is_lost() {
        let mut rows: Vec<usize> = vec![1; 1_200];
        rows.push(2 * BATCH_BYTES);
        rows.extend([1; 3]);
        let total = rows.len();
        let chunks: Vec<Vec<usize>> = RowChunks::new(&mut rows, |size| *size).collect();
        let lens: Vec<usize> = chunks.iter().map(Vec::len).collect();
        assert_eq!(lens, [500, 500, 200, 1, 3]);
        assert_eq!(chunks.iter().flatten().count(), total);
    }
}
