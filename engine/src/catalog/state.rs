//! What the catalogue says: live files, numbers given out, what of the log is in files, what of every origin is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use model::{Table, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::packed;
use crate::SpecName;
use crate::hot::Place;
use crate::journal::{Entry, Journal, Parts, Range};
use crate::layout::{Layout, Named, Partition};
use crate::segment::{Form, Run};
use crate::watermark::{Marks, Watermarks};

/// One live data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// The segment's number, unique in the store, kept over all versions.
    pub(crate) id: u64,
    /// Grows with each publish and with the seal.
    pub(crate) version: u32,
    pub(crate) table: Table,
    pub(crate) partition: Partition,
    /// The `NNN` in its name.
    pub(crate) number: u32,
    #[serde(default, skip_serializing_if = "Form::is_parquet")]
    pub(crate) form: Form,
    /// What stands before the number, where a spec says something else than its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<SpecName>,
    pub(crate) size: u64,
    pub(crate) rows: u64,
    /// Microseconds.
    pub(crate) min_ts: i64,
    /// Microseconds.
    pub(crate) max_ts: i64,
    pub(crate) sealed: bool,
    /// The row groups of a sealed file that is not sorted as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<Run>,
    /// CRC-32C of the whole file.
    pub(crate) crc: u32,
    /// CRC-32C of the footer.
    pub(crate) footer_crc: u32,
    /// First LSN with rows in it.
    pub(crate) first: u64,
    /// Its rows, and those of earlier files of the partition, are all those of the partition up to this LSN; 0 if an
    /// earlier version wrote the entry.
    #[serde(default)]
    pub(crate) last: u64,
    /// When the last rows were published into it, µs.
    pub(crate) published: i64,
}

impl FileEntry {
    /// Its name in the tree.
    pub(crate) fn path(&self, layout: &Layout) -> PathBuf {
        layout.file(self.table, self.partition, self.named())
    }

    /// What its name says.
    pub(crate) const fn named(&self) -> Named {
        Named {
            number: self.number,
            form: self.form,
            prefix: self.prefix,
        }
    }

    pub(crate) const fn place(&self) -> Place {
        (self.table, self.partition)
    }

    pub(crate) const fn min_ts(&self) -> Timestamp {
        Timestamp::from_micros(self.min_ts)
    }

    pub(crate) const fn max_ts(&self) -> Timestamp {
        Timestamp::from_micros(self.max_ts)
    }
}

/// One change of the catalogue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Counts records; set by the commit.
    pub(crate) version: u64,
    /// Files that are new or have a new version.
    pub(crate) put: Vec<FileEntry>,
    /// Segments that are no more.
    pub(crate) remove: Vec<u64>,
    /// Every row of these partitions up to and with this LSN is in a file.
    pub(crate) through: Vec<(Place, u64)>,
    /// Every row with a lower LSN is in a file.
    pub(crate) low_water: u64,
    pub(crate) marks: Marks,
    /// The time that rotation relied on, µs; 0 if it is not said.
    #[serde(default)]
    pub(crate) relied_on: i64,
    /// With an object store: batches whose rows are all in files from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) journal: Vec<Entry>,
    /// Files that are in the object store, and its catalogue, from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) uploaded: Vec<(u64, Range)>,
    /// Expired files that the object store's catalogue does not have either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) forgotten: Vec<u64>,
    /// The object store knows all batches from before it was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) legacy_done: bool,
}

/// What was stored before there was an object store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Legacy {
    /// Files of then that are not uploaded.
    pub(crate) files: BTreeSet<u64>,
    /// Batches of then.
    pub(crate) marks: Marks,
}

/// The whole.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) store: Uuid,
    /// Counts openings of the store.
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    next_segment: u64,
    files: BTreeMap<(Place, u32), FileEntry>,
    keys: BTreeMap<u64, (Place, u32)>,
    /// The highest number given out in each partition.
    numbers: BTreeMap<Place, u32>,
    /// Kept until the low water has passed it.
    through: BTreeMap<Place, u64>,
    pub(crate) low_water: u64,
    pub(crate) marks: Watermarks,
    relied_on: i64,
    /// Whether there is an object store; the fields below are kept for it.
    pub(crate) attached: bool,
    pub(crate) journal: Journal,
    /// Batches of a lost machine that were uploaded in part.
    pub(crate) parts: Parts,
    /// Files that expired here and may still be in the object store's catalogue.
    pub(crate) gone: BTreeSet<u64>,
    pub(crate) legacy: Option<Legacy>,
}

/// As it stands in a checkpoint. Its files follow, packed; those of an earlier version are in it.
#[derive(Serialize, Deserialize)]
struct Stored {
    store: Uuid,
    epoch: u64,
    version: u64,
    next_segment: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    numbers: Vec<(Place, u32)>,
    through: Vec<(Place, u64)>,
    low_water: u64,
    marks: Marks,
    #[serde(default)]
    relied_on: i64,
    #[serde(default)]
    attached: bool,
    #[serde(default)]
    journal: Vec<Entry>,
    #[serde(default)]
    parts: Parts,
    #[serde(default)]
    gone: BTreeSet<u64>,
    #[serde(default)]
    legacy: Option<Legacy>,
}

impl State {
    pub(crate) fn new(store: Uuid) -> Self {
        Self {
            store,
            next_segment: 1,
            ..Self::default()
        }
    }

    /// The same without any file: what was given out and what is stored stay.
    pub(crate) fn without_files(mut self) -> Self {
        self.files.clear();
        self.keys.clear();
        self
    }

    /// Live files, by table, partition and number.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files.values()
    }

    pub(crate) fn file(&self, id: u64) -> Option<&FileEntry> {
        self.files.get(self.keys.get(&id)?)
    }

    /// The file `number` of a partition.
    pub(crate) fn file_at(&self, place: Place, number: u32) -> Option<&FileEntry> {
        self.files.get(&(place, number))
    }

    /// Whether a segment number was ever given out.
    pub(crate) const fn knows(&self, id: u64) -> bool {
        id < self.next_segment
    }

    /// The LSN through which a partition's rows are in files. Below the low water the log holds nothing to ask for.
    pub(crate) fn through(&self, place: Place) -> u64 {
        self.through.get(&place).copied().unwrap_or(0)
    }

    /// As [`State::through`], of all partitions that may have rows in the log.
    pub(crate) fn all_through(&self) -> BTreeMap<Place, u64> {
        self.through.clone()
    }

    /// The highest LSN that any partition is in files through.
    pub(crate) fn highest_through(&self) -> u64 {
        self.through.values().copied().max().unwrap_or(0)
    }

    /// The last time that rotation relied on.
    pub(crate) fn relied_on(&self) -> Option<Timestamp> {
        (self.relied_on != 0).then_some(Timestamp::from_micros(self.relied_on))
    }

    pub(crate) fn allocate(&mut self, place: Place) -> (u64, u32) {
        let id = self.next_segment;
        self.next_segment += 1;
        let number = self.numbers.entry(place).or_insert(0);
        *number += 1;
        (id, *number)
    }

    /// Takes a number out of circulation because a file was found under it.
    pub(crate) fn burn(&mut self, place: Place, number: u32, id: u64) {
        let highest = self.numbers.entry(place).or_insert(0);
        *highest = (*highest).max(number);
        self.next_segment = self.next_segment.max(id.saturating_add(1));
    }

    /// Puts a file's new version.
    pub(crate) fn put(&mut self, entry: FileEntry) {
        let key = (entry.place(), entry.number);
        self.burn(entry.place(), entry.number, entry.id);
        self.keys.insert(entry.id, key);
        self.files.insert(key, entry);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let entry = self.keys.remove(&id).and_then(|key| self.files.remove(&key));
        let Some(entry) = entry.filter(|_| self.attached) else {
            return;
        };
        self.gone.insert(id);
        if entry.last > 0 {
            self.journal.cover((entry.place(), entry.first, entry.last));
        }
        if let Some(legacy) = &mut self.legacy {
            legacy.files.remove(&id);
        }
    }

    pub(crate) fn set_through(&mut self, place: Place, lsn: u64) {
        let through = self.through.entry(place).or_insert(0);
        *through = lsn.max(*through);
    }

    pub(crate) fn apply(&mut self, record: Record) {
        self.version = record.version;
        record.put.into_iter().for_each(|entry| self.put(entry));
        record.remove.into_iter().for_each(|id| self.remove(id));
        for (place, lsn) in record.through {
            self.set_through(place, lsn);
        }
        self.low_water = self.low_water.max(record.low_water);
        self.through.retain(|_, lsn| *lsn >= self.low_water);
        self.marks.join(&record.marks);
        if record.relied_on != 0 {
            self.relied_on = record.relied_on;
        }
        record.journal.into_iter().for_each(|entry| self.journal.insert(entry));
        for (id, range) in record.uploaded {
            self.journal.cover(range);
            if let Some(legacy) = &mut self.legacy {
                legacy.files.remove(&id);
            }
        }
        for id in record.forgotten {
            self.gone.remove(&id);
        }
        if record.legacy_done {
            self.legacy = None;
        }
    }
}

impl From<Stored> for State {
    fn from(stored: Stored) -> Self {
        let mut state = Self {
            store: stored.store,
            epoch: stored.epoch,
            version: stored.version,
            next_segment: stored.next_segment,
            numbers: stored.numbers.into_iter().collect(),
            through: stored.through.into_iter().collect(),
            low_water: stored.low_water,
            relied_on: stored.relied_on,
            attached: stored.attached,
            parts: stored.parts,
            gone: stored.gone,
            legacy: stored.legacy,
            ..Self::default()
        };
        stored.journal.into_iter().for_each(|entry| state.journal.insert(entry));
        stored.files.into_iter().for_each(|entry| state.put(entry));
        state.marks.join(&stored.marks);
        state
    }
}

impl From<&State> for Stored {
    fn from(state: &State) -> Self {
        Self {
            store: state.store,
            epoch: state.epoch,
            version: state.version,
            next_segment: state.next_segment,
            files: Vec::new(),
            numbers: Vec::new(),
            through: state.through.iter().map(|(place, lsn)| (*place, *lsn)).collect(),
            low_water: state.low_water,
            marks: state.marks.all(),
            relied_on: state.relied_on,
            attached: state.attached,
            journal: state.journal.entries(),
            parts: state.parts.clone(),
            gone: state.gone.clone(),
            legacy: state.legacy.clone(),
        }
    }
}

impl State {
    /// Appends a checkpoint's body: the length of what is not packed u64, that in CBOR, the files.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), String> {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        ciborium::into_writer(&Stored::from(self), &mut *out).map_err(|error| error.to_string())?;
        let length = (out.len() - start - 8) as u64;
        if let Some(head) = out.get_mut(start..start + 8) {
            head.copy_from_slice(&length.to_le_bytes());
        }
        packed::write(&self.numbers, &self.files, out);
        Ok(())
    }

    /// The state from such a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (length, rest) = bytes.split_first_chunk().ok_or("it is too short")?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (head, files) = rest.split_at_checked(length).ok_or("it is too short")?;
        let mut state = Self::decode_unpacked(head)?;
        let unpacked = packed::read(files)?;
        state.numbers.extend(unpacked.numbers);
        for ((place, number), entry) in &unpacked.files {
            let highest = state.numbers.entry(*place).or_insert(0);
            *highest = (*highest).max(*number);
            state.next_segment = state.next_segment.max(entry.id.saturating_add(1));
        }
        // All at once: a tree that is built so has full nodes.
        state.keys = unpacked.files.iter().map(|(key, entry)| (entry.id, *key)).collect();
        state.files = unpacked.files.into_iter().collect();
        Ok(state)
    }

    /// The state from the body of a checkpoint whose files are not packed.
    pub(crate) fn decode_unpacked(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = ciborium::from_reader(bytes).map_err(|error| error.to_string())?;
        Ok(stored.into())
    }
}
