//! The uploader thread: takes prefix cuts and commits them as records of the object store's catalogue.
//!
//! ```text
//! look for another writer ─> a cut at LSN L ─> sealed files and pieces as objects ─> one record ─> expired objects go
//! ```
//!
//! # Invariants
//!
//! - Appends and seals never wait for this thread; the flusher works for it while it makes a cut, and never waits.
//! - One cut at a time. What comes while the object store is away is in the next one: nothing is queued.
//! - A step that failed has changed nothing that the next one does not find out.
//! - Pushed out by another writer, the store takes no more rows: it is poisoned with the other's name.
//!
//! # Not here
//!
//! How a file, or a piece of one, becomes an object: [`super::incremental_upload`], [`crate::object_storage::object_upload`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::Timestamp;

use crate::Error;
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::error::damaged_object;
use crate::flush_scheduler::PrefixCut;
use crate::manifest::{FileLineage, ManifestRecord};
use crate::object_storage::commit_log::CommitLog;
use crate::object_storage::object_format::PIECES;
use crate::object_storage::orphan_sweep::OrphanSweep;
use crate::object_storage::state::{RemoteFile, RemoteRecord, ReplacedObject};
use crate::object_storage::takeover::{RemoteLink, UploadResult};

/// The longest pause after failures, in polls.
const LONGEST_PAUSE: u32 = 32;
/// The time between two cuts that somebody waits for.
const HURRIED_REST: Duration = Duration::from_millis(500);
/// Objects that are deleted in one step, at most.
const DELETES: usize = 1_000;

/// The uploader's own things.
#[derive(Debug)]
pub(crate) struct CutUploader {
    pub(super) shared: Arc<EngineCore>,
    pub(super) link: Arc<RemoteLink>,
    pub(super) chain: CommitLog,
    /// Damaged here; each is reported once.
    pub(super) bad: HashSet<(u64, u32)>,
    /// Objects that were made and are in no record yet: length and checksum by name.
    pub(super) made: HashMap<String, (u64, u32)>,
    /// Who may still read an object that expired.
    holders: HashMap<String, Weak<FileLineage>>,
    orphans: OrphanSweep,
    /// When the last cut was made, and the bytes that had been written into files by then; none since a start with rows to
    /// upload.
    last_cut: Option<(Instant, u64)>,
    /// The catalogue's version in which nothing but rows was left to upload.
    seen: Option<u64>,
    failures: u32,
    pause: u32,
    began: Timestamp,
}

impl CutUploader {
    pub(crate) fn new(shared: Arc<EngineCore>, link: Arc<RemoteLink>, chain: CommitLog) -> Self {
        let is_behind = shared.rows.state.lock().committed > chain.state().lsn;
        let began = shared.time.clock.now();
        Self {
            shared,
            link,
            chain,
            bad: HashSet::new(),
            made: HashMap::new(),
            holders: HashMap::new(),
            orphans: OrphanSweep::default(),
            last_cut: Some((Instant::now(), 0)).filter(|_| !is_behind),
            seen: None,
            failures: 0,
            pause: 0,
            began,
        }
    }

    /// Uploads until asked to stop.
    pub(crate) fn run(mut self) {
        let _sentinel = PoisonGuard(Arc::clone(&self.shared));
        self.note_backlog();
        while let Some(asked) = self.link.wait_for_request() {
            if self.shared.poisoned().is_some() {
                answer(asked, &Err("the store is closed".into()));
                continue;
            }
            self.note_age();
            if asked.is_empty() && self.pause > 0 {
                self.pause -= 1;
                // Whoever took over says so in the meantime.
                if let Err(error) = self.chain.settle() {
                    // It is reported, and hurts nobody: nobody asked.
                    let _ = self.note(Err(error));
                }
                continue;
            }
            let done = self.step(!asked.is_empty());
            answer(asked, &self.note(done));
        }
    }

    /// Reports the end of a step, and says how long to wait.
    fn note(&mut self, done: Result<(), Error>) -> UploadResult {
        let mut failing = self.link.failing.lock();
        let Err(error) = done else {
            if failing.take().is_some() {
                tracing::info!("uploading rows works again");
            }
            (self.failures, self.pause) = (0, 0);
            return Ok(());
        };
        if self.link.is_stopping() {
            return Err("the store is closed".into());
        }
        let reason: Arc<str> = error.to_string().into();
        self.link.counters.failures.add(1);
        if self.pause == 0 {
            self.failures = self.failures.saturating_add(1);
            self.pause = 1u32
                .checked_shl(self.failures)
                .unwrap_or(LONGEST_PAUSE)
                .min(LONGEST_PAUSE);
        }
        if failing.replace(Arc::clone(&reason)).is_none() {
            tracing::error!(%reason, "could not upload rows; they stay on the local disk, retrying");
        }
        if matches!(error, Error::Fenced { .. }) || error.is_in_doubt() {
            self.shared.poison(&reason);
        }
        Err(reason)
    }

    fn step(&mut self, is_asked: bool) -> Result<(), Error> {
        // Another writer, or a commit of ours whose answer never came.
        self.chain.settle()?;
        self.link.cache.make_room(|| self.shared.uploaded_files());
        if is_asked || self.check_cut_due() {
            self.cut()?;
        }
        // Not within the grace of a start: a writer that was pushed out may still be at it, and what earlier processes removed is named by
        // what outside readers were told of before, however long ago that was: whether those processes told them more is not known.
        let before = self.shared.time.clock.now().minus(self.link.settings.grace);
        if before >= self.began {
            self.overwrite_replaced(before)?;
            self.delete_doomed(before)?;
        }
        let swept = self
            .orphans
            .run(&self.link, &self.chain, &self.shared.store.layout, &self.made);
        if let Err(error) = swept {
            tracing::warn!(%error, "could not list orphaned objects; retrying in an hour");
        }
        Ok(())
    }

    /// Whether it is time for a cut, and there is something to upload.
    fn check_cut_due(&mut self) -> bool {
        let interval = self.link.settings.upload_interval;
        let stats = &self.shared.counters;
        let is_hurried = self.link.refresh_urgency(|| self.is_behind());
        let is_time = match self.last_cut {
            None => true,
            Some((at, _)) if is_hurried && at.elapsed() >= HURRIED_REST => true,
            Some((at, _)) if !interval.is_zero() && at.elapsed() >= interval => true,
            Some((_, written)) => {
                let since = stats.file_written_bytes.get().saturating_sub(written);
                since >= self.shared.settings.segment_size.get()
            }
        };
        if interval.is_zero() && !is_hurried {
            return self.check_sealed_backlog();
        }
        is_time && (self.is_behind() || self.check_sealed_backlog())
    }

    /// Whether rows are not in the object store.
    fn is_behind(&self) -> bool {
        self.shared.rows.state.lock().committed > self.chain.state().lsn
    }

    /// Whether a sealed file is not uploaded as it is now, or a removed one is still recorded there.
    fn check_sealed_backlog(&mut self) -> bool {
        let catalog = self.shared.store.catalog.lock();
        let state = catalog.state();
        if self.seen == Some(state.version) {
            return false;
        }
        let is_bad = |id, version| self.bad.contains(&(id, version));
        let is_waiting = |id, version| !self.link.cache.has(id, version) && !is_bad(id, version);
        let files = state
            .files()
            .filter(|file| file.sealed && is_waiting(file.id, file.version));
        let waiting: Vec<_> = files.map(|file| (file.table, (file.partition, file.number))).collect();
        let (version, has_gone) = (state.version, !state.gone.is_empty());
        drop(catalog);
        // What is in no view was found damaged.
        let views = self.shared.rows.state.lock();
        let has = has_gone || waiting.into_iter().any(|(table, of)| views.file(table, of).is_some());
        drop(views);
        self.seen = Some(version).filter(|_| !has);
        has
    }

    /// Uploads everything up to now, and says so in one record.
    fn cut(&mut self) -> Result<(), Error> {
        let after = self.chain.state().lsn;
        // Pieces get new names in each attempt.
        self.made.retain(|key, _| !key.starts_with(PIECES));
        let mut looked = Instant::now();
        let began = (Instant::now(), self.shared.counters.file_written_bytes.get());
        // Rows that come from now on wait for the next cut.
        let since = u64::try_from(self.shared.time.clock.now().micros()).unwrap_or(1);
        self.link.begin_cut();
        let asked = self.shared.scheduler.cut(after).ok_or(Error::Closed)?;
        let cut = asked.blocking_recv().map_err(|_| Error::Closed)?;
        let cut = cut.map_err(|reason| Error::Publishing { reason })?;
        let mut record = RemoteRecord {
            lsn: cut.lsn,
            watermarks: cut.watermarks.clone(),
            ..RemoteRecord::default()
        };
        for (entry, segment) in &cut.files {
            if entry.sealed {
                record.put.extend(self.upload_sealed(entry, segment)?);
            } else {
                self.upload_piece(entry, segment, &mut record)?;
            }
            if self.link.is_stopping() {
                return Err(Error::Closed);
            }
            if looked.elapsed() >= self.link.settings.poll {
                self.chain.settle()?;
                looked = Instant::now();
            }
        }
        self.plan_removals(&mut record, &cut);
        if !record.is_empty() || cut.lsn > after {
            self.commit(record)?;
        }
        self.last_cut = Some(began);
        self.made.clear();
        self.link.uploaded.send_replace(cut.lsn);
        let counters = &self.link.counters;
        counters.uploaded_lsn.set(cut.lsn);
        let backlog = &self.link.backlog;
        backlog.oldest.set(since);
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        backlog.cut_rows.store(signed(cut.appended.0), Ordering::Relaxed);
        backlog.cut_bytes.store(signed(cut.appended.1), Ordering::Relaxed);
        self.forget(cut.gone)
    }

    /// What no longer stands for rows of its own: removed segments with their pieces, and pieces of sealed files.
    fn plan_removals(&self, record: &mut RemoteRecord, cut: &PrefixCut) {
        let remote = self.chain.state();
        let gone: HashSet<u64> = cut.gone.iter().copied().collect();
        let put: HashMap<u64, u64> = (record.put.iter())
            .filter(|file| file.piece_of.is_none())
            .map(|file| (file.entry.id, file.entry.last))
            .collect();
        let whole = |segment: u64| {
            let recorded = || Some(remote.files.get(&segment)?.entry.last);
            put.get(&segment).copied().or_else(recorded)
        };
        for file in remote.files.values() {
            let is_covered = || whole(file.segment()).is_some_and(|last| file.entry.last <= last);
            if gone.contains(&file.segment()) || (file.piece_of.is_some() && is_covered()) {
                record.remove.push(file.entry.id);
            }
        }
        record.put.retain(|file| !gone.contains(&file.segment()));
    }

    /// Commits a record, and tells the cache.
    fn commit(&mut self, record: RemoteRecord) -> Result<(), Error> {
        let remote = self.chain.state();
        for id in &record.remove {
            if let (Some(file), Some(holder)) = (remote.files.get(id), self.link.holders.lock().get(id)) {
                self.holders.insert(file.key.clone(), Weak::clone(holder));
            }
        }
        let put: Vec<RemoteFile> = record
            .put
            .iter()
            .filter(|file| file.piece_of.is_none())
            .cloned()
            .collect();
        let (files, lsn) = (record.put.len(), record.lsn);
        let bytes = self.chain.commit(record, self.shared.time.clock.now())?;
        self.link.counters.records.add(1);
        self.link.counters.record_bytes.set(bytes);
        tracing::debug!(
            files,
            lsn,
            bytes,
            number = self.chain.state().number,
            "committed a record"
        );
        for file in &put {
            let local = std::fs::metadata(file.entry.path(&self.shared.store.layout));
            self.link
                .cache
                .put(file, local.is_ok_and(|meta| meta.len() == file.entry.size));
        }
        Ok(())
    }

    /// Removed segments that the object store's catalogue no longer has. Whoever still reads one may have to fetch it.
    fn forget(&self, mut gone: Vec<u64>) -> Result<(), Error> {
        {
            let mut holders = self.link.holders.lock();
            gone.retain(|id| holders.get(id).is_none_or(|holder| holder.strong_count() == 0));
            for id in &gone {
                holders.remove(id);
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        for id in &gone {
            self.link.cache.remove(*id);
        }
        let forget = |record: &mut ManifestRecord| record.forgotten = gone;
        self.shared.store.catalog.lock().commit_with(forget)
    }

    /// Overwrites objects in the tree by later versions that lie outside of it, once nobody reads the earlier ones: outside
    /// readers see the one or the other, never both.
    fn overwrite_replaced(&mut self, before: Timestamp) -> Result<(), Error> {
        let files = self.chain.state().files.values();
        let is_due = |old: &ReplacedObject| old.at <= before.micros();
        let mut due = files.filter(|file| file.replaces.as_ref().is_some_and(is_due));
        let Some(file) = due.next().cloned() else {
            return Ok(());
        };
        let Some(old) = &file.replaces else { return Ok(()) };
        let [from, to] = [&file.key, &old.key].map(|key| self.link.names.object(key));
        let size = self.link.io.wait(|calls| async move {
            calls.copy(&from, &to).await?;
            calls.size(&to).await
        })?;
        if size != Some(file.entry.size) {
            let reason = format!("{size:?} bytes are there instead of {}", file.entry.size);
            return Err(damaged_object(&self.link.settings.url, &old.key, &reason));
        }
        let key = old.key.clone();
        self.commit(RemoteRecord {
            put: vec![RemoteFile::sealed(file.entry.clone(), key)],
            ..RemoteRecord::default()
        })
    }

    /// Deletes objects whose removal was recorded before `before` and that nobody here reads.
    fn delete_doomed(&mut self, before: Timestamp) -> Result<(), Error> {
        let mut keys = self.chain.state().doomed_before(before);
        keys.retain(|key| self.holders.get(key).is_none_or(|holder| holder.strong_count() == 0));
        keys.truncate(DELETES);
        if keys.is_empty() {
            return Ok(());
        }
        let paths = keys.iter().map(|key| self.link.names.object(key)).collect();
        self.link.io.delete_all(paths)?;
        for key in &keys {
            self.holders.remove(key);
        }
        self.link.counters.deleted_files.add(keys.len() as u64);
        self.commit(RemoteRecord {
            deleted: keys,
            ..RemoteRecord::default()
        })
    }

    /// Counts what an earlier run may have left to upload.
    fn note_backlog(&self) {
        let lsn = self.chain.state().lsn;
        self.link.counters.uploaded_lsn.set(lsn);
        let in_files: (u64, u64) = {
            let catalog = self.shared.store.catalog.lock();
            let files = catalog.state().files().filter(|file| file.last > lsn);
            files.fold((0, 0), |(rows, bytes), file| (rows + file.rows, bytes + file.size))
        };
        let (hot_rows, hot_bytes) = {
            let state = self.shared.rows.state.lock();
            (state.hot.rows() as u64, state.hot.weight())
        };
        let earlier = |number: u64| -i64::try_from(number).unwrap_or(i64::MAX);
        let backlog = &self.link.backlog;
        backlog
            .cut_rows
            .store(earlier(in_files.0 + hot_rows), Ordering::Relaxed);
        backlog
            .cut_bytes
            .store(earlier(in_files.1 + hot_bytes), Ordering::Relaxed);
    }

    /// Keeps account of since when there is something that a loss of this machine would take.
    fn note_age(&self) {
        let oldest = &self.link.backlog.oldest;
        if !self.is_behind() {
            oldest.set(0);
        } else if oldest.get() == 0 {
            oldest.set(u64::try_from(self.shared.time.clock.now().micros()).unwrap_or(1));
        }
    }
}

pub(super) fn answer(asked: Vec<tokio::sync::oneshot::Sender<UploadResult>>, done: &UploadResult) {
    for asked in asked {
        // Whoever asked may have gone.
        let _ = asked.send(done.clone());
    }
}
