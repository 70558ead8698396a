//! Source checkpoints that are written with rows, and why a write was refused.
//!
//! Not here: how a checkpoint lies on disk ([`super::segment`]).

/// The most bytes that one [`log_durably`](crate::telemetry::TelemetryRecorder::log_durably) call may hold: one call is one batch, whole or not at all.
pub const DURABLE_BYTES: usize = 1536 * 1024;

/// How far a source has been recorded: stored with the rows in one write, so that after a crash the source goes on exactly
/// behind the last row that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCheckpoint {
    /// Names the source, such as `file_tail/<gear>/<path>`; the last value of each key is kept for ever.
    pub key: String,
    /// Whatever the source needs to go on; at most 4 KiB with rows, less than 64 KiB in the outbox.
    pub value: Vec<u8>,
}

/// Why rows were not recorded durably.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The Rack stops. The rows may or may not be in the spool; the checkpoint tells.
    #[error("the Rack is stopping")]
    Closed,
    /// There is no room for rows of somebody who can send them again.
    #[error("the Rack's spool is full: the Mixer must take more of it first, or its operator raises spool.max_size_mb")]
    Full,
    /// More than the share of the spool that such rows have.
    #[error(
        "the rows of one request have {bytes} bytes, more than the Rack's spool takes ({limit}): raise spool.max_size_mb or send fewer at once"
    )]
    ExceedsSpool {
        /// The size of the rows.
        bytes: u64,
        /// The most that is taken.
        limit: u64,
    },
    /// More than one batch may hold.
    #[error("{bytes} bytes of rows in one call; the most is {DURABLE_BYTES}: hand over fewer rows at once")]
    TooLarge {
        /// The size of the rows.
        bytes: usize,
    },
    /// The checkpoint does not fit.
    #[error("the checkpoint {key:?} has {bytes} bytes; the most is 4096, and 65535 in the outbox")]
    Checkpoint {
        /// Its key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// Columns that do not fit the schema: a defect.
    #[error("the rows could not be encoded: {0}")]
    Encode(String),
}
