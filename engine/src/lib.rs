//! The storage engine: makes appended rows durable, shows each of them once, and stores them in Parquet files that anybody can read.
//!
//! ```text
//! append ─> committer ─> log, fdatasync ─┬─> hot rows ──┐                         log ─> follower, for who exports telemetry
//!                                        └─> answer     ├─> ReadView (one immutable snapshot)
//!             flusher: open data files <── hot rows     │
//!           sealer: sealed data files ──────────────────┘      scrubber: reads them again and compares checksums
//!           indexer: sidecar indexes of sealed files, for queries
//! ```
//!
//! # Words
//!
//! *Hot rows* are those in the memtable. A *segment* is a data file (in `wal`, a file of the log). The *catalogue* is the manifest.
//! The *tree* is the folders of data files that outside readers see. *Rotation* is retention at work.
//!
//! # Invariants
//!
//! - When [`Engine::append`] has returned, its rows survive power loss and are in every later view. No row is visible before it is durable.
//!   Telemetry that is only exported ([`ExportMode::Only`]) is in no view: it survives until it is settled ([`LogFollower`]).
//! - A batch with an origin is stored once, whatever is redelivered, restarted or replayed.
//! - The tree contains only finished data files. No reader of it sees a torn file or a row twice.
//! - At its limits the engine makes appends wait; it drops nothing.
//!
//! # Not here
//!
//! The bus, HTTP, SQL, TOML. The engine runs on Linux only.

mod append;
mod append_queue;
mod data_file_handle;
mod datafile;
mod dedup;
mod disk_space;
mod engine;
mod engine_core;
mod error;
mod export_cursors;
mod file_templates;
mod flush_scheduler;
mod flusher;
mod frame_origin;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod group_commit;
mod grouped_lru;
mod inbound_memory;
mod index;
mod index_rebuild;
mod indexer;
mod integrity_check;
mod io_pacing;
mod layout;
mod link_folder;
mod live_tail;
mod log_follower;
mod manifest;
mod manifest_rebuild;
mod memtable;
mod object_storage;
mod open_file_cache;
mod open_partition;
mod partitioner;
mod published_files;
mod quarantine;
mod recovery;
mod repair;
mod replication;
mod retention;
mod retention_enforcer;
mod scrubber;
mod sealer;
mod sequence_set;
mod settings;
mod side_objects;
mod snapshot;
mod stats;
mod store_tree;
mod tail_follower;
mod thread_priority;
mod wal;
mod weighted_cache;

#[cfg(test)]
mod test_hook;
#[cfg(test)]
mod tests;

pub use append::{
    AppendBatch, AppendOutcome, BatchOrigin, BusPosition, REQUESTS_KNOWN, REQUESTS_KNOWN_OF_ONE, RequestPart,
    StoredRequest, StreamTail,
};
pub use data_file_handle::DataFileHandle;
pub use datafile::{NdjsonReader, SortedRun};
pub use engine::{Engine, HealthIssue};
pub use error::{Error, ErrorKind, RemoteErrorKind};
pub use inbound_memory::{InboundMemory, InboundRoom, InboundShares};
pub use index::{
    BLOCK_ROWS, BlockSelection, IdColumn, IndexLookup, MINUTE, MinuteRollup, NgramQuery, RollupDimension, RollupGroup,
    SidecarIndex,
};
pub use index_rebuild::{IndexReport, rebuild_index};
pub use integrity_check::{CheckReport, FileProblem, check_store};
pub use link_folder::PINNED;
pub use live_tail::{ArrivalBatch, ArrivalPosition, LINGER, TailArrival};
pub use log_follower::{LogEntry, LogFollower};
pub use manifest_rebuild::{RebuildReport, rebuild_catalogue};
pub use memtable::HotBatch;
pub use model::{BadSpecName, SpecName};
pub use published_files::{PinnedFiles, PublishedFile, PublishedFiles, published_files_of};
pub use repair::repair_store;
pub use replication::{CopyReport, copy_from_remote, copy_to_remote};
pub use retention::{
    PartitionRemoval, RetentionHistory, RetentionPreview, RetentionReason, RetentionRun, preview_rotation,
};
pub use settings::{
    AckDurability, AllSpecFiles, CompressionCodec, ExportMode, JsonType, PartitionBy, RemoteMode, RemoteSettings,
    RetentionPolicy, RetentionSettings, S3ClientSettings, Settings, SpecFiles, StorageFormat,
};
pub use side_objects::SideObjects;
pub use snapshot::ReadView;
pub use stats::{EngineStats, RemoteStats, TailStats};
pub use tail_follower::TailFollower;
pub use thread_priority::{ThreadNiceness, lower_thread_priority};
pub use weighted_cache::WeightedCache;
