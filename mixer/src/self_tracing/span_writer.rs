//! Stores the Mixer's own spans: those of a second in one append.
//!
//! # Invariants
//!
//! - A store that takes nothing costs the spans of that time, counted, and nobody waits.
//! - At the stop what waits is stored.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::{AppendBatch, BatchOrigin, Engine};
use model::telemetry_codec::encode_arrow;
use model::{Span, Table, batch};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{QUEUE, SpanRecorder};

/// How long a span waits for company.
const LINGER: Duration = Duration::from_secs(1);
/// How long an append may wait for room.
const PATIENCE: Duration = Duration::from_secs(1);

/// The task that stores them.
pub(crate) struct SpanWriter {
    pub(crate) engine: Arc<Engine>,
    pub(crate) recorder: SpanRecorder,
    pub(crate) spans: mpsc::Receiver<Span>,
}

impl SpanWriter {
    /// Runs until it is stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => None,
                first = self.spans.recv() => first,
            };
            let is_last = first.is_none();
            let mut spans: Vec<_> = first.into_iter().collect();
            if !is_last {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(LINGER) => {}
                }
            }
            while spans.len() < QUEUE
                && let Ok(span) = self.spans.try_recv()
            {
                spans.push(span);
            }
            if !spans.is_empty() {
                self.store(&spans).await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn store(&self, spans: &[Span]) {
        let Some(core) = &self.recorder.0 else { return };
        let count = spans.len() as u64;
        match self.append(spans).await {
            Ok(()) => core.stored.fetch_add(count, Relaxed),
            Err(error) => {
                tracing::debug!(count, error, "own spans are not stored");
                core.dropped.fetch_add(count, Relaxed)
            }
        };
    }

    async fn append(&self, spans: &[Span]) -> Result<(), String> {
        let rows = batch::spans(spans).map_err(|error| error.to_string())?;
        let payload = encode_arrow(std::slice::from_ref(&rows)).map_err(|error| error.to_string())?;
        let batch = AppendBatch {
            table: Table::Traces,
            origin: BatchOrigin::default(),
            payload: payload.into(),
            rows: vec![rows],
        };
        let appended = self.engine.append_within(batch, PATIENCE).await;
        appended.map(drop).map_err(|error| error.to_string())
    }
}
