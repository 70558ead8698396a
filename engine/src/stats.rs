//! The engine's counters and gauges.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::index::wants_index;
use crate::shared::Shared;

/// A reading of all counters and gauges. Counters count since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the log in use (gauge).
    pub wal_bytes: u64,
    /// The log's cap (gauge).
    pub wal_max_bytes: u64,
    /// Bytes of rows that are in no data file yet, appends that wait for their commit included (gauge).
    pub hot_bytes: u64,
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
    /// Partitions whose rows wait in memory because too many data files are open (gauge).
    pub late_partitions: u64,
    /// Files put aside as damaged when the store was opened or since.
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
    /// Data files that are on this machine only, those that still take rows included (gauge).
    pub unuploaded_files: u64,
    /// Their bytes, and those of rows in no file yet: what a loss of this machine would take (gauge).
    pub unuploaded_bytes: u64,
    /// How long the oldest of those files waits, in seconds (gauge).
    pub unuploaded_age_seconds: u64,
    /// Data files uploaded.
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

/// The object store's counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct RemoteCounters {
    /// Since when the oldest file waits for its upload, µs; 0 if none does.
    pub(crate) oldest: Counter,
    pub(crate) uploaded_files: Counter,
    pub(crate) uploaded_bytes: Counter,
    pub(crate) upload_failures: Counter,
    pub(crate) records: Counter,
    pub(crate) puts: Counter,
    pub(crate) gets: Counter,
    pub(crate) deletes: Counter,
    pub(crate) retries: Counter,
    pub(crate) deleted_files: Counter,
    pub(crate) evicted_files: Counter,
    pub(crate) fetched_files: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) fetch_failures: Counter,
}

impl RemoteCounters {
    /// The counters; the gauges that are not among them are left to the caller.
    pub(crate) fn read(&self) -> RemoteStats {
        RemoteStats {
            uploaded_files: self.uploaded_files.get(),
            uploaded_bytes: self.uploaded_bytes.get(),
            upload_failures: self.upload_failures.get(),
            records: self.records.get(),
            puts: self.puts.get(),
            gets: self.gets.get(),
            deletes: self.deletes.get(),
            retries: self.retries.get(),
            deleted_files: self.deleted_files.get(),
            evicted_files: self.evicted_files.get(),
            fetched_files: self.fetched_files.get(),
            fetched_bytes: self.fetched_bytes.get(),
            fetch_failures: self.fetch_failures.get(),
            ..RemoteStats::default()
        }
    }
}

/// The counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) wal_bytes: Counter,
    pub(crate) appended_rows: Counter,
    pub(crate) appended_batches: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) misdated_rows: Counter,
    pub(crate) bus_regressions: Counter,
    pub(crate) commits: Counter,
    pub(crate) fsyncs: Counter,
    pub(crate) publishes: Counter,
    pub(crate) published_rows: Counter,
    pub(crate) publish_failures: Counter,
    pub(crate) seals: Counter,
    pub(crate) seal_failures: Counter,
    pub(crate) file_bytes_written: Counter,
    pub(crate) scrubbed_files: Counter,
    pub(crate) scrubbed_bytes: Counter,
    pub(crate) checked_bytes: Counter,
    pub(crate) rotation_runs: Counter,
    pub(crate) rotated_partitions: Counter,
    pub(crate) rotated_files: Counter,
    pub(crate) rotated_rows: Counter,
    pub(crate) rotated_bytes: Counter,
    pub(crate) replayed_rows: Counter,
    pub(crate) torn_bytes: Counter,
    pub(crate) quarantined: Counter,
    pub(crate) evicted_segments: Counter,
    pub(crate) late_partitions: Counter,
    pub(crate) index_builds: Counter,
    pub(crate) index_failures: Counter,
}

impl Shared {
    /// A reading of everything.
    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let mut stats = Stats {
            wal_bytes: counters.wal_bytes.get(),
            wal_max_bytes: self.settings.wal_max.get(),
            appended_rows: counters.appended_rows.get(),
            appended_batches: counters.appended_batches.get(),
            duplicates: counters.duplicates.get(),
            misdated_rows: counters.misdated_rows.get(),
            bus_regressions: counters.bus_regressions.get(),
            commits: counters.commits.get(),
            fsyncs: counters.fsyncs.get(),
            publishes: counters.publishes.get(),
            published_rows: counters.published_rows.get(),
            publish_failures: counters.publish_failures.get(),
            seals: counters.seals.get(),
            seal_failures: counters.seal_failures.get(),
            file_bytes_written: counters.file_bytes_written.get(),
            scrubbed_files: counters.scrubbed_files.get(),
            scrubbed_bytes: counters.scrubbed_bytes.get(),
            checked_bytes: counters.checked_bytes.get(),
            rotation_runs: counters.rotation_runs.get(),
            rotated_partitions: counters.rotated_partitions.get(),
            rotated_files: counters.rotated_files.get(),
            rotated_rows: counters.rotated_rows.get(),
            rotated_bytes: counters.rotated_bytes.get(),
            replayed_rows: counters.replayed_rows.get(),
            torn_bytes: counters.torn_bytes.get(),
            quarantined: counters.quarantined.get(),
            hot_max_bytes: self.settings.hot_max.get(),
            evicted_segments: counters.evicted_segments.get(),
            late_partitions: counters.late_partitions.get(),
            tail_bytes: self.tails.bytes(),
            followers: self.tails.followers() as u64,
            index_builds: counters.index_builds.get(),
            index_failures: counters.index_failures.get(),
            poisoned: self.poisoned().is_some(),
            ..Stats::default()
        };
        let cache = self.remote.as_ref().map(|remote| &remote.cache);
        let (mut waiting, mut waiting_bytes) = (0, 0);
        let files = {
            let state = self.state.lock();
            stats.hot_rows = state.hot.rows() as u64;
            stats.hot_bytes = state.hot.weight();
            state.files.clone()
        };
        for file in files.iter().flat_map(|files| files.iter()) {
            stats.files += 1;
            stats.file_bytes += file.size;
            stats.file_rows += file.rows;
            stats.open_segments += u64::from(!file.sealed);
            match file.index() {
                Some(index) => {
                    stats.index_files += 1;
                    stats.index_bytes += index.size();
                }
                None => stats.index_waiting += u64::from(wants_index(file)),
            }
            if cache.is_some_and(|cache| !cache.has(file.id)) {
                waiting += 1;
                waiting_bytes += file.size;
            }
        }
        stats.remote = self.remote.as_ref().map(|remote| {
            let (cached_files, cached_bytes) = remote.cache.local();
            RemoteStats {
                unuploaded_files: waiting,
                unuploaded_bytes: waiting_bytes + stats.hot_bytes,
                unuploaded_age_seconds: self.seconds_since(remote.counters.oldest.get()),
                cached_files,
                cached_bytes,
                ..remote.counters.read()
            }
        });
        stats
    }

    /// How long ago a time in µs was; 0 for none.
    fn seconds_since(&self, micros: u64) -> u64 {
        let now = u64::try_from(self.clock.now().micros()).unwrap_or(0);
        if micros == 0 {
            0
        } else {
            now.saturating_sub(micros) / 1_000_000
        }
    }
}

/// One number, counted by any thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
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
