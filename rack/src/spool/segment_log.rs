//! The segment log of the spool: entries stay until the Mixer has them, or until there is no room for them.
//!
//! ```text
//! <state_dir>/spool/epoch           the last boot epoch, decimal
//!                   00000000000000000007.seg    see segment.rs
//!                   00000000000000000003.seg.damaged   kept aside for people; never read again
//! ```
//!
//! # Invariants
//!
//! - A batch that is part of a whole is there after a crash only with all of the whole: an unfinished one is cut off.
//! - [`SpoolLog::append`] returns after the group is synced; then all of it is there after a crash, with its checkpoints.
//!   When it fails nothing of the group counts, and its sequences are used again for the same rows.
//! - A run never appends to another run's segment, so only the newest segment can have a torn tail. It is cut when opened.
//!   A segment with anything else that does not read is copied aside and reported, and what precedes the damage is kept.
//! - Every segment begins with a snapshot of all checkpoints, so removing older segments loses none. One without a value is forgotten;
//!   where a segment of before outlives that and the process ends, it may be there again.
//! - After a failed write or sync the file is never written again; the group goes to a new segment.
//! - A segment of another version of this program is neither read nor removed: the spool is not opened.
//! - Whole segments go: when everything in one is durable at the Mixer, or the oldest when the spool is full and may drop.
//!
//! # Not here
//!
//! Threads and waiting ([`super::SpoolHandle`]), reading for the bus ([`super::reader`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable_fs::FolderHandles;
use model::control::DurableFloor;
use model::{Clock, EntityId, Table};
use parking_lot::Mutex;

use super::index::{SpoolIndex, SpoolSegment, apply_checkpoint};
use super::recovery::{SpoolRecoveryReport, scan, segment_ids, segment_path};
use super::segment::{self, HEADER, ProducerRun, SpoolRecordHeader, SpoolRecordKind};
use super::{SpoolError, SpoolKind, boot_epoch};
use crate::spool::SourceCheckpoint;

/// The bytes of one record of a snapshot, about: far less than a record may have.
const SNAPSHOT_BYTES: usize = 1 << 20;

/// What happens when the spool is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolFullPolicy {
    /// The oldest segment goes; its rows are counted.
    DropOldest,
    /// New rows wait until they are admitted.
    Block,
}

/// How large the spool may grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpoolLimits {
    /// All segments together.
    pub(crate) max_bytes: u64,
    /// When to begin the next segment.
    pub(crate) segment_bytes: u64,
    /// What then.
    pub(crate) when_full: SpoolFullPolicy,
}

impl SpoolLimits {
    /// Segments of 8 MiB, or a part of a small spool: dropping one must not take most of what is there, and one that never drops has
    /// room again by whole segments.
    pub(crate) fn new(max_bytes: u64, when_full: SpoolFullPolicy) -> Self {
        let parts = match when_full {
            SpoolFullPolicy::DropOldest => 4,
            SpoolFullPolicy::Block => 32,
        };
        Self {
            max_bytes,
            segment_bytes: (max_bytes / parts).clamp(64 << 10, 8 << 20),
            when_full,
        }
    }
}

/// A batch to be kept. Without rows it has only checkpoints.
#[derive(Debug, Clone)]
pub(crate) struct SpoolBatch {
    pub(crate) entity: EntityId,
    pub(crate) table: Table,
    pub(crate) rows: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) checkpoints: Vec<SourceCheckpoint>,
    /// Whether it counts only together with the batch behind it: both are there after a crash, or neither.
    pub(crate) is_part: bool,
}

pub(super) struct SpoolLog {
    dir: PathBuf,
    limits: SpoolLimits,
    clock: Clock,
    epoch: u64,
    next_seq: BTreeMap<EntityId, u64>,
    index: Arc<Mutex<SpoolIndex>>,
    active: ActiveSpoolSegment,
}

struct ActiveSpoolSegment {
    id: u64,
    file: Arc<File>,
    len: u64,
    /// How long it was when it was begun.
    begun: u64,
}

impl ActiveSpoolSegment {
    /// Whether nothing was appended to it.
    const fn is_fresh(&self) -> bool {
        self.len == self.begun
    }

    /// Whether enough is behind the snapshot that it begins with: so many bytes, and no less than the snapshot has, so that notes are not
    /// most of what is written.
    const fn is_long(&self, bytes: u64) -> bool {
        let behind = self.len - self.begun;
        behind >= bytes && behind >= self.begun
    }
}

impl SpoolLog {
    pub(super) fn open(
        dir: &Path,
        limits: SpoolLimits,
        clock: Clock,
        lane: SpoolKind,
    ) -> Result<(Self, SpoolRecoveryReport), SpoolError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| SpoolError::Io { path, source }
        };
        durable_fs::create_private_dirs(dir)?;
        let mut index = SpoolIndex::default();
        let mut found = SpoolRecoveryReport::default();
        let ids = segment_ids(dir).map_err(at(dir))?;
        // All of them, before any is changed.
        for id in &ids {
            let path = segment_path(dir, *id);
            let other = File::open(&path).and_then(|file| segment::other_version(&file));
            if let Some(found) = other.map_err(at(&path))? {
                return Err(SpoolError::Newer { path, found });
            }
        }
        for id in &ids {
            let path = segment_path(dir, *id);
            let newest = Some(id) == ids.last();
            let segment =
                scan(*id, &path, newest, clock.now(), &mut index.checkpoints, &mut found).map_err(at(&path))?;
            index.segments.extend(segment);
        }
        index.restore_floors();
        let seen = index.segments.iter().flat_map(|segment| &segment.spans);
        let seen = seen.map(|span| span.run.epoch).max().unwrap_or(0);
        let epoch = boot_epoch::next(dir, seen, clock.now(), lane)?;
        let id = ids.last().map_or(1, |last| last + 1);
        let (active, segment) = create(dir, id, &clock, &index.checkpoints).map_err(at(dir))?;
        index.segments.push_back(segment);
        let index = Arc::new(Mutex::new(index));
        let mut spool = Self {
            dir: dir.to_owned(),
            limits,
            clock,
            epoch,
            next_seq: BTreeMap::new(),
            index,
            active,
        };
        spool.trim();
        Ok((spool, found))
    }

    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn index(&self) -> Arc<Mutex<SpoolIndex>> {
        Arc::clone(&self.index)
    }

    /// Writes a group of batches, syncs, and only then lets the reader see them.
    pub(super) fn append<'a>(&mut self, group: impl IntoIterator<Item = &'a SpoolBatch>) -> io::Result<()> {
        let group: Vec<&SpoolBatch> = group.into_iter().collect();
        if group.is_empty() {
            // Whoever waits for what is before it has no need of room.
            return Ok(());
        }
        let size: usize = group.iter().map(|batch| size_of_batch(batch)).sum();
        self.make_room(size as u64)?;
        if self.active.is_long(self.limits.segment_bytes) || self.index.lock().leave_active {
            self.roll()?;
        }
        let bytes = self.encode(&group);
        if let Err(error) = self.write(&bytes) {
            // What the file holds behind its last synced byte is unknown now: leave it, and try once more elsewhere.
            tracing::warn!(%error, segment = %segment_path(&self.dir, self.active.id).display(), "spool write failed; going on in a new segment");
            let _ = self.active.file.set_len(self.active.len);
            // Where no other can be begun now, the next append begins with that.
            self.index.lock().leave_active = true;
            self.roll()?;
            let bytes = self.encode(&group);
            if let Err(error) = self.write(&bytes) {
                let _ = self.active.file.set_len(self.active.len);
                self.index.lock().leave_active = true;
                return Err(error);
            }
        }
        self.publish(&group);
        Ok(())
    }

    /// Takes what the Mixer has as durable, and removes segments that hold nothing else.
    pub(super) fn apply_floors(&mut self, floors: &[DurableFloor]) {
        let raised = {
            let mut index = self.index.lock();
            floors.iter().filter(|floor| index.raise(floor)).count()
        };
        if raised > 0 {
            self.trim();
        }
    }

    fn encode(&self, group: &[&SpoolBatch]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(group.iter().map(|batch| size_of_batch(batch)).sum());
        let mut next_seq = self.next_seq.clone();
        for batch in group {
            let notes = batch
                .checkpoints
                .iter()
                .map(|note| (note.key.as_str(), note.value.as_slice()));
            let notes = segment::encode_checkpoints(notes);
            let run = self.run(batch.entity);
            let head = if batch.rows == 0 {
                record_header(SpoolRecordKind::Notes, run)
            } else {
                let seq = next_seq.entry(batch.entity).or_insert(1);
                let head = SpoolRecordHeader {
                    table: batch.table.number(),
                    rows: batch.rows,
                    seq: *seq,
                    ..record_header(
                        if batch.is_part {
                            SpoolRecordKind::Part
                        } else {
                            SpoolRecordKind::Batch
                        },
                        run,
                    )
                };
                *seq += 1;
                head
            };
            segment::encode(&mut bytes, self.active.id, head, &notes, &batch.payload);
        }
        bytes
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.active.file.write_all_at(bytes, self.active.len)?;
        self.active.file.sync_data()?;
        self.active.len += bytes.len() as u64;
        Ok(())
    }

    /// The group is durable: gives its sequences away and shows it to the reader.
    fn publish(&mut self, group: &[&SpoolBatch]) {
        let mut index = self.index.lock();
        for batch in group {
            let run = self.run(batch.entity);
            for note in &batch.checkpoints {
                apply_checkpoint(&mut index.checkpoints, note.clone());
            }
            if batch.rows > 0 {
                let seq = self.next_seq.entry(batch.entity).or_insert(1);
                if let Some(segment) = index.segments.back_mut() {
                    segment.add(run, *seq);
                }
                *seq += 1;
            }
        }
        if let Some(segment) = index.segments.back_mut() {
            segment.len = self.active.len;
        }
    }

    const fn run(&self, entity: EntityId) -> ProducerRun {
        ProducerRun {
            entity,
            epoch: self.epoch,
        }
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.index.lock().bytes() + bytes > self.limits.max_bytes {
            let (alone, settled) = {
                let index = self.index.lock();
                let active = index.segments.back();
                (
                    index.segments.len() <= 1,
                    active.is_some_and(|active| index.is_settled(active)),
                )
            };
            let fresh = self.active.is_fresh();
            if alone && fresh {
                // This group alone is larger than the whole spool: let it in, or it would wait for ever.
                return Ok(());
            }
            if settled && !fresh {
                self.roll()?;
            } else if self.limits.when_full == SpoolFullPolicy::Block {
                // It was admitted: what is beyond the bound are checkpoints, and bytes of settled batches.
                return Ok(());
            } else if alone {
                self.roll()?;
            } else {
                self.drop_oldest();
            }
        }
        Ok(())
    }

    /// Begins a new segment, with all checkpoints, floors among them; earlier ones that hold nothing else that is wanted go.
    pub(super) fn roll(&mut self) -> io::Result<()> {
        let id = self.active.id + 1;
        // A file of that name can only be the rest of a creation that failed.
        durable_fs::remove_if_there(&segment_path(&self.dir, id))?;
        // Nobody else changes checkpoints, and readers must not wait for the disk.
        let snapshot = self.index.lock().checkpoints.clone();
        let (active, segment) = create(&self.dir, id, &self.clock, &snapshot)?;
        self.active = active;
        let mut index = self.index.lock();
        index.segments.push_back(segment);
        index.leave_active = false;
        drop(index);
        self.trim();
        Ok(())
    }

    fn trim(&mut self) {
        let mut index = self.index.lock();
        let active = self.active.id;
        let gone: Vec<(u64, PathBuf)> = index
            .segments
            .iter()
            .filter(|segment| segment.id != active && index.is_settled(segment))
            .map(|segment| (segment.id, segment.path.clone()))
            .collect();
        if !gone.is_empty() {
            index
                .segments
                .retain(|segment| gone.iter().all(|(id, _)| *id != segment.id));
        }
        index.forget_floors(self.epoch);
        // Readers must not wait for the disk. What a crash leaves of these files, the Mixer has; the snapshot that forgets their floors is only
        // written after them.
        drop(index);
        gone.iter().for_each(|(_, path)| remove(path));
    }

    /// Gives the oldest segment up and counts what the Mixer does not have of it.
    fn drop_oldest(&mut self) {
        let mut index = self.index.lock();
        if index.segments.len() < 2 {
            return;
        }
        let Some(segment) = index.segments.pop_front() else {
            return;
        };
        let rows = rows_above_floor(&segment, &index);
        index.dropped_rows += rows;
        drop(index);
        remove(&segment.path);
        if rows > 0 {
            tracing::warn!(
                rows,
                segment = segment.id,
                "the spool is full: its oldest rows are dropped"
            );
        }
    }
}

pub(super) fn record_header(kind: SpoolRecordKind, run: ProducerRun) -> SpoolRecordHeader {
    SpoolRecordHeader {
        len: 0,
        crc: 0,
        kind,
        table: 0,
        notes: 0,
        rows: 0,
        run,
        seq: 0,
    }
}

pub(super) fn size_of_batch(batch: &SpoolBatch) -> usize {
    let notes = batch
        .checkpoints
        .iter()
        .map(|note| 4 + note.key.len() + note.value.len());
    segment::RECORD_HEADER + notes.sum::<usize>() + batch.payload.len()
}

fn rows_above_floor(segment: &SpoolSegment, index: &SpoolIndex) -> u64 {
    let (mut offset, mut rows) = (HEADER, 0);
    while let Ok(record) = segment::read(&segment.file, segment.id, offset, segment.len) {
        if record.head.kind.is_batch() && record.head.seq > index.floor(record.head.run) {
            rows += u64::from(record.head.rows);
        }
        offset = record.next;
    }
    rows
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(%error, path = %path.display(), "could not remove a finished spool segment");
    }
}

/// Creates a segment with a snapshot of all checkpoints.
fn create(
    dir: &Path,
    id: u64,
    clock: &Clock,
    checkpoints: &BTreeMap<String, Vec<u8>>,
) -> io::Result<(ActiveSpoolSegment, SpoolSegment)> {
    let path = segment_path(dir, id);
    let folder = FolderHandles::open([dir])?;
    let file = durable_fs::create_private(&path)?;
    let mut bytes = segment::file_header(id).to_vec();
    let run = ProducerRun {
        entity: EntityId::from_bytes([0; 16]),
        epoch: 0,
    };
    let mut notes = checkpoints
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_slice()))
        .peekable();
    while notes.peek().is_some() {
        let mut encoded = Vec::new();
        while encoded.len() < SNAPSHOT_BYTES
            && let Some(note) = notes.next()
        {
            encoded.append(&mut segment::encode_checkpoints(std::iter::once(note)));
        }
        segment::encode(
            &mut bytes,
            id,
            record_header(SpoolRecordKind::Notes, run),
            &encoded,
            &[],
        );
    }
    file.write_all_at(&bytes, 0)?;
    durable_fs::sync_file(&file, &path)?;
    folder.sync()?;
    let (file, len) = (Arc::new(file), bytes.len() as u64);
    let segment = SpoolSegment {
        id,
        path,
        file: Arc::clone(&file),
        len,
        opened: clock.now(),
        spans: Vec::new(),
    };
    let active = ActiveSpoolSegment {
        id,
        file,
        len,
        begun: len,
    };
    Ok((active, segment))
}
