//! The telemetry pipeline of a Rack: rows → batches → spool → bus.
//!
//! ```text
//! gears, agent ── Recorder::log/span/metric ──▶ row queue (bounded) ──▶ Batcher ──▶ spool (fsync) ──▶ Sender ──▶ bus
//! file_tail    ── Recorder::log_durably ─────────────────────────────────▲ │
//!               ◀─────────────── rows and checkpoint are on disk ──────────┘
//! ```
//!
//! # Invariants
//!
//! - Recording never waits, with one exception: [`TelemetryRecorder::log_durably`] waits for the disk and so slows its caller.
//! - Rows that do not fit the queue are dropped oldest first, counted and reported.
//! - Rows get their entity where batches are made, so that nothing is stored under an identity the Rack does not have.
//!   Until the Rack has one, rows wait in the bounded queue and `log_durably` waits.
//!
//! # Not here
//!
//! What is on disk (`spool`), the encoding (`model::wire`).

mod batcher;
mod counters;
mod recorder;
mod rows;
mod self_metrics;
mod spool_publisher;
mod tracing_layer;

pub(crate) use batcher::RowBatcher;
pub(crate) use counters::TelemetryCounters;
pub(crate) use recorder::{EncodedBatch, RecorderParts, RecorderReceiver};
pub(crate) use rows::TelemetryRow;
pub(crate) use self_metrics::SelfMetrics;
pub(crate) use spool_publisher::{SpoolPublisher, SpoolPublisherParts};

pub use recorder::TelemetryRecorder;

pub use crate::spool::{DURABLE_BYTES, RecordingError, SourceCheckpoint};
pub use rows::{LogRow, MetricRow, SpanRow};
pub use tracing_layer::TelemetryLayer;

use std::time::Duration;

/// The most rows in one batch. 500 rows of a log line are about 100 KiB: one fsync and one bus message for all of them.
pub const BATCH_ROWS: usize = 500;

/// The most bytes of rows in one batch, so that it stays far under the bus's 2 MiB even with long lines.
pub const BATCH_BYTES: usize = 512 * 1024;

/// The longest a row waits for company before its batch is written. It bounds what a `kill -9` can take of rows that were
/// recorded without waiting, and costs at most 15 small batches a second when a Rack is nearly idle.
pub const BATCH_LINGER: Duration = Duration::from_millis(200);

/// The tracing target of gears' lines in the log file.
const ECHO: &str = "gear";
