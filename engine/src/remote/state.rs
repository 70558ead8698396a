//! What the object store's catalogue says: files, numbers given out, which batches are uploaded, who writes.
//!
//! # Invariants
//!
//! - State is a pure function of checkpoint and records; a record names only objects that are there, whole.
//! - A batch counts as stored only if all of its rows are in objects, or in objects that expired.
//! - Numbers of segments, and of files within a partition, that were seen here are never given out again.

use std::collections::BTreeMap;

use model::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalog::{FileEntry, State};
use crate::hot::Place;
use crate::journal::{Key, Parts};
use crate::watermark::{Marks, Watermarks};

/// A file in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteFile {
    pub(crate) entry: FileEntry,
    /// Its object's name below the prefix.
    pub(crate) key: String,
}

/// Who writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
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
    pub(crate) writer: Writer,
    pub(crate) put: Vec<RemoteFile>,
    /// Segments that expired. Their objects stay for a while.
    pub(crate) remove: Vec<u64>,
    /// Objects that are deleted.
    pub(crate) deleted: Vec<String>,
    pub(crate) marks: Marks,
    /// Batches of which these partitions are uploaded and others are not.
    pub(crate) parts: Vec<(Key, Place)>,
    /// Batches that are whole now.
    pub(crate) whole: Vec<Key>,
    /// No log position up to this one is used again.
    pub(crate) lsn: u64,
}

/// The whole.
#[derive(Debug, Default)]
pub(crate) struct RemoteState {
    /// The last record.
    pub(crate) number: u64,
    pub(crate) store: Uuid,
    pub(crate) writer: Writer,
    pub(crate) files: BTreeMap<u64, RemoteFile>,
    /// Objects of expired files, and when they expired (µs).
    pub(crate) doomed: BTreeMap<String, i64>,
    pub(crate) next_segment: u64,
    pub(crate) numbers: BTreeMap<Place, u32>,
    pub(crate) marks: Watermarks,
    pub(crate) parts: Parts,
    pub(crate) lsn: u64,
}

/// As it stands in a checkpoint.
#[derive(Serialize, Deserialize)]
struct Stored {
    number: u64,
    store: Uuid,
    writer: Writer,
    files: Vec<RemoteFile>,
    doomed: Vec<(String, i64)>,
    next_segment: u64,
    numbers: Vec<(Place, u32)>,
    marks: Marks,
    parts: Parts,
    lsn: u64,
}

impl RemoteState {
    pub(crate) fn apply(&mut self, record: RemoteRecord) {
        self.number = record.number;
        self.store = record.store;
        self.writer = record.writer;
        self.lsn = self.lsn.max(record.lsn);
        for file in record.put {
            let entry = &file.entry;
            self.next_segment = self.next_segment.max(entry.id + 1);
            let highest = self.numbers.entry(entry.place()).or_insert(0);
            *highest = entry.number.max(*highest);
            self.lsn = self.lsn.max(entry.last);
            self.doomed.remove(&file.key);
            self.files.insert(entry.id, file);
        }
        for id in record.remove {
            if let Some(file) = self.files.remove(&id) {
                self.doomed.insert(file.key, record.at);
            }
        }
        for key in record.deleted {
            self.doomed.remove(&key);
        }
        self.marks.join(&record.marks);
        for (key, place) in record.parts {
            self.parts.insert(key, place);
        }
        for key in &record.whole {
            self.parts.remove(key);
        }
    }

    /// The catalogue of a machine that knows nothing but this.
    pub(crate) fn to_local(&self) -> State {
        let mut state = State::new(self.store);
        for file in self.files.values() {
            state.put(file.entry.clone());
        }
        for (place, number) in &self.numbers {
            state.burn(*place, *number, self.next_segment.saturating_sub(1));
        }
        state.low_water = self.lsn + 1;
        state.marks.join(&self.marks.all());
        state.parts = self.parts.clone();
        state.attached = true;
        state
    }

    /// Whether it knows any batch: a copy says so last.
    pub(crate) fn marks_known(&self) -> bool {
        self.marks.all() != Marks::default()
    }

    /// Objects that expired before `than` and are to be deleted.
    pub(crate) fn doomed_before(&self, than: Timestamp) -> Vec<String> {
        let old = self.doomed.iter().filter(|(_, at)| **at <= than.micros());
        old.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let stored = Stored {
            number: self.number,
            store: self.store,
            writer: self.writer.clone(),
            files: self.files.values().cloned().collect(),
            doomed: self.doomed.iter().map(|(key, at)| (key.clone(), *at)).collect(),
            next_segment: self.next_segment,
            numbers: self.numbers.iter().map(|(place, number)| (*place, *number)).collect(),
            marks: self.marks.all(),
            parts: self.parts.clone(),
            lsn: self.lsn,
        };
        let mut bytes = Vec::new();
        ciborium::into_writer(&stored, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = ciborium::from_reader(bytes).map_err(|error| error.to_string())?;
        let mut state = Self {
            number: stored.number,
            store: stored.store,
            writer: stored.writer,
            files: stored.files.into_iter().map(|file| (file.entry.id, file)).collect(),
            doomed: stored.doomed.into_iter().collect(),
            next_segment: stored.next_segment,
            numbers: stored.numbers.into_iter().collect(),
            parts: stored.parts,
            lsn: stored.lsn,
            ..Self::default()
        };
        state.marks.join(&stored.marks);
        Ok(state)
    }
}
