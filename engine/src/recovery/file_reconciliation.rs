//! Reconciles the tree that an earlier process left with the catalogue.
//!
//! # Files in the tree that the catalogue does not know
//!
//! | it is | then |
//! |---|---|
//! | ours, with rows that the catalogue misses and the log still has | its record was lost in the crash: adopted |
//! | ours, under a number that was given out, or without rows | it was removed, only its unlinking was lost: unlinked |
//! | ours otherwise | put into quarantine, reported |
//! | not ours | left alone, reported; its number is not used |
//!
//! # Invariants
//!
//! - What is missing or damaged is reported and kept; nothing else is ever moved away from readers.
//! - The rows of a damaged open file are replayed as far as the log has them. In one record, made when the file is in quarantine,
//!   its entry goes and their LSNs are noted; they are replayed at each start until a record says that they are in a file again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use model::Table;

use super::tree_scan::TreeScan;
use crate::datafile::{Described, FileFormat, OpenDataFile, RecoveredFile, inspect, resume};
use crate::layout::{DataFileName, StoreLayout, parse_path};
use crate::manifest::{FileEntry, LoadedManifest};
use crate::memtable::PartitionKey;
use crate::object_storage::open_file_restore::restore_open;
use crate::object_storage::takeover::RemoteConnection;
use crate::open_partition::write_options;
use crate::quarantine::move_to_quarantine;
use crate::store_tree::{data_files, remove_empty_folders};
use crate::{Error, Settings};

/// What recovery finds on its way.
#[derive(Debug, Default)]
pub(super) struct RecoveryFindings {
    pub(super) open: Vec<(FileEntry, OpenDataFile)>,
    /// Ids of files that cannot be read.
    pub(super) unreadable: HashSet<u64>,
    /// Open files whose rows are to be found in the log.
    pub(super) given_up: Vec<AbandonedFile>,
    /// Rows found there, by partition.
    pub(super) replayed: BTreeMap<PartitionKey, u64>,
    /// Where telemetry belongs that is not stored because it was exported, in a store that keeps telemetry again.
    pub(super) exported: BTreeSet<PartitionKey>,
    pub(super) reports: Vec<String>,
    pub(super) quarantined: u64,
}

/// A damaged open file that is kept aside.
#[derive(Debug)]
pub(super) struct AbandonedFile {
    place: PartitionKey,
    rows: u64,
    /// What it is, and where.
    what: String,
}

impl RecoveryFindings {
    /// Says what of the files that were given up was not in the log.
    pub(super) fn report_given_up(&mut self) {
        for AbandonedFile { place, rows, what } in std::mem::take(&mut self.given_up) {
            let found = self.replayed.get(&place).copied().unwrap_or(0);
            match rows.saturating_sub(found) {
                0 => tracing::warn!(rows, "{what}; all of its rows were in the log and are stored again"),
                lost => self.report(format!(
                    "{what}; {lost} of its {rows} rows are lost, the log had the others"
                )),
            }
        }
    }

    pub(super) fn report(&mut self, what: String) {
        tracing::error!("{what}");
        self.reports.push(what);
    }
}

/// Compares every live file with its entry, and takes up the open ones. What is in the object store need not be here; of open
/// files it may have pieces.
pub(super) fn check_files(
    (layout, settings): (&StoreLayout, &Settings),
    tree: &TreeScan,
    found: &mut LoadedManifest,
    findings: &mut RecoveryFindings,
    bucket: Option<&RemoteConnection>,
) -> Result<(), Error> {
    let uploaded = |entry: &FileEntry| Some(bucket?.chain.state().files.get(&entry.id)?.entry.clone());
    let is_uploaded = |entry: &FileEntry| uploaded(entry).is_some_and(|there| there.version == entry.version);
    // Whoever only reads takes no file up: pieces of open ones are copies to it as all others are.
    let is_reader = bucket.is_some_and(|bucket| bucket.link.is_reader());
    let is_whole = |entry: &FileEntry| entry.sealed || is_reader;
    let is_well = |entry: &&FileEntry| is_whole(entry) && tree.size_of(entry) == Some(entry.size);
    let others: Vec<FileEntry> = found.state.files().filter(|entry| !is_well(entry)).cloned().collect();
    for entry in others {
        let path = entry.path(layout);
        let checked = if is_reader {
            check_sealed(&path, &entry)
        } else if entry.sealed {
            check_sealed(&path, &entry).or_else(|error| take_later((layout, settings), found, &entry, error))
        } else {
            resume_or_restore((layout, settings), found, findings, &entry, bucket)
        };
        match checked {
            Ok(()) => {}
            Err(error) if error.is_not_found() && is_whole(&entry) && is_uploaded(&entry) => {}
            Err(error @ Error::Damaged { .. }) if is_whole(&entry) && is_uploaded(&entry) => {
                let kept = move_to_quarantine(layout, &path)?;
                tracing::warn!(
                    %error, kept = %kept.display(),
                    "the local copy of an uploaded file is damaged; the next read fetches it again"
                );
            }
            Err(error)
                if entry.sealed
                    && is_lost(&error)
                    && let Some(there) = uploaded(&entry) =>
            {
                let (_, what) = quarantine_file(layout, &path, &error);
                findings.quarantined += 1;
                findings.report(format!(
                    "{what}; the object store has {} of its {} rows, as of version {}",
                    there.rows, entry.rows, there.version
                ));
                found.adopt(there);
            }
            Err(error @ (Error::Damaged { .. } | Error::Parquet { .. })) => {
                let (is_kept, what) = quarantine_file(layout, &path, &error);
                findings.quarantined += 1;
                give_up(found, findings, entry, is_kept, what);
            }
            Err(error) if error.is_not_found() => {
                // A start that was interrupted may have put it aside.
                let is_kept = layout.quarantined(&path).exists();
                let what = format!("{} is missing with its {} rows", path.display(), entry.rows);
                give_up(found, findings, entry, is_kept, what);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file that cannot be read. One whose rows may be in the log leaves the catalogue, which remembers to replay them: where that
/// is cut off, the next start does it.
fn give_up(found: &mut LoadedManifest, findings: &mut RecoveryFindings, entry: FileEntry, is_kept: bool, what: String) {
    if is_kept && found.state.can_replay(&entry) {
        let (place, rows) = (entry.place(), entry.rows);
        findings.given_up.push(AbandonedFile { place, rows, what });
        found.give_up(entry);
    } else {
        findings.unreadable.insert(entry.id);
        findings.report(what);
    }
}

fn is_lost(error: &Error) -> bool {
    error.is_not_found() || matches!(error, Error::Damaged { .. } | Error::Parquet { .. })
}

fn check_sealed(path: &Path, entry: &FileEntry) -> Result<(), Error> {
    let size = std::fs::metadata(path).map_err(Error::io("read", path))?.len();
    if size == entry.size {
        return Ok(());
    }
    Err(Error::damaged(
        path,
        format!("it has {size} bytes instead of {}", entry.size),
    ))
}

/// Takes a later version of a sealed file, into which late rows went and whose record was lost; else `error` stands.
fn take_later(
    (layout, settings): (&StoreLayout, &Settings),
    found: &mut LoadedManifest,
    entry: &FileEntry,
    error: Error,
) -> Result<(), Error> {
    let path = entry.path(layout);
    let identity = entry.identity(found.state.store);
    let is_later =
        |about: &Described| about.sealed && about.identity == identity && about.facts.version > entry.version;
    if !matches!(error, Error::Damaged { .. }) || !inspect(&path).as_ref().is_ok_and(is_later) {
        return Err(error);
    }
    let twin = layout.shadow_file(entry.table, entry.id);
    let resumed = resume(path, twin, identity, write_options(settings), None)?;
    if !resumed.file.sealed {
        return Err(error);
    }
    found.adopt(entry.at(&resumed.file));
    Ok(())
}

/// Takes up an open file. One that is missing or damaged is put together from its pieces, if the object store has any.
fn resume_or_restore(
    (layout, settings): (&StoreLayout, &Settings),
    found: &mut LoadedManifest,
    findings: &mut RecoveryFindings,
    entry: &FileEntry,
    bucket: Option<&RemoteConnection>,
) -> Result<(), Error> {
    let error = match resume_open_file(layout, settings, found, findings, entry) {
        Err(error) if is_lost(&error) => error,
        taken => return taken,
    };
    let Some(bucket) = bucket.filter(|bucket| bucket.chain.state().covered(entry.id) > 0) else {
        return Err(error);
    };
    let path = entry.path(layout);
    if path.symlink_metadata().is_ok() {
        let (_, what) = quarantine_file(layout, &path, &error);
        tracing::warn!("{what}; it is restored from the object store");
        findings.quarantined += 1;
    }
    restore_open(bucket, layout, entry)?;
    let covered = bucket.chain.state().covered(entry.id);
    if covered < entry.last && found.state.can_replay(entry) {
        found.state.replay_anew((entry.place(), covered + 1, entry.last));
    }
    let as_pieces = FileEntry {
        size: 0,
        ..entry.clone()
    };
    resume_open_file(layout, settings, found, findings, &as_pieces)?;
    let joined = found.state.file(entry.id).map_or(0, |joined| joined.rows);
    if joined < entry.rows {
        let what = format!(
            "{} was restored from the object store, which lacks its end",
            path.display()
        );
        let (place, rows) = (entry.place(), entry.rows - joined);
        findings.given_up.push(AbandonedFile { place, rows, what });
    }
    Ok(())
}

fn resume_open_file(
    layout: &StoreLayout,
    settings: &Settings,
    found: &mut LoadedManifest,
    findings: &mut RecoveryFindings,
    entry: &FileEntry,
) -> Result<(), Error> {
    // Of one that is to be put together nothing is known before.
    let recorded = (entry.size > 0).then(|| entry.recorded());
    let identity = entry.identity(found.state.store);
    let (path, twin) = (entry.path(layout), layout.shadow_file(entry.table, entry.id));
    let resumed = resume(path, twin, identity, write_options(settings), recorded)?;
    take(found, findings, entry.clone(), resumed);
    Ok(())
}

/// Records what the file's own footer says, where it is not as recorded; an open one takes rows again.
fn take(found: &mut LoadedManifest, findings: &mut RecoveryFindings, mut entry: FileEntry, resumed: RecoveredFile) {
    if !resumed.is_recorded {
        entry = entry.at(&resumed.file);
        found.adopt(entry.clone());
    }
    findings.open.extend(resumed.open.map(|open| (entry, open)));
}

/// A data file of ours, and its entry, as its own footer and bytes describe it.
pub(crate) fn describe(
    layout: &StoreLayout,
    settings: &Settings,
    path: PathBuf,
    about: &Described,
    (place, named): (PartitionKey, DataFileName),
) -> Result<(FileEntry, RecoveredFile), Error> {
    let id = about.identity.segment;
    let twin = layout.shadow_file(place.0, id);
    let resumed = resume(path, twin, about.identity, write_options(settings), None)?;
    let entry = FileEntry::new(id, place, named, resumed.file.max_ts.micros(), &resumed.file);
    Ok((entry, resumed))
}

/// Puts a file into quarantine. Whether it is there, and what to say.
fn quarantine_file(layout: &StoreLayout, path: &Path, error: &Error) -> (bool, String) {
    match move_to_quarantine(layout, path) {
        Ok(kept) => (true, format!("{error}; it was put into {}", kept.display())),
        Err(kept) => (
            false,
            format!("{error}; it stays where it is, it could not be put into quarantine: {kept}"),
        ),
    }
}

pub(super) fn reconcile_unknown_files(
    (layout, settings): (&StoreLayout, &Settings),
    tree: &TreeScan,
    found: &mut LoadedManifest,
    findings: &mut RecoveryFindings,
) -> Result<(), Error> {
    for (table, path) in tree.unknown(&found.state, layout) {
        reconcile_unknown_file(layout, settings, found, findings, table, path)?;
    }
    Ok(())
}

/// Removes files that no entry names, where all there is are copies of objects.
pub(super) fn remove_unknown_files(layout: &StoreLayout, tree: &TreeScan, found: &LoadedManifest) -> Result<(), Error> {
    for (_, path) in tree.unknown(&found.state, layout) {
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        remove_empty_folders(&path, layout.root_of(&path));
    }
    Ok(())
}

fn reconcile_unknown_file(
    layout: &StoreLayout,
    settings: &Settings,
    found: &mut LoadedManifest,
    findings: &mut RecoveryFindings,
    table: Table,
    path: PathBuf,
) -> Result<(), Error> {
    let state = &mut found.state;
    let ours = inspect(&path).map_err(|error| error.to_string()).and_then(|about| {
        if (about.identity.store, about.identity.table) != (state.store, table) {
            return Err("it belongs to another store or table".to_owned());
        }
        let place = parse_path(layout, table, &path, about.extent.min_ts);
        let (partition, named) = place.ok_or("its rows belong elsewhere")?;
        Ok((about, partition, named))
    });
    let (about, partition, named) = match ours {
        Ok(ours) => ours,
        Err(why) => {
            tracing::warn!(path = %path.display(), why, "found a foreign file among the data files; external readers \
                                                         may read it");
            return Ok(());
        }
    };
    let place = (table, partition);
    let id = about.identity.segment;
    let known = state.knows(id);
    let emptied = about.is_tombstone();
    let unrecorded = !emptied && state.lacks(place, about.facts.first_lsn, about.facts.last_lsn);
    if state.file(id).is_none() && unrecorded {
        tracing::info!(path = %path.display(), rows = about.extent.rows, "adopted a data file whose record was lost");
        state.mark_number_used(place, named.number, id);
        let (entry, resumed) = describe(layout, settings, path, &about, (place, named))?;
        take(found, findings, entry, resumed);
        return Ok(());
    }
    state.mark_number_used(place, named.number, 0);
    if emptied || (known && state.file(id).is_none()) {
        tracing::info!(path = %path.display(), "unlinked a data file that had been removed");
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        remove_empty_folders(&path, layout.root_of(&path));
    } else {
        let error = Error::damaged(&path, "it is ours, but the catalogue never knew it");
        let (_, what) = quarantine_file(layout, &path, &error);
        findings.quarantined += 1;
        findings.report(what);
    }
    Ok(())
}

/// Throws away what was on its way: nothing relies on it.
pub(super) fn empty_staging(layout: &StoreLayout) -> Result<(), Error> {
    for dir in layout.staging_folders() {
        for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let path = entry.map_err(Error::io("list", dir))?.path();
            if path.extension().is_some() && path.is_file() {
                std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            } else if is_expired(&path) {
                remove_expired(&path)?;
            }
        }
    }
    Ok(())
}

fn is_expired(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(StoreLayout::EXPIRED)) && path.is_dir()
}

/// Removes the data files of an expired partition, and the folder if there is nothing else in it.
fn remove_expired(folder: &Path) -> Result<(), Error> {
    for path in data_files(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.and_then(FileFormat::split).is_some() {
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    // Somebody else's file stays, and its folder.
    let _ = std::fs::remove_dir(folder);
    Ok(())
}
