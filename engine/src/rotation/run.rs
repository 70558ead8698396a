//! The publisher's part of rotation: what may go, the record, and taking a partition away when nobody holds a file of it.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::Timestamp;

use super::trust::{Judged, SLACK, Trust};
use super::{Candidate, Limits, RotationRun, cap, plan};
use crate::catalog::{FileEntry, Lineage, Record};
use crate::hot::Place;
use crate::layout::Layout;
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

/// A partition without entries, to be taken away when nobody holds a version of any of its files.
#[derive(Debug)]
struct Doomed {
    folder: PathBuf,
    /// Its names, and who holds them.
    files: Vec<(OsString, Weak<Lineage>)>,
    /// Where the folder goes, out of readers' sight.
    aside: PathBuf,
    is_aside: bool,
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
        let mut doomed: BTreeMap<PathBuf, Doomed> = BTreeMap::new();
        for entry in &removed {
            let held_by = state
                .remove_file(entry.table, (entry.partition, entry.number))
                .map_or_else(Weak::new, |segment| Arc::downgrade(segment.lineage()));
            if let Some(remote) = &shared.remote {
                remote.expired(entry.id, Weak::clone(&held_by));
            }
            let path = entry.path(&shared.layout);
            let folder = sys::parent_of(&path).to_owned();
            let of_partition = doomed.entry(folder.clone()).or_insert_with(|| Doomed {
                folder,
                files: Vec::new(),
                aside: shared.layout.expired(entry.table, entry.id),
                is_aside: false,
                reported: false,
            });
            of_partition
                .files
                .extend(path.file_name().map(|name| (name.to_owned(), held_by)));
        }
        self.doomed.extend(doomed.into_values());
        shared.show(&mut state, []);
        Ok(())
    }

    /// Takes away what went and nobody holds any more, with the folders that are empty then. No file is created in the tree
    /// meanwhile: its only creator is the caller.
    pub(crate) fn sweep(&mut self, shared: &Shared) {
        self.doomed.retain_mut(|doomed| {
            if doomed.files.iter().any(|(_, held_by)| held_by.strong_count() > 0) {
                return true;
            }
            match doomed.take_away(&shared.layout) {
                Ok(()) => false,
                Err(error) => {
                    if !std::mem::replace(&mut doomed.reported, true) {
                        let path = doomed.folder.display();
                        tracing::warn!(%error, %path, "an expired partition could not be removed; it is tried again");
                    }
                    true
                }
            }
        });
    }
}

impl Doomed {
    /// Out of the tree in one step, so that nobody who lists it finds half of the partition; then the files are unlinked.
    /// Where the folder cannot be moved, or has something else in it, they are unlinked where they are.
    fn take_away(&mut self, layout: &Layout) -> io::Result<()> {
        if !self.is_aside && self.is_all_there_is() && sys::rename(&self.folder, &self.aside).is_ok() {
            self.is_aside = true;
            remove_empty_folders(&self.folder, layout.root_of(&self.folder));
        }
        let folder = if self.is_aside { &self.aside } else { &self.folder };
        for (name, _) in &self.files {
            sys::remove_if_there(&folder.join(name))?;
        }
        if !self.is_aside {
            if let Some((name, _)) = self.files.first() {
                remove_empty_folders(&self.folder.join(name), layout.root_of(&self.folder));
            }
            return Ok(());
        }
        match std::fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let path = folder.display();
                tracing::warn!(%path, "somebody put a file into a folder while it expired; it is kept here");
                Ok(())
            }
            removed => removed,
        }
    }

    /// Whether the folder is one, and has nothing but these files.
    fn is_all_there_is(&self) -> bool {
        let is_ours = |entry: io::Result<DirEntry>| {
            entry.is_ok_and(|entry| self.files.iter().any(|(name, _)| *name == entry.file_name()))
        };
        self.folder.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            && std::fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.all(is_ours))
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
    let index_bytes = |entry: &FileEntry| {
        let segment = state.file(entry.table, (entry.partition, entry.number));
        segment
            .and_then(|segment| segment.index())
            .map_or(0, |index| index.size())
    };
    let work = Work {
        in_work,
        has_rows,
        index_bytes,
    };
    let candidates = gather(&entries, now, shared.settings.seal_grace, work);
    drop(state);
    (candidates, shared.counters.wal_bytes.get() + catalog_bytes)
}

/// What is known of files and partitions beside their entries.
pub(super) struct Work<W, R, B> {
    /// Whether somebody works on a file.
    pub(super) in_work: W,
    /// Whether rows wait for a partition.
    pub(super) has_rows: R,
    /// The bytes of a file's index.
    pub(super) index_bytes: B,
}

/// The partitions of these files. One is closed when it has ended, its files are not in work, and it has no rows waiting.
pub(super) fn gather<W, R, B>(
    entries: &[FileEntry],
    now: Timestamp,
    grace: Duration,
    work: Work<W, R, B>,
) -> Vec<Candidate>
where
    W: Fn(&FileEntry) -> bool,
    R: Fn(Place) -> bool,
    B: Fn(&FileEntry) -> u64,
{
    let mut places: BTreeMap<Place, Candidate> = BTreeMap::new();
    for entry in entries {
        let place = entry.place();
        let candidate = places.entry(place).or_insert_with(|| Candidate {
            place,
            ids: Vec::new(),
            rows: 0,
            bytes: 0,
            index_bytes: 0,
            closed: place.1.end().plus(grace) <= now && !(work.has_rows)(place),
        });
        candidate.ids.push(entry.id);
        candidate.rows += entry.rows;
        candidate.bytes += entry.size;
        candidate.index_bytes += (work.index_bytes)(entry);
        candidate.closed &= !(work.in_work)(entry);
    }
    places.into_values().collect()
}
