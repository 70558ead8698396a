//! Settings of the pipeline: the `[ingest]` section, limits, and which business messages are archived.

use std::time::Duration;

use crate::rack_usage::RackQuotas;

/// The `[ingest]` section and the limits that the pipeline obeys.
#[derive(Debug, Clone)]
pub struct IngestSettings {
    /// How long a received batch may wait for the engine before the wait counts as a stall and the bus is told that the
    /// batch is in progress (`ingest.flush_interval`). Batches are appended as soon as the engine takes them.
    pub flush_interval: Duration,
    /// The most batches in flight (`ingest.buffer_size`).
    pub buffer_size: u32,
    /// The largest batch in bytes (`mixer.max_payload_size`); a larger one becomes a dead letter.
    pub max_payload: usize,
    /// Where business messages come from; without it they, and the dead letters of gears, stay on the bus.
    pub messages: Option<ArchiveSource>,
    /// What one Rack may send before it is told of.
    pub racks: RackQuotas,
}

/// The stream from which business messages are archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSource {
    /// The stream's name.
    pub stream: String,
    /// The subjects that are archived.
    pub subjects: Vec<String>,
    /// Whether messages are kept. If not, it is kept that they came: their Racks learn it, and the bus lets go of them. Dead letters
    /// are kept either way.
    pub keeps_messages: bool,
}
