//! Recovery: opening a store restores the state that an earlier process had acknowledged.
//!
//! ```text
//! lock ─> store id ─> catalogue ─> live files checked, open ones taken up ─> the tree's unknown files judged
//!      ─> staging emptied ─> new catalogue generation ─> log rewritten, replayed, and published where it is long ─> threads
//! ```
//!
//! # Invariants
//!
//! - Each step may be interrupted and repeated.
//! - A frame's rows become hot only where their partition's files do not have them yet.
//! - What is missing or damaged is reported, kept, and makes views partial; it is never dropped in silence.

mod file_reconciliation;
mod replay;
mod tree_scan;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use arc_swap::ArcSwap;
use model::{Clock, Entropy, Table, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::append_queue::AppendQueue;
use crate::data_file_handle::{DataFileContext, FooterCache};
use crate::datafile::OpenDataFile;
use crate::dedup::DedupWatermarks;
use crate::disk_space::{DiskSpace, drop_ballast};
#[cfg(test)]
use crate::engine_core::TestHooks;
use crate::engine_core::{AppendAdmission, EngineCore, EngineStatus, EngineTime, StoreFiles, VisibleRows, WriteState};
use crate::export_cursors::{ExportCursors, ExportPositions, LogExport};
use crate::file_templates::FileTemplates;
use crate::flush_scheduler::FlushScheduler;
use crate::flusher::MemtableFlusher;
use crate::group_commit::GroupCommitter;
use crate::inbound_memory::InboundShares;
use crate::index::IndexQueue;
use crate::layout::StoreLayout;
use crate::live_tail::TailBuffers;
use crate::manifest::{self, FileEntry, FileLineage, LoadedManifest, StoreManifest, store_id};
use crate::memtable::{OriginRanges, PartitionKey};
use crate::object_storage::takeover::{self, RemoteConnection, RemoteLink};
use crate::open_file_cache::no_files;
use crate::open_partition::OpenPartition;
use crate::snapshot::StoreSnapshot;
use crate::stats::EngineCounters;
use crate::store_tree::{check_not_lost, lock_store};
use crate::wal::{MAX_FRAME, WalOptions, WriteAheadLog};
use crate::{Error, ExportMode, Settings};
pub(crate) use file_reconciliation::describe;
use file_reconciliation::{
    RecoveryFindings, check_files, empty_staging, reconcile_unknown_files, remove_unknown_files,
};
use tree_scan::TreeScan;

/// Memory for footers of data files.
const FOOTER_BYTES: usize = 64 << 20;
/// The size of a log segment, unless the log is small.
const LOG_SEGMENT: u64 = 64 << 20;

/// A store that is ready for its threads.
#[derive(Debug)]
pub(crate) struct RecoveredStore {
    pub(crate) shared: Arc<EngineCore>,
    pub(crate) committer: GroupCommitter,
    pub(crate) publisher: MemtableFlusher,
    pub(crate) connected: Option<RemoteConnection>,
}

/// Opens the store.
pub(crate) fn open(settings: Settings, clock: Clock, entropy: &Entropy) -> Result<RecoveredStore, Error> {
    settings.check()?;
    let settings = settings.of_mode();
    let layout = StoreLayout::new(&settings);
    layout.create_folders()?;
    let locks = lock_store(&layout, &settings)?;
    drop_ballast(&layout)?;
    check_one_file_system(&layout)?;
    let now = clock.now();
    let fresh = || {
        let millis = u64::try_from(now.micros().div_euclid(1_000)).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &entropy.bytes()).into_uuid()
    };
    let remote = settings.remote.as_ref();
    let mut connected = remote
        .map(|remote| takeover::connect(remote, &layout, entropy))
        .transpose()?;
    let is_reader = connected.as_ref().is_some_and(|connected| connected.link.is_reader());
    let (mut found, tree) = match &mut connected {
        None => open_local(&layout, fresh)?,
        Some(connected) => {
            let found = if is_reader {
                takeover::become_reader(&layout, connected)?
            } else {
                takeover::become_writer(&layout, connected, now, fresh)?
            };
            (found, TreeScan::survey(&layout)?)
        }
    };
    let mut findings = RecoveryFindings::default();
    let ground = (&layout, &settings);
    // What is on its way there counts for nothing: open files are put together there anew.
    empty_staging(&layout)?;
    check_files(ground, &tree, &mut found, &mut findings, connected.as_ref())?;
    if is_reader {
        remove_unknown_files(&layout, &tree, &found)?;
    } else {
        reconcile_unknown_files(ground, &tree, &mut found, &mut findings)?;
    }
    drop(tree);
    if let Some(connected) = &connected {
        takeover::fill_cache(connected, &layout);
    }
    if found.torn > 0 {
        tracing::info!(bytes = found.torn, "cut an unfinished record from the catalogue's end");
    }
    let catalog = found.begin()?;
    let link = connected.as_ref().map(|connected| Arc::clone(&connected.link));
    let ground = RecoveryInputs {
        settings,
        clock,
        layout,
        locks,
        link,
    };
    let mut opened = replay(ground, catalog, findings)?;
    opened.connected = connected;
    Ok(opened)
}

/// The catalogue of a store without an object store, and what lies in its trees, looked up meanwhile.
fn open_local(layout: &StoreLayout, fresh: impl FnOnce() -> Uuid) -> Result<(LoadedManifest, TreeScan), Error> {
    std::thread::scope(|threads| {
        let survey = std::thread::Builder::new().name("engine-survey".to_owned());
        let survey = survey
            .spawn_scoped(threads, || TreeScan::survey(layout))
            .map_err(Error::io("start a thread for", &layout.meta))?;
        let found = read_catalogue(layout, fresh);
        let tree = join_thread(survey);
        Ok((found?, tree?))
    })
}

fn read_catalogue(layout: &StoreLayout, fresh: impl FnOnce() -> Uuid) -> Result<LoadedManifest, Error> {
    if !manifest::has_manifest(&layout.meta)? {
        check_not_lost(layout)?;
    }
    let store = store_id(&layout.meta, fresh).map_err(Error::of_catalogue)?;
    let found = StoreManifest::read(&layout.meta, store).map_err(Error::of_catalogue)?;
    if !found.has_begun() {
        check_not_lost(layout)?;
    }
    if found.state.attached {
        return Err(Error::needs_url());
    }
    Ok(found)
}

/// What a thread returned; its panic goes on here.
fn join_thread<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a store is opened with.
struct RecoveryInputs {
    settings: Settings,
    clock: Clock,
    layout: StoreLayout,
    locks: Vec<durable_fs::FileLock>,
    link: Option<Arc<RemoteLink>>,
}

/// What an earlier run's export asks of the log, as LSNs; `u64::MAX` for nothing.
struct LogKeeping {
    /// From here on something is not exported.
    unexported_from: u64,
    /// From here on telemetry was not kept elsewhere.
    unstored_from: u64,
}

fn check_one_file_system(layout: &StoreLayout) -> Result<(), Error> {
    let device = |dir: &Path| {
        std::fs::metadata(dir)
            .map(|meta| meta.dev())
            .map_err(Error::io("read", dir))
    };
    for (key, tree, staging) in [
        ("data_dir", &layout.data, &layout.data_staging),
        ("messages_dir", &layout.messages, &layout.messages_staging),
    ] {
        if device(staging)? != device(tree)? {
            return Err(Error::Setting {
                key,
                value: tree.display().to_string(),
                reason: format!(
                    "files are staged in {}, which must be on the same file system: put {key} one folder below the mount point",
                    staging.display()
                ),
            });
        }
    }
    Ok(())
}

/// The log's frames on their way into a store that has its files.
fn replay(
    ground: RecoveryInputs,
    catalog: StoreManifest,
    mut findings: RecoveryFindings,
) -> Result<RecoveredStore, Error> {
    let RecoveryInputs { settings, layout, .. } = &ground;
    let (store, low_water) = (catalog.state().store, catalog.state().low_water);
    let exported = ExportPositions::read(&layout.meta, store, low_water)?;
    // What an export left that is switched off is stored from here on, as far as it was not: then nothing waits for it.
    let exporting = exported.filter(|_| settings.export != ExportMode::Off);
    let kept_from = LogKeeping {
        unexported_from: exporting.map_or(u64::MAX, |exported| exported.low_water()),
        unstored_from: exporting.map_or(u64::MAX, |exported| exported.unstored_from),
    };
    let options = WalOptions {
        store: catalog.state().store,
        // Replay holds one segment at a time.
        segment_bytes: LOG_SEGMENT
            .min(settings.wal_max.get() / 8)
            .min(settings.group_max.get().max(LOG_SEGMENT / 16)),
        max_bytes: settings.wal_max.get(),
        low_water: catalog.state().low_water,
        replay_from: catalog.state().replay_from().min(kept_from.unexported_from),
        quarantine: layout.quarantine.clone(),
        recall: settings.tail_max.get(),
    };
    // No LSN that was exported is given to another batch.
    let known = (catalog.state().highest_through() + 1)
        .max(low_water)
        .max(exported.map_or(0, |exported| exported.highest()));
    let largest_frame = MAX_FRAME.min(options.max_group_bytes());
    let (shared, mut publisher) = assemble(ground, catalog, &mut findings, largest_frame, &kept_from);
    let (wal, recovered) = replay::run(&shared, &mut publisher, &mut findings, exported, |sink| {
        WriteAheadLog::open(&shared.store.layout.wal, options, sink)
    })?;
    findings.report_given_up();
    clear_lost_replays(&shared);
    mark_exported(&shared, &mut publisher, &findings.exported)?;
    for damage in &recovered.damage {
        findings.quarantined += u64::from(damage.kept.is_some());
        findings.report(match &damage.missing {
            Some(lost) => format!(
                "{damage}; acknowledged batches {} to {} are lost",
                lost.start(),
                lost.end()
            ),
            None => damage.to_string(),
        });
    }
    shared.counters.torn_bytes.set(recovered.torn_bytes);
    shared.counters.wal_bytes.set(wal.used_bytes());
    #[cfg(test)]
    shared.hooks.fail_log_syncs.is(wal.failing_syncs());
    let next_lsn = recovered.next_lsn.max(known);
    let lost = recovered.damage.iter().filter_map(|damage| damage.missing.clone());
    begin_export(&shared, exported, (wal.tail(), next_lsn), lost.collect())?;
    finish(&shared, next_lsn, &findings);
    Ok(RecoveredStore {
        committer: GroupCommitter::new(Arc::clone(&shared), wal, next_lsn),
        publisher,
        shared,
        connected: None,
    })
}

/// Telemetry is kept here again: the catalogue learns what of the log is with the collector alone, before the export's positions
/// forget it. Otherwise the next start would store that, too.
fn mark_exported(
    shared: &EngineCore,
    publisher: &mut MemtableFlusher,
    places: &BTreeSet<PartitionKey>,
) -> Result<(), Error> {
    if places.is_empty() {
        return Ok(());
    }
    // A mark counts for every row below it, so those that are kept are in files first.
    publisher.flush_all()?;
    let through = shared.rows.state.lock().committed;
    let mut catalog = shared.store.catalog.lock();
    catalog.commit_with(|record| record.through = places.iter().map(|place| (*place, through)).collect())
}

/// From here on the log keeps what is not exported.
fn begin_export(
    shared: &EngineCore,
    found: Option<ExportPositions>,
    opened: (u64, u64),
    lost: Vec<RangeInclusive<u64>>,
) -> Result<(), Error> {
    let (meta, mode) = (&shared.store.layout.meta, shared.settings.export);
    if let Some(cursors) = ExportCursors::begin(meta, shared.store.id, mode, found, opened.1)? {
        let durable = watch::Sender::new(opened.1.saturating_sub(1));
        let export = LogExport {
            cursors,
            durable,
            opened,
            lost,
        };
        // Nobody else sets it.
        let _ = shared.export.set(export);
    }
    Ok(())
}

/// Rows of damaged files that were not in the log are not asked for at the next start.
fn clear_lost_replays(shared: &EngineCore) {
    let mut catalog = shared.store.catalog.lock();
    let state = shared.rows.state.lock();
    let wanted = catalog.state().replay().iter();
    let lost: Vec<_> = wanted
        .filter(|(place, _)| !state.hot.has(**place))
        .map(|(place, (_, end))| (*place, *end))
        .collect();
    drop(state);
    if lost.is_empty() {
        return;
    }
    if let Err(error) = catalog.commit_with(|record| record.through = lost) {
        tracing::warn!(%error, "the next start looks again for rows of damaged files that the log lacks");
    }
}

/// The store is what it was: shows it.
fn finish(shared: &EngineCore, next_lsn: u64, findings: &RecoveryFindings) {
    shared.counters.quarantined_files.set(findings.quarantined);
    let mut state = shared.rows.state.lock();
    state.committed = next_lsn.saturating_sub(1);
    state.partial = findings.reports.iter().collect();
    shared.rows.tails.begin(next_lsn);
    shared.settle_debt(&mut state);
    shared.publish_snapshot(&mut state, Table::ALL);
    if state.hot.weight() >= shared.settings.hot_max.get() / 2 {
        shared.scheduler.request_flush();
    }
}

/// The store with its files and without hot rows.
fn assemble(
    ground: RecoveryInputs,
    catalog: StoreManifest,
    findings: &mut RecoveryFindings,
    largest_frame: u64,
    kept_from: &LogKeeping,
) -> (Arc<EngineCore>, MemtableFlusher) {
    let RecoveryInputs {
        settings,
        clock,
        layout,
        locks,
        link,
    } = ground;
    let room = EngineCore::total_room(&settings);
    // Every frame below has its rows in files.
    let committed = catalog.state().replay_from().saturating_sub(1);
    let marks = DedupWatermarks::from(catalog.state().watermarks.all());
    let shared = Arc::new_cyclic(|me: &Weak<EngineCore>| EngineCore {
        time: EngineTime {
            clock,
            opened: Instant::now(),
            #[cfg(test)]
            skew: 0.into(),
        },
        store: StoreFiles {
            id: catalog.state().store,
            file_context: Arc::new(DataFileContext {
                layout: layout.clone(),
                footers: FooterCache::new(FOOTER_BYTES),
                files: no_files(),
                cache: link.as_ref().map(|link| Arc::clone(&link.cache)),
                owner: Weak::<EngineCore>::clone(me),
            }),
            catalog: Mutex::new(catalog),
            templates: ArcSwap::from_pointee(FileTemplates::from(&settings.specs)),
            locks: Mutex::new(locks),
            layout: layout.clone(),
        },
        indexes: Arc::new(IndexQueue::new(
            settings.index_memory.get().try_into().unwrap_or(usize::MAX),
        )),
        counters: EngineCounters::default(),
        rows: VisibleRows {
            view: ArcSwap::from_pointee(StoreSnapshot::default()),
            state: Mutex::new(WriteState::new(committed)),
            tails: TailBuffers::new(settings.tail_max.get()),
        },
        watermarks: Mutex::new(marks),
        admission: AppendAdmission {
            queue: AppendQueue::default(),
            room: Arc::new(Semaphore::new(room as usize)),
            inbound: InboundShares::new(settings.inbound_max.get()),
            largest_frame,
            log_is_full: false.into(),
            space: DiskSpace::new(&layout, settings.min_free.map(model::ByteSize::get)),
        },
        scheduler: FlushScheduler::default(),
        status: EngineStatus {
            publishing: Mutex::default(),
            poison: watch::Sender::new(None),
            rotation: Mutex::default(),
        },
        remote: link,
        export: OnceLock::new(),
        unexported_from: kept_from.unexported_from,
        unstored_from: kept_from.unstored_from,
        #[cfg(test)]
        hooks: TestHooks::default(),
        settings,
    });
    let slots = slots(&shared, std::mem::take(&mut findings.open));
    {
        let catalog = shared.store.catalog.lock();
        let mut state = shared.rows.state.lock();
        let files = catalog.state().files();
        for entry in files.filter(|entry| !findings.unreadable.contains(&entry.id)) {
            let slot = slots.iter().find(|slot| slot.segment.identity().segment == entry.id);
            let lineage = slot.map(|slot| Arc::clone(&slot.lineage));
            let lineage = lineage.unwrap_or_else(|| FileLineage::of_sealed(&shared.store.layout, entry));
            state.put_file(shared.segment(entry, &lineage));
        }
    }
    let publisher = MemtableFlusher::new(Arc::clone(&shared), slots);
    (shared, publisher)
}

fn slots(shared: &EngineCore, open: Vec<(FileEntry, OpenDataFile)>) -> Vec<OpenPartition> {
    let slot = |(entry, segment): (FileEntry, OpenDataFile)| OpenPartition {
        place: entry.place(),
        named: entry.named(),
        version: entry.version,
        first: entry.first,
        origins: segment.published().map_or_else(OriginRanges::default, |published| {
            OriginRanges::from_text(&published.facts.origins)
        }),
        lineage: Arc::new(FileLineage::new(shared.store.layout.retired(entry.table, entry.id))),
        published: Timestamp::from_micros(entry.published),
        waited: 0,
        touched: false,
        idle: 0,
        segment,
    };
    open.into_iter().map(slot).collect()
}
