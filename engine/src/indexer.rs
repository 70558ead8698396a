//! The indexer thread: builds and removes sidecar indexes. The sealer builds those of its own files, if it has time.
//!
//! ```text
//! the view's files changed, an index is bad, or a request ─> indexes on the disk are opened ─> missing ones are built, newest first
//!                                                         ─> new row groups of open files are indexed and counted in memory
//!                                                         ─> indexes of files that left the view are unlinked
//! ```
//!
//! # Invariants
//!
//! - It takes its work from the view alone, so the next start finds work again that was lost in a crash. An index that the
//!   sealer built for a file that never became visible stays until then.
//! - An index appears whole, by a rename. It is not synced: if it is torn after a crash, it is built again.
//! - Nothing waits for the indexer. It holds a data file for as long as it builds its index, and pauses while many rows wait to be
//!   published or the disk is almost full.
//! - A file that only the object store has is not fetched to be indexed.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::Table;

use crate::Error;
use crate::data_file_handle::DataFileHandle;
use crate::datafile::FilePrefix;
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::index::{
    FINISHED, IndexedFile, IndexerGuard, RollupDimension, SidecarIndex, UNFINISHED, sidecar_builder, write_sidecar,
};
use crate::io_pacing::IoPriority;
use crate::layout::{FileVersionKey, StoreLayout};
use crate::store_tree::data_files;
use model::catch_panic;

/// How long a file that could not be indexed is left alone.
const PATIENCE: Duration = Duration::from_secs(300);

/// Keeps sidecars until the threads are to stop.
pub(crate) fn run(shared: &Arc<EngineCore>) {
    let _sentinel = PoisonGuard(Arc::clone(shared));
    let indexes = &shared.indexes;
    let _ended = IndexerGuard(indexes);
    let mut indexer = IndexerWorker::new(shared);
    let mut done = 0;
    // What was there before the first order is looked at too.
    indexes.request_pass();
    while let Some(asked) = indexes.next_request(done, indexer.next_try()) {
        if indexer.pass(asked) {
            indexes.mark_done(asked);
            done = asked;
            indexes.back_off();
        }
    }
}

struct IndexerWorker<'a> {
    shared: &'a EngineCore,
    /// Sidecars on the disk.
    there: HashMap<FileVersionKey, Table>,
    /// What could not be indexed, and when it is tried again.
    failed: HashMap<FileVersionKey, Instant>,
}

impl<'a> IndexerWorker<'a> {
    fn new(shared: &'a EngineCore) -> Self {
        let mut indexer = Self {
            shared,
            there: HashMap::new(),
            failed: HashMap::new(),
        };
        let folder = &shared.store.layout.index;
        for path in data_files(folder).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not list the folder of indexes");
            Vec::new()
        }) {
            match named(&shared.store.layout, &path) {
                Some(SidecarName::Sidecar(table, key)) => drop(indexer.there.insert(key, table)),
                Some(SidecarName::Unfinished) => remove(&path),
                None => {}
            }
        }
        indexer
    }

    /// When something that failed is tried again.
    fn next_try(&self) -> Option<Instant> {
        self.failed.values().min().copied()
    }

    /// Does what the view asks for. Whether all of it: later orders end it early, what is newest comes first.
    fn pass(&mut self, asked: u64) -> bool {
        let now = Instant::now();
        let is_left_alone = |key: &FileVersionKey| self.failed.get(key).is_some_and(|later| *later > now);
        let mut wanted = HashSet::new();
        // Before the view is looked at: what it has by now may be gone from there.
        self.there.extend(self.shared.indexes.take_shown());
        let (mut lacking, mut open) = (Vec::new(), Vec::new());
        {
            let view = self.shared.rows.view.load();
            let files = view.files.iter().flat_map(|files| files.iter());
            for segment in files {
                let key = segment.cache_key();
                if segment.lacks_live_index(&self.shared.indexes.memory) {
                    let all_versions = of_open(segment);
                    wanted.insert(all_versions);
                    if !is_left_alone(&all_versions) {
                        open.push((segment.max_ts, Arc::downgrade(segment)));
                    }
                }
                if !segment.wants_index() {
                    continue;
                }
                wanted.insert(key);
                if segment.index().is_none_or(|index| index.is_bad()) && !is_left_alone(&key) {
                    lacking.push((segment.max_ts, Arc::downgrade(segment)));
                }
            }
        }
        self.sweep(&wanted);
        for segments in [&mut open, &mut lacking] {
            segments.sort_unstable_by_key(|(newest, _)| std::cmp::Reverse(*newest));
        }
        // A row group takes a fraction of a second, a sealed file seconds.
        let is_through = open.iter().all(|(_, segment)| self.index_open(segment, asked));
        // Those that are on the disk first: they only have to be opened.
        lacking.retain(|(_, segment)| !self.attach_sidecar(segment));
        // One in each pass, however often open files change.
        for (at, (_, segment)) in lacking.into_iter().enumerate() {
            if at > 0 && self.shared.indexes.has_news(asked) {
                return false;
            }
            if let Some(segment) = segment.upgrade() {
                self.make(&segment);
            }
        }
        is_through && !self.shared.indexes.is_stopping()
    }

    /// Indexes and counts the row groups of an open file that came. Whether it is through; later orders end it early.
    fn index_open(&mut self, segment: &Weak<DataFileHandle>, asked: u64) -> bool {
        let shared = self.shared;
        // It waits before it has the file open: whoever publishes to one that is open copies it.
        while self.wait_while_busy()
            && let Some(segment) = segment.upgrade()
        {
            if shared.indexes.has_news(asked) {
                return false;
            }
            let owner = segment.indexed_file(shared.store.id);
            let next = || Ok(segment.index_next_group(&owner, &shared.indexes.memory, || !self.should_yield()));
            let indexed = catch_panic(next).map_err(|reason| Error::damaged(&segment.path, reason));
            match indexed.and_then(|indexed| indexed) {
                Ok(true) => {}
                Ok(false) if self.should_yield() => break,
                Ok(false) => {
                    // So that no question has to.
                    let _ = segment.counts(RollupDimension::Level);
                    break;
                }
                Err(error) => {
                    self.record_failure(of_open(&segment), &segment, &error);
                    break;
                }
            }
        }
        true
    }

    /// Opens the sidecar that a segment has on the disk, unless it is open and bad. Whether nothing is left to do.
    fn attach_sidecar(&mut self, segment: &Weak<DataFileHandle>) -> bool {
        let Some(segment) = segment.upgrade() else {
            return true;
        };
        let key = segment.cache_key();
        if !self.there.contains_key(&key) {
            return false;
        }
        if segment.index().is_none() {
            match open(self.shared, &segment.indexed_file(self.shared.store.id)) {
                Ok(index) => {
                    segment.set_index(Some(Arc::new(index)));
                    self.failed.remove(&key);
                    return true;
                }
                Err(error @ Error::Io { .. }) if !error.is_not_found() => {
                    // It may be whole: nothing is thrown away for want of handles.
                    self.record_failure(key, &segment, &error);
                    return true;
                }
                Err(error) => tracing::warn!(%error, "an index is unusable; rebuilding it"),
            }
        }
        segment.set_index(None);
        self.forget(key);
        false
    }

    /// Builds the sidecar of a segment that has none.
    fn make(&mut self, segment: &Arc<DataFileHandle>) {
        let key = segment.cache_key();
        if !self.is_in_view(segment) {
            return;
        }
        match self.build(segment) {
            Ok(Some(index)) => {
                self.failed.remove(&key);
                self.there.insert(key, segment.table);
                segment.set_index(Some(Arc::new(index)));
            }
            Ok(None) => drop(self.failed.remove(&key)),
            Err(error) => self.record_failure(key, segment, &error),
        }
    }

    fn record_failure(&mut self, key: FileVersionKey, segment: &DataFileHandle, error: &Error) {
        self.shared.counters.index_failures.add(1);
        let path = segment.path.display();
        tracing::warn!(%error, %path, "could not index a data file; queries read it without an index, retrying later");
        self.failed.insert(key, Instant::now() + PATIENCE);
    }

    fn build(&self, segment: &DataFileHandle) -> Result<Option<SidecarIndex>, Error> {
        let file = match segment.find() {
            Ok(file) => FilePrefix::new(file, segment.size),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        // What is kept of an older one is not what is written now.
        segment.set_index(None);
        let owner = segment.indexed_file(self.shared.store.id);
        make_sidecar(self.shared, &file, &segment.path, &owner, || self.wait_while_busy())
    }

    /// Stands back while others need the machine more. Whether to go on.
    fn wait_while_busy(&self) -> bool {
        let indexes = &self.shared.indexes;
        while self.should_yield() && !indexes.is_stopping() {
            indexes.back_off();
        }
        !indexes.is_stopping()
    }

    /// Whether others need the machine more, or it is to stop.
    fn should_yield(&self) -> bool {
        let indexes = &self.shared.indexes;
        indexes.is_stopping() || !indexes.is_urgent() && is_engine_busy(self.shared)
    }

    fn is_in_view(&self, segment: &Arc<DataFileHandle>) -> bool {
        let state = self.shared.rows.state.lock();
        let now = state.file(segment.table, segment.key());
        now.is_some_and(|now| Arc::ptr_eq(now, segment))
    }

    /// Unlinks what belongs to no file of the view.
    fn sweep(&mut self, wanted: &HashSet<FileVersionKey>) {
        let gone: Vec<FileVersionKey> = self.there.keys().filter(|key| !wanted.contains(key)).copied().collect();
        gone.into_iter().for_each(|key| self.forget(key));
        self.failed.retain(|key, _| wanted.contains(key));
    }

    fn forget(&mut self, key: FileVersionKey) {
        if let Some(table) = self.there.remove(&key) {
            remove(&self.shared.store.layout.sidecar(table, key));
        }
    }
}

/// Whether an index would be in the way of others.
fn is_engine_busy(shared: &EngineCore) -> bool {
    shared.haste() == IoPriority::Yes || shared.admission.space.check_low()
}

/// Makes the index of a sealed file before it is shown, so that no question meets it without. Where others need the machine more, or
/// it fails, the indexer makes it later; so it does for what the flusher seals in memory.
pub(crate) fn index_staged(shared: &EngineCore, segment: &DataFileHandle, staged: &Path) {
    let goes_on = || !is_engine_busy(shared) && !shared.scheduler.is_sealer_pressed();
    if !shared.settings.index || !segment.wants_index() || !goes_on() {
        return;
    }
    let owner = segment.indexed_file(shared.store.id);
    let made = FilePrefix::open(staged).and_then(|file| make_sidecar(shared, &file, staged, &owner, goes_on));
    match made {
        Ok(index) => segment.set_index(index.map(Arc::new)),
        Err(error) => tracing::warn!(%error, "sealing a data file without an index; it is built later"),
    }
}

/// Writes the sidecar of a file and opens it; `None` if `goes_on` says that it is not wanted any more.
fn make_sidecar(
    shared: &EngineCore,
    file: &FilePrefix,
    path: &Path,
    owner: &IndexedFile,
    goes_on: impl FnMut() -> bool,
) -> Result<Option<SidecarIndex>, Error> {
    let built = catch_panic(|| Ok(sidecar_builder::build(file, path, owner, goes_on)));
    let Some(bytes) = built.map_err(|reason| Error::damaged(path, reason))?? else {
        return Ok(None);
    };
    write_sidecar(
        &shared.store.layout.sidecar(owner.table, (owner.segment, owner.version)),
        &bytes,
    )?;
    shared.counters.index_builds.add(1);
    open(shared, owner).map(Some)
}

fn open(shared: &EngineCore, owner: &IndexedFile) -> Result<SidecarIndex, Error> {
    SidecarIndex::open(&shared.store.layout.index, owner, &shared.indexes)
}

/// All versions of an open file as one: the first has the version 1.
const fn of_open(segment: &DataFileHandle) -> FileVersionKey {
    (segment.id, 0)
}

/// Removes a sidecar, with its folder if there is nothing else in it.
fn remove(path: &Path) {
    match durable_fs::remove_if_there(path) {
        Ok(()) => drop(std::fs::remove_dir(durable_fs::parent_of(path))),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "could not remove an unused index; the next start tries \
                                                            again");
        }
    }
}

/// What a name in the folder of indexes means.
enum SidecarName {
    Sidecar(Table, FileVersionKey),
    Unfinished,
}

/// `None` if it is not ours.
fn named(layout: &StoreLayout, path: &Path) -> Option<SidecarName> {
    let stem = path.file_stem()?.to_str()?.strip_prefix("segment_")?;
    let (id, version) = stem.split_once("_v")?;
    let key = (id.parse().ok()?, version.parse().ok()?);
    let is_it = |table: &Table| layout.sidecar(*table, key) == path.with_extension(FINISHED);
    let table = Table::ALL.into_iter().find(is_it)?;
    match path.extension()?.to_str()? {
        FINISHED => Some(SidecarName::Sidecar(table, key)),
        UNFINISHED => Some(SidecarName::Unfinished),
        _ => None,
    }
}
