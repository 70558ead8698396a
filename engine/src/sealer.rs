//! The sealer thread: sorts and re-encodes a data file that is full or whose partition has ended, off the hot path.
//!
//! ```text
//! merge into staging ─> its index ─> install under the same name ─> catalogue record ─> swap the view
//! ```
//!
//! # Invariants
//!
//! - A file that is being sealed takes no more rows: its partition's next rows go into the next number.
//! - A seal that failed before the install is tried again from the start; one that failed after it, from the record on. The pauses
//!   grow. Appends do not notice. Only an error after which the state of the disk is unknown poisons the store.
//! - A damaged file is not sealed but goes into quarantine: sealing it would give the damage a valid checksum.
//! - The displaced file stays readable until no view holds a version of it.

use std::sync::Arc;

use crate::Error;
use crate::datafile::{WriteOptions, damage_of, seal};
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::flush_scheduler::{InstalledFile, SealJob};
use crate::indexer::index_staged;
use crate::manifest::FileLineage;
use crate::open_partition::write_options;
use crate::quarantine::quarantine_open_file;

/// Seals until there is nothing more to come.
pub(crate) fn run(shared: &Arc<EngineCore>) {
    let _sentinel = PoisonGuard(Arc::clone(shared));
    while let Some(mut job) = shared.scheduler.next_seal() {
        match seal_one(shared, &mut job) {
            Ok(()) => {
                shared.counters.seals.add(1);
                if job.failures > 0 {
                    let path = job.slot.segment.path().display();
                    tracing::info!(%path, failures = job.failures, "sealed a data file after retries");
                }
            }
            Err(Error::Damaged { .. }) if set_damaged_aside(shared, &mut job) => {}
            Err(error) => {
                shared.counters.seal_failures.add(1);
                if error.is_in_doubt() {
                    shared.poison(&error.to_string());
                }
                if job.record_failure() {
                    let path = job.slot.segment.path().display();
                    tracing::error!(%error, %path, failures = job.failures, "could not seal a data file; it stays \
                                                                             readable, retrying");
                }
                shared.scheduler.return_seal(job);
            }
        }
    }
}

/// Takes an open file away that reading it anew finds damaged too: it would never be sealed. Whether it did.
fn set_damaged_aside(shared: &EngineCore, job: &mut SealJob) -> bool {
    if job.is_installed() {
        return false;
    }
    let Ok(Some(reason)) = damage_of(&job.slot.segment) else {
        return false;
    };
    if let Err(error) = quarantine_open_file(shared, &mut job.slot, &reason) {
        shared.poison(&error.to_string());
    }
    true
}

fn seal_one(shared: &EngineCore, job: &mut SealJob) -> Result<(), Error> {
    if let Some(reason) = shared.poisoned() {
        return Err(Error::Poisoned { reason });
    }
    let slot = &mut job.slot;
    let (table, id) = (slot.place.0, slot.segment.identity().segment);
    let InstalledFile { entry, segment } = match &job.installed {
        Some(installed) => installed,
        None => {
            slot.segment.discard_shadow()?;
            let staged = shared.store.layout.sealing(table, id);
            let sealed = seal(
                &slot.segment,
                &staged,
                slot.version + 1,
                &WriteOptions {
                    haste: shared.haste(),
                    ..write_options(&shared.settings)
                },
            )?;
            let entry = slot.entry(&sealed);
            let segment = shared.segment(&entry, &FileLineage::of_sealed(&shared.store.layout, &entry));
            index_staged(shared, &segment, &staged);
            sealed.install(slot.segment.path(), &slot.lineage.retired())?;
            shared.counters.file_written_bytes.add(sealed.size);
            job.installed.insert(InstalledFile { entry, segment })
        }
    };
    if shared.settings.index && segment.index().is_none() {
        segment.lineage().take_over(&slot.lineage);
    }
    {
        // Held until the file is in the state: who reads there that it is sealed may take it out, and it must not come back.
        let mut catalog = shared.store.catalog.lock();
        catalog.commit_with(|record| record.put = vec![entry.clone()])?;
        let mut state = shared.rows.state.lock();
        state.put_file(Arc::clone(segment));
        shared.publish_snapshot(&mut state, []);
    }
    if segment.index().is_some() {
        shared.indexes.report_shown(segment.cache_key(), table);
    }
    slot.lineage.displace();
    Ok(())
}
