//! The manifest (catalogue): which data files are live, and what of the log and of every origin is stored.
//!
//! ```text
//! meta/LOCK                    held by the process that has the store open; its pid
//! meta/store.id                the store's UUID, made once
//! meta/checkpoint_<n>          the whole state where log n begins
//! meta/catalogue_<n>.log       one record for each publish, seal or removal since then, synced one by one, marked as synced
//! ```
//!
//! Each opening of the store and each full log begins a new generation `n`: a new empty log, then the checkpoint that
//! names it. The generation before is kept until the next one, should the newer checkpoint turn out unreadable.
//!
//! # Invariants
//!
//! - A record is durable before anything relies on it, and names only files that are durable under their names.
//! - State is a pure function of checkpoint and records; applying a record twice changes nothing.
//! - What a start adopts is in a record too, the first of its log: the log of the generation before and this one are together all
//!   that happened since the checkpoint before.
//! - A failed write or sync of a log is not retried on that file: the next commit begins a new generation.
//! - Numbers of segments and of files within a partition are given out once.
//!
//! # Not here
//!
//! Folders are never listed to answer a query; only recovery compares the tree with the catalogue.

mod checkpoint;
mod file_lineage;
mod log;
mod salvage;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use uuid::Uuid;

pub(crate) use file_lineage::FileLineage;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use log::{fuzz_log, fuzz_record};
pub(crate) use log::{has_manifest, remove_before};
pub(crate) use salvage::ManifestSalvage;
pub(crate) use state::{FileEntry, ManifestRecord, ManifestState};

use crate::Error;
use log::ManifestLog;

/// A log is closed when it is larger than this and than the checkpoint that would replace it.
const LOG_BYTES: u64 = 1 << 20;

/// The catalogue of an open store.
#[derive(Debug)]
pub(crate) struct StoreManifest {
    dir: PathBuf,
    state: ManifestState,
    log: ManifestLog,
    /// Whether the log took a write that failed: nothing may be appended to it any more.
    broken: bool,
    log_bytes: u64,
    written: u64,
}

impl StoreManifest {
    /// Reads what is in `dir`; `store` is the store's id. Nothing is written before [`LoadedManifest::begin`].
    pub(crate) fn read(dir: &Path, store: Uuid) -> Result<LoadedManifest, Error> {
        log::load(dir, store)
    }

    /// The state as of the last commit.
    pub(crate) const fn state(&self) -> &ManifestState {
        &self.state
    }

    /// The bytes of the newest checkpoint and its log.
    pub(crate) const fn bytes(&self) -> u64 {
        self.written + self.log_bytes
    }

    /// A segment number and a file number that were never given out.
    pub(crate) fn allocate(&mut self, place: crate::memtable::PartitionKey) -> (u64, u32) {
        self.state.allocate(place)
    }

    /// A segment number that was never given out, for a piece of a file.
    pub(crate) const fn allocate_id(&mut self) -> u64 {
        self.state.allocate_id()
    }

    /// Makes a record durable and applies it. After an error nothing of it counts, though it may be on disk: commit a record
    /// that includes it before anything else happens to the files that it names.
    pub(crate) fn commit(&mut self, mut record: ManifestRecord) -> Result<(), Error> {
        if self.broken || self.log_bytes > LOG_BYTES.max(self.written) {
            self.begin_generation()?;
        }
        record.version = self.state.version + 1;
        match self.log.append(&record) {
            Ok(bytes) => self.log_bytes = bytes,
            Err(error) => {
                self.broken = true;
                return Err(error);
            }
        }
        self.state.apply(record);
        Ok(())
    }

    /// As [`StoreManifest::commit`], of a record that leaves the low water as it is.
    pub(crate) fn commit_with(&mut self, say: impl FnOnce(&mut ManifestRecord)) -> Result<(), Error> {
        let mut record = ManifestRecord {
            low_water: self.state.low_water,
            ..ManifestRecord::default()
        };
        say(&mut record);
        self.commit(record)
    }

    /// Changes the state without a record: for a reader, which starts afresh each time.
    pub(crate) fn apply_unlogged(&mut self, change: impl FnOnce(&mut ManifestState)) {
        change(&mut self.state);
        self.state.gone.clear();
    }

    fn begin_generation(&mut self) -> Result<(), Error> {
        let number = self.log.number + 1;
        let (log, written) = ManifestLog::begin(&self.dir, number, &self.state)?;
        self.log = log;
        self.written = written;
        self.log_bytes = 0;
        self.broken = false;
        log::remove_before(&self.dir, number - 1)
    }
}

/// A catalogue that was read, before it is written again.
#[derive(Debug)]
pub(crate) struct LoadedManifest {
    dir: PathBuf,
    /// Recovery corrects it by what it finds in the tree.
    pub(crate) state: ManifestState,
    newest: u64,
    /// Bytes of an unfinished record at the end.
    pub(crate) torn: u64,
    adopted: Vec<FileEntry>,
    given_up: Vec<FileEntry>,
}

impl LoadedManifest {
    /// A rebuilt state, to follow generation `newest`.
    pub(crate) fn anew(dir: &Path, state: ManifestState, newest: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            state,
            newest,
            torn: 0,
            adopted: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Takes a file as it describes itself: the record of its last version was lost.
    pub(crate) fn adopt(&mut self, entry: FileEntry) {
        self.state.set_through(entry.place(), entry.last);
        self.state.put(entry.clone());
        self.adopted.push(entry);
    }

    /// Lets go of a damaged file that is kept aside: what the log has of its rows is replayed, at each start until it is in a
    /// file again.
    pub(crate) fn give_up(&mut self, entry: FileEntry) {
        self.state.give_up(&entry);
        self.given_up.push(entry);
    }

    /// Whether there ever was a checkpoint.
    pub(crate) const fn has_begun(&self) -> bool {
        self.state.epoch > 0
    }

    /// Begins a new generation under the next writer epoch.
    pub(crate) fn begin(mut self) -> Result<StoreManifest, Error> {
        self.state.epoch += 1;
        let (log, written) = ManifestLog::begin(&self.dir, self.newest + 1, &self.state)?;
        let mut catalog = StoreManifest {
            dir: self.dir,
            state: self.state,
            log,
            broken: false,
            log_bytes: 0,
            written,
        };
        if !self.adopted.is_empty() || !self.given_up.is_empty() {
            catalog.commit_with(|record| {
                record.remove = self.given_up.iter().map(|entry| entry.id).collect();
                record.replay = self.given_up.iter().map(FileEntry::range).collect();
                record.through = self.adopted.iter().map(|entry| (entry.place(), entry.last)).collect();
                record.put = self.adopted;
            })?;
        }
        log::remove_before(&catalog.dir, self.newest)?;
        Ok(catalog)
    }
}

/// The store's id, from its file or made from `fresh` if the store is new.
pub(crate) fn store_id(dir: &Path, fresh: impl FnOnce() -> Uuid) -> Result<Uuid, Error> {
    if let Some(id) = known_store_id(dir)? {
        return Ok(id);
    }
    let path = dir.join("store.id");
    if log::has_manifest(dir)? {
        let reason = "it is missing beside a catalogue".to_owned();
        return Err(Error::Damaged { path, reason });
    }
    let id = fresh();
    write_id(&path, id)?;
    Ok(id)
}

/// The store's id from its file, if it is there.
pub(crate) fn known_store_id(dir: &Path) -> Result<Option<Uuid>, Error> {
    read_id(dir.join("store.id"))
}

/// Writes the store's id where it is missing or damaged.
pub(crate) fn write_store_id(dir: &Path, id: Uuid) -> Result<(), Error> {
    write_id(&dir.join("store.id"), id)
}

/// The id in a file, if it is there.
pub(crate) fn read_id(path: PathBuf) -> Result<Option<Uuid>, Error> {
    match std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
        Ok(text) => Uuid::try_parse(text.trim()).map(Some).map_err(|_| {
            Error::damaged(
                &path,
                format!("{:?} is not a UUID", text.chars().take(64).collect::<String>()),
            )
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", &path)(error)),
    }
}

/// Writes a file of an id durably.
pub(crate) fn write_id(path: &Path, id: Uuid) -> Result<(), Error> {
    Ok(durable_fs::write_atomically(path, format!("{id}\n").as_bytes(), 0o600)?)
}
