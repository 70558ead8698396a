//! The publisher's part of rotation: what may go, the record, and the unlinking when nobody holds a file any more.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::Timestamp;

use super::trust::{Judged, SLACK, Trust};
use super::{Candidate, Limits, RotationRun, cap, plan};
use crate::catalog::{FileEntry, Lineage, Record};
use crate::hot::Place;
use crate::shared::Shared;
use crate::{Error, sys};

/// Checks the rules and clears away what went.
#[derive(Debug)]
pub(crate) struct Janitor {
    trust: Trust,
    /// The counter at which the next check is due.
    next: Duration,
    doomed: Vec<Doomed>,
}

/// A file without an entry, to be unlinked when nobody holds a version of it.
#[derive(Debug)]
struct Doomed {
    held_by: Weak<Lineage>,
    path: PathBuf,
    reported: bool,
}

impl Janitor {
    /// The first check is due at the first flush tick.
    pub(crate) fn new(shared: &Shared) -> Self {
        let counter = shared.uptime();
        let last = {
            let catalog = shared.catalog.lock();
            // An earlier version did not write the time down; its files say when they were written.
            let written = || catalog.state().files().map(|entry| entry.published).max();
            catalog
                .state()
                .relied_on()
                .or_else(|| written().map(Timestamp::from_micros))
        };
        Self {
            trust: Trust::new(last.unwrap_or_else(|| shared.clock.now()), counter),
            next: counter,
            doomed: Vec::new(),
        }
    }

    /// Whether a check is due.
    pub(crate) fn is_due(&self, shared: &Shared) -> bool {
        shared.uptime() >= self.next
    }

    /// The time to rely on, for the catalogue.
    pub(crate) fn relied_on(&mut self, shared: &Shared) -> Timestamp {
        self.judge(shared).now
    }

    fn judge(&mut self, shared: &Shared) -> Judged {
        let judged = self.trust.judge(shared.clock.now(), shared.uptime());
        if let (Some((jump, left)), true) = (judged.held, judged.news) {
            tracing::warn!(
                ahead_seconds = jump.as_secs(),
                held_seconds = left.as_secs(),
                "the clock jumped ahead: no data is deleted by its word before it has run evenly for a while"
            );
        }
        judged
    }

    /// Checks the rules and makes what is over them go. `ours` are the open files that the caller can let go of; what went
    /// is returned beside the report, by id.
    pub(crate) fn check(&mut self, shared: &Shared, ours: &HashSet<u64>) -> Result<(RotationRun, HashSet<u64>), Error> {
        self.next = shared.uptime() + shared.settings.rotation.check_interval;
        let judged = self.judge(shared);
        let (candidates, other_bytes) = candidates(shared, ours, judged.now);
        let partitions = candidates.len();
        let mut planned = plan(candidates, limits(shared), judged.now, other_bytes);
        let more = cap(&mut planned, partitions);
        let ids: Vec<u64> = planned.iter().flat_map(|(gone, _)| gone.ids.clone()).collect();
        let gone: HashSet<u64> = ids.iter().copied().collect();
        self.record(shared, ids, judged.now)?;
        let run = RotationRun {
            at: shared.clock.now(),
            removed: planned.iter().map(|(gone, reason)| gone.removal(*reason)).collect(),
            more,
            held: judged.held.map(|(jump, left)| {
                format!(
                    "the clock is {} s ahead of the time that has passed: nothing goes by its word for another {} s",
                    jump.as_secs(),
                    left.as_secs()
                )
            }),
        };
        for removal in &run.removed {
            let counters = &shared.counters;
            counters.rotated_partitions.add(1);
            counters.rotated_files.add(removal.files);
            counters.rotated_rows.add(removal.rows);
            counters.rotated_bytes.add(removal.bytes);
            tracing::info!(
                table = %removal.table, partition = removal.partition, files = removal.files, rows = removal.rows,
                bytes = removal.bytes, reason = ?removal.reason, "removed a partition"
            );
        }
        shared.counters.rotation_runs.add(1);
        Ok((run, gone))
    }

    /// Writes the removal and takes the files out of the view. Without a removal only the time is written, once in a while.
    fn record(&mut self, shared: &Shared, remove: Vec<u64>, now: Timestamp) -> Result<(), Error> {
        let removed: Vec<FileEntry> = {
            let mut catalog = shared.catalog.lock();
            let last = catalog.state().relied_on();
            if remove.is_empty() && last.is_none_or(|last| last <= now && now < last.plus(SLACK)) {
                return Ok(());
            }
            let removed = remove.iter().filter_map(|id| catalog.state().file(*id).cloned());
            let removed = removed.collect();
            let low_water = catalog.state().low_water;
            catalog.commit(Record {
                remove,
                low_water,
                relied_on: now.micros(),
                ..Record::default()
            })?;
            removed
        };
        let mut state = shared.state.lock();
        for entry in &removed {
            let held_by = state
                .remove_file(entry.table, (entry.partition, entry.number))
                .map_or_else(Weak::new, |segment| Arc::downgrade(segment.lineage()));
            if let Some(remote) = &shared.remote {
                remote.expired(entry.id, Weak::clone(&held_by));
            }
            self.doomed.push(Doomed {
                held_by,
                path: entry.path(&shared.layout),
                reported: false,
            });
        }
        shared.show(&mut state, []);
        Ok(())
    }

    /// Unlinks what went and nobody holds any more, with the folders that are empty then. No file is created in the tree
    /// meanwhile: its only creator is the caller.
    pub(crate) fn sweep(&mut self, shared: &Shared) {
        self.doomed.retain_mut(|doomed| {
            if doomed.held_by.strong_count() > 0 {
                return true;
            }
            match sys::remove_if_there(&doomed.path) {
                Ok(()) => {
                    remove_empty_folders(&doomed.path, shared.layout.root_of(&doomed.path));
                    false
                }
                Err(error) => {
                    if !std::mem::replace(&mut doomed.reported, true) {
                        let path = doomed.path.display();
                        tracing::warn!(%error, %path, "a data file that expired could not be removed; it is tried again");
                    }
                    true
                }
            }
        });
    }
}

/// Removes the folders above a file that went, up to its table's, as far as they are empty.
pub(crate) fn remove_empty_folders(file: &Path, data: &Path) {
    let folders = file.ancestors().skip(1);
    for folder in folders.take_while(|folder| folder.parent().is_some_and(|parent| parent != data && *folder != data)) {
        // A folder that is not empty ends the way up.
        if std::fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

fn limits(shared: &Shared) -> Limits {
    let rotation = shared.settings.rotation;
    Limits {
        policy: rotation.policy,
        max_age: shared.settings.max_age,
        max_bytes: rotation.max_size.get(),
    }
}

/// The partitions of the catalogue, and the bytes of log and catalogue.
fn candidates(shared: &Shared, ours: &HashSet<u64>, now: Timestamp) -> (Vec<Candidate>, u64) {
    let (entries, catalog_bytes) = {
        let catalog = shared.catalog.lock();
        let entries: Vec<FileEntry> = catalog.state().files().cloned().collect();
        (entries, catalog.bytes())
    };
    let state = shared.state.lock();
    let in_work = |entry: &FileEntry| {
        !entry.sealed && !ours.contains(&entry.id) && state.has_file(entry.table, (entry.partition, entry.number))
    };
    let has_rows = |place: Place| state.hot.has(place);
    let candidates = gather(&entries, now, shared.settings.seal_grace, in_work, has_rows);
    drop(state);
    (candidates, shared.counters.wal_bytes.get() + catalog_bytes)
}

/// The partitions of these files. One is closed when it has ended, its files are not `in_work`, and it has no rows waiting.
pub(super) fn gather(
    entries: &[FileEntry],
    now: Timestamp,
    grace: Duration,
    in_work: impl Fn(&FileEntry) -> bool,
    has_rows: impl Fn(Place) -> bool,
) -> Vec<Candidate> {
    let mut places: BTreeMap<Place, Candidate> = BTreeMap::new();
    for entry in entries {
        let place = entry.place();
        let candidate = places.entry(place).or_insert_with(|| Candidate {
            place,
            ids: Vec::new(),
            rows: 0,
            bytes: 0,
            closed: place.1.end().plus(grace) <= now && !has_rows(place),
        });
        candidate.ids.push(entry.id);
        candidate.rows += entry.rows;
        candidate.bytes += entry.size;
        candidate.closed &= !in_work(entry);
    }
    places.into_values().collect()
}
