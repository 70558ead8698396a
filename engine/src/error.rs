//! The errors of the engine. Each names what failed, the value, and the fix.
//!
//! # Not here
//!
//! HTTP statuses and exit codes: callers derive them from [`Error::kind`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::ArrowError;
use durable_fs::DurableFsError;
use model::Table;
use uuid::Uuid;

mod remote_error_kind;

pub use remote_error_kind::RemoteErrorKind;
pub(crate) use remote_error_kind::{damaged_object, error_kind, is_transient, refused_by_store};

/// Why the engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file or folder.
    #[error("could not {action} {path}: {source}")]
    Io {
        /// What was tried, as a verb: `create`, `write`, `sync`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The names in a folder, or which of two files has a name, may not be on the disk as they are seen.
    #[error("{path} may not be on the disk as it appears: {source}; restart to recover")]
    InDoubt {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process has the store open.
    #[error("{dir} is in use by process {pid}: stop it, or give this one another store.dir")]
    Locked {
        /// The store's folder.
        dir: PathBuf,
        /// Who holds it, as written in its lock file.
        pid: String,
    },
    /// A write or sync of the log failed earlier: nothing more is accepted until the process has restarted and recovered.
    #[error("the store stopped accepting rows: {reason}; restart the process, it recovers what was acknowledged")]
    Poisoned {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The log is at its cap: appends wait until rows have been published.
    #[error(
        "the log holds {used} of at most {limit} bytes and needs {needed} more: wait for rows to be flushed, or raise \
         store.wal_max_size_mb"
    )]
    LogFull {
        /// Bytes taken by frames that are not published.
        used: u64,
        /// The size of the segment that is wanted.
        needed: u64,
        /// The cap.
        limit: u64,
    },
    /// The disk is full: appends wait until there is room.
    #[error("no room for {needed} bytes at {path}: free some disk space; nothing was lost ({source})")]
    NoSpace {
        /// The file that was wanted.
        path: PathBuf,
        /// Its size.
        needed: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// A group of frames that could never fit into the log.
    #[error(
        "a group of {bytes} bytes is larger than the whole log can be ({limit} bytes): raise store.wal_max_size_mb"
    )]
    LogGroup {
        /// Its size.
        bytes: u64,
        /// The largest size that fits.
        limit: u64,
    },
    /// A frame whose LSN does not follow the log's last one.
    #[error("frame {lsn} cannot follow in the log: the next one is {next} or higher")]
    LogOrder {
        /// Its LSN.
        lsn: u64,
        /// The smallest LSN possible.
        next: u64,
    },
    /// A file written by another version of this program.
    #[error("{path} has format {found}, this program knows {known}: start the version that wrote it")]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format it says.
        found: u32,
        /// The format known here.
        known: u32,
    },
    /// Rows could not be published into data files; they are safe in the log, and it is tried again.
    #[error("could not flush rows to data files: {reason}; they are safe in the log")]
    Publishing {
        /// The first failure.
        reason: Arc<str>,
    },
    /// Old data could not be removed; it is tried again.
    #[error("could not remove old data: {reason}")]
    Rotation {
        /// Why.
        reason: Arc<str>,
    },
    /// There was no room for a batch while its appender would wait. It is not stored, and never will be by itself.
    #[error("the store found no room for the rows within {patience:?}, they are not stored: {reason}")]
    Busy {
        /// How long the appender would wait.
        patience: Duration,
        /// What kept the store from it.
        reason: String,
    },
    /// The engine is closing or closed.
    #[error("the store is closed")]
    Closed,
    /// A batch that could never fit.
    #[error(
        "a batch of {bytes} bytes for {table} is larger than the log can take ({limit} bytes): send smaller batches"
    )]
    TooLarge {
        /// The table it was for.
        table: Table,
        /// Its size.
        bytes: u64,
        /// The largest size that fits.
        limit: u64,
    },
    /// Rows that are not of the table's schema.
    #[error("rows for {table} do not fit its columns: {reason}")]
    Rows {
        /// The table they were for.
        table: Table,
        /// The first difference.
        reason: String,
    },
    /// A file of the store holds what was never written there.
    #[error("{path} is damaged: {reason}; run `platform-mixer check` before starting on this store")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The catalogue holds what was never written there, or is gone.
    #[error(
        "the catalogue file {path} is damaged: {reason}; `platform-mixer check --rebuild` rebuilds the catalogue from \
         the data files and the log"
    )]
    Catalogue {
        /// The file or folder.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A rebuild of a catalogue that is whole.
    #[error(
        "the catalogue in {path} is intact, there is nothing to rebuild: `platform-mixer check --repair` quarantines \
         damaged data files"
    )]
    CatalogueWhole {
        /// Its folder.
        path: PathBuf,
    },
    /// A data file cannot be read as the version that the catalogue names.
    #[error("{path} is not version {version} of segment {id}: {reason}")]
    Stale {
        /// The file.
        path: PathBuf,
        /// The segment.
        id: u64,
        /// The version looked for.
        version: u32,
        /// What was found instead.
        reason: String,
    },
    /// Arrow refused to make or join columns.
    #[error("could not {action} rows of {table}: {source}")]
    Arrow {
        /// What was tried, as a verb.
        action: &'static str,
        /// The table.
        table: Table,
        /// What Arrow said.
        source: ArrowError,
    },
    /// A Parquet file could not be written or read.
    #[error("could not {action} {path}: {source}")]
    Parquet {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the Parquet library said.
        source: parquet::errors::ParquetError,
    },
    /// The object store did not do what it was asked.
    #[error("could not {action} {object}: {reason}")]
    Remote {
        /// What was tried, as a verb.
        action: &'static str,
        /// The object, and which store it is of.
        object: String,
        /// What kind of trouble it is.
        trouble: RemoteErrorKind,
        /// What it said, and the fix where one is known.
        reason: String,
    },
    /// Another Mixer writes into the object store now.
    #[error(
        "{url} is written by another Mixer now: process {pid} on {host:?} claimed it as writer epoch {epoch}, this one had \
         epoch {ours}; stop one of the two, each store has one writer (others read with \
         observability.embedded.storage.read_only)"
    )]
    Fenced {
        /// The object store.
        url: String,
        /// The other's machine.
        host: String,
        /// Its process.
        pid: u32,
        /// Its writer epoch.
        epoch: u64,
        /// Ours.
        ours: u64,
    },
    /// The object store was written from another folder since.
    #[error(
        "{url} and {dir} are no longer the same store: {reason}; to go on with what the object store has, give an empty \
         store.dir, and keep this one if rows that were never uploaded matter"
    )]
    Superseded {
        /// The object store.
        url: String,
        /// The folder's catalogue.
        dir: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The object store holds another store.
    #[error(
        "{url} holds store {theirs}, this folder holds store {ours}: give another observability.embedded.storage.url or \
         another store.dir"
    )]
    OtherStore {
        /// The object store.
        url: String,
        /// Its store.
        theirs: Uuid,
        /// The folder's.
        ours: Uuid,
    },
    /// Rows, or a change, for an engine that only reads.
    #[error(
        "this Mixer only reads, observability.embedded.storage.read_only is true: send rows to the Mixer that writes"
    )]
    ReadOnly,
    /// A name that no object beside the tree can have.
    #[error(
        "{name:?} is not a name of an object: use letters, digits, dots, _ and -, with single slashes between folders"
    )]
    ObjectName {
        /// Its beginning.
        name: String,
    },
    /// A setting that cannot work.
    #[error("{key} = {value} cannot work: {reason}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why, and what would work.
        reason: String,
    },
}

/// The few kinds a caller decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller's rows are at fault: sending them again cannot help.
    Input,
    /// There is no room just now: the caller's rows are not stored, and may be sent again.
    Busy,
    /// The store is closing: the caller's rows are not stored.
    Closed,
    /// Somebody else has the store.
    Locked,
    /// The disk or the system failed: exit code 74 where it ends the process.
    Io,
    /// Stored bytes are not what was written.
    Damage,
    /// A setting is at fault: exit code 78.
    Setting,
    /// Something outside cannot be reached or does not work: exit code 69.
    Unavailable,
    /// Access was denied: exit code 77.
    Denied,
}

impl Error {
    /// The kind that decides an exit code or an answer.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. }
            | Self::InDoubt { .. }
            | Self::Publishing { .. }
            | Self::Rotation { .. }
            | Self::Poisoned { .. }
            | Self::Parquet { .. }
            | Self::LogFull { .. }
            | Self::NoSpace { .. } => ErrorKind::Io,
            Self::Locked { .. } | Self::Fenced { .. } => ErrorKind::Locked,
            Self::Remote { trouble, .. } => match trouble {
                RemoteErrorKind::Denied => ErrorKind::Denied,
                RemoteErrorKind::Damaged => ErrorKind::Damage,
                RemoteErrorKind::NoBucket | RemoteErrorKind::WrongRegion | RemoteErrorKind::Unsupported => {
                    ErrorKind::Setting
                }
                _ => ErrorKind::Unavailable,
            },
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Closed => ErrorKind::Closed,
            Self::TooLarge { .. }
            | Self::LogGroup { .. }
            | Self::LogOrder { .. }
            | Self::Rows { .. }
            | Self::ObjectName { .. }
            | Self::Arrow { .. } => ErrorKind::Input,
            Self::Damaged { .. } | Self::Catalogue { .. } | Self::Newer { .. } | Self::Stale { .. } => {
                ErrorKind::Damage
            }
            Self::Setting { .. }
            | Self::CatalogueWhole { .. }
            | Self::Superseded { .. }
            | Self::OtherStore { .. }
            | Self::ReadOnly => ErrorKind::Setting,
        }
    }

    /// Whether the state on the disk is unknown now: only a restart can tell, so nothing more may be accepted. After any
    /// other error nothing has changed, and it may be tried again.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        matches!(self, Self::InDoubt { .. } | Self::Poisoned { .. })
    }

    /// Whether a file is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// For `map_err` on syncs and renames whose failure leaves the disk unknown.
    pub(crate) fn in_doubt(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::InDoubt { path, source }
    }

    /// For `map_err` where the catalogue is read: damage there has a remedy of its own.
    pub(crate) fn of_catalogue(self) -> Self {
        match self {
            Self::Damaged { path, reason } => Self::Catalogue { path, reason },
            other => other,
        }
    }

    /// For a folder that is to be read and has no store.
    pub(crate) fn no_store(dir: &Path) -> Self {
        Self::Setting {
            key: "store.dir",
            value: dir.display().to_string(),
            reason: "there is no store in it".to_owned(),
        }
    }

    /// For a store whose files are in an object store that is not configured.
    pub(crate) fn needs_url() -> Self {
        Self::Setting {
            key: "observability.embedded.storage.url",
            value: "\"\"".to_owned(),
            reason:
                "files of this store are in an object store: configure it again, or copy them back with platform-mixer \
                 copy"
                    .to_owned(),
        }
    }

    /// For a store whose files are in another object store than the one that is configured, which is empty.
    pub(crate) fn not_its_bucket(url: &str) -> Self {
        Self::Setting {
            key: "observability.embedded.storage.url",
            value: url.to_owned(),
            reason: "no store is in it, and files of this folder's store are in an object store: give the bucket and prefix \
                     that it had"
                .to_owned(),
        }
    }

    /// For a file that is not what was written.
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    /// For a file of a format that is not known here.
    pub(crate) fn newer(path: &Path, found: u32, known: u32) -> Self {
        Self::Newer {
            path: path.to_owned(),
            found,
            known,
        }
    }

    /// For rows that are not as they should be.
    pub(crate) fn rows(table: Table, reason: impl Into<String>) -> Self {
        Self::Rows {
            table,
            reason: reason.into(),
        }
    }

    /// For `map_err` on what is done with batches.
    pub(crate) fn arrow(action: &'static str, table: Table) -> impl Fn(ArrowError) -> Self + Copy {
        move |source| Self::Arrow { action, table, source }
    }

    /// For `map_err` on system calls.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl From<DurableFsError> for Error {
    fn from(error: DurableFsError) -> Self {
        let (action, path, source) = (error.action, error.path, error.source);
        match error.in_doubt {
            true => Self::InDoubt { path, source },
            false => Self::Io { action, path, source },
        }
    }
}
