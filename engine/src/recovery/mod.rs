//! Opening a store: what an earlier process left becomes the state that it had acknowledged.
//!
//! ```text
//! lock ─> store id ─> catalogue ─> live files checked, open ones taken up ─> the tree's unknown files judged
//!      ─> staging emptied ─> new catalogue generation ─> log rewritten ─> frames replayed into hot rows ─> threads
//! ```
//!
//! # Invariants
//!
//! - Each step may be interrupted and repeated.
//! - A frame's rows become hot only where their partition's files do not have them yet.
//! - What is missing or damaged is reported, kept, and makes views partial; it is never dropped in silence.

mod files;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use model::wire::{DecodeError, decode_arrow};
use model::{Clock, Entropy, Table, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::catalog::{Catalog, FileEntry, Footers, Found, Lineage, Lock, known_store_id, store_id};
use crate::committer::Committer;
use crate::hot::{OriginRanges, weight};
use crate::journal::Key;
use crate::layout::Layout;
use crate::publisher::Publisher;
use crate::remote::attach::{self, Connected, Link};
use crate::segment::{OpenSegment, inspect};
use crate::shared::{Shared, State};
use crate::slot::Slot;
use crate::space::{Space, drop_ballast};
use crate::stats::Counters;
use crate::view::Snapshot;
use crate::wal::{self, Frame, MAX_FRAME, Wal, WalOptions};
use crate::watermark::Watermarks;
use crate::{Error, Settings, origin, place, sys};
use files::{Findings, check_files, empty_staging, judge_unknown_files, remove_unknown_files};
pub(crate) use files::{data_files, describe};

/// Memory for footers of data files.
const FOOTER_BYTES: usize = 64 << 20;
/// The size of a log segment, unless the log is small.
const LOG_SEGMENT: u64 = 64 << 20;

/// A store that is ready for its threads.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) committer: Committer,
    pub(crate) publisher: Publisher,
    pub(crate) connected: Option<Connected>,
}

/// Opens the store.
pub(crate) fn open(settings: Settings, clock: Clock, entropy: &Entropy) -> Result<Opened, Error> {
    settings.check()?;
    let settings = settings.of_mode();
    let layout = Layout::new(&settings);
    let dirs = [
        &layout.data,
        &layout.messages,
        &layout.meta,
        &layout.wal,
        &layout.quarantine,
    ];
    for dir in dirs.into_iter().chain(layout.staging_folders()) {
        sys::create_dirs(dir)?;
    }
    let locks = lock(&layout, &settings)?;
    drop_ballast(&layout)?;
    check_one_file_system(&layout)?;
    let now = clock.now();
    let fresh = || {
        let millis = u64::try_from(now.micros().div_euclid(1_000)).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &entropy.bytes()).into_uuid()
    };
    let remote = settings.remote.as_ref();
    let mut connected = remote
        .map(|remote| attach::connect(remote, &layout, entropy))
        .transpose()?;
    let is_reader = connected.as_ref().is_some_and(|connected| connected.link.is_reader());
    let mut found = match &mut connected {
        None => alone(&layout, fresh)?,
        Some(connected) if is_reader => attach::become_reader(&layout, connected)?,
        Some(connected) => attach::become_writer(&layout, connected, now, fresh)?,
    };
    let mut findings = Findings::default();
    check_files(&layout, &settings, &mut found, &mut findings, |id| {
        connected
            .as_ref()
            .is_some_and(|connected| connected.chain.state().files.contains_key(&id))
    })?;
    if is_reader {
        remove_unknown_files(&layout, &found)?;
    } else {
        judge_unknown_files(&layout, &settings, &mut found, &mut findings)?;
    }
    empty_staging(&layout)?;
    if let Some(connected) = &connected {
        attach::fill_cache(connected, &layout);
    }
    if found.torn > 0 {
        tracing::info!(bytes = found.torn, "cut an unfinished record from the catalogue's end");
    }
    let catalog = found.begin()?;
    let link = connected.as_ref().map(|connected| Arc::clone(&connected.link));
    let ground = Ground {
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

/// The catalogue of a store without an object store.
fn alone(layout: &Layout, fresh: impl FnOnce() -> Uuid) -> Result<Found, Error> {
    if !Catalog::is_there(&layout.meta)? {
        check_not_lost(layout)?;
    }
    let store = store_id(&layout.meta, fresh).map_err(Error::of_catalogue)?;
    let found = Catalog::read(&layout.meta, store).map_err(Error::of_catalogue)?;
    if !found.has_begun() {
        check_not_lost(layout)?;
    }
    if found.state.attached {
        return Err(Error::needs_url());
    }
    Ok(found)
}

/// What a store is opened with.
struct Ground {
    settings: Settings,
    clock: Clock,
    layout: Layout,
    locks: Vec<Lock>,
    link: Option<Arc<Link>>,
}

/// Takes the store and its tree for this process.
pub(crate) fn lock(layout: &Layout, settings: &Settings) -> Result<Vec<Lock>, Error> {
    let mut locks = vec![
        Lock::take(&layout.meta, &settings.store_dir)?,
        Lock::take(&layout.data_staging, &settings.data_dir)?,
    ];
    if layout.messages_staging != layout.data_staging {
        locks.push(Lock::take(&layout.messages_staging, &settings.messages_dir)?);
    }
    Ok(locks)
}

/// Refuses a store whose catalogue is gone: it must not begin anew beside its data, and forget what it had stored.
pub(crate) fn check_not_lost(layout: &Layout) -> Result<(), Error> {
    let id = || known_store_id(&layout.meta).map_err(Error::of_catalogue);
    let beside = if wal::is_there(&layout.wal)? {
        "a log"
    } else if id()?.is_some_and(|id| has_data(layout, id)) {
        "data files"
    } else {
        return Ok(());
    };
    Err(Error::Catalogue {
        path: layout.meta.clone(),
        reason: format!("it has no checkpoint, beside {beside}"),
    })
}

fn has_data(layout: &Layout, store: Uuid) -> bool {
    let files = Table::ALL
        .iter()
        .filter_map(|table| data_files(&layout.folder(*table)).ok());
    let mut files = files.flatten();
    files.any(|path| inspect(&path).is_ok_and(|about| about.identity.store == store))
}

fn check_one_file_system(layout: &Layout) -> Result<(), Error> {
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

fn replay(ground: Ground, catalog: Catalog, mut findings: Findings) -> Result<Opened, Error> {
    let Ground { settings, layout, .. } = &ground;
    let options = WalOptions {
        store: catalog.state().store,
        // Replay holds one segment at a time.
        segment_bytes: LOG_SEGMENT
            .min(settings.wal_max.get() / 8)
            .min(settings.group_max.get().max(LOG_SEGMENT / 16)),
        max_bytes: settings.wal_max.get(),
        low_water: catalog.state().low_water,
        quarantine: layout.quarantine.clone(),
    };
    let (wal, recovered) = Wal::open(&layout.wal, options)?;
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
    let next_lsn = recovered
        .next_lsn
        .max(catalog.state().highest_through() + 1)
        .max(catalog.state().low_water);
    let counters = Counters::default();
    counters.torn_bytes.set(recovered.torn_bytes);
    counters.wal_bytes.set(wal.used_bytes());
    let mut marks = Watermarks::default();
    marks.join(&catalog.state().marks.all());
    let mut opened = assemble(
        ground,
        Parts {
            catalog,
            wal,
            next_lsn,
            marks,
            counters,
            open: std::mem::take(&mut findings.open),
            unreadable: std::mem::take(&mut findings.unreadable),
        },
    );
    replay_frames(&mut opened, recovered.frames, &mut findings)?;
    finish(&opened, next_lsn, &findings);
    Ok(opened)
}

/// Makes the frames' rows hot. Where they are more than memory is for, those so far are published first.
fn replay_frames(opened: &mut Opened, frames: wal::Replay, findings: &mut Findings) -> Result<(), Error> {
    let shared = Arc::clone(&opened.shared);
    let cap = shared.settings.hot_max.get();
    // Where the disk refuses, rows beyond the cap are better than no start: it is tried again a quarter of the cap later.
    let mut limit = cap;
    for frame in frames {
        let frame = frame?;
        match insert_frame(&shared, &frame) {
            Ok(rows) => shared.counters.replayed_rows.add(rows),
            Err(reason) => keep_frame(&shared.layout, &frame, &reason, findings)?,
        }
        let weight = shared.state.lock().hot.weight();
        if weight >= limit {
            match opened.publisher.publish_all() {
                Ok(()) => limit = cap,
                Err(error) if error.is_in_doubt() => return Err(error),
                Err(_) => limit = weight.saturating_add(cap / 4),
            }
        }
    }
    Ok(())
}

/// The store is what it was: shows it.
fn finish(opened: &Opened, next_lsn: u64, findings: &Findings) {
    let shared = &opened.shared;
    shared.counters.quarantined.set(findings.quarantined);
    let mut state = shared.state.lock();
    state.committed = next_lsn.saturating_sub(1);
    state.partial = findings.partial();
    shared.settle_debt(&mut state);
    shared.show(&mut state, Table::ALL);
}

/// Makes hot what of a frame is in no file. Returns the rows; after an error nothing was inserted.
fn insert_frame(shared: &Shared, frame: &Frame) -> Result<u64, String> {
    // Whatever becomes of it, the log is read up to here.
    let through = |state: &mut State| state.committed = state.committed.max(frame.lsn);
    let table = Table::from_number(frame.table).ok_or_else(|| format!("it names table {}", frame.table));
    let placed = table.and_then(|table| {
        let (origin, rule) = origin::decode(&frame.origin)?;
        let placed = contained(|| {
            let rows = match decode_arrow(table, &frame.payload) {
                Ok(rows) => rows,
                Err(DecodeError::Empty) => Vec::new(),
                Err(error) => return Err(error.to_string()),
            };
            place::place(table, &rows, frame.arrived, rule).map_err(|error| error.to_string())
        })?;
        Ok((table, origin, placed))
    });
    let (table, origin, placed) = match placed {
        Ok(placed) => placed,
        Err(reason) => {
            through(&mut shared.state.lock());
            return Err(reason);
        }
    };
    shared.marks.lock().mark(&origin);
    let key = Key::of(&origin);
    let uploaded = |partition| shared.parts.has(key.as_ref(), (table, partition));
    let pieces = placed.pieces.into_iter();
    let pieces: Vec<_> = pieces.filter(|(partition, _)| !uploaded(*partition)).collect();
    shared.journal(
        frame.lsn,
        &origin,
        pieces.iter().map(|(partition, _)| (table, *partition)).collect(),
    );
    let missing: Vec<_> = {
        let catalog = shared.catalog.lock();
        let missing = pieces.into_iter().filter_map(|(partition, rows)| {
            let place = (table, partition);
            let weight = weight(&rows.batch);
            (catalog.state().through(place) < frame.lsn).then_some((place, rows, weight))
        });
        missing.collect()
    };
    let rows = missing.iter().map(|(_, rows, _)| rows.batch.num_rows() as u64).sum();
    Shared::insert(&mut shared.state.lock(), table, missing, frame.lsn, &origin, 0);
    Ok(rows)
}

/// What `decode` says; that it panicked, if it did. A batch that no decoder survives must not keep the store from opening.
pub(crate) fn contained<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!(
            "the decoder panicked: {}",
            said.unwrap_or("it did not say why")
        ))
    })
}

/// Keeps a frame that cannot be understood, durably: its rows count as stored, so the log is going to let go of it.
fn keep_frame(layout: &Layout, frame: &Frame, reason: &str, findings: &mut Findings) -> Result<(), Error> {
    let path = layout.quarantine.join(format!("batch_{:020}", frame.lsn));
    sys::write_durably(&path, &frame.payload)?;
    findings.quarantined += 1;
    let lsn = frame.lsn;
    findings.report(format!(
        "batch {lsn} of the log cannot be read: {reason}; it was put into {}",
        path.display()
    ));
    Ok(())
}

struct Parts {
    catalog: Catalog,
    wal: Wal,
    next_lsn: u64,
    marks: Watermarks,
    counters: Counters,
    open: Vec<(FileEntry, OpenSegment)>,
    /// Ids of files that cannot be read.
    unreadable: HashSet<u64>,
}

/// The store with its files and without hot rows.
fn assemble(ground: Ground, parts: Parts) -> Opened {
    let Ground {
        settings,
        clock,
        layout,
        locks,
        link,
    } = ground;
    let inherited = parts.catalog.state().parts.clone();
    let room = Shared::total_room(&settings);
    let files: Vec<FileEntry> = parts.catalog.state().files().cloned().collect();
    // Every frame below the low water has its rows in files.
    let committed = parts.catalog.state().low_water.saturating_sub(1);
    let shared = Arc::new_cyclic(|me| Shared {
        me: std::sync::Weak::clone(me),
        store: parts.catalog.state().store,
        footers: Arc::new(Footers::new(FOOTER_BYTES)),
        counters: parts.counters,
        view: ArcSwap::from_pointee(Snapshot::default()),
        marks: Mutex::new(parts.marks),
        catalog: Mutex::new(parts.catalog),
        intake: crate::intake::Intake::default(),
        desk: crate::desk::Desk::default(),
        room: Arc::new(Semaphore::new(room as usize)),
        largest_frame: MAX_FRAME.min(parts.wal.max_group_bytes()),
        log_is_full: false.into(),
        space: Space::new(&layout, settings.min_free.map(model::ByteSize::get)),
        publishing: Mutex::default(),
        poison: watch::Sender::new(None),
        locks: Mutex::new(locks),
        state: Mutex::new(State::new(committed, None)),
        rotation: Mutex::default(),
        remote: link,
        fresh: Mutex::default(),
        parts: inherited,
        recovered: parts.next_lsn.saturating_sub(1),
        opened: std::time::Instant::now(),
        #[cfg(test)]
        skew: 0.into(),
        #[cfg(test)]
        fail_log_syncs: crate::shared::FailLogSyncs(Box::new(parts.wal.failing_syncs())),
        settings,
        clock,
        layout,
    });
    let slots = slots(&shared, parts.open);
    {
        let mut state = shared.state.lock();
        for entry in files.iter().filter(|entry| !parts.unreadable.contains(&entry.id)) {
            let lineage = slots.iter().find(|slot| slot.segment.identity().segment == entry.id);
            let lineage = lineage.map_or_else(
                || {
                    Arc::new(Lineage::new(
                        shared.layout.retired(entry.table, entry.id).with_extension("sealed"),
                    ))
                },
                |slot| Arc::clone(&slot.lineage),
            );
            state.put_file(shared.segment(entry, &lineage));
        }
    }
    Opened {
        committer: Committer::new(Arc::clone(&shared), parts.wal, parts.next_lsn),
        publisher: Publisher::new(Arc::clone(&shared), slots),
        shared,
        connected: None,
    }
}

fn slots(shared: &Shared, open: Vec<(FileEntry, OpenSegment)>) -> Vec<Slot> {
    let slot = |(entry, segment): (FileEntry, OpenSegment)| Slot {
        place: entry.place(),
        number: entry.number,
        version: entry.version,
        first: entry.first,
        origins: segment.published().map_or_else(OriginRanges::default, |published| {
            OriginRanges::from_text(&published.facts.origins)
        }),
        lineage: Arc::new(Lineage::new(shared.layout.retired(entry.table, entry.id))),
        published: Timestamp::from_micros(entry.published),
        waited: 0,
        touched: false,
        touched_at: Instant::now(),
        idle: 0,
        segment,
    };
    open.into_iter().map(slot).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_decoder_that_panics_is_a_batch_that_cannot_be_read() {
        let batch: &[u8] = &[];
        let beyond = batch.len();
        let died = contained(|| Ok(batch[beyond])).unwrap_err();
        assert!(died.contains("panicked") && died.contains("index"), "{died}");
        assert_eq!(contained(|| Ok(7)), Ok(7));
    }
}
