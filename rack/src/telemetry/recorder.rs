//! The handle that gears and the agent record through, and the bounded queue behind it.
//!
//! # Invariants
//!
//! - `log`, `log_data`, `span` and `metric` take a short lock and return; they never wait for the disk or the bus.
//! - A [`TelemetryRecorder::log_durably`] call is one batch: after a crash all of its rows and its checkpoint are there, or none.
//! - A Rack with telemetry switched off records nothing; a checkpoint of `log_durably` moves all the same, or its source would
//!   begin anew with each life.

mod encoded_batches;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use chassis::log_rate_limiter::{AdmissionDecision, LogRateLimiter};
use model::trace_context::{is_sampled, sampling_threshold};
use model::{Attributes, Clock, FluxId, Level, MetricType, Timestamp, Token, TraceId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::rows::TelemetryRow;
use super::{BATCH_BYTES, BATCH_ROWS, DURABLE_BYTES, LogRow, MetricRow, SpanRow, TelemetryCounters};
use crate::identity::RackIdentity;
use crate::spool::{RecordingError, SourceCheckpoint, SpoolHandle};
pub(crate) use encoded_batches::EncodedBatch;

/// The most rows that wait in memory.
const QUEUE_ROWS: usize = 65_536;
/// The most bytes of rows that wait in memory.
const QUEUE_BYTES: usize = 16 << 20;
/// How many `log_durably` calls may wait for the batcher.
pub(crate) const DURABLE_SLOTS: usize = 16;

/// Rows that wait for the disk together with who waits for them.
#[derive(Debug)]
pub(crate) struct DurableWrite {
    pub(crate) rows: Vec<LogRow>,
    pub(crate) checkpoint: Option<SourceCheckpoint>,
    pub(crate) done: oneshot::Sender<Result<(), RecordingError>>,
}

/// What a recorder is made of.
pub(crate) struct RecorderParts {
    pub(crate) enabled: bool,
    pub(crate) sampling_rate: f64,
    pub(crate) clock: Clock,
    pub(crate) throttle: Arc<LogRateLimiter>,
    pub(crate) spool: SpoolHandle,
    pub(crate) identity: watch::Receiver<Option<RackIdentity>>,
    pub(crate) counters: Arc<TelemetryCounters>,
}

struct RecorderCore {
    enabled: bool,
    own_below: u64,
    sample_below: AtomicU64,
    clock: Clock,
    throttle: Arc<LogRateLimiter>,
    spool: SpoolHandle,
    identity: watch::Receiver<Option<RackIdentity>>,
    counters: Arc<TelemetryCounters>,
    queue: Mutex<RowQueue>,
    wake: Notify,
    durable: mpsc::Sender<DurableWrite>,
}

#[derive(Default)]
struct RowQueue {
    rows: VecDeque<TelemetryRow>,
    bytes: usize,
}

/// Records logs, spans and metrics. Cheap to clone.
#[derive(Clone)]
pub struct TelemetryRecorder {
    shared: Arc<RecorderCore>,
    gear: Option<Arc<GearTag>>,
}

struct GearTag {
    id: String,
    kind: String,
}

impl std::fmt::Debug for TelemetryRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetryRecorder")
            .field("enabled", &self.shared.enabled)
            .field("gear", &self.gear.as_ref().map(|gear| &gear.id))
            .finish_non_exhaustive()
    }
}

impl TelemetryRecorder {
    pub(crate) fn new(parts: RecorderParts) -> (Self, RecorderReceiver) {
        let (durable, calls) = mpsc::channel(DURABLE_SLOTS);
        let shared = Arc::new(RecorderCore {
            enabled: parts.enabled,
            own_below: sampling_threshold(parts.sampling_rate),
            sample_below: AtomicU64::new(sampling_threshold(parts.sampling_rate)),
            clock: parts.clock,
            throttle: parts.throttle,
            spool: parts.spool,
            identity: parts.identity,
            counters: parts.counters,
            queue: Mutex::default(),
            wake: Notify::new(),
            durable,
        });
        let receiver = RecorderReceiver {
            shared: Arc::clone(&shared),
            calls,
        };
        (Self { shared, gear: None }, receiver)
    }

    /// The same recorder for one gear: every row gets `gear.id` and `gear.type`, and [`log`](Self::log) obeys the log
    /// throttle of that gear.
    #[must_use]
    pub fn for_gear(&self, gear_id: &Token, gear_type: &str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            gear: Some(Arc::new(GearTag {
                id: gear_id.as_str().to_owned(),
                kind: gear_type.to_owned(),
            })),
        }
    }

    /// The time, from the Rack's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Whether a new trace is recorded; decided once, where the trace begins, and carried in `Message::sampled`.
    #[must_use]
    pub fn sample(&self, trace: &TraceId) -> bool {
        self.shared.enabled && is_sampled(trace, self.shared.sample_below.load(Relaxed))
    }

    /// Keeps at most the share of traces that the Mixer allows every Rack, and at most the Rack's own.
    pub(crate) fn narrow_sampling(&self, rate: f64) {
        let below = self.shared.own_below.min(sampling_threshold(rate));
        self.shared.sample_below.store(below, Relaxed);
    }

    /// A gear's own log line, under the gear's throttle; it also goes to the Rack's log file.
    pub fn log(&self, level: Level, message: impl Into<String>, attributes: Attributes, flux_id: Option<FluxId>) {
        if let Some(gear) = &self.gear {
            match self.shared.throttle.admit(&gear.id, Instant::now()) {
                AdmissionDecision::Yes => {}
                AdmissionDecision::YesAfter { suppressed } => self.log_suppressed(&gear.id, suppressed),
                AdmissionDecision::No => return,
            }
        }
        self.write(level, message.into(), attributes, flux_id);
    }

    /// What the throttle held back of gears that went silent, for a slow tick.
    pub(crate) fn report_suppressed(&self) {
        for (gear, lines) in self.shared.throttle.take_suppressed(Instant::now()) {
            self.log_suppressed(&gear, lines);
        }
    }

    fn log_suppressed(&self, gear: &str, lines: u64) {
        let message = format!("{lines} log lines of gear {gear} suppressed by logging.throttling");
        let attributes = Attributes::new().with("gear.id", gear).with("log.suppressed", lines);
        self.write(Level::Warn, message, attributes, None);
    }

    fn write(&self, level: Level, message: String, attributes: Attributes, flux_id: Option<FluxId>) {
        if let Some(gear) = &self.gear {
            echo(level, &gear.id, &message);
        }
        self.log_data(LogRow {
            ts: self.now(),
            level,
            message,
            attributes,
            flux_id,
        });
    }

    /// A log record that is data, not talk about the gear: not throttled.
    pub fn log_data(&self, mut row: LogRow) {
        if self.shared.enabled {
            self.tag(&mut row.attributes);
            self.push(TelemetryRow::Log(row));
        }
    }

    /// A finished span. The caller has asked [`sample`](Self::sample), or the message's `sampled`.
    pub fn span(&self, mut row: SpanRow) {
        if !row.duration_ms.is_finite() {
            self.shared.counters.unencodable.fetch_add(1, Relaxed);
            return;
        }
        if self.shared.enabled {
            self.tag(&mut row.attributes);
            self.push(TelemetryRow::Span(Box::new(row)));
        }
    }

    /// A measured value, now. `unit` is a UCUM unit such as `By`, `1`, `s`.
    pub fn metric(&self, name: &str, kind: MetricType, value: f64, unit: &str, labels: Attributes) {
        self.metric_row(MetricRow {
            ts: self.now(),
            name: name.to_owned(),
            metric_type: kind,
            value,
            labels: labels.with("otel.unit", unit),
        });
    }

    /// A measured value with its own time; the caller sets `otel.unit`. NaN and infinity are no values: the row is counted
    /// as one that cannot be encoded, because the Mixer would refuse the whole batch for it.
    pub fn metric_row(&self, mut row: MetricRow) {
        if !row.value.is_finite() {
            self.shared.counters.unencodable.fetch_add(1, Relaxed);
            return;
        }
        if self.shared.enabled {
            self.tag(&mut row.labels);
            self.push(TelemetryRow::Metric(row));
        }
    }

    /// Whether rows are recorded at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.shared.enabled
    }

    /// Records rows and the checkpoint behind them in one batch, and returns when they are on disk. Until the Rack has an
    /// identity, or while the spool is full and may not drop, this waits. Rows may be empty: then only the checkpoint moves.
    /// Hand over at most [`BATCH_ROWS`] rows and [`BATCH_BYTES`] bytes a call (a single longer row is fine), and do not wait
    /// for company: the caller decides what one batch is. A call that is dropped while it waits is not written any more,
    /// unless the write has begun.
    ///
    /// # Errors
    /// [`RecordingError`]: the Rack stops, or the rows are more than [`DURABLE_BYTES`].
    pub async fn log_durably(
        &self,
        mut rows: Vec<LogRow>,
        checkpoint: Option<SourceCheckpoint>,
    ) -> Result<(), RecordingError> {
        if !self.shared.enabled && !rows.is_empty() {
            if checkpoint.is_none() {
                return Ok(());
            }
            rows.clear();
        }
        rows.iter_mut().for_each(|row| self.tag(&mut row.attributes));
        let bytes: usize = rows.iter().map(LogRow::size).sum();
        if bytes > DURABLE_BYTES {
            return Err(RecordingError::TooLarge { bytes });
        }
        if let Some(checkpoint) = &checkpoint
            && checkpoint.key.len() + checkpoint.value.len() > 4096
        {
            return Err(RecordingError::Checkpoint {
                key: checkpoint.key.clone(),
                bytes: checkpoint.key.len() + checkpoint.value.len(),
            });
        }
        let (done, wait) = oneshot::channel();
        let call = DurableWrite { rows, checkpoint, done };
        self.shared
            .durable
            .send(call)
            .await
            .map_err(|_| RecordingError::Closed)?;
        wait.await.unwrap_or(Err(RecordingError::Closed))
    }

    /// The last checkpoint that was recorded under a key, also by an earlier run of the Rack.
    #[must_use]
    pub fn checkpoint(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.spool.checkpoint(key)
    }

    /// Blocks until the writer of the spool has gone round.
    pub(crate) fn wait_for_writer(&self) {
        self.shared.spool.wait_for_writer();
    }

    fn tag(&self, attributes: &mut Attributes) {
        if let Some(gear) = &self.gear {
            attributes.set("gear.id", gear.id.as_str());
            attributes.set("gear.type", gear.kind.as_str());
        }
    }

    fn push(&self, row: TelemetryRow) {
        let size = row.size();
        let mut dropped = 0;
        let wake = {
            let mut queue = self.shared.queue.lock();
            let (was_empty, was_full) = (queue.rows.is_empty(), queue.is_batch());
            queue.rows.push_back(row);
            queue.bytes += size;
            while queue.rows.len() > QUEUE_ROWS || queue.bytes > QUEUE_BYTES {
                let Some(oldest) = queue.rows.pop_front() else { break };
                queue.bytes -= oldest.size();
                dropped += 1;
            }
            was_empty || (!was_full && queue.is_batch())
        };
        if dropped > 0 {
            self.shared.counters.dropped_in_memory.fetch_add(dropped, Relaxed);
        }
        if wake {
            self.shared.wake.notify_one();
        }
    }
}

impl RowQueue {
    fn is_batch(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }
}

/// A gear's line for the Rack's log file. [`super::TelemetryLayer`] leaves this target out: the line is recorded already.
fn echo(level: Level, gear: &str, message: &str) {
    match level {
        Level::Debug => tracing::debug!(target: super::ECHO, gear, "{message}"),
        Level::Info => tracing::info!(target: super::ECHO, gear, "{message}"),
        Level::Warn => tracing::warn!(target: super::ECHO, gear, "{message}"),
        Level::Error => tracing::error!(target: super::ECHO, gear, "{message}"),
    }
}

/// The batcher's end of the recorder.
pub(crate) struct RecorderReceiver {
    shared: Arc<RecorderCore>,
    pub(crate) calls: mpsc::Receiver<DurableWrite>,
}

impl RecorderReceiver {
    /// The queue, apart from the calls, so that both can be awaited at once.
    pub(crate) fn queue(&self) -> RowQueueReceiver {
        RowQueueReceiver(Arc::clone(&self.shared))
    }
}

/// The queue of rows whose source does not wait.
#[derive(Clone)]
pub(crate) struct RowQueueReceiver(Arc<RecorderCore>);

impl RowQueueReceiver {
    /// Waits until the queue stops being empty or becomes a full batch.
    pub(crate) async fn wait_for_rows(&self) {
        self.0.wake.notified().await;
    }

    /// Whether a batch is full.
    pub(crate) fn is_batch(&self) -> bool {
        self.0.queue.lock().is_batch()
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> VecDeque<TelemetryRow> {
        let mut queue = self.0.queue.lock();
        queue.bytes = 0;
        std::mem::take(&mut queue.rows)
    }
}

#[cfg(test)]
mod tests;
