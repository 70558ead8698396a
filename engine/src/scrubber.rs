//! The scrubber thread: slowly reads sealed files again and compares them with the checksum in the catalogue, because the Parquet
//! reader answers from a flipped bit without an error.
//!
//! ```text
//! each file of the view ─> read at a bounded rate ─> differs, twice ─> out of the view ─> into quarantine, reported
//! ```
//!
//! # Invariants
//!
//! - A file is removed only if its bytes, read twice from two handles, differ from what was recorded for its version.
//!   A file that cannot be read is reported and left.
//! - After that no view has it, and views report that they are partial. Its entry stays, so the next start reports the same.
//!
//! # Not here
//!
//! Files that a query opens for the first time: [`DataFileHandle::open`]. Open files: each publish checks what it copies, and the seal
//! checks all of it. Repair: [`crate::repair`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Error;
use crate::data_file_handle::DataFileHandle;
use crate::datafile::{FilePrefix, file_crc_while};
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::manifest::FileEntry;
use crate::quarantine::{move_to_quarantine, quarantine_unlisted, remove_from_views};

/// The longest wait before the first pass.
const FIRST: Duration = Duration::from_secs(600);
/// Bytes read in a second, about.
const RATE: u64 = 32 << 20;

/// Passes over all sealed files, again and again, until the threads are to stop.
pub(crate) fn run(shared: &Arc<EngineCore>) {
    let _sentinel = PoisonGuard(Arc::clone(shared));
    let interval = shared.settings.scrub_interval;
    let mut wait = interval.min(FIRST);
    loop {
        shared.scheduler.wait_for_stop(wait);
        if shared.scheduler.is_stopping() {
            return;
        }
        pass(shared);
        wait = interval;
    }
}

fn pass(shared: &EngineCore) {
    // A pass takes long: it must not hold files that expire meanwhile.
    let files: Vec<Weak<DataFileHandle>> = {
        let view = shared.rows.view.load();
        let all = view.files.iter().flat_map(|files| files.iter());
        all.filter(|file| file.sealed).map(Arc::downgrade).collect()
    };
    for segment in files.iter().filter_map(Weak::upgrade) {
        match look(shared, &segment) {
            Ok(None) => {
                shared.counters.scrubbed_files.add(1);
                shared.counters.scrubbed_bytes.add(segment.size);
            }
            Ok(Some(reason)) => put_aside(shared, &segment, &reason),
            Err(error) => {
                tracing::warn!(%error, path = %segment.path.display(), "could not scrub a data file");
            }
        }
        if shared.scheduler.is_stopping() {
            return;
        }
    }
}

/// What is wrong with a file, if it is still the catalogue's.
fn look(shared: &EngineCore, segment: &DataFileHandle) -> Result<Option<String>, Error> {
    let entry = shared.store.catalog.lock().state().file(segment.id).cloned();
    let Some(entry) = entry.filter(|entry| entry.version == segment.version) else {
        return Ok(None);
    };
    let Some(reason) = differs(shared, segment, &entry)? else {
        return Ok(None);
    };
    // Memory and buses flip bits too, but rarely the same twice.
    let again = differs(shared, segment, &entry)?;
    Ok(again.map(|_| reason))
}

fn differs(shared: &EngineCore, segment: &DataFileHandle, entry: &FileEntry) -> Result<Option<String>, Error> {
    let file = match segment.find() {
        Ok(file) => FilePrefix::new(file, segment.size),
        // It is in the object store, which looks after its bytes; whoever fetches it checks them.
        Err(error) if error.is_not_found() && segment.is_uploaded() => return Ok(None),
        Err(Error::Stale { reason, .. }) => return Ok(Some(reason)),
        Err(error) => return Err(error),
    };
    let found = file_crc_while(&file, |bytes| {
        shared
            .scheduler
            .wait_for_stop(Duration::from_micros(bytes * 1_000_000 / RATE));
        !shared.scheduler.is_stopping()
    });
    let found = found.map_err(Error::io("read", &segment.path))?;
    let wrong = found.filter(|crc| *crc != entry.crc);
    Ok(wrong.map(|crc| format!("its checksum is {crc:08x} instead of {:08x}", entry.crc)))
}

/// Takes a damaged file out of the view, then out of the tree.
fn put_aside(shared: &EngineCore, segment: &DataFileHandle, reason: &str) {
    let what = format!("{} is damaged: {reason}", segment.path.display());
    if segment.is_uploaded() {
        match move_to_quarantine(&shared.store.layout, &segment.path) {
            Ok(kept) => tracing::error!(
                "{what}; it was put into {}, the object store has an intact copy",
                kept.display()
            ),
            Err(error) => tracing::error!(%error, "{what}; it stays where it is"),
        }
        return;
    }
    if remove_from_views(shared, segment.table, segment.key(), &what) {
        quarantine_unlisted(&shared.store.layout, &segment.path, segment.rows, &what);
    }
}
