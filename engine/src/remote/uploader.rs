//! The thread that uploads: sealed files become objects, then a record, then cache.
//!
//! ```text
//! what was left unclear ─> files that are ready ─> objects ─> one record there ─> one record here ─> expired objects go
//! ```
//!
//! A file is ready when it is sealed and every row up to its last log position is in files: then the journal knows all
//! batches in it. A record takes several files, so their number per GB stays small.
//!
//! # Invariants
//!
//! - Appends, publishing and sealing never wait for this thread; it holds the catalogue's lock for one small record.
//! - A step that failed has changed nothing that the next one does not find out.
//! - Pushed out by another writer, the store takes no more rows: it is poisoned with the other's name.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::Timestamp;

use super::attach::{Link, Uploaded};
use super::chain::Chain;
use super::format::data_key;
use super::orphans;
use super::state::{RemoteFile, RemoteRecord};
use super::upload::Upload;
use crate::Error;
use crate::catalog::{FileEntry, Lineage, Record};
use crate::journal::{Key, Range};
use crate::quarantine::{hide, keep};
use crate::segment::{FileAt, inspect};
use crate::shared::{Sentinel, Shared};
use crate::watermark::{Marks, Watermarks};

/// One record takes at most so many files …
const FILES: usize = 16;
/// … and about so many bytes.
const BYTES: u64 = 256 << 20;
/// So many polls without work pass between two looks for another writer.
const LOOK_EVERY: u32 = 5;
/// The time between two looks for objects that no record names.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// The uploader's own things.
#[derive(Debug)]
pub(crate) struct Uploader {
    shared: Arc<Shared>,
    link: Arc<Link>,
    chain: Chain,
    /// Since when a file waits for its upload.
    waiting: HashMap<u64, Timestamp>,
    /// Whether the files of an earlier run are among them.
    watched: bool,
    /// Damaged or missing here; each is reported once.
    bad: HashSet<u64>,
    /// Who may still read an object that expired.
    holders: HashMap<String, Weak<Lineage>>,
    /// A call may have done what its answer did not say.
    unsure: bool,
    /// When it was looked last for objects that no record names.
    swept: Option<Instant>,
    polls: u32,
    failures: u32,
    pause: u32,
}

/// What a step is going to do.
#[derive(Debug, Default)]
struct Plan {
    upload: Vec<FileEntry>,
    remove: Vec<u64>,
    /// Recorded as expired here, unknown there.
    forget: Vec<u64>,
    more: bool,
}

impl Uploader {
    pub(crate) fn new(shared: Arc<Shared>, link: Arc<Link>, chain: Chain) -> Self {
        Self {
            shared,
            link,
            chain,
            waiting: HashMap::new(),
            watched: false,
            bad: HashSet::new(),
            holders: HashMap::new(),
            unsure: false,
            swept: None,
            polls: 0,
            failures: 0,
            pause: 0,
        }
    }

    /// Uploads until told to stop.
    pub(crate) fn run(mut self) {
        let _sentinel = Sentinel(Arc::clone(&self.shared));
        while let Some(asked) = self.link.next() {
            if self.shared.poisoned().is_some() {
                answer(asked, &Err("the store is closed".into()));
                continue;
            }
            self.watch();
            if asked.is_empty() && self.pause > 0 {
                self.pause -= 1;
                continue;
            }
            let done = self.work();
            answer(asked, &self.note(done));
        }
    }

    /// Steps until nothing is left to do.
    fn work(&mut self) -> Result<(), Error> {
        while self.step()? {
            if self.link.is_stopping() {
                return Err(Error::Closed);
            }
        }
        Ok(())
    }

    /// Reports the end of a row of steps, and says how long to wait.
    fn note(&mut self, done: Result<(), Error>) -> Uploaded {
        let mut failing = self.link.failing.lock();
        let Err(error) = done else {
            if failing.take().is_some() {
                tracing::info!("data files are uploaded again");
            }
            self.failures = 0;
            return Ok(());
        };
        self.unsure = true;
        if self.link.is_stopping() {
            return Err("the store is closed".into());
        }
        let reason: Arc<str> = error.to_string().into();
        self.link.counters.upload_failures.add(1);
        self.failures = self.failures.saturating_add(1);
        self.pause = 1u32.checked_shl(self.failures.min(5)).unwrap_or(32);
        if failing.replace(Arc::clone(&reason)).is_none() {
            tracing::error!(%reason, "data files could not be uploaded; they stay on the local disk, and it is tried again");
        }
        if matches!(error, Error::Fenced { .. }) || error.is_in_doubt() {
            self.shared.poison(&reason);
        }
        Err(reason)
    }

    /// Whether there was something to do, and may be more.
    fn step(&mut self) -> Result<bool, Error> {
        self.polls += 1;
        if self.unsure || self.polls >= LOOK_EVERY {
            self.chain.settle()?;
            self.record_here()?;
            (self.unsure, self.polls) = (false, 0);
        }
        if self.swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
            self.chain.settle()?;
            let deleted = orphans::delete(&self.link.io, &self.link.names, &self.chain)?;
            if deleted > 0 {
                tracing::info!(deleted, "deleted objects that no record names");
            }
            self.swept = Some(Instant::now());
        }
        self.link.cache.make_room(&self.shared);
        let plan = self.plan();
        let deleted = self.delete_expired()?;
        let mut put = Vec::new();
        for entry in &plan.upload {
            put.extend(self.upload(entry)?);
        }
        if put.is_empty() && plan.remove.is_empty() && deleted.is_empty() && self.legacy().is_none() {
            self.forget(plan.forget)?;
            return Ok(plan.more);
        }
        self.commit(put, plan.remove, deleted)?;
        self.record_here()?;
        self.forget(plan.forget)?;
        Ok(true)
    }

    fn plan(&self) -> Plan {
        let remote = self.chain.state();
        let mut plan = Plan::default();
        let catalog = self.shared.catalog.lock();
        let state = catalog.state();
        for id in &state.gone {
            if remote.files.contains_key(id) {
                plan.remove.push(*id);
            } else {
                plan.forget.push(*id);
            }
        }
        let ready = state.files().filter(|entry| {
            entry.sealed
                && entry.last < state.low_water
                && !remote.files.contains_key(&entry.id)
                && !self.bad.contains(&entry.id)
        });
        let mut ready: Vec<FileEntry> = ready.cloned().collect();
        drop(catalog);
        ready.sort_by_key(|entry| (entry.published, entry.id));
        let mut bytes = 0;
        let all = ready.len();
        for entry in ready {
            if plan.upload.len() >= FILES || (bytes > 0 && bytes + entry.size > BYTES) {
                break;
            }
            bytes += entry.size;
            plan.upload.push(entry);
        }
        plan.more = plan.upload.len() < all;
        plan
    }

    /// Uploads one file; `None` if it is not what was recorded.
    fn upload(&mut self, entry: &FileEntry) -> Result<Option<RemoteFile>, Error> {
        let layout = &self.shared.layout;
        let path = entry.path(layout);
        let mut entry = entry.clone();
        if entry.last == 0 {
            // An earlier version did not write it into the catalogue.
            entry.last = inspect(&path)?.facts.last_lsn;
        }
        let file = match std::fs::File::open(&path) {
            Ok(file) => FileAt::new(file, entry.size),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.is_bad(&entry, "it is missing");
                return Ok(None);
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let key = data_key(layout, &path, &self.chain.state().writer);
        let upload = Upload {
            io: &self.link.io,
            names: &self.link.names,
            meta: &layout.meta,
            path: &path,
            entry: &entry,
        };
        match upload.run(&file, &key) {
            Ok(()) => {
                self.link.counters.uploaded_files.add(1);
                self.link.counters.uploaded_bytes.add(entry.size);
                Ok(Some(RemoteFile { entry, key }))
            }
            Err(Error::Damaged { reason, .. }) => {
                self.is_bad(&entry, &reason);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A local file that is not what was recorded, and is nowhere else.
    fn is_bad(&mut self, entry: &FileEntry, reason: &str) {
        let shared = &self.shared;
        self.bad.insert(entry.id);
        let live = shared.catalog.lock().state().file(entry.id).is_some();
        if !live {
            return;
        }
        let path = entry.path(&shared.layout);
        let what = format!("{} is damaged: {reason}", path.display());
        if !hide(shared, entry.table, (entry.partition, entry.number), &what) {
            return;
        }
        match keep(&shared.layout, &path) {
            Ok(kept) => tracing::error!(rows = entry.rows, "{what}; it was put into {}", kept.display()),
            Err(error) => tracing::error!(rows = entry.rows, %error, "{what}; no query reads it"),
        }
    }

    /// Marks from before the object store was there, once every row of then is uploaded.
    fn legacy(&self) -> Option<Marks> {
        let catalog = self.shared.catalog.lock();
        let state = catalog.state();
        let legacy = state.legacy.as_ref()?;
        let recovered = self.shared.recovered.load(Ordering::Relaxed);
        let rest = state.journal.first().is_some_and(|first| first <= recovered);
        let hot = state.low_water <= recovered;
        (legacy.files.is_empty() && !rest && !hot).then(|| legacy.marks.clone())
    }

    fn commit(&mut self, put: Vec<RemoteFile>, remove: Vec<u64>, deleted: Vec<String>) -> Result<(), Error> {
        let remote = self.chain.state();
        for id in &remove {
            if let (Some(file), Some(holder)) = (remote.files.get(id), self.link.holders.lock().get(id)) {
                self.holders.insert(file.key.clone(), Weak::clone(holder));
            }
        }
        let mut record = RemoteRecord {
            remove,
            deleted,
            ..RemoteRecord::default()
        };
        let mut marks = Watermarks::default();
        marks.join(&remote.marks.all());
        {
            let catalog = self.shared.catalog.lock();
            let ranges: Vec<Range> = put.iter().map(|file| range(&file.entry)).collect();
            let covered = catalog.state().journal.look(&ranges);
            record.parts = covered.part;
            for (key, places) in covered.whole {
                if follows(&marks, &key) {
                    marks.mark(&key.origin());
                    record.whole.push(key);
                } else {
                    record
                        .parts
                        .extend(places.into_iter().map(|place| (key.clone(), place)));
                }
            }
        }
        record.marks = marks.take_changes();
        record.put = put;
        let legacy = self.legacy();
        if let Some(legacy) = &legacy {
            let mut all = Watermarks::default();
            all.join(&record.marks);
            all.join(legacy);
            record.marks = all.all();
        }
        self.unsure = true;
        let bytes: u64 = record.put.iter().map(|file| file.entry.size).sum();
        let files = record.put.len();
        self.chain.commit(record, self.shared.clock.now())?;
        self.unsure = false;
        self.link.counters.records.add(1);
        tracing::debug!(files, bytes, number = self.chain.state().number, "uploaded data files");
        if legacy.is_some() {
            self.shared
                .catalog
                .lock()
                .commit_with(|record| record.legacy_done = true)?;
        }
        Ok(())
    }

    /// Records here what is recorded there: those batches need no journal any more, those files may leave the local disk.
    fn record_here(&mut self) -> Result<(), Error> {
        let cache = &self.link.cache;
        let new: Vec<RemoteFile> = {
            let files = self.chain.state().files.values();
            files.filter(|file| !cache.has(file.entry.id)).cloned().collect()
        };
        if new.is_empty() {
            return Ok(());
        }
        let uploaded = new.iter().map(|file| (file.entry.id, range(&file.entry))).collect();
        let commit = |record: &mut Record| record.uploaded = uploaded;
        self.shared.catalog.lock().commit_with(commit)?;
        for file in &new {
            cache.put(file, true);
        }
        Ok(())
    }

    /// Files that expired, and that the object store's catalogue no longer has. Whoever still reads one may have to fetch it.
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
        let forget = |record: &mut Record| record.forgotten = gone;
        self.shared.catalog.lock().commit_with(forget)
    }

    /// Deletes objects whose removal was recorded a grace ago and that nobody here reads. Their names.
    fn delete_expired(&mut self) -> Result<Vec<String>, Error> {
        let before = self.shared.clock.now().minus(self.link.settings.grace);
        let mut keys = self.chain.state().doomed_before(before);
        keys.retain(|key| self.holders.get(key).is_none_or(|holder| holder.strong_count() == 0));
        if keys.is_empty() {
            return Ok(keys);
        }
        keys.truncate(1_000);
        let paths = keys.iter().map(|key| self.link.names.object(key)).collect();
        self.link.io.delete_all(paths)?;
        for key in &keys {
            self.holders.remove(key);
        }
        self.link.counters.deleted_files.add(keys.len() as u64);
        Ok(keys)
    }

    /// Keeps account of what a loss of this machine would take, and since when.
    fn watch(&mut self) {
        let now = self.shared.clock.now();
        let remote = &self.chain.state().files;
        let missing: Vec<(u64, i64)> = {
            let catalog = self.shared.catalog.lock();
            let files = catalog.state().files();
            let files = files.filter(|entry| !remote.contains_key(&entry.id));
            files.map(|entry| (entry.id, entry.published)).collect()
        };
        let earlier = std::mem::take(&mut self.waiting);
        for (id, published) in missing {
            // Files of an earlier run were published by then; those that come are new from now on.
            let new = if self.watched {
                now
            } else {
                Timestamp::from_micros(published).min(now)
            };
            self.waiting.insert(id, earlier.get(&id).copied().unwrap_or(new));
        }
        self.watched = true;
        let oldest = self.waiting.values().min().copied();
        self.link
            .counters
            .oldest
            .set(oldest.map_or(0, |since| u64::try_from(since.micros()).unwrap_or(0)));
    }
}

fn answer(asked: Vec<tokio::sync::oneshot::Sender<Uploaded>>, done: &Uploaded) {
    for asked in asked {
        // Whoever asked may have gone.
        let _ = asked.send(done.clone());
    }
}

const fn range(entry: &FileEntry) -> Range {
    (entry.place(), entry.first, entry.last)
}

/// Whether a key may be marked: parts of a request are marked in their order, because a mark says all parts up to it.
fn follows(marks: &Watermarks, key: &Key) -> bool {
    match key {
        Key::Request(id, _, part) => *part <= marks.request(*id).map_or(0, |known| known.parts),
        _ => true,
    }
}
