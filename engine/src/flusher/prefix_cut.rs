//! Prefix cuts: a moment of the store that is complete up to one LSN, for the object store.
//!
//! ```text
//! marks and the last LSN, read in one step ─> every row up to it into files ─> one record ─> the files of then
//! ```
//!
//! # Invariants
//!
//! - The marks of a cut are those of the batches up to its LSN, of no later one: what is uploaded with them has all of these
//!   rows, and a batch behind them is new to whoever takes over.
//! - No row group has rows of both sides of a cut, and no file of a cut has rows behind it.
//!
//! # Not here
//!
//! What becomes of a cut: [`crate::object_storage::uploader`].

use std::sync::Arc;

use super::{FlushGoal, MemtableFlusher};
use crate::Error;
use crate::dedup::WatermarkDelta;
use crate::flush_scheduler::CutRequest;
use crate::io_pacing::IoPriority;
use crate::manifest::{DataFileHandle, FileEntry};

/// The store as of one LSN.
#[derive(Debug)]
pub(crate) struct PrefixCut {
    /// Every row of every batch up to this LSN is in files.
    pub(crate) lsn: u64,
    /// What changed in the watermarks since the last cut.
    pub(crate) watermarks: WatermarkDelta,
    /// Files that the object store does not have as they are now, and the bytes of this moment.
    pub(crate) files: Vec<(FileEntry, Arc<DataFileHandle>)>,
    /// Segments that were removed and may still be in the object store.
    pub(crate) gone: Vec<u64>,
    /// Rows and bytes that were appended before it since the store was opened.
    pub(crate) appended: (u64, u64),
}

impl MemtableFlusher {
    /// Makes the cuts that were asked for.
    pub(super) fn answer_cuts(&mut self, orders: Vec<CutRequest>) {
        for CutRequest { after, answer } in orders {
            let cut = self.cut(after);
            self.cut_at = None;
            if let Err(error) = &cut
                && error.is_in_doubt()
            {
                self.shared.poison(&error.to_string());
            }
            // Whoever asked may have gone.
            let _ = answer.send(cut.map_err(|error| error.to_string().into()));
        }
    }

    fn cut(&mut self, after: u64) -> Result<PrefixCut, Error> {
        if let Some(reason) = self.shared.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        self.record()?;
        let (lsn, watermarks, appended) = {
            let watermarks = self.shared.watermarks.lock();
            let mut state = self.shared.state.lock();
            let lsn = state.committed;
            state.hot.set_barrier(lsn);
            let counters = &self.shared.counters;
            let appended = (counters.appended_rows.get(), counters.appended_bytes.get());
            (lsn, watermarks.since(after), appended)
        };
        self.cut_at = Some(lsn);
        let mut due = self.due(FlushGoal::Everything, false);
        while !due.is_empty() {
            due = self.round(due, IoPriority::No)?;
        }
        // Batches without rows make no publish; the folder must know of all that the object store is going to know.
        if self.shared.catalog.lock().state().low_water <= lsn {
            self.write_record()?;
        }
        // Held until the files are found: the sealer changes both together.
        let catalog = self.shared.catalog.lock();
        let cache = self.shared.remote.as_ref().map(|remote| &remote.cache);
        let is_there = |entry: &FileEntry| cache.is_some_and(|cache| cache.has(entry.id, entry.version));
        let files = catalog.state().files();
        let files = files.filter(|entry| (entry.sealed || entry.last > after) && !is_there(entry));
        let files: Vec<FileEntry> = files.cloned().collect();
        let state = self.shared.state.lock();
        // One that is in no view was found damaged: nobody has its rows.
        let segment = |entry: FileEntry| {
            let segment = state.file(entry.table, (entry.partition, entry.number))?;
            Some((entry, Arc::clone(segment)))
        };
        Ok(PrefixCut {
            lsn,
            watermarks,
            files: files.into_iter().filter_map(segment).collect(),
            gone: catalog.state().gone.iter().copied().collect(),
            appended,
        })
    }
}
