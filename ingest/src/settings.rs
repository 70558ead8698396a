//! Settings of the pipeline: the `[ingest]` section, and which business messages are archived.

use std::time::Duration;

/// The `[ingest]` section and the limits that the pipeline obeys.
#[derive(Debug, Clone)]
pub struct IngestSettings {
    /// How long a received batch may wait for the engine before the wait is reported as a stall and the bus is told
    /// that it goes on (`ingest.flush_interval`). Batches are appended at once whenever the engine takes them.
    pub flush_interval: Duration,
    /// The most batches in flight (`ingest.buffer_size`).
    pub buffer_size: u32,
    /// The largest batch in bytes (`mixer.max_payload_size`); a larger one becomes a dead letter.
    pub max_payload: usize,
    /// Where business messages come from; without it they are not archived.
    pub messages: Option<ArchiveSource>,
}

/// The stream of business messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSource {
    /// Its name.
    pub stream: String,
    /// What of it is archived.
    pub subjects: Vec<String>,
}
