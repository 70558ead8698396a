//! Manifest rebuild: makes a lost or damaged catalogue again from the footers of data files, from the log, and from the parts of
//! the old catalogue that are still readable.
//!
//! | part of the new catalogue | comes from |
//! |---|---|
//! | live files | the tree: each footer names store, table, segment, version, rows; the checksum is computed from the bytes |
//! | uploaded files that are missing or damaged in the tree | the object store's catalogue |
//! | numbers, next segment | the highest in the tree and in the old catalogue |
//! | the LSN up to which a partition is in files | the footers, each for its own partition |
//! | low water | the beginning of the log, or later if the old catalogue says so: rows that no file has are replayed |
//! | origins of batches in the log | the log itself, at the next start |
//! | origins of batches before the log | the old catalogue if it is complete up to there, else the ranges in the footers, which have no requests |
//!
//! # Invariants
//!
//! - Replay stores each row once: a row is in a file exactly if its partition's files reach its LSN.
//! - No file leaves the store whose object is sound: a damaged copy goes into quarantine, and its entry stays.
//! - The old catalogue is put aside before the new one is valid, and the new one becomes valid in one step.
//! - What cannot be known is in the report.
//!
//! # Limits
//!
//! A range has the first and the last sequence in a file, not which are missing between them. Where nothing better is known, every
//! sequence up to the last counts as stored: a batch that came out of order and was on its way when the catalogue was lost is then
//! taken for a duplicate. Batches in the log, which are the latest ones, are known exactly.

mod log_origins;
mod previous_manifest;
mod uploaded_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use model::{Table, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::datafile::{FilePrefix, file_crc, inspect};
use crate::integrity_check::FileProblem;
use crate::layout::{StoreLayout, file_number, parse_path};
use crate::manifest::{self, FileEntry, LoadedManifest, ManifestSalvage, ManifestState, StoreManifest, write_store_id};
use crate::memtable::{OriginRanges, PartitionKey};
use crate::object_storage::remote_check::RemoteInspector;
use crate::quarantine::move_to_quarantine;
use crate::recovery::describe;
use crate::store_tree::{data_files, lock_store};
use crate::{Error, Settings, wal};
use log_origins::LogOrigins;
use previous_manifest::{find_store, keep_old};

/// A file that the old catalogue names and the tree has not: every record that is left says so, and one that is damaged may
/// have removed it.
pub(crate) const MISSING: &str = "it is missing, or was removed and the record of that is damaged";

/// What a rebuild came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// Data files of the new catalogue.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where the old catalogue is kept, if anything was left of it.
    pub kept: Option<PathBuf>,
    /// Files that are damaged, missing, or older than was recorded.
    pub problems: Vec<FileProblem>,
    /// Files in the tree that are not of this store; they are left alone.
    pub strangers: Vec<PathBuf>,
    /// What could not be known, and what is assumed instead.
    pub unknown: Vec<String>,
}

/// A data file that the new catalogue is going to name.
struct RebuildCandidate {
    entry: FileEntry,
    /// Its partition is in files through this LSN.
    through: u64,
    origins: OriginRanges,
}

struct ManifestRebuild<'a> {
    settings: &'a Settings,
    layout: StoreLayout,
    store: Uuid,
    salvage: ManifestSalvage,
    /// The object store, if there is one.
    bucket: Option<RemoteInspector>,
    candidates: BTreeMap<u64, RebuildCandidate>,
    /// Files without an entry that the next start unlinks: their place, number, segment and last LSN.
    removed: Vec<(PartitionKey, u32, u64, u64)>,
    /// Without a recorded checksum.
    unverified: u64,
    report: RebuildReport,
}

/// Rebuilds the catalogue. `each` is called before each file, with the files done and all of them.
///
/// # Errors
/// If there is no store, a Mixer has it, its catalogue is whole, or the system refuses. The old catalogue still counts then.
pub fn rebuild_catalogue(
    settings: &Settings,
    now: Timestamp,
    mut each: impl FnMut(u64, u64),
) -> Result<RebuildReport, Error> {
    let layout = StoreLayout::new(settings);
    let tree = tree(&layout)?;
    let has_meta =
        layout.meta.is_dir() && (manifest::has_manifest(&layout.meta)? || layout.meta.join("store.id").exists());
    if !has_meta && tree.is_empty() && !wal::is_there(&layout.wal)? {
        return Err(Error::no_store(&settings.store_dir));
    }
    for dir in [&layout.meta, &layout.quarantine] {
        durable_fs::create_private_dirs(dir)?;
    }
    let _locks = lock_store(&layout, settings)?;
    let (store, known) = find_store(&layout, &tree)?;
    if known
        && manifest::has_manifest(&layout.meta)?
        && StoreManifest::read(&layout.meta, store).is_ok_and(|found| found.has_begun())
    {
        return Err(Error::CatalogueWhole { path: layout.meta });
    }
    let salvage = ManifestSalvage::read(&layout.meta, store)?;
    let remote = settings.remote.as_ref();
    let bucket = remote
        .map(|remote| RemoteInspector::look(remote, &layout, store))
        .transpose()?;
    if salvage.state.attached && !bucket.as_ref().is_some_and(RemoteInspector::has_store) {
        return Err(remote.map_or_else(Error::needs_url, |remote| Error::not_its_bucket(&remote.url)));
    }
    let mut rebuild = ManifestRebuild {
        settings,
        store,
        salvage,
        bucket,
        layout,
        candidates: BTreeMap::new(),
        removed: Vec::new(),
        unverified: 0,
        report: RebuildReport::default(),
    };
    if !known {
        rebuild.report.unknown.push(format!(
            "which store this is: its id was missing or damaged, all data files are of store {store}"
        ));
    }
    let all = tree.len() as u64;
    for (done, (table, path)) in tree.into_iter().enumerate() {
        each(done as u64, all);
        rebuild.look(table, path)?;
    }
    each(all, all);
    rebuild.finish(now)
}

/// Every file in the tables' folders.
fn tree(layout: &StoreLayout) -> Result<Vec<(Table, PathBuf)>, Error> {
    let mut all = Vec::new();
    for table in Table::ALL {
        let mut files = data_files(&layout.folder(table))?;
        files.sort();
        all.extend(files.into_iter().map(|path| (table, path)));
    }
    Ok(all)
}

impl ManifestRebuild<'_> {
    fn look(&mut self, table: Table, path: PathBuf) -> Result<(), Error> {
        let about = match inspect(&path) {
            Ok(about) => about,
            Err(error @ (Error::Damaged { .. } | Error::Parquet { .. })) => {
                self.unreadable(table, path, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let ours = about.identity.store == self.store && about.identity.table == table;
        let named = ours.then(|| parse_path(&self.layout, table, &path, about.extent.min_ts));
        let Some((partition, named)) = named.flatten() else {
            self.report.strangers.push(path);
            return Ok(());
        };
        let (place, id) = ((table, partition), about.identity.segment);
        if self.salvage.removed.contains(&id) || about.is_tombstone() {
            self.removed.push((place, named.number, id, about.facts.last_lsn));
            return Ok(());
        }
        let (entry, _) = describe(&self.layout, self.settings, path.clone(), &about, (place, named))?;
        if let Some(what) = self.contradicts(&path, &entry)? {
            self.report.problems.push(FileProblem::new(path, what, entry.rows));
            return Ok(());
        }
        let candidate = RebuildCandidate {
            entry,
            through: about.facts.last_lsn,
            origins: OriginRanges::from_text(&about.facts.origins),
        };
        self.offer(id, candidate);
        Ok(())
    }

    /// Of two files of one segment the later version counts; the other is a copy that somebody made.
    fn offer(&mut self, id: u64, mut candidate: RebuildCandidate) {
        if let Some(other) = self.candidates.remove(&id) {
            let later = candidate.entry.version > other.entry.version;
            let (taken, left) = if later { (candidate, other) } else { (other, candidate) };
            self.report.strangers.push(left.entry.path(&self.layout));
            candidate = taken;
        }
        self.candidates.insert(id, candidate);
    }

    /// A file that says nothing of itself. Where the old catalogue knows it, the next start judges it by that.
    fn unreadable(&mut self, table: Table, path: PathBuf, error: &Error) {
        let at = |entry: &&FileEntry| entry.path(&self.layout) == path;
        let recorded = self.salvage.state.files().find(at).cloned();
        if let Some(entry) = recorded {
            let what = format!("{error}; the next start takes its recorded version or puts it into quarantine");
            self.report.problems.push(FileProblem::new(path, what, entry.rows));
            let candidate = RebuildCandidate {
                through: self.salvage.state.through(entry.place()),
                origins: OriginRanges::default(),
                entry,
            };
            self.offer(candidate.entry.id, candidate);
        } else if file_number(table, &path).is_some() {
            let what = format!("{error}; it is left where it is");
            self.report.problems.push(FileProblem::new(path, what, 0));
        } else {
            self.report.strangers.push(path);
        }
    }

    /// What the old catalogue, or the object store's, says against a file.
    fn contradicts(&mut self, path: &Path, entry: &FileEntry) -> Result<Option<String>, Error> {
        let uploaded = self.bucket.as_ref().and_then(|bucket| bucket.file(entry.id));
        let known = self.salvage.state.file(entry.id).into_iter().chain(uploaded);
        let not_later = known.filter(|old| old.version <= entry.version);
        let Some(recorded) = not_later.max_by_key(|old| old.version) else {
            self.unverified += 1;
            return Ok(None);
        };
        let found = if recorded.version == entry.version {
            entry.crc
        } else if entry.sealed || entry.size < recorded.size {
            self.unverified += 1;
            return Ok(None);
        } else {
            let file = File::open(path).map_err(Error::io("open", path))?;
            file_crc(&FilePrefix::new(file, recorded.size), 0, 0).map_err(Error::io("read", path))?
        };
        let wanted = recorded.crc;
        Ok((found != wanted).then(|| format!("it has the checksum {found:08x} instead of {wanted:08x}")))
    }

    /// Files of the old catalogue that are not there, or only as an earlier version.
    fn miss(&mut self) {
        for old in self.salvage.state.files() {
            let path = old.path(&self.layout);
            let seen = self.report.problems.iter().any(|problem| problem.path == path);
            let problem = match self.candidates.get(&old.id) {
                None if !seen => Some((MISSING.to_owned(), old.rows)),
                Some(now) if now.entry.version < old.version => {
                    let what = format!("it is version {}, recorded was {}", now.entry.version, old.version);
                    Some((what, old.rows.saturating_sub(now.entry.rows)))
                }
                _ => None,
            };
            self.report
                .problems
                .extend(problem.map(|(what, rows)| FileProblem::new(path, what, rows)));
        }
    }

    /// Puts damaged files aside, keeps the old catalogue, begins the new one.
    fn finish(mut self, now: Timestamp) -> Result<RebuildReport, Error> {
        self.take_uploaded()?;
        self.miss();
        let old = &mut self.salvage.state;
        let origins = LogOrigins::read(&self.layout.wal, self.store, old.low_water, &mut old.watermarks)?;
        let (newest, old) = (self.salvage.newest, self.salvage.files.clone());
        let entries: BTreeSet<PathBuf> = self
            .candidates
            .values()
            .map(|file| file.entry.path(&self.layout))
            .collect();
        let state = self.state(&origins);
        self.report.kept = keep_old(&self.layout, old, now)?;
        for problem in &mut self.report.problems {
            let goes = problem.object_is_sound || (problem.rows > 0 && !entries.contains(&problem.path));
            if goes && problem.path.symlink_metadata().is_ok() {
                problem.kept = Some(move_to_quarantine(&self.layout, &problem.path)?);
            }
        }
        for file in state.files() {
            self.report.files += 1;
            self.report.rows += file.rows;
            self.report.bytes += file.size;
        }
        write_store_id(&self.layout.meta, self.store)?;
        LoadedManifest::anew(&self.layout.meta, state, newest).begin()?;
        manifest::remove_before(&self.layout.meta, newest + 1)?;
        Ok(self.report)
    }

    fn state(&mut self, log: &LogOrigins) -> ManifestState {
        let empty = ManifestState::new(self.store);
        let mut state = std::mem::replace(&mut self.salvage.state, empty).without_files();
        let recorded = state.low_water;
        for RebuildCandidate { entry, through, .. } in self.candidates.values() {
            state.set_through(entry.place(), *through);
            state.put(entry.clone());
        }
        for (place, number, id, through) in &self.removed {
            state.mark_number_used(*place, *number, *id);
            state.set_through(*place, *through);
        }
        if let Some(bucket) = &self.bucket {
            state.watermarks.merge_newer(&bucket.marks());
        }
        let behind = log.begins.unwrap_or(state.highest_through().saturating_add(1));
        // Whatever the object store has rows of up to there is among the files, or is named as damaged.
        let uploaded = self.bucket.as_ref().map_or(0, RemoteInspector::lsn);
        state.low_water = behind.max(recorded).max(uploaded.saturating_add(1));
        self.assume(&mut state, log);
        if let Some(begins) = log.begins
            && begins > recorded
        {
            self.report.unknown.push(format!(
                "the log begins at batch {begins}: whether every batch before it is in the data files is not known"
            ));
        }
        if self.unverified > 0 {
            self.report.unknown.push(format!(
                "{} files have no earlier checksum: their bytes are taken as they are",
                self.unverified
            ));
        }
        if !self.salvage.any {
            self.report.unknown.push(
                "which files had been removed: their rows that the log still has are back until retention removes \
                 them, and their numbers may be given out again"
                    .to_owned(),
            );
        }
        state
    }

    /// Marks what was stored before the log begins, as far as the old catalogue does not know it.
    fn assume(&mut self, state: &mut ManifestState, log: &LogOrigins) {
        let (from, to) = (self.salvage.exact_below, state.low_water);
        // The first batch of a store is batch 1.
        if from.max(1) >= to {
            return;
        }
        let (mut runs, mut streams) = (BTreeSet::new(), BTreeSet::new());
        let in_between = |file: &&RebuildCandidate| file.entry.first < to && file.through >= from;
        for RebuildCandidate { origins, .. } in self.candidates.values().filter(in_between) {
            for (run, (_, last)) in &origins.producers {
                state.watermarks.assume_run(*run, log.before_run(run, *last), to - 1);
                runs.insert(*run);
            }
            for (stream, (_, last)) in &origins.streams {
                let last = log.before_stream(stream, *last);
                state.watermarks.assume_stream(stream, last, to - 1);
                streams.insert(stream.clone());
            }
        }
        self.report.unknown.push(format!(
            "which batches before batch {to} of the log were stored: of {} producer runs and {} bus streams all up to the last \
             one in the data files count as stored, and requests of then whose key comes again count as new",
            runs.len(),
            streams.len()
        ));
    }
}
