//! Repair: takes damaged and missing data files out of a store that is not open, so that it starts and answers without them.
//!
//! ```text
//! lock ─> check every file ─> report what is wrong ─> damaged ones into quarantine ─> one record removes the entries of those
//!                                                                                     without a sound object
//! ```
//!
//! # Invariants
//!
//! - A file's entry is removed after the file was moved. If the repair is interrupted in between, the next one finds the file missing.
//! - A damaged copy of an object that is sound goes into quarantine and its entry stays: no row leaves the store, and nothing
//!   is removed from the object store. Nor are the pieces of an open file, however many of them are sound.
//! - The repair leaves to the next start what that does anyway: adopt a file that is newer than its record, and store the rows of a
//!   damaged open file that the log still has.
//!
//! # Not here
//!
//! A catalogue that is damaged itself: [`crate::manifest_rebuild`].

use crate::integrity_check::{CheckReport, FileProblem, StoreInspector};
use crate::manifest::{FileEntry, ManifestRecord};
use crate::quarantine::move_to_quarantine;
use crate::store_tree::lock_store;
use crate::{Error, Settings};

/// Repairs the store. `each` is called before each file, with the files done and all of them; `say` before anything is done
/// about a file.
///
/// # Errors
/// If there is no store, a Mixer has it, its catalogue is damaged, or the system refuses.
pub fn repair_store(
    settings: &Settings,
    deep: bool,
    mut each: impl FnMut(u64, u64),
    mut say: impl FnMut(&FileProblem),
) -> Result<CheckReport, Error> {
    let store = StoreInspector::open(settings)?;
    durable_fs::create_private_dirs(&store.layout.quarantine)?;
    let _locks = lock_store(&store.layout, settings)?;
    let found = store.load()?;
    let entries: Vec<FileEntry> = found.state.files().cloned().collect();
    let mut report = CheckReport::of(&entries, deep);
    let mut record = ManifestRecord::default();
    for (done, entry) in entries.iter().enumerate() {
        each(done as u64, report.files);
        if let Some(mut problem) = store.find_damage(entry, deep)?
            && !store.is_newer(&problem.path, entry)
        {
            let older = store.older_version(entry)?.filter(|_| !problem.object_is_sound);
            if let Some(older) = older {
                let by = if older.sealed {
                    format!("version {} takes its place", older.version)
                } else {
                    "the next start restores it from the object store".to_owned()
                };
                problem.what = format!("{}; {by}", problem.what);
                problem.rows = entry.rows.saturating_sub(older.rows);
                record.put.push(older);
            } else if !problem.object_is_sound && store.has_pieces(entry) {
                problem.what = format!("{}; its entry and its pieces in the object store stay", problem.what);
            } else if !problem.object_is_sound {
                record.remove.push(entry.id);
                record
                    .replay
                    .extend(found.state.can_replay(entry).then(|| entry.range()));
            }
            report.problems.push(problem);
        }
    }
    each(report.files, report.files);
    for problem in &mut report.problems {
        say(problem);
        if problem.path.symlink_metadata().is_ok() {
            problem.kept = Some(move_to_quarantine(&store.layout, &problem.path)?);
        }
    }
    if !record.remove.is_empty() || !record.put.is_empty() {
        record.low_water = found.state.low_water;
        found.begin()?.commit(record)?;
    }
    report.repaired = true;
    store.list_extra_files(&mut report)?;
    Ok(report)
}
