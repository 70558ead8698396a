//! The storage engine: appended rows are durable, visible exactly once, and end in Parquet files that anybody can read.
//!
//! ```text
//! append ─> committer ─> log, fdatasync ─┬─> hot rows ──┐
//!                                        └─> answer     ├─> ReadView (one immutable snapshot)
//!             flusher: open segments <── hot rows       │
//!           sealer: sealed segments ────────────────────┘      scrubber: reads them again and compares
//!           indexer: what is in sealed segments, for queries
//! ```
//!
//! # Invariants
//!
//! - [`Engine::append`] returned: the rows survive power loss and are in every later view. Never visible before durable.
//! - A batch with an origin is stored once, over redeliveries, restarts and replays.
//! - Nothing but finished data files lies in the tree. No reader of it sees a torn file or a row twice.
//! - At its caps the engine waits; it drops nothing.
//!
//! # Not here
//!
//! Bus, HTTP, SQL, TOML. Knows Linux only.

mod append;
mod append_queue;
mod datafile;
mod dedup;
mod disk_space;
mod durable_fs;
mod engine;
mod engine_core;
mod error;
#[cfg(test)]
mod fault_injection;
mod flush_scheduler;
mod flusher;
mod frame_origin;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod group_commit;
mod grouped_lru;
mod inbound_memory;
mod index;
mod integrity_check;
mod io_pacing;
mod layout;
mod live_tail;
mod manifest;
mod manifest_rebuild;
mod memtable;
mod object_storage;
mod open_partition;
mod partitioner;
mod quarantine;
mod recovery;
mod repair;
mod retention;
mod scrubber;
mod sealer;
mod sequence_set;
mod settings;
mod snapshot;
mod spec_files;
mod stats;
mod wal;
mod weighted_cache;

#[cfg(test)]
mod tests;

pub use append::{
    AppendBatch, AppendOutcome, BatchOrigin, BusPosition, REQUESTS_KNOWN, REQUESTS_KNOWN_OF_ONE, RequestPart,
    StoredRequest, StreamTail,
};
pub use datafile::{NdjsonReader, SortedRun};
pub use durable_fs::{ThreadNiceness, lower_thread_priority};
pub use engine::{Engine, HealthIssue};
pub use error::{Error, ErrorKind};
pub use inbound_memory::{InboundMemory, InboundRoom, InboundShares};
pub use index::{
    BLOCK_ROWS, BlockSelection, IdColumn, IndexLookup, IndexReport, MINUTE, MinuteRollup, NgramQuery, RollupDimension,
    RollupGroup, SidecarIndex, rebuild_index,
};
pub use integrity_check::{CheckReport, FileProblem, check_store};
pub use live_tail::{ArrivalBatch, ArrivalPosition, LINGER, TailArrival, TailFollower};
pub use manifest::DataFileHandle;
pub use manifest_rebuild::{RebuildReport, rebuild_catalogue};
pub use model::{BadSpecName, SpecName};
pub use object_storage::{
    AckDurability, CopyReport, RemoteErrorKind, RemoteMode, RemoteSettings, copy_from_remote, copy_to_remote,
};
pub use repair::repair_store;
pub use retention::{
    PartitionRemoval, RetentionHistory, RetentionPolicy, RetentionPreview, RetentionReason, RetentionRun,
    RetentionSettings, preview_rotation,
};
pub use settings::{CompressionCodec, JsonType, PartitionBy, Settings, StorageFormat};
pub use snapshot::{HotBatch, ReadView};
pub use spec_files::{AllSpecFiles, SpecFiles};
pub use stats::{EngineStats, RemoteStats};
pub use weighted_cache::WeightedCache;
