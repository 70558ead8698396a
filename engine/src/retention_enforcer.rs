//! Retention enforcer, run by the flusher: selects the partitions that expire, records their removal, and removes a partition's folder
//! when nobody holds a file of it. On a full disk it removes the links that outlive the files too.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::Timestamp;

use crate::Error;
use crate::engine_core::EngineCore;
use crate::layout::file_uri;
use crate::link_folder::{LinkFolder, link_name};
use crate::manifest::FileEntry;
use crate::retention::clock_guard::{ClockGuard, ClockVerdict, SLACK};
use crate::retention::external_readers::ExternalReaders;
use crate::retention::pending_delete::PendingDeletion;
use crate::retention::{RetentionCandidate, RetentionRun, cap, counted_log, gather, plan};

/// Checks the rules and clears away what went.
#[derive(Debug)]
pub(crate) struct RetentionEnforcer {
    trust: ClockGuard,
    /// The counter at which the next check is due.
    next: Duration,
    doomed: Vec<PendingDeletion>,
    readers: ExternalReaders,
    /// Rows appended, and those given their arrival time, at the last look, and the counter then.
    seen: (u64, u64, Duration),
    /// The counter from which links are looked through again on a full disk.
    next_links: Duration,
}

/// The time between two looks at how many rows were given their arrival time.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The time between two looks through the links while the disk is full: there may be a hundred thousand.
const LINKS_EVERY: Duration = Duration::from_secs(5);

/// Whether so many of `rows` were re-dated that the clock of this machine is the likelier cause than their senders'.
const fn is_mass_redating(rows: u64, redated: u64) -> bool {
    redated > 0 && redated >= rows / 2
}

impl RetentionEnforcer {
    /// The first check is due at the first flush tick.
    pub(crate) fn new(shared: &EngineCore) -> Self {
        let counter = shared.uptime();
        let last = {
            let catalog = shared.store.catalog.lock();
            // A catalogue that was made anew has no such time; its files say when they were written.
            let written = || catalog.state().files().map(|entry| entry.published).max();
            catalog
                .state()
                .relied_on()
                .or_else(|| written().map(Timestamp::from_micros))
        };
        Self {
            trust: ClockGuard::new(last.unwrap_or_else(|| shared.time.clock.now()), counter),
            next: counter,
            doomed: Vec::new(),
            readers: ExternalReaders::default(),
            seen: (0, 0, counter),
            next_links: counter,
        }
    }

    /// Whether a check is due.
    pub(crate) fn is_due(&self, shared: &EngineCore) -> bool {
        shared.uptime() >= self.next
    }

    /// The time to rely on, for the catalogue.
    pub(crate) fn relied_on(&mut self, shared: &EngineCore) -> Timestamp {
        self.check_clock(shared).now
    }

    fn check_clock(&mut self, shared: &EngineCore) -> ClockVerdict {
        self.watch_redating(shared);
        let judged = self.trust.check(shared.time.clock.now(), shared.uptime());
        if let (Some((jump, left)), true) = (judged.held, judged.news) {
            tracing::warn!(
                ahead_seconds = jump.as_secs(),
                held_seconds = left.as_secs(),
                "the clock jumped ahead: retention does not trust it until it has run steadily for a while"
            );
        }
        if let Some(back) = judged.went_back {
            tracing::warn!(
                back_seconds = back.as_secs(),
                "the clock went back: rows more than an hour ahead of it get their arrival time"
            );
        }
        judged
    }

    /// Warns when most rows since the last look were given their arrival time.
    fn watch_redating(&mut self, shared: &EngineCore) {
        let (counters, uptime) = (&shared.counters, shared.uptime());
        if uptime < self.seen.2 + LOOK_EVERY {
            return;
        }
        let now = (counters.appended_rows.get(), counters.out_of_range_rows.get(), uptime);
        let (rows, redated) = (now.0.saturating_sub(self.seen.0), now.1.saturating_sub(self.seen.1));
        self.seen = now;
        if is_mass_redating(rows, redated) {
            tracing::warn!(
                rows,
                redated,
                "most rows were given their arrival time, because their own is more than an hour ahead of this machine's \
                 clock or older than data is kept: set this machine's clock, then look at the senders'"
            );
        }
    }

    /// Checks the rules and makes what is over them go. `ours` are the open files that the caller can let go of; what went
    /// is returned beside the report, by id.
    pub(crate) fn check(
        &mut self,
        shared: &EngineCore,
        ours: &HashSet<u64>,
    ) -> Result<(RetentionRun, HashSet<u64>), Error> {
        self.next = shared.uptime() + shared.settings.rotation.check_interval;
        let judged = self.check_clock(shared);
        let (candidates, other_bytes) = candidates(shared, ours, judged.now);
        let partitions = candidates.len();
        let mut planned = plan(candidates, &shared.settings, judged.now, other_bytes);
        let more = cap(&mut planned, partitions);
        let ids: Vec<u64> = planned.iter().flat_map(|(gone, _)| gone.ids.clone()).collect();
        let gone: HashSet<u64> = ids.iter().copied().collect();
        self.record(shared, ids, judged.now)?;
        let run = RetentionRun {
            at: shared.time.clock.now(),
            removed: planned.iter().map(|(gone, reason)| gone.removal(*reason)).collect(),
            more,
            held: judged.held.map(|(jump, left)| {
                format!(
                    "the clock is {} s ahead of the monotonic clock: retention does not trust it for another {} s",
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
        shared.counters.rotation_checks.add(1);
        Ok((run, gone))
    }

    /// Writes the removal and takes the files out of the view. Without a removal only the time is written, once in a while.
    fn record(&mut self, shared: &EngineCore, remove: Vec<u64>, now: Timestamp) -> Result<(), Error> {
        let removed: Vec<FileEntry> = {
            let mut catalog = shared.store.catalog.lock();
            let last = catalog.state().relied_on();
            if remove.is_empty() && last.is_none_or(|last| last <= now && now < last.plus(SLACK)) {
                return Ok(());
            }
            let removed = remove.iter().filter_map(|id| catalog.state().file(*id).cloned());
            let removed = removed.collect();
            catalog.commit_with(|record| (record.remove, record.relied_on) = (remove, now.micros()))?;
            removed
        };
        let mut state = shared.rows.state.lock();
        let mut doomed: BTreeMap<PathBuf, PendingDeletion> = BTreeMap::new();
        for entry in &removed {
            let held_by = state
                .remove_file(entry.table, (entry.partition, entry.number))
                .map_or_else(Weak::new, |segment| Arc::downgrade(segment.lineage()));
            if let Some(remote) = &shared.remote {
                remote.note_expired(entry.id, Weak::clone(&held_by));
            }
            let path = entry.path(&shared.store.layout);
            let folder = durable_fs::parent_of(&path).to_owned();
            let aside = || shared.store.layout.expired(entry.table, entry.id);
            let of_partition = doomed
                .entry(folder.clone())
                .or_insert_with(|| PendingDeletion::new(folder, aside()));
            if let Some(name) = path.file_name() {
                of_partition.add(name.to_owned(), held_by);
            }
        }
        self.doomed.extend(doomed.into_values());
        shared.publish_snapshot(&mut state, []);
        Ok(())
    }

    /// Takes away what went and nobody holds any more, with the folders that are empty then. No file is created in the tree
    /// meanwhile: its only creator is the caller.
    pub(crate) fn sweep(&mut self, shared: &EngineCore) {
        if self.doomed.is_empty() {
            return;
        }
        let now = shared.uptime();
        let Self { doomed, readers, .. } = self;
        readers.look(now);
        let rest = shared.settings.reader_rest;
        doomed.retain_mut(|doomed| !doomed.advance(&shared.store.layout, readers, rest, now));
    }

    /// While appends wait for disk space, removes the links that are the only names of published files, whatever their age: what keeps
    /// their space are outside readers of earlier lists, and retention frees none before. Links on another disk stay, and those of
    /// files that the store has: their names in the tree are missing by mistake.
    pub(crate) fn release_links(&mut self, shared: &EngineCore) {
        let (now, space) = (shared.uptime(), &shared.admission.space);
        let folder = &shared.store.layout.iceberg;
        if now < self.next_links || !space.check_low() || !space.is_short_at(folder) {
            return;
        }
        self.next_links = now + LINKS_EVERY;
        let links = LinkFolder::below(folder);
        let view = shared.rows.view.load_full();
        let sealed = view.files.iter().flat_map(|files| files.iter());
        let sealed = sealed.filter(|file| file.sealed);
        let names = sealed.map(|file| link_name(file.id, file.version, file.crc()));
        let uris: Vec<String> = names.map(|name| file_uri(&links.link(&name))).collect();
        let kept: HashSet<&str> = uris.iter().map(String::as_str).collect();
        match links.remove_last_names(&kept, |_, _| true) {
            Ok(0) => {}
            Ok(removed) => tracing::warn!(
                removed,
                "the disk is full: released the files that left the store and that snapshots of the Iceberg catalogue kept"
            ),
            Err(error) => tracing::warn!(%error, "could not release links of the Iceberg catalogue; retrying"),
        }
    }
}

/// The partitions of the catalogue, and the bytes that log and catalogue count.
fn candidates(shared: &EngineCore, ours: &HashSet<u64>, now: Timestamp) -> (Vec<RetentionCandidate>, u64) {
    let (entries, catalog_bytes) = {
        let catalog = shared.store.catalog.lock();
        let entries: Vec<FileEntry> = catalog.state().files().cloned().collect();
        (entries, catalog.bytes())
    };
    let state = shared.rows.state.lock();
    let about = |entry: &FileEntry| {
        let segment = state.file(entry.table, (entry.partition, entry.number));
        let in_work = !entry.sealed && !ours.contains(&entry.id) && segment.is_some();
        let index = segment.and_then(|segment| segment.index());
        (in_work, index.map_or(0, |index| index.size()))
    };
    let has_rows = |place| state.hot.has(place);
    let candidates = gather(&entries, now, shared.settings.seal_grace, about, has_rows);
    drop(state);
    let log = counted_log(&shared.settings, shared.counters.wal_bytes.get());
    (candidates, log + catalog_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_rows_redated_is_a_clock_and_a_few_are_a_sender() {
        assert!(is_mass_redating(1, 1) && is_mass_redating(1_000, 500) && is_mass_redating(3, 3));
        assert!(!is_mass_redating(0, 0) && !is_mass_redating(1_000, 0) && !is_mass_redating(1_000, 499));
    }
}
