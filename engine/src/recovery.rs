//! Opening a store: what an earlier process left becomes the state that it had acknowledged.
//!
//! ```text
//! lock ─> store id ─> catalogue ─> live files checked, open ones taken up ─> the tree's unknown files judged
//!      ─> staging emptied ─> new catalogue generation ─> log rewritten ─> frames replayed into hot rows ─> threads
//! ```
//!
//! # Files in the tree that the catalogue does not know
//!
//! | it is | then |
//! |---|---|
//! | ours, with rows that the catalogue misses and the log still has | its record was lost in the crash: adopted |
//! | ours, under a number that was given out | it was removed, only its unlinking was lost: unlinked |
//! | ours otherwise | put into quarantine, reported |
//! | not ours | left alone, reported; its number is not used |
//!
//! # Invariants
//!
//! - Each step may be interrupted and repeated.
//! - A frame's rows become hot only where their partition's files do not have them yet.
//! - What is missing or damaged is reported, kept, and makes views partial; it is never dropped in silence.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::wire::{DecodeError, decode_arrow};
use model::{Clock, Entropy, Table, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use crate::catalog::{Catalog, FileEntry, Footers, Found, Lineage, Lock, store_id};
use crate::committer::Committer;
use crate::hot::{OriginRanges, weight};
use crate::layout::{Layout, parse};
use crate::publisher::{Publisher, Slot, write_options};
use crate::segment::{Identity, OpenSegment, Recorded, Resumed, Sealed, inspect, resume};
use crate::shared::{Shared, State};
use crate::stats::Counters;
use crate::view::Snapshot;
use crate::wal::{Frame, MAX_FRAME, Wal, WalOptions};
use crate::watermark::Watermarks;
use crate::{Error, Settings, origin, place, sys};

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
}

/// What recovery finds on its way.
#[derive(Debug, Default)]
struct Findings {
    open: Vec<(FileEntry, OpenSegment)>,
    /// Ids of files that cannot be read.
    unreadable: HashSet<u64>,
    reports: Vec<String>,
    quarantined: u64,
}

impl Findings {
    fn report(&mut self, what: String) {
        tracing::error!("{what}");
        self.reports.push(what);
    }

    fn partial(&self) -> Option<Arc<str>> {
        let (first, rest) = self.reports.split_first()?;
        Some(match rest.len() {
            0 => first.as_str().into(),
            more => format!("{first}; and {more} more, see the log").into(),
        })
    }
}

/// Opens the store.
pub(crate) fn open(settings: Settings, clock: Clock, entropy: &Entropy) -> Result<Opened, Error> {
    settings.check()?;
    let layout = Layout::new(&settings);
    let dirs = [
        &layout.data,
        &layout.meta,
        &layout.wal,
        &layout.retired,
        &layout.quarantine,
    ];
    for dir in dirs {
        sys::create_dirs(dir).map_err(Error::io("create", dir))?;
    }
    let locks = vec![
        Lock::take(&layout.meta, &settings.store_dir)?,
        Lock::take(&layout.staging, &settings.data_dir)?,
    ];
    check_one_file_system(&layout)?;
    let now = clock.now();
    let fresh = || {
        let millis = u64::try_from(now.micros().div_euclid(1_000)).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &entropy.bytes()).into_uuid()
    };
    let store = store_id(&layout.meta, fresh)?;
    let mut found = Catalog::read(&layout.meta, store)?;
    let mut findings = Findings::default();
    check_files(&layout, &settings, &mut found, &mut findings)?;
    judge_unknown_files(&layout, &settings, &mut found, &mut findings)?;
    empty_staging(&layout)?;
    if found.torn > 0 {
        tracing::info!(bytes = found.torn, "cut an unfinished record from the catalogue's end");
    }
    let catalog = found.begin()?;
    replay(settings, clock, layout, locks, catalog, findings)
}

fn check_one_file_system(layout: &Layout) -> Result<(), Error> {
    let device = |dir: &Path| {
        std::fs::metadata(dir)
            .map(|meta| meta.dev())
            .map_err(Error::io("read", dir))
    };
    if device(&layout.staging)? == device(&layout.data)? {
        return Ok(());
    }
    Err(Error::Setting {
        key: "data_dir",
        value: layout.data.display().to_string(),
        reason: format!(
            "files are staged in {}, which must be on the same file system: put data_dir one folder below the mount point",
            layout.staging.display()
        ),
    })
}

/// Compares every live file with its entry, and takes up the open ones.
fn check_files(layout: &Layout, settings: &Settings, found: &mut Found, findings: &mut Findings) -> Result<(), Error> {
    let entries: Vec<FileEntry> = found.state.files().cloned().collect();
    for entry in entries {
        let path = layout.file(entry.table, entry.partition, entry.number);
        let checked = if entry.sealed {
            check_sealed(&path, &entry)
        } else {
            take_up(layout, settings, found, findings, &entry)
        };
        match checked {
            Ok(()) => {}
            Err(error @ (Error::Damaged { .. } | Error::Parquet { .. })) => {
                findings.unreadable.insert(entry.id);
                put_aside(layout, &path, &error, findings);
            }
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                findings.unreadable.insert(entry.id);
                findings.report(format!("{} is missing with its {} rows", path.display(), entry.rows));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_sealed(path: &Path, entry: &FileEntry) -> Result<(), Error> {
    let size = std::fs::metadata(path).map_err(Error::io("read", path))?.len();
    if size == entry.size {
        return Ok(());
    }
    Err(Error::Damaged {
        path: path.to_owned(),
        reason: format!("it has {size} bytes instead of {}", entry.size),
    })
}

fn identity(store: Uuid, entry: &FileEntry) -> Identity {
    Identity {
        store,
        table: entry.table,
        segment: entry.id,
    }
}

fn take_up(
    layout: &Layout,
    settings: &Settings,
    found: &mut Found,
    findings: &mut Findings,
    entry: &FileEntry,
) -> Result<(), Error> {
    let recorded = Recorded {
        size: entry.size,
        crc: entry.crc,
        footer_crc: entry.footer_crc,
    };
    let path = layout.file(entry.table, entry.partition, entry.number);
    let identity = identity(found.state.store, entry);
    let options = write_options(settings);
    match resume(path, layout.twin(entry.id), identity, options, Some(recorded))? {
        Resumed::AsRecorded(open) => findings.open.push((entry.clone(), open)),
        Resumed::Newer(open) => adopt_open(found, findings, entry.clone(), open),
        Resumed::Sealed(sealed, _) => adopt_sealed(found, entry.clone(), &sealed),
    }
    Ok(())
}

/// Records what an open file's own footer says.
fn adopt_open(found: &mut Found, findings: &mut Findings, mut entry: FileEntry, open: OpenSegment) {
    if let Some(published) = open.published() {
        entry.version = published.facts.version;
        entry.size = published.size;
        entry.rows = published.rows;
        entry.min_ts = published.min_ts.micros();
        entry.max_ts = published.max_ts.micros();
        entry.crc = published.crc;
        entry.footer_crc = published.footer_crc;
        entry.first = published.facts.first_lsn;
        found.state.set_through(entry.place(), published.facts.last_lsn);
        found.state.put(entry.clone());
        findings.open.push((entry, open));
    }
}

fn adopt_sealed(found: &mut Found, mut entry: FileEntry, sealed: &Sealed) {
    entry.version = sealed.facts.version;
    entry.sealed = true;
    entry.size = sealed.size;
    entry.rows = sealed.rows;
    entry.min_ts = sealed.min_ts.micros();
    entry.max_ts = sealed.max_ts.micros();
    entry.crc = sealed.crc;
    entry.footer_crc = sealed.footer_crc;
    entry.first = sealed.facts.first_lsn;
    found.state.set_through(entry.place(), sealed.facts.last_lsn);
    found.state.put(entry);
}

fn put_aside(layout: &Layout, path: &Path, error: &Error, findings: &mut Findings) {
    let name: PathBuf = path.strip_prefix(&layout.data).unwrap_or(path).components().collect();
    let name = name.to_string_lossy().replace('/', "_");
    let target = layout.quarantine.join(name);
    let kept = std::fs::rename(path, &target);
    findings.quarantined += 1;
    findings.report(match kept {
        Ok(()) => format!("{error}; it was put into {}", target.display()),
        Err(kept) => format!("{error}; it stays where it is, it could not be put into quarantine: {kept}"),
    });
}

/// The data files in the tree.
fn data_files(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("list", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            if entry.file_type().map_err(Error::io("read", &entry.path()))?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

fn judge_unknown_files(
    layout: &Layout,
    settings: &Settings,
    found: &mut Found,
    findings: &mut Findings,
) -> Result<(), Error> {
    let live: HashSet<PathBuf> = found
        .state
        .files()
        .map(|entry| layout.file(entry.table, entry.partition, entry.number))
        .collect();
    for table in Table::ALL {
        let mut unknown = data_files(&layout.data.join(table.name()))?;
        unknown.retain(|path| !live.contains(path));
        unknown.sort();
        for path in unknown {
            judge(layout, settings, found, findings, table, path)?;
        }
    }
    Ok(())
}

fn judge(
    layout: &Layout,
    settings: &Settings,
    found: &mut Found,
    findings: &mut Findings,
    table: Table,
    path: PathBuf,
) -> Result<(), Error> {
    let state = &mut found.state;
    let (about, partition, number) = match inspect(&path) {
        Ok(about) if about.identity.store == state.store && about.identity.table == table => {
            match parse(layout, table, &path, about.extent.min_ts) {
                Some((partition, number)) => (about, partition, number),
                None => return Ok(foreign(&path, "its rows belong elsewhere")),
            }
        }
        Ok(_) => return Ok(foreign(&path, "it belongs to another store or table")),
        Err(error) => return Ok(foreign(&path, &error.to_string())),
    };
    let place = (table, partition);
    let id = about.identity.segment;
    let known = state.knows(id);
    let unrecorded = about.facts.last_lsn > state.through(place) && about.facts.first_lsn >= state.low_water;
    if state.file(id).is_none() && unrecorded {
        tracing::info!(path = %path.display(), rows = about.extent.rows, "adopted a data file whose record was lost");
        state.burn(place, number, id);
        let entry = FileEntry {
            id,
            version: about.facts.version,
            table,
            partition,
            number,
            size: about.size,
            rows: about.extent.rows,
            min_ts: about.extent.min_ts.micros(),
            max_ts: about.extent.max_ts.micros(),
            sealed: about.sealed,
            crc: 0,
            footer_crc: about.footer_crc,
            first: about.facts.first_lsn,
            published: about.extent.max_ts.micros(),
        };
        let identity = identity(state.store, &entry);
        match resume(path, layout.twin(id), identity, write_options(settings), None)? {
            Resumed::AsRecorded(open) | Resumed::Newer(open) => adopt_open(found, findings, entry, open),
            Resumed::Sealed(sealed, _) => adopt_sealed(found, entry, &sealed),
        }
        return Ok(());
    }
    state.burn(place, number, 0);
    if known && state.file(id).is_none() {
        tracing::info!(path = %path.display(), "unlinked a data file that had been removed");
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    } else {
        let reason = "it is ours, but the catalogue never knew it".to_owned();
        let error = Error::Damaged {
            path: path.clone(),
            reason,
        };
        put_aside(layout, &path, &error, findings);
    }
    Ok(())
}

fn foreign(path: &Path, why: &str) {
    tracing::warn!(path = %path.display(), why, "a file that is not ours lies among the data files; outside readers may read it");
}

/// Throws away what was on its way: nothing relies on it.
fn empty_staging(layout: &Layout) -> Result<(), Error> {
    for dir in [&layout.staging, &layout.retired] {
        for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let path = entry.map_err(Error::io("list", dir))?.path();
            if path.extension().is_some() && path.is_file() {
                std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
        }
    }
    Ok(())
}

fn replay(
    settings: Settings,
    clock: Clock,
    layout: Layout,
    locks: Vec<Lock>,
    catalog: Catalog,
    mut findings: Findings,
) -> Result<Opened, Error> {
    let options = WalOptions {
        store: catalog.state().store,
        segment_bytes: LOG_SEGMENT.min(settings.wal_max.get() / 8),
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
    let next_lsn = recovered.next_lsn.max(catalog.state().highest_through() + 1);
    let mut state = State::new(next_lsn.saturating_sub(1), None);
    let mut marks = Watermarks::default();
    marks.join(&catalog.state().marks.all());
    let mut replayed = 0;
    for frame in recovered.frames {
        let frame = frame?;
        match insert_frame(&catalog, &mut state, &mut marks, &frame) {
            Ok(rows) => replayed += rows,
            Err(reason) => keep_frame(&layout, &frame, &reason, &mut findings)?,
        }
    }
    state.partial = findings.partial();
    let counters = Counters::default();
    counters.replayed_rows.set(replayed);
    counters.torn_bytes.set(recovered.torn_bytes);
    counters.quarantined.set(findings.quarantined);
    counters.wal_bytes.set(wal.used_bytes());
    Ok(assemble(
        settings,
        clock,
        layout,
        locks,
        Parts {
            catalog,
            wal,
            next_lsn,
            state,
            marks,
            counters,
            findings,
        },
    ))
}

/// Makes hot what of a frame is in no file. Returns the rows; after an error nothing was inserted.
fn insert_frame(catalog: &Catalog, state: &mut State, marks: &mut Watermarks, frame: &Frame) -> Result<u64, String> {
    let table = Table::from_number(frame.table).ok_or_else(|| format!("it names table {}", frame.table))?;
    let (origin, rule) = origin::decode(&frame.origin)?;
    let rows = match decode_arrow(table, &frame.payload) {
        Ok(rows) => rows,
        Err(DecodeError::Empty) => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    let placed = place::place(table, &rows, frame.arrived, rule).map_err(|error| error.to_string())?;
    marks.mark(&origin);
    let missing = placed.pieces.into_iter().filter_map(|(partition, rows)| {
        let place = (table, partition);
        let weight = weight(&rows.batch);
        (catalog.state().through(place) < frame.lsn).then_some((place, rows, weight))
    });
    let missing: Vec<_> = missing.collect();
    let rows = missing.iter().map(|(_, rows, _)| rows.batch.num_rows() as u64).sum();
    Shared::insert(state, table, missing, frame.lsn, &origin, 0);
    Ok(rows)
}

/// Keeps a frame that cannot be understood.
fn keep_frame(layout: &Layout, frame: &Frame, reason: &str, findings: &mut Findings) -> Result<(), Error> {
    let path = layout.quarantine.join(format!("batch_{:020}", frame.lsn));
    std::fs::write(&path, &frame.payload).map_err(Error::io("write", &path))?;
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
    state: State,
    marks: Watermarks,
    counters: Counters,
    findings: Findings,
}

fn assemble(settings: Settings, clock: Clock, layout: Layout, locks: Vec<Lock>, parts: Parts) -> Opened {
    let room = Shared::total_room(&settings);
    let files: Vec<FileEntry> = parts.catalog.state().files().cloned().collect();
    let shared = Arc::new(Shared {
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
        publishing: Mutex::default(),
        poison: watch::Sender::new(None),
        locks: Mutex::new(locks),
        state: Mutex::new(parts.state),
        settings,
        clock,
        layout,
    });
    let slots = slots(&shared, parts.findings.open);
    {
        let mut state = shared.state.lock();
        for entry in files
            .iter()
            .filter(|entry| !parts.findings.unreadable.contains(&entry.id))
        {
            let lineage = slots.iter().find(|slot| slot.segment.identity().segment == entry.id);
            let lineage = lineage.map_or_else(
                || Arc::new(Lineage::new(shared.layout.retired(entry.id).with_extension("sealed"))),
                |slot| Arc::clone(&slot.lineage),
            );
            state.put_file(shared.segment(entry, &lineage));
        }
        shared.settle_debt(&mut state);
        shared.show(&mut state, Table::ALL);
    }
    Opened {
        committer: Committer::new(Arc::clone(&shared), parts.wal, parts.next_lsn),
        publisher: Publisher::new(Arc::clone(&shared), slots),
        shared,
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
        lineage: Arc::new(Lineage::new(shared.layout.retired(entry.id))),
        published: Timestamp::from_micros(entry.published),
        waited: 0,
        touched: false,
        segment,
    };
    open.into_iter().map(slot).collect()
}
