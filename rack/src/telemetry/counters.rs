//! Counters of the telemetry pipeline itself.

use std::sync::atomic::AtomicU64;

/// Counts since the start; only growing.
#[derive(Debug, Default)]
pub(crate) struct TelemetryCounters {
    /// Rows that did not fit the queue in memory.
    pub(crate) dropped_in_memory: AtomicU64,
    /// Rows that could not be encoded.
    pub(crate) unencodable: AtomicU64,
    /// Batches written to the spool.
    pub(crate) batches: AtomicU64,
    /// Rows in them.
    pub(crate) rows: AtomicU64,
    /// Batches given to the bus, each time.
    pub(crate) sent: AtomicU64,
    /// Batches that the bus acknowledged.
    pub(crate) acked: AtomicU64,
    /// Times that everything above the floor was sent again because the floor stood still.
    pub(crate) resends: AtomicU64,
    /// Answers to this Rack's questions that were not the Mixer's.
    pub(crate) passed_over: AtomicU64,
    /// Batches that could not be sent as they were; a log record took their place.
    pub(crate) replaced: AtomicU64,
}
