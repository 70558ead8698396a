//! Object-store replication by prefix cuts: every so often the object store gets all rows up to one log position.
//!
//! ```text
//!  flusher: a cut at LSN L ─> uploader: sealed files as they are, pieces of open ones ─> one record: "all up to L, marks as of L"
//!                                                └─> a new machine, read-only Mixers
//!  the tree of data files = read cache: uploaded files go from it, least recently used first, and come back when read
//! ```
//!
//! A piece is made of the row groups that an open file got since the last cut, copied as they are; it lies outside the tree
//! that outside readers list. When the file is sealed, the record that names it removes its pieces.
//!
//! | file | what |
//! |---|---|
//! | [`retry`], [`error_kind`] | calls, retries, what a refusal means |
//! | [`mod@object_format`], [`state`], [`commit_log`] | the catalogue in the object store, and who may write it |
//! | [`takeover`] | opening: a new bucket, a new machine, the same folder again |
//! | [`object_upload`], [`incremental_upload`], [`uploader`], [`orphan_sweep`] | the way there, and what was left on it |
//! | [`open_file_restore`] | open files from their pieces, on a new machine |
//! | [`read_cache`] | the way back |
//! | [`replica_follower`] | a Mixer that only reads |
//! | [`remote_check`] | what a check asks |
//! | [`store_copy`] | a whole store from one back end to the other |
//!
//! # Invariants
//!
//! - Appends never wait for the object store. Who wants to know when rows are there asks for the LSN that it has.
//! - A record covers a prefix of the log, so a take-over has files, marks and LSN in one step, and stores what comes again once.
//! - A record names only objects that are whole; an object is deleted only after the record that removes it, and a grace.
//! - A local file goes only when its object is recorded. A file that comes back is checked before it has its name.
//! - One writer: a second one pushes the first out, which stops with the other's name.
//!
//! # Not here
//!
//! Making an S3 client: that is HTTP, and the Mixer's. Anything that implements `object_store`'s traits serves.

mod commit_log;
mod error_kind;
mod incremental_upload;
mod object_format;
mod object_upload;
pub(crate) mod open_file_restore;
mod orphan_sweep;
pub(crate) mod read_cache;
pub(crate) mod remote_check;
pub(crate) mod replica_follower;
mod retry;
mod state;
pub(crate) mod store_copy;
pub(crate) mod takeover;
pub(crate) mod uploader;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ByteSize;
use object_store::ObjectStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;

pub use error_kind::RemoteErrorKind;
pub use store_copy::{CopyReport, copy_from_remote, copy_to_remote};
pub(crate) use takeover::RemoteLink;

/// What a Mixer does with an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RemoteMode {
    /// It is the one that writes.
    #[default]
    Write,
    /// It takes no rows and answers from what the writer has uploaded.
    Read,
}

/// Where rows must be before their producer may forget them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckDurability {
    /// On this machine's disk.
    #[default]
    Disk,
    /// In the object store.
    Bucket,
}

/// An object store, and how it is used.
#[derive(Clone)]
pub struct RemoteSettings {
    /// For messages: `s3://bucket/prefix`.
    pub url: String,
    /// The bucket.
    pub store: Arc<dyn ObjectStore>,
    /// The same, for uploads in parts; without it every file is one request.
    pub multipart: Option<Arc<dyn MultipartStore>>,
    /// Where in the bucket everything lies.
    pub prefix: Path,
    /// This machine's name, for the message to a writer that is pushed out.
    pub host: String,
    /// Whether this one writes.
    pub mode: RemoteMode,
    /// The local disk space for files that are uploaded; the least recently used are evicted first.
    pub cache_size: ByteSize,
    /// How often it is looked for work, for another writer, and by readers for news.
    pub poll: Duration,
    /// The time between two cuts while rows come: what a lost machine loses at most. Zero: one is made when a file was sealed.
    pub upload_interval: Duration,
    /// The durable floors announced to producers.
    pub floor: AckDurability,
    /// How long the end of the process waits for the last cut.
    pub close_patience: Duration,
    /// How long an object stays after the record that removes it: longer than any query of a reader takes.
    pub grace: Duration,
}

impl RemoteSettings {
    /// The defaults for a bucket.
    #[must_use]
    pub fn new(url: impl Into<String>, store: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self {
            url: url.into(),
            store,
            multipart: None,
            prefix,
            host: String::new(),
            mode: RemoteMode::default(),
            cache_size: ByteSize::mib(10 << 10),
            poll: Duration::from_secs(2),
            upload_interval: Duration::from_secs(60),
            floor: AckDurability::default(),
            close_patience: Duration::from_secs(10),
            grace: Duration::from_secs(600),
        }
    }
}

impl fmt::Debug for RemoteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSettings")
            .field("url", &self.url)
            .field("mode", &self.mode)
            .field("cache_size", &self.cache_size)
            .field("poll", &self.poll)
            .field("upload_interval", &self.upload_interval)
            .field("floor", &self.floor)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
