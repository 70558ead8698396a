//! Engine core: the state that the engine's threads share, and the only place that swaps the snapshot for queries.
//!
//! # Locks
//!
//! `state` guards the hot rows and the file lists; the view is swapped under it. `watermarks` and `catalog` are taken alone or,
//! in this order, catalog → watermarks → state. None is held across a wait; Only the flusher
//! and the sealer hold `catalog` across a sync.
//!
//! # Invariants
//!
//! - A view is built and stored under `state`, so versions never decrease and no change is lost.
//! - Memory for hot rows is returned exactly once: by the publish that moves the rows into files, or by the append that stored none.

mod stats_reader;

#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::{Clock, Table};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::append_queue::AppendQueue;
use crate::data_file_handle::{DataFileContext, DataFileHandle};
use crate::dedup::DedupWatermarks;
use crate::disk_space::DiskSpace;
use crate::export_cursors::LogExport;
use crate::file_templates::{FileTemplate, FileTemplates};
use crate::flush_scheduler::FlushScheduler;
use crate::inbound_memory::InboundShares;
use crate::index::IndexQueue;
use crate::io_pacing::IoPriority;
use crate::layout::{StoreLayout, TimePartition};
use crate::live_tail::TailBuffers;
use crate::manifest::{FileEntry, FileLineage, StoreManifest};
use crate::memtable::{MemtableSet, PartitionKey};
use crate::object_storage::read_cache::UploadedFile;
use crate::object_storage::takeover::RemoteLink;
use crate::partitioner::PartitionRule;
use crate::snapshot::{PartialReason, StoreSnapshot, table_index};
use crate::stats::EngineCounters;
use crate::{BatchOrigin, Error, ExportMode, HotBatch, RetentionHistory, Settings};

#[cfg(test)]
use crate::test_hook::TestHook;

/// Room for hot rows is counted in this unit.
const ROOM_UNIT: u64 = 1024;

/// Everything that more than one thread needs.
#[derive(Debug)]
pub(crate) struct EngineCore {
    pub(crate) settings: Settings,
    pub(crate) time: EngineTime,
    pub(crate) store: StoreFiles,
    pub(crate) indexes: Arc<IndexQueue>,
    pub(crate) counters: EngineCounters,
    pub(crate) rows: VisibleRows,
    pub(crate) watermarks: Mutex<DedupWatermarks>,
    pub(crate) admission: AppendAdmission,
    pub(crate) scheduler: FlushScheduler,
    pub(crate) status: EngineStatus,
    /// The object store, if there is one.
    pub(crate) remote: Option<Arc<RemoteLink>>,
    /// How far telemetry is exported; empty until recovery has ended, and where nothing is.
    pub(crate) export: OnceLock<LogExport>,
    /// Until then the log keeps every frame from this LSN on.
    pub(crate) unexported_from: u64,
    /// Until then, telemetry from this LSN on is not kept beyond the log, if it is not now.
    pub(crate) unstored_from: u64,
    #[cfg(test)]
    pub(crate) hooks: TestHooks,
}

/// The clock, and the time since the store was opened.
#[derive(Debug)]
pub(crate) struct EngineTime {
    pub(crate) clock: Clock,
    pub(crate) opened: Instant,
    /// Added to the time since then, in seconds.
    #[cfg(test)]
    pub(crate) skew: AtomicU64,
}

/// The store on the disk: its id, its folders, its catalogue, and how files are begun.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    pub(crate) id: Uuid,
    pub(crate) layout: StoreLayout,
    /// Taken before `state`, never after it. Seals and rotation hold it over the change of both.
    pub(crate) catalog: Mutex<StoreManifest>,
    /// For the data files of views.
    pub(crate) file_context: Arc<DataFileContext>,
    /// How files of specs are begun.
    pub(crate) templates: ArcSwap<FileTemplates>,
    /// Let go when the store is closed.
    pub(crate) locks: Mutex<Vec<durable_fs::FileLock>>,
}

/// What queries see, and what it is made of.
#[derive(Debug)]
pub(crate) struct VisibleRows {
    pub(crate) view: ArcSwap<StoreSnapshot>,
    pub(crate) state: Mutex<WriteState>,
    /// Rows for those who follow a table. Its locks are taken after `state`, or alone.
    pub(crate) tails: TailBuffers,
}

/// Who may append how much, and what waits to be written.
#[derive(Debug)]
pub(crate) struct AppendAdmission {
    pub(crate) queue: AppendQueue,
    /// Room for hot rows.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) inbound: InboundShares,
    /// The largest frame that the log can take.
    pub(crate) largest_frame: u64,
    /// Appends wait because the log is at its cap or its disk is full.
    pub(crate) log_is_full: AtomicBool,
    /// The room on the disks.
    pub(crate) space: DiskSpace,
}

/// What went wrong, and what rotation did.
#[derive(Debug)]
pub(crate) struct EngineStatus {
    /// Why publishing or sealing failed last; `None` after a success.
    pub(crate) publishing: Mutex<Option<Arc<str>>>,
    pub(crate) poison: watch::Sender<Option<Arc<str>>>,
    /// What the last checks of the rotation rules did.
    pub(crate) rotation: Mutex<RetentionHistory>,
}

/// Places at which tests do something.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct TestHooks {
    /// Makes every later sync of the log fail.
    pub(crate) fail_log_syncs: TestHook,
    /// What happens between the taking of a group and its write.
    pub(crate) before_write: TestHook,
    /// What happens between the first look at a partition's file and the moment in which its rows are taken.
    pub(crate) before_freeze: TestHook,
}

/// What the view is made of.
#[derive(Debug)]
pub(crate) struct WriteState {
    pub(crate) hot: MemtableSet,
    pub(crate) files: [Arc<Vec<Arc<DataFileHandle>>>; Table::ALL.len()],
    /// Every frame with this LSN or a lower one is durable, and its rows are hot or in files.
    pub(crate) committed: u64,
    pub(crate) version: u64,
    /// Counts sealed files that came or went.
    pub(crate) sealed_changes: u64,
    pub(crate) partial: PartialReason,
    /// Units of room that rows take beyond the cap.
    debt: u64,
    /// A file came or went since the view was swapped.
    is_news: bool,
}

impl WriteState {
    pub(crate) fn new(committed: u64) -> Self {
        Self {
            hot: MemtableSet::default(),
            files: Default::default(),
            committed,
            version: 0,
            sealed_changes: 0,
            partial: PartialReason::default(),
            debt: 0,
            is_news: false,
        }
    }

    /// Puts a segment, in the place of its earlier version if there is one.
    pub(crate) fn put_file(&mut self, segment: Arc<DataFileHandle>) {
        self.is_news = true;
        self.sealed_changes += u64::from(segment.sealed);
        let files = Arc::make_mut(&mut self.files[table_index(segment.table)]);
        match files.binary_search_by_key(&segment.key(), |other| other.key()) {
            Ok(at) => files[at] = segment,
            Err(at) => files.insert(at, segment),
        }
    }

    /// The files of a partition, the youngest last.
    pub(crate) fn files_of(&self, (table, partition): PartitionKey) -> &[Arc<DataFileHandle>] {
        let files = &self.files[table_index(table)];
        let first = files.partition_point(|file| file.key().0 < partition);
        let end = files.partition_point(|file| file.key().0 <= partition);
        files.get(first..end).unwrap_or_default()
    }

    pub(crate) fn file(&self, table: Table, key: (TimePartition, u32)) -> Option<&Arc<DataFileHandle>> {
        let files = &self.files[table_index(table)];
        let at = files.binary_search_by_key(&key, |other| other.key()).ok()?;
        files.get(at)
    }

    /// Takes a file out, if it is there.
    pub(crate) fn remove_file(&mut self, table: Table, key: (TimePartition, u32)) -> Option<Arc<DataFileHandle>> {
        let files = &mut self.files[table_index(table)];
        let at = files.binary_search_by_key(&key, |other| other.key()).ok()?;
        self.is_news = true;
        let removed = Arc::make_mut(files).remove(at);
        self.sealed_changes += u64::from(removed.sealed);
        Some(removed)
    }

    /// Every row with a lower LSN is in a file, or not to be stored, once what is frozen now is recorded.
    fn low_water(&self) -> u64 {
        self.hot.first_fresh_lsn().unwrap_or(self.committed + 1)
    }
}

/// How many units of room a weight takes.
pub(crate) fn units(weight: u64) -> u32 {
    u32::try_from(weight.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX)
}

impl EngineCore {
    /// The time since the store was opened, by the monotonic clock.
    pub(crate) fn uptime(&self) -> Duration {
        let uptime = self.time.opened.elapsed();
        #[cfg(test)]
        let uptime = uptime + Duration::from_secs(self.time.skew.load(Ordering::Relaxed));
        uptime
    }

    /// All the room there is.
    pub(crate) fn total_room(settings: &Settings) -> u32 {
        units(settings.hot_max.get()).min(u32::MAX >> 1)
    }

    /// Whether so much waits to be flushed that background work must yield.
    pub(crate) fn haste(&self) -> IoPriority {
        if self.rows.state.lock().hot.weight() < self.settings.hot_max.get() / 4 {
            IoPriority::No
        } else {
            IoPriority::Yes
        }
    }

    /// How a file of a place is begun now.
    pub(crate) fn file_form(&self, place: PartitionKey) -> FileTemplate {
        let (_, _, spec) = place.1.parts();
        spec.map_or_else(FileTemplate::default, |spec| self.store.templates.load().of(spec))
    }

    /// The log may let go of every frame with a lower LSN once what is frozen now is recorded.
    pub(crate) fn low_water(&self, state: &WriteState) -> u64 {
        let exported = self.export.get().map(|export| export.cursors.low_water());
        state.low_water().min(exported.unwrap_or(self.unexported_from))
    }

    /// Whether rows of a table are kept beyond the log.
    pub(crate) const fn is_stored(&self, table: Table) -> bool {
        !(matches!(self.settings.export, ExportMode::Only) && table.is_telemetry())
    }

    /// Rows of a table that have a higher LSN than this are not kept beyond the log.
    pub(crate) fn stored_through(&self, table: Table) -> u64 {
        if self.is_stored(table) {
            return u64::MAX;
        }
        let export = self.export.get();
        let unstored_from = export.map_or(self.unstored_from, |export| export.cursors.unstored_from());
        unstored_from.saturating_sub(1)
    }

    /// How batches are placed now.
    pub(crate) const fn rule(&self) -> PartitionRule {
        PartitionRule {
            by: self.settings.partition_by,
            max_age: self.settings.max_age.as_secs(),
        }
    }

    /// Inserts the rows of a durable batch into the memtable. The caller swaps the snapshot. `taken` is the room its append took.
    pub(crate) fn insert(
        state: &mut WriteState,
        table: Table,
        pieces: Vec<(PartitionKey, Arc<HotBatch>, u64)>,
        lsn: u64,
        origin: &BatchOrigin,
        taken: u32,
    ) {
        let mut needed = 0;
        for (place, rows, weight) in pieces {
            debug_assert_eq!(place.0, table);
            needed += u64::from(units(weight));
            state.hot.insert(place, rows, weight, lsn, origin);
        }
        state.debt += needed.saturating_sub(u64::from(taken));
        state.committed = state.committed.max(lsn);
    }

    /// Returns the memory of rows that were flushed.
    pub(crate) fn return_room(&self, state: &mut WriteState, units: u64) {
        let paid = state.debt.min(units);
        state.debt -= paid;
        let free = usize::try_from(units - paid).unwrap_or(0);
        if free > 0 {
            self.admission.room.add_permits(free);
        }
    }

    /// Takes the room for rows that were there before anybody asked for room.
    pub(crate) fn settle_debt(&self, state: &mut WriteState) {
        let wanted = usize::try_from(state.debt).unwrap_or(usize::MAX);
        let taken = self.admission.room.forget_permits(wanted) as u64;
        state.debt -= taken;
    }

    /// Shows the present state to queries; `tables` are those whose hot rows changed.
    pub(crate) fn publish_snapshot(&self, state: &mut WriteState, tables: impl IntoIterator<Item = Table>) {
        state.version += 1;
        let mut hot = self.rows.view.load().hot.clone();
        for table in tables {
            hot[table_index(table)] = Arc::new(state.hot.list(table));
        }
        self.rows.view.store(Arc::new(StoreSnapshot {
            version: state.version,
            sealed_changes: state.sealed_changes,
            hot,
            files: state.files.clone(),
            partial: state.partial.text(),
        }));
        if std::mem::take(&mut state.is_news) {
            self.indexes.request_pass();
        }
    }

    /// The segment that a catalogue entry describes.
    pub(crate) fn segment(&self, entry: &FileEntry, lineage: &Arc<FileLineage>) -> Arc<DataFileHandle> {
        Arc::new(DataFileHandle::new(
            entry,
            &self.store.file_context,
            Arc::clone(lineage),
        ))
    }

    /// The files of the view that the object store has.
    pub(crate) fn uploaded_files(&self) -> Vec<UploadedFile> {
        let state = self.rows.state.lock();
        let files = state.files.iter().flat_map(|files| files.iter());
        files
            .filter(|file| file.is_uploaded())
            // One holder is the list itself.
            .map(|file| UploadedFile {
                id: file.id,
                path: file.path.clone(),
                is_held: Arc::strong_count(file) > 1,
            })
            .collect()
    }

    /// Nothing more is accepted; everything that waits is answered. Only the first reason counts.
    pub(crate) fn poison(&self, reason: &str) -> Arc<str> {
        let mut first: Arc<str> = reason.into();
        self.status.poison.send_if_modified(|poison| {
            if let Some(earlier) = poison {
                first = Arc::clone(earlier);
                return false;
            }
            tracing::error!(reason, "the store accepts no more rows until the process has restarted");
            *poison = Some(Arc::clone(&first));
            true
        });
        self.admission.room.close();
        self.admission.queue.abandon();
        self.scheduler.wake();
        first
    }

    pub(crate) fn poisoned(&self) -> Option<Arc<str>> {
        self.status.poison.borrow().clone()
    }

    /// Why appends are refused once they are.
    pub(crate) fn refusal(&self) -> Error {
        self.poisoned()
            .map_or(Error::Closed, |reason| Error::Poisoned { reason })
    }

    pub(crate) fn log_is_full(&self) -> bool {
        self.admission.log_is_full.load(Ordering::Relaxed)
    }
}

/// Poisons the store if the thread that holds it ends by a panic: nobody may wait for it for ever.
#[derive(Debug)]
pub(crate) struct PoisonGuard(pub(crate) Arc<EngineCore>);

impl Drop for PoisonGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
            self.0.poison(&format!("the thread {name} panicked"));
            self.0.scheduler.mark_stopped();
        }
    }
}
