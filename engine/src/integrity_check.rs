//! Integrity check: compares a store's data files with its catalogue. It locks nothing and writes nothing.
//!
//! | checked | how |
//! |---|---|
//! | catalogue | the checksum of every record, as at a start |
//! | each data file | it exists, has its length, and its footer has its checksum |
//! | an uploaded file without a local copy | the object store's catalogue has the same version of it; deep: its object's bytes |
//! | an uploaded file with a damaged local copy | its object's bytes: if they are right, no row is lost |
//! | deep: each data file | all its bytes match the recorded checksum, which the Parquet reader does not check |
//! | the tree | files that no record names |
//!
//! # Invariants
//!
//! - Beside a running Mixer, a file that is merely newer than the record that was read is not reported: after a mismatch, the file
//!   is compared again with a catalogue that is read again.
//!
//! # Not here
//!
//! The log: a start reads all of it, and reports what is damaged. Repair: [`crate::repair`], [`crate::manifest_rebuild`].

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::Table;
use serde::Serialize;
use uuid::Uuid;

use crate::datafile::{FilePrefix, file_crc, footer_crc, inspect};
use crate::layout::StoreLayout;
use crate::manifest::{FileEntry, LoadedManifest, StoreManifest, known_store_id};
use crate::object_storage::remote_check::RemoteInspector;
use crate::store_tree::data_files;
use crate::{Error, Settings};

/// How often a catalogue that changes under the reader is read again, and the time between.
const TRIES: usize = 10;
const PATIENCE: Duration = Duration::from_millis(50);
/// How often a file of ours is looked at again: a round of publishing makes many files before it records them all.
const ROUNDS: usize = 100;

/// A file that is not what was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileProblem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// The rows that it should have.
    pub rows: u64,
    /// The damaged file is a copy of an object that is sound: no row is lost, the file is fetched again when it is read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub object_is_sound: bool,
    /// Where a repair put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
}

impl FileProblem {
    pub(crate) const fn new(path: PathBuf, what: String, rows: u64) -> Self {
        Self {
            path,
            what,
            rows,
            object_is_sound: false,
            kept: None,
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Whether every byte was read.
    pub deep: bool,
    /// Whether the files with problems were taken out of the store: damaged ones into quarantine, missing ones from the
    /// catalogue.
    pub repaired: bool,
    /// Data files of the catalogue.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are not what was recorded.
    pub problems: Vec<FileProblem>,
    /// Files in the tree that no record names; readers of the tree see them, queries do not.
    pub strangers: Vec<PathBuf>,
    /// Files that were quarantined as damaged.
    pub quarantined: Vec<PathBuf>,
}

impl CheckReport {
    pub(crate) fn of(entries: &[FileEntry], deep: bool) -> Self {
        Self {
            deep,
            files: entries.len() as u64,
            rows: entries.iter().map(|entry| entry.rows).sum(),
            bytes: entries.iter().map(|entry| entry.size).sum(),
            ..Self::default()
        }
    }
}

/// Checks the store. `each` is called before each file, with the files done and all of them.
///
/// # Errors
/// If there is no store, its catalogue is damaged, or the system refuses to read.
pub fn check_store(settings: &Settings, deep: bool, mut each: impl FnMut(u64, u64)) -> Result<CheckReport, Error> {
    let store = StoreInspector::open(settings)?;
    let entries: Vec<FileEntry> = store.read()?.state.files().cloned().collect();
    let mut report = CheckReport::of(&entries, deep);
    for (done, entry) in entries.iter().enumerate() {
        each(done as u64, report.files);
        report.problems.extend(store.check(entry, deep)?);
    }
    each(report.files, report.files);
    store.list_extra_files(&mut report)?;
    Ok(report)
}

/// A store that is looked at, open or not.
pub(crate) struct StoreInspector {
    pub(crate) layout: StoreLayout,
    pub(crate) id: Uuid,
    /// The object store, if there is one.
    elsewhere: Option<RemoteInspector>,
}

impl StoreInspector {
    pub(crate) fn open(settings: &Settings) -> Result<Self, Error> {
        let layout = StoreLayout::new(settings);
        let id = known_store_id(&layout.meta).map_err(Error::of_catalogue)?;
        let id = id.ok_or_else(|| Error::no_store(&settings.store_dir))?;
        let remote = settings.remote.as_ref();
        let elsewhere = remote
            .map(|remote| RemoteInspector::look(remote, &layout, id))
            .transpose()?;
        let store = Self { layout, id, elsewhere };
        let has_store = store.elsewhere.as_ref().is_some_and(RemoteInspector::has_store);
        if !has_store && store.read()?.state.attached {
            return Err(remote.map_or_else(Error::needs_url, |remote| Error::not_its_bucket(&remote.url)));
        }
        Ok(store)
    }

    /// Whether the object store should have a file that is not here.
    pub(crate) const fn is_remote(&self, entry: &FileEntry) -> bool {
        self.elsewhere.is_some() && entry.sealed
    }

    /// How a file differs from its entry. One that is uploaded need not be here; before a copy of it counts as lost, its
    /// object is read.
    pub(crate) fn find_damage(&self, entry: &FileEntry, deep: bool) -> Result<Option<FileProblem>, Error> {
        let path = entry.path(&self.layout);
        let file = durable_fs::open_if_there(&path)?;
        let here = match &file {
            Some(file) => differs(file, &path, entry, deep)?,
            None => Some("it is missing".to_owned()),
        };
        let Some(what) = here else {
            return Ok(None);
        };
        let mut problem = FileProblem::new(path, what, entry.rows);
        if let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| !entry.sealed) {
            problem.object_is_sound = elsewhere.can_restore(entry.id)?;
        } else if let Some(elsewhere) = &self.elsewhere {
            match elsewhere.differs(entry, deep || file.is_some())? {
                None if file.is_none() => return Ok(None),
                None => problem.object_is_sound = true,
                Some(there) => problem.what = format!("{}, and {there}", problem.what),
            }
        }
        Ok(Some(problem))
    }

    /// Whether the object store has pieces of a file.
    pub(crate) fn has_pieces(&self, entry: &FileEntry) -> bool {
        let elsewhere = self.elsewhere.as_ref();
        elsewhere.is_some_and(|elsewhere| elsewhere.has_pieces(entry.id))
    }

    /// An earlier version of a sealed file, if the object store has it, sound: whole, or the pieces of when it was open.
    pub(crate) fn older_version(&self, entry: &FileEntry) -> Result<Option<FileEntry>, Error> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(None);
        };
        let older = elsewhere.file(entry.id).filter(|there| there.version < entry.version);
        match older {
            Some(older) if elsewhere.differs(older, true)?.is_none() => Ok(Some(older.clone())),
            _ if entry.sealed => elsewhere.as_pieces(entry.id),
            _ => Ok(None),
        }
    }

    /// The catalogue, read once.
    pub(crate) fn load(&self) -> Result<LoadedManifest, Error> {
        let found = StoreManifest::read(&self.layout.meta, self.id).map_err(Error::of_catalogue)?;
        if found.has_begun() {
            return Ok(found);
        }
        Err(Error::Catalogue {
            path: self.layout.meta.clone(),
            reason: "it has no checkpoint".to_owned(),
        })
    }

    /// The catalogue now. A Mixer may begin a new generation while this one is read.
    pub(crate) fn read(&self) -> Result<LoadedManifest, Error> {
        for _ in 1..TRIES {
            if let Ok(found) = self.load() {
                return Ok(found);
            }
            std::thread::sleep(PATIENCE);
        }
        self.load()
    }

    /// What is wrong with a file, as far as a catalogue that is read anew still says so.
    fn check(&self, entry: &FileEntry, deep: bool) -> Result<Option<FileProblem>, Error> {
        let mut entry = entry.clone();
        for _ in 0..TRIES {
            let Some(problem) = self.find_damage(&entry, deep)? else {
                return Ok(None);
            };
            match self.read()?.state.file(entry.id) {
                // It expired meanwhile.
                None => return Ok(None),
                Some(now) if now.version != entry.version => entry = now.clone(),
                Some(_) if self.is_newer(&problem.path, &entry) => std::thread::sleep(PATIENCE),
                Some(_) => return Ok(Some(problem)),
            }
        }
        // Always one step ahead of its record: it is being written.
        Ok(None)
    }

    /// Whether the file is a later version of the segment: its record is on its way, or the next start adopts it.
    pub(crate) fn is_newer(&self, path: &Path, entry: &FileEntry) -> bool {
        inspect(path).is_ok_and(|about| {
            let ours = about.identity.store == self.id && about.identity.segment == entry.id;
            ours && about.facts.version > entry.version
        })
    }

    /// Lists what is beside the catalogue's files.
    pub(crate) fn list_extra_files(&self, report: &mut CheckReport) -> Result<(), Error> {
        report.strangers = self.strangers()?;
        report.quarantined = data_files(&self.layout.quarantine)?;
        report.quarantined.sort();
        Ok(())
    }

    /// Whether a file of ours stands in for one that was removed.
    fn is_tombstone(&self, path: &Path) -> bool {
        inspect(path).is_ok_and(|about| about.identity.store == self.id && about.is_tombstone())
    }

    /// Files in the tree that no catalogue names, neither the one before the listing nor those after it.
    fn strangers(&self) -> Result<Vec<PathBuf>, Error> {
        let named = |found: &LoadedManifest| -> HashSet<PathBuf> {
            found.state.files().map(|entry| entry.path(&self.layout)).collect()
        };
        let before = named(&self.read()?);
        let mut strangers = Vec::new();
        for table in Table::ALL {
            strangers.extend(data_files(&self.layout.folder(table))?);
        }
        strangers.retain(|path| !before.contains(path) && !self.is_tombstone(path));
        // A new file waits for its record, an expired one for its unlinking.
        let is_ours = |path: &PathBuf| inspect(path).is_ok_and(|about| about.identity.store == self.id);
        for round in 0..ROUNDS {
            if strangers.is_empty() || (round >= TRIES && !strangers.iter().any(is_ours)) {
                break;
            }
            std::thread::sleep(PATIENCE);
            let after = named(&self.read()?);
            strangers.retain(|path| !after.contains(path) && path.exists());
        }
        strangers.sort();
        Ok(strangers)
    }
}

/// How a file differs from its entry; what follows an open file's recorded length is a later version.
fn differs(file: &File, path: &Path, entry: &FileEntry, deep: bool) -> Result<Option<String>, Error> {
    let length = file.metadata().map_err(Error::io("read", path))?.len();
    if length < entry.size || (entry.sealed && length > entry.size) {
        return Ok(Some(format!("it has {length} bytes instead of {}", entry.size)));
    }
    let file = file.try_clone().map_err(Error::io("open", path))?;
    let version = FilePrefix::new(file, entry.size);
    let wrong = |part: &str, found: u32, wanted: u32| {
        Some(format!("{part} has the checksum {found:08x} instead of {wanted:08x}"))
    };
    match footer_crc(&version).map_err(Error::io("read", path))? {
        None => return Ok(Some("it has no footer at its end".to_owned())),
        Some(found) if found != entry.footer_crc => return Ok(wrong("its footer", found, entry.footer_crc)),
        Some(_) => {}
    }
    if !deep {
        return Ok(None);
    }
    let found = file_crc(&version, 0, 0).map_err(Error::io("read", path))?;
    Ok(if found == entry.crc {
        None
    } else {
        wrong("it", found, entry.crc)
    })
}
