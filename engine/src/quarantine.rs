//! Quarantine: moves damaged data files out of the tree. Its path becomes one file name there, which never replaces an earlier file.
//!
//! # Invariants
//!
//! - A file is whole, in the tree or in quarantine, even after a crash in between. Its catalogue entry is removed only when the file
//!   is durably in quarantine, because the next start unlinks a file without an entry as expired.
//! - The rows that were published into a damaged open file go with it. Rows that are still hot go into the partition's next
//!   file.
//!
//! # Not here
//!
//! Finding damage: queries, the flusher, the sealer, the scrubber, recovery, [`crate::integrity_check`].

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable_fs::FolderHandles;
use model::Table;

use crate::Error;
use crate::data_file_handle::{DataFileHandle, DataFileOwner};
use crate::engine_core::EngineCore;
use crate::flush_scheduler::DamagedFile;
use crate::layout::{StoreLayout, TimePartition};
use crate::open_partition::OpenPartition;

/// Moves a file into quarantine, durably. Where it is now.
pub(crate) fn move_to_quarantine(layout: &StoreLayout, path: &Path) -> Result<PathBuf, Error> {
    let target = durable_fs::free_name(layout.quarantined(path));
    let folders = FolderHandles::open([durable_fs::parent_of(path), durable_fs::parent_of(&target)])?;
    match durable_fs::rename(path, &target) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            copy(path, &target).map_err(Error::io("copy into quarantine", path))?;
            durable_fs::sync_dir(durable_fs::parent_of(&target))?;
            durable_fs::remove_if_there(path)?;
        }
        renamed => renamed.map_err(|error| Error::io("put into quarantine", path)(error.source))?,
    }
    folders.sync()?;
    Ok(target)
}

/// Moves a file that no view has any more into quarantine, and says so.
pub(crate) fn quarantine_unlisted(layout: &StoreLayout, path: &Path, rows: u64, what: &str) {
    match move_to_quarantine(layout, path) {
        Ok(kept) => tracing::error!(rows, "{what}; it was put into {}", kept.display()),
        Err(error) => tracing::error!(rows, %error, "{what}; it stays where it is, no query reads it"),
    }
}

fn copy(path: &Path, target: &Path) -> std::io::Result<()> {
    let copied = fs::copy(path, target).and_then(|_| File::open(target)?.sync_all());
    if copied.is_err() {
        // Part of a copy is worth nothing, the file is still in its place.
        let _ = fs::remove_file(target);
    }
    copied
}

/// Takes a damaged file out of the views to come, which say so from then on. Whether they had it.
pub(crate) fn remove_from_views(shared: &EngineCore, table: Table, key: (TimePartition, u32), what: &str) -> bool {
    hide_if(shared, table, key, what, |_| true)
}

fn hide_if(
    shared: &EngineCore,
    table: Table,
    key: (TimePartition, u32),
    what: &str,
    is_it: impl FnOnce(&DataFileHandle) -> bool,
) -> bool {
    let mut state = shared.rows.state.lock();
    if !state.file(table, key).is_some_and(|now| is_it(now)) {
        return false;
    }
    state.remove_file(table, key);
    state.partial.add(what);
    shared.publish_snapshot(&mut state, []);
    drop(state);
    shared.counters.quarantined_files.add(1);
    true
}

impl DataFileOwner for EngineCore {
    /// Takes the file out of later snapshots and of what outside readers are told of, and has it quarantined. A file that has the
    /// name by now, sealed or begun anew, is another one.
    fn report_damage(&self, segment: &DataFileHandle, reason: &str) {
        let rows = segment.rows;
        let what = format!(
            "{} is damaged: {reason}; its {rows} rows are missing from answers",
            segment.path.display()
        );
        let remote = self.remote.as_ref().filter(|_| segment.is_uploaded());
        let (partition, number) = segment.key();
        let is_it = |now: &DataFileHandle| Arc::ptr_eq(now.lineage(), segment.lineage());
        if hide_if(self, segment.table, segment.key(), &what, is_it) {
            if let Some(link) = remote {
                link.recorded.lock().leave_out(segment.id, segment.version);
                tracing::error!(rows, "{what}; the object stays where it is");
                return;
            }
            self.scheduler.report_damaged(DamagedFile {
                place: (segment.table, partition),
                number,
                sealed: segment.sealed,
                path: segment.path.clone(),
                rows,
                what,
            });
        }
    }

    fn is_in_views(&self, segment: &DataFileHandle) -> bool {
        let state = self.rows.state.lock();
        let now = state.file(segment.table, segment.key());
        now.is_some_and(|now| Arc::ptr_eq(now.lineage(), segment.lineage()))
    }

    fn count_checked(&self, bytes: u64) {
        self.counters.checked_bytes.add(bytes);
    }
}

/// Takes a damaged open file out of the view, the tree and the catalogue. The caller drops the slot: the partition's next
/// rows begin the next number.
///
/// # Errors
/// [`Error::InDoubt`] and the like, if nobody knows what is on the disk now. What else goes wrong is reported: the entry
/// stays then, and the next start finds the file damaged or missing.
pub(crate) fn quarantine_open_file(shared: &EngineCore, slot: &mut OpenPartition, reason: &str) -> Result<(), Error> {
    let path = slot.segment.path().to_owned();
    let rows = slot.segment.published().map_or(0, |published| published.rows);
    let what = format!(
        "{} is damaged: {reason}; its {rows} rows are missing from answers",
        path.display()
    );
    let (table, partition) = slot.place;
    remove_from_views(shared, table, (partition, slot.named.number), &what);
    // Staging is emptied at every start: a failure costs space until then.
    let _ = slot.segment.discard_shadow();
    let kept = move_to_quarantine(&shared.store.layout, &path).and_then(|kept| {
        shared.store.catalog.lock().commit_with(|record| {
            record.remove = vec![slot.segment.identity().segment];
            record.keep_objects = true;
        })?;
        Ok(kept)
    });
    match kept {
        Ok(kept) => {
            tracing::error!(
                rows,
                "{what}; it was put into {}, new rows go into a new file",
                kept.display()
            );
            Ok(())
        }
        Err(error) if error.is_in_doubt() => Err(error),
        Err(error) => {
            tracing::error!(rows, %error, "{what}; it could not be put into quarantine, new rows go into a new file");
            Ok(())
        }
    }
}
