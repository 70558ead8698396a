//! Reads all counters and gauges of an engine at once.

use std::sync::atomic::{AtomicI64, Ordering};

use super::EngineCore;
use crate::stats::{EngineStats, RemoteStats, TailStats};

impl EngineCore {
    /// A reading of everything.
    pub(crate) fn stats(&self) -> EngineStats {
        let counters = &self.counters;
        let mut stats = EngineStats {
            wal_max_bytes: self.settings.wal_max.get(),
            memtable_max_bytes: self.settings.hot_max.get(),
            inbound_bytes: self.admission.inbound.held(),
            tail: TailStats {
                bytes: self.rows.tails.bytes(),
                followers: self.rows.tails.followers() as u64,
            },
            live_index_bytes: self.indexes.memory.open_bytes() as u64,
            wal_failed: u64::from(self.poisoned().is_some()),
            free_limit_bytes: self.admission.space.last_reading().1,
            ..counters.read()
        };
        let cache = self.remote.as_ref().map(|remote| &remote.cache);
        let mut waiting = 0;
        let files = {
            let state = self.rows.state.lock();
            stats.memtable_rows = state.hot.rows() as u64;
            stats.memtable_bytes = state.hot.weight();
            state.files.clone()
        };
        for file in files.iter().flat_map(|files| files.iter()) {
            stats.files += 1;
            stats.file_bytes += file.size;
            stats.file_rows += file.rows;
            stats.open_files += u64::from(!file.sealed);
            match file.index() {
                Some(index) => {
                    stats.index_files += 1;
                    stats.index_bytes += index.size();
                }
                None => stats.index_waiting += u64::from(file.wants_index()),
            }
            waiting += u64::from(file.sealed && cache.is_some_and(|cache| !cache.has(file.id, file.version)));
        }
        stats.remote = self.remote.as_ref().map(|remote| {
            let (cached_files, cached_bytes) = remote.cache.local();
            RemoteStats {
                unuploaded_files: waiting,
                unuploaded_rows: behind(counters.appended_rows.get(), &remote.backlog.cut_rows),
                unuploaded_bytes: behind(counters.appended_bytes.get(), &remote.backlog.cut_bytes),
                unuploaded_age_seconds: self.seconds_since(remote.backlog.oldest.get()),
                cached_files,
                cached_bytes,
                ..remote.counters.read()
            }
        });
        stats
    }

    /// How long ago a time in µs was; 0 for none.
    fn seconds_since(&self, micros: u64) -> u64 {
        let now = u64::try_from(self.time.clock.now().micros()).unwrap_or(0);
        if micros == 0 {
            0
        } else {
            now.saturating_sub(micros) / 1_000_000
        }
    }
}

/// What was appended since a cut.
fn behind(appended: u64, cut: &AtomicI64) -> u64 {
    appended.saturating_add_signed(cut.load(Ordering::Relaxed).saturating_neg())
}
