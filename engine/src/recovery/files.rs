//! The tree after an earlier process, compared with the catalogue.
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

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Table;
use uuid::Uuid;

use super::tree::Tree;
use crate::catalog::{FileEntry, Found};
use crate::hot::Place;
use crate::layout::{Layout, Named, parse};
use crate::quarantine::keep;
use crate::rotation::remove_empty_folders;
use crate::segment::{Described, Form, Identity, OpenSegment, Published, Recorded, Resumed, Sealed, inspect, resume};
use crate::slot::write_options;
use crate::{Error, Settings};

/// What recovery finds on its way.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) open: Vec<(FileEntry, OpenSegment)>,
    /// Ids of files that cannot be read.
    pub(super) unreadable: HashSet<u64>,
    pub(super) reports: Vec<String>,
    pub(super) quarantined: u64,
}

impl Findings {
    pub(super) fn report(&mut self, what: String) {
        tracing::error!("{what}");
        self.reports.push(what);
    }

    pub(super) fn partial(&self) -> Option<Arc<str>> {
        let (first, rest) = self.reports.split_first()?;
        Some(match rest.len() {
            0 => first.as_str().into(),
            more => format!("{first}; and {more} more, see the log").into(),
        })
    }
}

/// Compares every live file with its entry, and takes up the open ones. What is `elsewhere`, in the object store, need not
/// be here.
pub(super) fn check_files(
    (layout, settings): (&Layout, &Settings),
    tree: &Tree,
    found: &mut Found,
    findings: &mut Findings,
    elsewhere: impl Fn(u64) -> bool,
) -> Result<(), Error> {
    let is_well = |entry: &&FileEntry| entry.sealed && tree.size_of(entry) == Some(entry.size);
    let others: Vec<FileEntry> = found.state.files().filter(|entry| !is_well(entry)).cloned().collect();
    for entry in others {
        let path = entry.path(layout);
        let checked = if entry.sealed {
            check_sealed(&path, &entry)
        } else {
            take_up(layout, settings, found, findings, &entry)
        };
        match checked {
            Ok(()) => {}
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound && elsewhere(entry.id) => {}
            Err(error @ Error::Damaged { .. }) if elsewhere(entry.id) => {
                let kept = keep(layout, &path)?;
                tracing::warn!(
                    %error, kept = %kept.display(),
                    "the local copy of an uploaded file is damaged; it is fetched again when it is read"
                );
            }
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
    let path = entry.path(layout);
    let identity = identity(found.state.store, entry);
    let options = write_options(settings);
    match resume(
        path,
        layout.twin(entry.table, entry.id),
        identity,
        options,
        Some(recorded),
    )? {
        Resumed::AsRecorded(open) => findings.open.push((entry.clone(), open)),
        Resumed::Newer(open) => adopt_open(found, findings, entry.clone(), open),
        Resumed::Sealed(sealed) => adopt_sealed(found, entry.clone(), &sealed),
    }
    Ok(())
}

/// Records what an open file's own footer says.
fn adopt_open(found: &mut Found, findings: &mut Findings, mut entry: FileEntry, open: OpenSegment) {
    if let Some(published) = open.published() {
        take_open(&mut entry, &published);
        found.adopt(entry.clone());
        findings.open.push((entry, open));
    }
}

fn take_open(entry: &mut FileEntry, published: &Published) {
    entry.version = published.facts.version;
    entry.size = published.size;
    entry.rows = published.rows;
    entry.min_ts = published.min_ts.micros();
    entry.max_ts = published.max_ts.micros();
    entry.crc = published.crc;
    entry.footer_crc = published.footer_crc;
    entry.first = published.facts.first_lsn;
    entry.last = published.facts.last_lsn;
}

fn adopt_sealed(found: &mut Found, mut entry: FileEntry, sealed: &Sealed) {
    take_sealed(&mut entry, sealed);
    found.adopt(entry);
}

fn take_sealed(entry: &mut FileEntry, sealed: &Sealed) {
    entry.version = sealed.facts.version;
    entry.sealed = true;
    entry.runs.clone_from(&sealed.runs);
    entry.size = sealed.size;
    entry.rows = sealed.rows;
    entry.min_ts = sealed.min_ts.micros();
    entry.max_ts = sealed.max_ts.micros();
    entry.crc = sealed.crc;
    entry.footer_crc = sealed.footer_crc;
    entry.first = sealed.facts.first_lsn;
    entry.last = sealed.facts.last_lsn;
}

/// The entry of a data file of ours as its own footer and bytes describe it.
pub(crate) fn describe(
    layout: &Layout,
    settings: &Settings,
    path: PathBuf,
    about: &Described,
    (place, named): (Place, Named),
) -> Result<FileEntry, Error> {
    let mut entry = entry_of(about, place, named);
    let twin = layout.twin(entry.table, entry.id);
    match resume(path, twin, about.identity, write_options(settings), None)? {
        Resumed::AsRecorded(open) | Resumed::Newer(open) => {
            if let Some(published) = open.published() {
                take_open(&mut entry, &published);
            }
        }
        Resumed::Sealed(sealed) => take_sealed(&mut entry, &sealed),
    }
    Ok(entry)
}

/// What the footer says; the checksum of the whole is still to be found.
fn entry_of(about: &Described, (table, partition): Place, named: Named) -> FileEntry {
    FileEntry {
        id: about.identity.segment,
        version: about.facts.version,
        table,
        partition,
        number: named.number,
        form: named.form,
        prefix: named.prefix,
        size: about.size,
        rows: about.extent.rows,
        min_ts: about.extent.min_ts.micros(),
        max_ts: about.extent.max_ts.micros(),
        sealed: about.sealed,
        runs: Vec::new(),
        crc: 0,
        footer_crc: about.footer_crc,
        first: about.facts.first_lsn,
        last: about.facts.last_lsn,
        published: about.extent.max_ts.micros(),
    }
}

fn put_aside(layout: &Layout, path: &Path, error: &Error, findings: &mut Findings) {
    let kept = keep(layout, path);
    findings.quarantined += 1;
    findings.report(match kept {
        Ok(kept) => format!("{error}; it was put into {}", kept.display()),
        Err(kept) => format!("{error}; it stays where it is, it could not be put into quarantine: {kept}"),
    });
}

/// The data files in the tree.
pub(crate) fn data_files(root: &Path) -> Result<Vec<PathBuf>, Error> {
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

pub(super) fn judge_unknown_files(
    (layout, settings): (&Layout, &Settings),
    tree: &Tree,
    found: &mut Found,
    findings: &mut Findings,
) -> Result<(), Error> {
    for (table, path) in tree.unknown(&found.state, layout) {
        judge(layout, settings, found, findings, table, path)?;
    }
    Ok(())
}

/// Removes files that no entry names, where all there is are copies of objects.
pub(super) fn remove_unknown_files(layout: &Layout, tree: &Tree, found: &Found) -> Result<(), Error> {
    for (_, path) in tree.unknown(&found.state, layout) {
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        remove_empty_folders(&path, layout.root_of(&path));
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
    let (about, partition, named) = match inspect(&path) {
        Ok(about) if about.identity.store == state.store && about.identity.table == table => {
            match parse(layout, table, &path, about.extent.min_ts) {
                Some((partition, named)) => (about, partition, named),
                None => {
                    foreign(&path, "its rows belong elsewhere");
                    return Ok(());
                }
            }
        }
        Ok(_) => {
            foreign(&path, "it belongs to another store or table");
            return Ok(());
        }
        Err(error) => {
            foreign(&path, &error.to_string());
            return Ok(());
        }
    };
    let place = (table, partition);
    let id = about.identity.segment;
    let known = state.knows(id);
    let emptied = about.is_emptied();
    let unrecorded =
        !emptied && about.facts.last_lsn > state.through(place) && about.facts.first_lsn >= state.low_water;
    if state.file(id).is_none() && unrecorded {
        tracing::info!(path = %path.display(), rows = about.extent.rows, "adopted a data file whose record was lost");
        state.burn(place, named.number, id);
        let entry = entry_of(&about, place, named);
        let identity = identity(state.store, &entry);
        match resume(path, layout.twin(table, id), identity, write_options(settings), None)? {
            Resumed::AsRecorded(open) | Resumed::Newer(open) => adopt_open(found, findings, entry, open),
            Resumed::Sealed(sealed) => adopt_sealed(found, entry, &sealed),
        }
        return Ok(());
    }
    state.burn(place, named.number, 0);
    if emptied || (known && state.file(id).is_none()) {
        tracing::info!(path = %path.display(), "unlinked a data file that had been removed");
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        remove_empty_folders(&path, layout.root_of(&path));
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
pub(super) fn empty_staging(layout: &Layout) -> Result<(), Error> {
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
    name.is_some_and(|name| name.starts_with(Layout::EXPIRED)) && path.is_dir()
}

/// Removes the data files of an expired partition, and the folder if there is nothing else in it.
fn remove_expired(folder: &Path) -> Result<(), Error> {
    for path in data_files(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.and_then(Form::split).is_some() {
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    // Somebody else's file stays, and its folder.
    let _ = std::fs::remove_dir(folder);
    Ok(())
}
