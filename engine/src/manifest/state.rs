//! The state of the catalogue: live files, numbers given out, what of the log is in files, what of every origin is stored.
//!
//! In records an entry is CBOR, whose names say what is there; a checkpoint is in [`postcard`], which reads 100,000 entries back
//! in milliseconds and takes no more memory than a few times its bytes, whatever its counts claim.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use model::{Table, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::SpecName;
use crate::datafile::{FileFormat, FileIdentity, FileVersion, RecordedVersion, SortedRun};
use crate::dedup::{DedupWatermarks, WatermarkDelta};
use crate::layout::{DataFileName, StoreLayout, TimePartition};
use crate::memtable::PartitionKey;

/// One live data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// The segment's number, unique in the store, kept over all versions.
    pub(crate) id: u64,
    /// Grows with each publish and with the seal.
    pub(crate) version: u32,
    pub(crate) table: Table,
    pub(crate) partition: TimePartition,
    /// The `NNN` in its name.
    pub(crate) number: u32,
    pub(crate) form: FileFormat,
    /// What stands before the number, where a spec says something else than its name.
    pub(crate) prefix: Option<SpecName>,
    pub(crate) size: u64,
    pub(crate) rows: u64,
    /// Microseconds.
    pub(crate) min_ts: i64,
    /// Microseconds.
    pub(crate) max_ts: i64,
    pub(crate) sealed: bool,
    /// The row groups of a sealed file that is not sorted as a whole.
    pub(crate) runs: Vec<SortedRun>,
    /// CRC-32C of the whole file.
    pub(crate) crc: u32,
    /// CRC-32C of the footer.
    pub(crate) footer_crc: u32,
    /// First LSN with rows in it.
    pub(crate) first: u64,
    /// Its rows, and those of earlier files of the partition, are all those of the partition up to this LSN.
    pub(crate) last: u64,
    /// When the last rows were published into it, µs.
    pub(crate) published: i64,
}

impl FileEntry {
    /// The entry of a version of the segment `id`, into which rows went last at `published`, µs.
    pub(crate) fn new(
        id: u64,
        (table, partition): PartitionKey,
        named: DataFileName,
        published: i64,
        file: &FileVersion,
    ) -> Self {
        Self {
            id,
            version: file.facts.version,
            table,
            partition,
            number: named.number,
            form: named.form,
            prefix: named.prefix,
            size: file.size,
            rows: file.rows,
            min_ts: file.min_ts.micros(),
            max_ts: file.max_ts.micros(),
            sealed: file.sealed,
            runs: file.runs.clone(),
            crc: file.crc,
            footer_crc: file.footer_crc,
            first: file.facts.first_lsn,
            last: file.facts.last_lsn,
            published,
        }
    }

    /// The entry of another version of the file.
    pub(crate) fn at(&self, file: &FileVersion) -> Self {
        Self::new(self.id, self.place(), self.named(), self.published, file)
    }

    /// Whose file it is, in this store.
    pub(crate) const fn identity(&self, store: Uuid) -> FileIdentity {
        FileIdentity {
            store,
            table: self.table,
            segment: self.id,
        }
    }

    /// What [`crate::datafile::resume()`] compares the file with.
    pub(crate) const fn recorded(&self) -> RecordedVersion {
        RecordedVersion {
            size: self.size,
            crc: self.crc,
            footer_crc: self.footer_crc,
        }
    }

    /// Its name in the tree.
    pub(crate) fn path(&self, layout: &StoreLayout) -> PathBuf {
        layout.file(self.table, self.partition, self.named())
    }

    /// What its name says.
    pub(crate) const fn named(&self) -> DataFileName {
        DataFileName {
            number: self.number,
            form: self.form,
            prefix: self.prefix,
        }
    }

    pub(crate) const fn place(&self) -> PartitionKey {
        (self.table, self.partition)
    }

    /// The LSNs of its rows in its partition.
    pub(crate) const fn range(&self) -> (PartitionKey, u64, u64) {
        (self.place(), self.first, self.last)
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
pub(crate) struct ManifestRecord {
    /// Counts records; set by the commit.
    pub(crate) version: u64,
    /// Files that are new or have a new version.
    pub(crate) put: Vec<FileEntry>,
    /// Segments that are no more.
    pub(crate) remove: Vec<u64>,
    /// Every row of these partitions up to and with this LSN is in a file.
    pub(crate) through: Vec<(PartitionKey, u64)>,
    /// Rows that were in damaged files: of a partition, from an LSN through another one. They are in no file from now on, and
    /// replayed as far as the log has them.
    pub(crate) replay: Vec<(PartitionKey, u64, u64)>,
    /// Every row with a lower LSN is in a file.
    pub(crate) low_water: u64,
    #[serde(rename = "marks")]
    pub(crate) watermarks: WatermarkDelta,
    /// The time that rotation relied on, µs; 0 if it is not said.
    pub(crate) relied_on: i64,
    /// The object store keeps what it has of the removed segments: they were damaged here, they did not expire.
    pub(crate) keep_objects: bool,
    /// Removed segments that the object store's catalogue does not have either.
    pub(crate) forgotten: Vec<u64>,
}

/// The whole, as it also stands in a checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ManifestState {
    pub(crate) store: Uuid,
    /// Counts openings of the store.
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    next_segment: u64,
    files: BTreeMap<(PartitionKey, u32), FileEntry>,
    #[serde(skip)]
    keys: BTreeMap<u64, (PartitionKey, u32)>,
    /// The highest number given out in each partition.
    numbers: BTreeMap<PartitionKey, u32>,
    /// Kept until the low water has passed it.
    through: BTreeMap<PartitionKey, u64>,
    /// What is to be replayed although it is below: see [`ManifestRecord::replay`].
    replay: BTreeMap<PartitionKey, (u64, u64)>,
    pub(crate) low_water: u64,
    #[serde(rename = "marks")]
    pub(crate) watermarks: DedupWatermarks,
    relied_on: i64,
    /// Whether there is an object store.
    pub(crate) attached: bool,
    /// Segments that were removed here and may still be in the object store's catalogue.
    pub(crate) gone: BTreeSet<u64>,
}

impl ManifestState {
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
    pub(crate) fn file_at(&self, place: PartitionKey, number: u32) -> Option<&FileEntry> {
        self.files.get(&(place, number))
    }

    /// Whether a segment number was ever given out.
    pub(crate) const fn knows(&self, id: u64) -> bool {
        id < self.next_segment
    }

    /// The LSN through which a partition's rows are in files. Below the low water the log holds nothing to ask for.
    pub(crate) fn through(&self, place: PartitionKey) -> u64 {
        self.through.get(&place).copied().unwrap_or(0)
    }

    /// As [`ManifestState::through`], of all partitions that may have rows in the log.
    pub(crate) fn all_through(&self) -> BTreeMap<PartitionKey, u64> {
        self.through.clone()
    }

    /// From where on the log is to be replayed: the low water, or where rows of damaged files begin.
    pub(crate) fn replay_from(&self) -> u64 {
        let froms = self.replay.values().map(|(from, _)| *from);
        froms.fold(self.low_water, u64::min)
    }

    /// The rows of damaged files that may be in the log and are in no other file.
    pub(crate) const fn replay(&self) -> &BTreeMap<PartitionKey, (u64, u64)> {
        &self.replay
    }

    /// Whether the rows from `first` through `last`, found in a file that no entry names, are in no other one.
    pub(crate) fn lacks(&self, place: PartitionKey, first: u64, last: u64) -> bool {
        match self.replay.get(&place) {
            Some((from, _)) => first >= *from,
            None => last > self.through(place) && first >= self.low_water,
        }
    }

    /// Whether rows of a damaged file can be replayed: those of one that took rows when its partition had no later one.
    pub(crate) fn can_replay(&self, entry: &FileEntry) -> bool {
        let later = (entry.place(), entry.number + 1)..=(entry.place(), u32::MAX);
        !entry.sealed && self.files.range(later).next().is_none()
    }

    /// The highest LSN that any partition is in files through.
    pub(crate) fn highest_through(&self) -> u64 {
        self.through.values().copied().max().unwrap_or(0)
    }

    /// The last time that rotation relied on.
    pub(crate) fn relied_on(&self) -> Option<Timestamp> {
        (self.relied_on != 0).then_some(Timestamp::from_micros(self.relied_on))
    }

    /// A segment number that was never given out.
    pub(crate) const fn allocate_id(&mut self) -> u64 {
        let id = self.next_segment;
        self.next_segment += 1;
        id
    }

    pub(crate) fn allocate(&mut self, place: PartitionKey) -> (u64, u32) {
        let id = self.allocate_id();
        let number = self.numbers.entry(place).or_insert(0);
        *number += 1;
        (id, *number)
    }

    /// Takes a number out of circulation because a file was found under it.
    pub(crate) fn mark_number_used(&mut self, place: PartitionKey, number: u32, id: u64) {
        let highest = self.numbers.entry(place).or_insert(0);
        *highest = (*highest).max(number);
        self.next_segment = self.next_segment.max(id.saturating_add(1));
    }

    /// Puts a file's new version.
    pub(crate) fn put(&mut self, entry: FileEntry) {
        let key = (entry.place(), entry.number);
        self.mark_number_used(entry.place(), entry.number, entry.id);
        self.keys.insert(entry.id, key);
        self.files.insert(key, entry);
    }

    pub(crate) fn remove(&mut self, id: u64, keep_object: bool) {
        let entry = self.keys.remove(&id).and_then(|key| self.files.remove(&key));
        if entry.is_some() && self.attached && !keep_object {
            self.gone.insert(id);
        }
    }

    pub(crate) fn set_through(&mut self, place: PartitionKey, lsn: u64) {
        let through = self.through.entry(place).or_insert(0);
        *through = lsn.max(*through);
        if let Some((from, end)) = self.replay.get_mut(&place) {
            *from = (lsn + 1).max(*from);
            if from > end {
                self.replay.remove(&place);
            }
        }
    }

    /// Takes a damaged file out, whose rows are to be replayed.
    pub(super) fn give_up(&mut self, entry: &FileEntry) {
        self.remove(entry.id, false);
        self.replay_anew(entry.range());
    }

    /// Notes a range of LSNs of a partition that is to be replayed as far as the log has it.
    pub(crate) fn replay_anew(&mut self, (place, from, end): (PartitionKey, u64, u64)) {
        let range = self.replay.entry(place).or_insert((from, end));
        *range = (from.min(range.0), end.max(range.1));
    }

    pub(crate) fn apply(&mut self, record: ManifestRecord) {
        self.version = record.version;
        record.put.into_iter().for_each(|entry| self.put(entry));
        for id in record.remove {
            self.remove(id, record.keep_objects);
        }
        record.replay.into_iter().for_each(|range| self.replay_anew(range));
        for (place, lsn) in record.through {
            self.set_through(place, lsn);
        }
        self.low_water = self.low_water.max(record.low_water);
        self.through.retain(|_, lsn| *lsn >= self.low_water);
        self.watermarks.merge_newer(&record.watermarks);
        if record.relied_on != 0 {
            self.relied_on = record.relied_on;
        }
        for id in record.forgotten {
            self.gone.remove(&id);
        }
    }
}

impl ManifestState {
    /// A checkpoint's body.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        postcard::to_stdvec(self).map_err(|error| error.to_string())
    }

    /// The state from such a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut state: Self = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        // All at once: a tree that is built so has full nodes.
        state.files = std::mem::take(&mut state.files).into_iter().collect();
        state.keys = state.files.iter().map(|(key, entry)| (entry.id, *key)).collect();
        Ok(state)
    }
}
