//! The state of the object store's catalogue: a prefix of the store, complete up to one LSN, and who writes.
//!
//! # Invariants
//!
//! - State is a pure function of checkpoint and records; a record names only objects that are there, whole.
//! - Every row of every batch up to [`RemoteState::lsn`] is in the objects that it names, or in objects that expired; the
//!   marks are those of these batches and of no others.
//! - Numbers of segments, and of files within a partition, that were seen here are never given out again.
//! - A record, and what is kept beside the files, is bounded, however long the object store was away: marks are.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dedup::{DedupWatermarks, WatermarkDelta};
use crate::manifest::{FileEntry, ManifestState};
use crate::memtable::PartitionKey;

/// Pieces have file numbers of their own, far behind those of data files.
const PIECE_NUMBERS: u32 = 1 << 31;

/// A file in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteFile {
    pub(crate) entry: FileEntry,
    /// Its object's name below the prefix.
    pub(crate) key: String,
    /// The open file that it is a piece of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) piece_of: Option<OpenFileId>,
    /// The object of an earlier version that outside readers still see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<ReplacedObject>,
}

/// An open file on the writer's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenFileId {
    pub(crate) segment: u64,
    /// Its number within its partition.
    pub(crate) number: u32,
}

/// An object in the tree that is going to be overwritten by a later version of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedObject {
    pub(crate) key: String,
    /// Since when no record names it, µs: that of the record that says so, however long the upload before it took.
    pub(crate) at: i64,
}

/// The files that the last record names, for who tells outside readers of them.
#[derive(Debug, Default)]
pub(crate) struct RecordedFiles {
    /// That of the last record by which they changed.
    pub(crate) number: u64,
    pub(crate) files: BTreeMap<u64, Arc<RemoteFile>>,
    /// Versions of them whose objects this process found missing or damaged: outside readers are not told of them.
    damaged: BTreeMap<u64, u32>,
    /// How often a file was left out.
    changes: u64,
}

impl RecordedFiles {
    /// Leaves a version of a file out. Whether it was there.
    pub(crate) fn leave_out(&mut self, id: u64, version: u32) -> bool {
        let Self { files, damaged, .. } = self;
        let is_named = |id: u64, version: u32| files.get(&id).is_some_and(|file| file.entry.version == version);
        damaged.retain(|id, version| is_named(*id, *version));
        if !is_named(id, version) {
            return false;
        }
        let is_new = damaged.insert(id, version).is_none();
        self.changes += u64::from(is_new);
        is_new
    }

    /// Grows with every change of what [`RecordedFiles::sound`] gives.
    pub(crate) const fn version(&self) -> u64 {
        self.number + self.changes
    }

    /// What outside readers are told of.
    pub(crate) fn sound(&self) -> impl Iterator<Item = &Arc<RemoteFile>> {
        let is_sound = move |file: &&Arc<RemoteFile>| self.damaged.get(&file.entry.id) != Some(&file.entry.version);
        self.files.values().filter(is_sound)
    }
}

impl RemoteFile {
    /// A sealed data file.
    pub(crate) const fn sealed(entry: FileEntry, key: String) -> Self {
        Self {
            entry,
            key,
            piece_of: None,
            replaces: None,
        }
    }

    /// A piece of an open file; `entry` has the file's id and number, `id` is the piece's own.
    pub(crate) const fn piece(mut entry: FileEntry, id: u64, key: String) -> Self {
        let of = OpenFileId {
            segment: entry.id,
            number: entry.number,
        };
        entry.id = id;
        #[allow(clippy::cast_possible_truncation, reason = "the low bits")]
        let low = id as u32;
        entry.number = PIECE_NUMBERS | low;
        Self {
            entry,
            key,
            piece_of: Some(of),
            replaces: None,
        }
    }

    /// The segment whose rows it has.
    pub(crate) fn segment(&self) -> u64 {
        self.piece_of.map_or(self.entry.id, |of| of.segment)
    }

    fn number(&self) -> u32 {
        self.piece_of.map_or(self.entry.number, |of| of.number)
    }
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriterIdentity {
    /// Counts claims.
    pub(crate) epoch: u64,
    /// Counts folders that ever wrote: names of objects of later ones tell them apart.
    pub(crate) generation: u64,
    /// The writer's folder.
    pub(crate) instance: Uuid,
    /// Its machine, for messages.
    pub(crate) host: String,
    pub(crate) pid: u32,
}

/// One change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RemoteRecord {
    pub(crate) number: u64,
    /// Tells our record from another's of the same number.
    pub(crate) nonce: u64,
    pub(crate) store: Uuid,
    /// µs.
    pub(crate) at: i64,
    pub(crate) writer: WriterIdentity,
    /// Files that are new or have a new version.
    pub(crate) put: Vec<RemoteFile>,
    /// Files that expired, and pieces that a sealed file takes the place of. Their objects stay for a while.
    pub(crate) remove: Vec<u64>,
    /// Objects that are deleted.
    pub(crate) deleted: Vec<String>,
    /// What changed in the watermarks.
    #[serde(rename = "marks")]
    pub(crate) watermarks: WatermarkDelta,
    /// Every row of every batch up to this LSN is in objects; 0 leaves it as it is.
    pub(crate) lsn: u64,
}

impl RemoteRecord {
    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.remove.is_empty() && self.deleted.is_empty()
    }
}

/// The whole.
#[derive(Debug, Default)]
pub(crate) struct RemoteState {
    /// The last record.
    pub(crate) number: u64,
    pub(crate) store: Uuid,
    pub(crate) writer: WriterIdentity,
    pub(crate) files: BTreeMap<u64, Arc<RemoteFile>>,
    /// The same files, shared.
    pub(crate) recorded: Arc<Mutex<RecordedFiles>>,
    /// Objects that no file names any more, and since when (µs).
    pub(crate) doomed: BTreeMap<String, i64>,
    pub(crate) next_segment: u64,
    pub(crate) numbers: BTreeMap<PartitionKey, u32>,
    /// Shared with who tells producers how far they are stored.
    pub(crate) watermarks: Arc<Mutex<DedupWatermarks>>,
    pub(crate) lsn: u64,
}

/// As it stands in a checkpoint.
#[derive(Serialize, Deserialize)]
struct RemoteCheckpoint {
    number: u64,
    store: Uuid,
    writer: WriterIdentity,
    files: Vec<RemoteFile>,
    doomed: Vec<(String, i64)>,
    next_segment: u64,
    numbers: Vec<(PartitionKey, u32)>,
    #[serde(rename = "marks")]
    watermarks: WatermarkDelta,
    lsn: u64,
}

impl RemoteState {
    pub(crate) fn apply(&mut self, record: RemoteRecord) {
        self.number = record.number;
        self.store = record.store;
        self.writer = record.writer;
        self.lsn = self.lsn.max(record.lsn);
        let recorded = Arc::clone(&self.recorded);
        let mut recorded = recorded.lock();
        if !record.put.is_empty() || !record.remove.is_empty() {
            recorded.number = record.number;
        }
        for id in record.remove {
            recorded.files.remove(&id);
            if let Some(file) = self.files.remove(&id) {
                self.doom(&file, record.at);
            }
        }
        for mut file in record.put {
            let before = self.files.get(&file.entry.id);
            if let Some(old) = &mut file.replaces
                && before.is_some_and(|before| before.replaces.is_none())
            {
                old.at = record.at;
            }
            let file = Arc::new(file);
            recorded.files.insert(file.entry.id, Arc::clone(&file));
            let place = file.entry.place();
            let highest = self.numbers.entry(place).or_insert(0);
            *highest = file.number().max(*highest);
            self.next_segment = self.next_segment.max(file.entry.id.max(file.segment()) + 1);
            let new = [Some(&file.key), file.replaces.as_ref().map(|old| &old.key)].map(|key| key.cloned());
            if let Some(old) = self.files.insert(file.entry.id, file) {
                self.doom(&old, record.at);
            }
            for key in new.into_iter().flatten() {
                self.doomed.remove(&key);
            }
        }
        drop(recorded);
        for key in record.deleted {
            self.doomed.remove(&key);
        }
        self.watermarks.lock().merge_newer(&record.watermarks);
    }

    fn doom(&mut self, file: &RemoteFile, at: i64) {
        let replaced = file.replaces.as_ref().map(|old| &old.key);
        let keys = std::iter::once(&file.key).chain(replaced);
        self.doomed.extend(keys.map(|key| (key.clone(), at)));
    }

    /// The catalogue of a machine that knows nothing but this: open files are there as far as their pieces are.
    pub(crate) fn to_local(&self) -> ManifestState {
        let mut state = ManifestState::new(self.store);
        for file in self.files.values().filter(|file| file.piece_of.is_none()) {
            state.put(file.entry.clone());
        }
        self.open_files().into_values().for_each(|entry| state.put(entry));
        for (place, number) in &self.numbers {
            state.mark_number_used(*place, *number, self.next_segment.saturating_sub(1));
        }
        state.low_water = self.lsn + 1;
        state.watermarks.merge_newer(&self.watermarks.lock().all());
        state.attached = true;
        state
    }

    /// The catalogue of one that only reads: pieces are files to it.
    pub(crate) fn to_replica(&self) -> ManifestState {
        let mut state = ManifestState::new(self.store);
        self.files.values().for_each(|file| state.put(file.entry.clone()));
        state.low_water = self.lsn + 1;
        state.attached = true;
        state
    }

    /// What has the rows of a segment, in their order: the sealed file, or pieces.
    pub(crate) fn parts_of(&self, segment: u64) -> Vec<&RemoteFile> {
        let files = self.files.values().map(Arc::as_ref);
        let mut parts: Vec<&RemoteFile> = files.filter(|file| file.segment() == segment).collect();
        parts.sort_by_key(|part| part.entry.first);
        parts
    }

    /// Files that the writer had open, by segment, as far as pieces have them: their length is not known before they are
    /// put together.
    pub(crate) fn open_files(&self) -> BTreeMap<u64, FileEntry> {
        let mut open: BTreeMap<u64, FileEntry> = BTreeMap::new();
        for part in self.files.values() {
            let Some(of) = part.piece_of else { continue };
            let one = &part.entry;
            let all = open.entry(of.segment).or_insert_with(|| FileEntry {
                id: of.segment,
                number: of.number,
                sealed: false,
                size: 0,
                rows: 0,
                runs: Vec::new(),
                ..one.clone()
            });
            all.version = all.version.max(one.version);
            all.rows += one.rows;
            all.first = all.first.min(one.first);
            all.last = all.last.max(one.last);
            all.min_ts = all.min_ts.min(one.min_ts);
            all.max_ts = all.max_ts.max(one.max_ts);
            all.published = all.published.max(one.published);
        }
        open
    }

    /// Up to which LSN the object store has a segment's rows.
    pub(crate) fn covered(&self, segment: u64) -> u64 {
        let parts = self.parts_of(segment).into_iter();
        parts.map(|part| part.entry.last).max().unwrap_or(0)
    }

    /// Whether it knows any batch: a copy says so last.
    pub(crate) fn marks_known(&self) -> bool {
        self.watermarks.lock().all() != WatermarkDelta::default()
    }

    /// Objects that are doomed since before `than` and are to be deleted.
    pub(crate) fn doomed_before(&self, than: Timestamp) -> Vec<String> {
        let old = self.doomed.iter().filter(|(_, at)| **at <= than.micros());
        old.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let stored = RemoteCheckpoint {
            number: self.number,
            store: self.store,
            writer: self.writer.clone(),
            files: self.files.values().map(|file| (**file).clone()).collect(),
            doomed: self.doomed.iter().map(|(key, at)| (key.clone(), *at)).collect(),
            next_segment: self.next_segment,
            numbers: self.numbers.iter().map(|(place, number)| (*place, *number)).collect(),
            watermarks: self.watermarks.lock().all(),
            lsn: self.lsn,
        };
        let mut bytes = Vec::new();
        ciborium::into_writer(&stored, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let stored: RemoteCheckpoint = ciborium::from_reader(bytes).map_err(|error| error.to_string())?;
        let state = Self {
            number: stored.number,
            store: stored.store,
            writer: stored.writer,
            files: (stored.files.into_iter())
                .map(|file| (file.entry.id, Arc::new(file)))
                .collect(),
            doomed: stored.doomed.into_iter().collect(),
            next_segment: stored.next_segment,
            numbers: stored.numbers.into_iter().collect(),
            lsn: stored.lsn,
            ..Self::default()
        };
        state.watermarks.lock().merge_newer(&stored.watermarks);
        *state.recorded.lock() = RecordedFiles {
            number: state.number,
            files: state.files.clone(),
            ..RecordedFiles::default()
        };
        Ok(state)
    }
}
