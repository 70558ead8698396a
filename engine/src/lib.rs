//! The storage engine: what was appended is durable, visible once, and ends in Parquet files that anybody can read.
//!
//! ```text
//! append ─> committer ─> log, fdatasync ─┬─> hot rows ──┐
//!                                        └─> answer     ├─> ReadView (one immutable snapshot)
//!           publisher: open segments <── hot rows       │
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
mod catalog;
mod check;
mod committer;
mod desk;
mod engine;
mod error;
#[cfg(test)]
mod faults;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod hot;
mod inbound;
mod index;
mod intake;
mod kept;
mod layout;
mod lru;
mod origin;
mod pace;
mod place;
mod publisher;
mod quarantine;
mod rebuild;
mod recovery;
mod remote;
mod repair;
mod rotation;
mod scrubber;
mod sealer;
mod segment;
mod seqs;
mod settings;
mod shared;
mod slot;
mod space;
mod spec_files;
mod stats;
mod sys;
mod tail;
mod view;
mod wal;
mod watermark;

#[cfg(test)]
mod tests;

pub use append::{
    AppendBatch, AppendOutcome, BatchOrigin, BusPosition, REQUESTS_KNOWN, REQUESTS_KNOWN_OF_ONE, RequestPart,
    StoredRequest, StreamTail,
};
pub use catalog::DataFileHandle;
pub use check::{CheckReport, FileProblem, check_store};
pub use engine::{Engine, HealthIssue};
pub use error::{Error, ErrorKind};
pub use inbound::{InboundMemory, InboundRoom, InboundShares};
pub use index::{
    BLOCK_ROWS, BlockSelection, IdColumn, IndexLookup, IndexReport, MINUTE, MinuteRollup, NgramQuery, RollupDimension,
    RollupGroup, SidecarIndex, rebuild_index,
};
pub use kept::WeightedCache;
pub use model::{BadSpecName, SpecName};
pub use rebuild::{RebuildReport, rebuild_catalogue};
pub use remote::{
    AckDurability, CopyReport, RemoteErrorKind, RemoteMode, RemoteSettings, copy_from_remote, copy_to_remote,
};
pub use repair::repair_store;
pub use rotation::{
    PartitionRemoval, RetentionHistory, RetentionPolicy, RetentionPreview, RetentionReason, RetentionRun,
    RetentionSettings, preview_rotation,
};
pub use segment::{NdjsonReader, SortedRun};
pub use settings::{CompressionCodec, JsonType, PartitionBy, Settings, StorageFormat};
pub use spec_files::{AllSpecFiles, SpecFiles};
pub use stats::{EngineStats, RemoteStats};
pub use sys::{ThreadNiceness, lower_thread_priority};
pub use tail::{ArrivalBatch, ArrivalPosition, LINGER, TailArrival, TailFollower};
pub use view::{HotBatch, ReadView};
