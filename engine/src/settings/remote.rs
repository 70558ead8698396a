//! How an object store is used.
//!
//! # Not here
//!
//! Making a client of one: the Mixer's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ByteSize;
use object_store::ObjectStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;

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

/// How others find the bucket; who they are is their own affair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3ClientSettings {
    /// Its address, if it is not AWS.
    pub endpoint: Option<String>,
    /// Its region.
    pub region: String,
    /// Whether the bucket's name stands in the path of a request, not in its host.
    pub path_style: bool,
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
    /// How others find it, if it is S3.
    pub client: Option<S3ClientSettings>,
    /// This machine's name, for the message to a writer that is pushed out.
    pub host: String,
    /// Whether this one writes.
    pub mode: RemoteMode,
    /// The local disk space for files that are uploaded; the least recently used go first.
    pub cache_size: ByteSize,
    /// How often it is looked for work, for another writer, and by readers for news.
    pub poll: Duration,
    /// The time between two cuts while rows come: what a lost machine loses at most. Zero: one is made when a file was sealed.
    pub upload_interval: Duration,
    /// How far producers are told that their rows are stored.
    pub floor: AckDurability,
    /// How long the end of the process waits for the last cut.
    pub close_patience: Duration,
    /// How long an object stays after the record that removes it: longer than any query of a reader takes, and than a catalogue
    /// of outside readers names it.
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
            client: None,
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
