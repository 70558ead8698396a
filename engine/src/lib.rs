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
    Appended, Batch, BusPosition, Origin, REQUESTS_KNOWN, REQUESTS_KNOWN_OF_ONE, RequestPart, StoredRequest, StreamTail,
};
pub use catalog::Segment;
pub use check::{CheckReport, Problem, check_store};
pub use engine::{Engine, Trouble};
pub use error::{Error, ErrorKind};
pub use inbound::{InboundMemory, InboundRoom, InboundShares};
pub use index::{
    BLOCK_ROWS, Blocks, CountedGroup, Counts, CountsBy, Grams, IdColumn, IndexReport, Lookup, MINUTE, SegmentIndex,
    rebuild_index,
};
pub use kept::Kept;
pub use model::{BadSpecName, SpecName};
pub use rebuild::{RebuildReport, rebuild_catalogue};
pub use remote::{CopyReport, DurableFloor, Remote, RemoteMode, RemoteTrouble, copy_from_remote, copy_to_remote};
pub use repair::repair_store;
pub use rotation::{
    Removal, Rotation, RotationHistory, RotationPolicy, RotationPreview, RotationReason, RotationRun, preview_rotation,
};
pub use segment::{Lines, Run};
pub use settings::{Compression, Format, JsonType, PartitionBy, Settings};
pub use spec_files::{AllSpecFiles, SpecFiles};
pub use stats::{RemoteStats, Stats};
pub use sys::{ThreadNiceness, step_back};
pub use tail::{Arrival, Follow, LINGER, Position, Taken};
pub use view::{HotBatch, ReadView};
