//! The engine's metrics: counters since the store was opened, and gauges.

use std::sync::atomic::AtomicI64;

use model::{AtomicCounter, metric_set};

metric_set! {
    /// A reading of the engine's counters and gauges.
    pub struct EngineStats as "engine";
    /// The counters as they are counted.
    pub(crate) struct EngineCounters;
    counted {
        /// Rows stored
        Counter appended_rows,
        /// Batches stored
        Counter appended_batches,
        /// Bytes of stored batches in the write-ahead log
        Counter appended_bytes,
        /// Duplicate batches, stored before
        Counter duplicate_batches,
        /// Rows stored under their arrival time because their own is out of range
        Counter out_of_range_rows,
        /// Reused bus sequences
        Counter bus_regressions,
        /// Group commits of the write-ahead log
        Counter commits,
        /// Syncs of the write-ahead log
        Counter fsyncs,
        /// Flushes of rows to open data files
        Counter flushes,
        /// Rows flushed to data files
        Counter flushed_rows,
        /// Failed flushes
        Counter flush_failures,
        /// Data files sealed
        Counter seals,
        /// Failed seals of data files
        Counter seal_failures,
        /// Bytes written to data files
        Counter file_written_bytes,
        /// Rows replayed from the write-ahead log at start
        Counter replayed_rows,
        /// Torn bytes cut from the end of the write-ahead log at start
        Counter torn_bytes,
        /// Gaps in the write-ahead log that the export passed over: batches that no collector gets
        Counter export_gaps,
        /// Sealed data files scrubbed without damage
        Counter scrubbed_files,
        /// Bytes of data files scrubbed without damage
        Counter scrubbed_bytes,
        /// Bytes of data files verified by checksum when first opened
        Counter checked_bytes,
        /// Indexes of data files built
        Counter index_builds,
        /// Data files that could not be indexed
        Counter index_failures,
        /// Data files sealed early because rows came for too many partitions
        Counter evicted_files,
        /// Small data files rewritten with late rows
        Counter rewritten_files,
        /// Checks of the retention rules
        Counter rotation_checks,
        /// Partitions removed by retention
        Counter rotated_partitions,
        /// Data files removed by retention
        Counter rotated_files,
        /// Rows removed by retention
        Counter rotated_rows,
        /// Bytes of data files removed by retention
        Counter rotated_bytes,
        /// Size of the write-ahead log
        Gauge wal_bytes,
        /// Partitions that stay in memory because too many data files are open
        Gauge late_partitions,
        /// Damaged data files in quarantine
        Gauge quarantined_files,
    }
    computed {
        /// Maximum size of the write-ahead log
        Gauge wal_max_bytes,
        /// 1 if the write-ahead log has failed
        Gauge wal_failed,
        /// Free bytes of the disk that appends need: they wait where less is free
        Gauge free_limit_bytes,
        /// Maximum size of the memtables
        Gauge memtable_max_bytes,
        /// Size of the memtables: rows in no data file yet, with those that wait for their commit
        Gauge memtable_bytes,
        /// Rows in the memtables, in no data file yet
        Gauge memtable_rows,
        /// Memory of incoming bodies and messages and of their decoded rows
        Gauge inbound_bytes,
        /// Open data files, which still take rows
        Gauge open_files,
        /// Data files
        Gauge files,
        /// Bytes of data files
        Gauge file_bytes,
        /// Rows in data files
        Gauge file_rows,
        /// Data files that have an index
        Gauge index_files,
        /// Bytes of indexes
        Gauge index_bytes,
        /// Memory of the indexes of open files
        Gauge live_index_bytes,
        /// Sealed data files without an index yet
        Gauge index_waiting,
    }
    beside {
        /// The live tail.
        tail: TailStats,
        /// The object store, if there is one.
        remote: Option<RemoteStats>,
    }
}

metric_set! {
    /// A reading of the live tail.
    pub struct TailStats as "tail";
    computed {
        /// Size of the live-tail buffer, partly shared with the memtables
        Gauge bytes,
        /// Live tails that are open
        Gauge followers,
    }
}

metric_set! {
    /// A reading of what was done with the object store.
    pub struct RemoteStats as "object_store";
    /// The object store's counters as they are counted.
    pub(crate) struct RemoteCounters;
    counted {
        /// Data files uploaded, pieces of open ones with them
        Counter uploaded_files,
        /// Bytes of data files uploaded
        Counter uploaded_bytes,
        /// Failed attempts to upload or to follow
        Counter failures,
        /// Records committed to the catalogue in the object store
        Counter records,
        /// Write requests
        Counter writes,
        /// Read requests
        Counter reads,
        /// Delete requests
        Counter deletes,
        /// Retried requests
        Counter retries,
        /// Objects of expired files deleted
        Counter deleted_files,
        /// Local copies evicted for space
        Counter evicted_files,
        /// Data files fetched to be read
        Counter fetched_files,
        /// Bytes of data files fetched to be read
        Counter fetched_bytes,
        /// Failed fetches of data files
        Counter fetch_failures,
        /// LSN up to which every row is in the object store; 0 at a Mixer that only reads
        Gauge uploaded_lsn,
        /// Size of the last record of the catalogue in the object store
        Gauge record_bytes,
    }
    computed {
        /// Sealed data files not uploaded yet
        Gauge unuploaded_files,
        /// Rows on this machine only, lost if it is lost; from a start to the first cut, every row in an open data file counts
        Gauge unuploaded_rows,
        /// Bytes of those rows in the write-ahead log
        Gauge unuploaded_bytes,
        /// Age of the oldest row that is on this machine only, in seconds
        Gauge unuploaded_age_seconds,
        /// Uploaded files with a local copy
        Gauge cached_files,
        /// Bytes of uploaded files with a local copy
        Gauge cached_bytes,
    }
}

/// How far the object store is behind.
#[derive(Debug, Default)]
pub(crate) struct UploadBacklog {
    /// Since when the oldest row waits for its upload, µs; 0 if none does.
    pub(crate) oldest: AtomicCounter,
    /// Rows that were appended before the last cut, less those that the store had when it was opened.
    pub(crate) cut_rows: AtomicI64,
    /// The same of their bytes.
    pub(crate) cut_bytes: AtomicI64,
}
