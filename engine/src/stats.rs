//! The engine's counters and gauges, for `/metrics`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A reading of all counters and gauges. Counters count since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Bytes of the log in use (gauge).
    pub wal_bytes: u64,
    /// The log's cap (gauge).
    pub wal_max_bytes: u64,
    /// Bytes of rows that are in no data file yet, appends that wait for their commit included (gauge).
    pub hot_bytes: u64,
    /// Bytes of bodies and messages on their way to appends, and of what is decoded of them (gauge).
    pub inbound_bytes: u64,
    /// Rows that are in no data file yet (gauge).
    pub hot_rows: u64,
    /// Rows stored.
    pub appended_rows: u64,
    /// Batches stored.
    pub appended_batches: u64,
    /// Batches that had been stored before.
    pub duplicates: u64,
    /// Rows whose time was too far from their arrival, put into the partition of their arrival.
    pub misdated_rows: u64,
    /// Messages under a bus sequence that was stored before with another message: the bus has lost and reused it.
    pub bus_regressions: u64,
    /// Commit groups.
    pub commits: u64,
    /// Syncs of the log.
    pub fsyncs: u64,
    /// Appends to open data files.
    pub publishes: u64,
    /// Rows written into data files.
    pub published_rows: u64,
    /// Publishing attempts that failed; they are tried again.
    pub publish_failures: u64,
    /// Data files sealed.
    pub seals: u64,
    /// Sealing attempts that failed; they are tried again.
    pub seal_failures: u64,
    /// Bytes written into data files, by publishing and sealing.
    pub file_bytes_written: u64,
    /// Sealed files that were read again and found as recorded.
    pub scrubbed_files: u64,
    /// Their bytes.
    pub scrubbed_bytes: u64,
    /// Bytes of data files that were compared with their checksum when a query opened them first.
    pub checked_bytes: u64,
    /// Checks of the rotation rules.
    pub rotation_runs: u64,
    /// Partitions that rotation removed.
    pub rotated_partitions: u64,
    /// Data files that rotation removed.
    pub rotated_files: u64,
    /// Their rows.
    pub rotated_rows: u64,
    /// Their bytes.
    pub rotated_bytes: u64,
    /// Data files that still take rows (gauge).
    pub open_segments: u64,
    /// Data files (gauge).
    pub files: u64,
    /// Their bytes (gauge).
    pub file_bytes: u64,
    /// Rows in data files (gauge).
    pub file_rows: u64,
    /// Sealed data files that have an index (gauge).
    pub index_files: u64,
    /// Bytes of these indexes (gauge).
    pub index_bytes: u64,
    /// Bytes in memory of the indexes of files that still take rows (gauge).
    pub live_index_bytes: u64,
    /// Sealed data files that are to be indexed and have no index yet (gauge).
    pub index_waiting: u64,
    /// Indexes made.
    pub index_builds: u64,
    /// Data files that could not be indexed; they are tried again.
    pub index_failures: u64,
    /// Rows recovered from the log when the store was opened.
    pub replayed_rows: u64,
    /// Torn bytes cut from the log's end when the store was opened.
    pub torn_bytes: u64,
    /// The cap of rows in memory (gauge).
    pub hot_max_bytes: u64,
    /// Open data files sealed early because rows came for too many partitions.
    pub evicted_segments: u64,
    /// Small sealed files that were rewritten with late rows.
    pub rewritten_files: u64,
    /// Partitions whose rows wait in memory because too many data files are open (gauge).
    pub late_partitions: u64,
    /// Files quarantined as damaged when the store was opened or since.
    pub quarantined: u64,
    /// Bytes of rows that are kept for followers, in part those of hot rows (gauge).
    pub tail_bytes: u64,
    /// Who follows a table (gauge).
    pub followers: u64,
    /// Whether the log has failed (gauge).
    pub poisoned: bool,
    /// What the object store got and gave, if there is one.
    pub remote: Option<RemoteStats>,
}

/// A reading of what was done with the object store. Counters count since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Sealed data files that wait to be uploaded (gauge).
    pub unuploaded_files: u64,
    /// Rows that a loss of this machine would take: those behind the last cut. After a start, until the first cut, all in
    /// files that still take rows count (gauge).
    pub unuploaded_rows: u64,
    /// Their bytes in the log (gauge).
    pub unuploaded_bytes: u64,
    /// How long the oldest of these rows waits, in seconds (gauge).
    pub unuploaded_age_seconds: u64,
    /// Every row of every batch up to this LSN is in the object store (gauge).
    pub uploaded_lsn: u64,
    /// Bytes of the last record in the object store's catalogue (gauge).
    pub record_bytes: u64,
    /// Data files uploaded, pieces of open ones included.
    pub uploaded_files: u64,
    /// Their bytes.
    pub uploaded_bytes: u64,
    /// Rows of steps of uploading that failed; they are tried again.
    pub upload_failures: u64,
    /// Records committed to the object store's catalogue.
    pub records: u64,
    /// Requests that write: PUT, POST.
    pub puts: u64,
    /// Requests that read: GET, HEAD, listings.
    pub gets: u64,
    /// Requests that delete.
    pub deletes: u64,
    /// Requests that were made again.
    pub retries: u64,
    /// Objects of expired files deleted.
    pub deleted_files: u64,
    /// Uploaded files of which there is a local copy (gauge).
    pub cached_files: u64,
    /// Their bytes (gauge).
    pub cached_bytes: u64,
    /// Local copies that were removed to keep the cache small.
    pub evicted_files: u64,
    /// Files brought back to be read.
    pub fetched_files: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Files that could not be brought back.
    pub fetch_failures: u64,
}

/// Makes the counters of a reading: the same names, with what is counted beside them; all else in the reading is a gauge, which
/// is left to the caller.
macro_rules! counters {
    ($(#[$about:meta])* $counters:ident of $stats:ident: $($name:ident)*; $($(#[$of:meta])* $beside:ident: $kind:ty,)*) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $(pub(crate) $name: AtomicCounter,)*
            $($(#[$of])* pub(crate) $beside: $kind,)*
        }

        impl $counters {
            pub(crate) fn read(&self) -> $stats {
                $stats { $($name: self.$name.get(),)* ..$stats::default() }
            }
        }
    };
}

counters! {
    /// The counters as they are counted.
    EngineCounters of EngineStats:
    wal_bytes appended_rows appended_batches duplicates misdated_rows bus_regressions commits fsyncs publishes published_rows
    publish_failures seals seal_failures file_bytes_written scrubbed_files scrubbed_bytes checked_bytes rotation_runs
    rotated_partitions rotated_files rotated_rows rotated_bytes replayed_rows torn_bytes quarantined evicted_segments rewritten_files
    late_partitions index_builds index_failures;
    /// Bytes of the frames of stored rows.
    appended_bytes: AtomicCounter,
}

counters! {
    /// The object store's counters as they are counted.
    RemoteCounters of RemoteStats:
    uploaded_lsn record_bytes uploaded_files uploaded_bytes upload_failures records puts gets deletes retries deleted_files
    evicted_files fetched_files fetched_bytes fetch_failures;
    /// Since when the oldest row waits for its upload, µs; 0 if none does.
    oldest: AtomicCounter,
    /// Rows that were appended before the last cut, less those that the store had when it was opened.
    cut_rows: AtomicI64,
    /// The same of their bytes.
    cut_bytes: AtomicI64,
}

/// One number, counted by any thread.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
