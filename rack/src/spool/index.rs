//! The index that the writer and the reader of the spool share: the segments, the floors, the checkpoints.
//!
//! # Invariants
//!
//! - `len` of a segment covers only bytes that were synced: the reader never sends what is not durable here.
//! - Segments are ordered by id, oldest first; the last one is the one being written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use model::Timestamp;
use model::control::DurableFloor;

use super::segment::ProducerRun;
use crate::spool::SourceCheckpoint;

/// The sequences of one run within a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunSequenceRange {
    pub(super) run: ProducerRun,
    pub(super) first: u64,
    pub(super) last: u64,
}

#[derive(Debug)]
pub(super) struct SpoolSegment {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) len: u64,
    pub(super) opened: Timestamp,
    pub(super) spans: Vec<RunSequenceRange>,
}

impl SpoolSegment {
    pub(super) fn add(&mut self, run: ProducerRun, seq: u64) {
        match self.spans.iter_mut().find(|span| span.run == run) {
            Some(span) => {
                span.first = span.first.min(seq);
                span.last = span.last.max(seq);
            }
            None => self.spans.push(RunSequenceRange {
                run,
                first: seq,
                last: seq,
            }),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SpoolIndex {
    pub(super) segments: VecDeque<SpoolSegment>,
    pub(super) floors: BTreeMap<ProducerRun, u64>,
    /// How far the Mixer said last that each run is on its disk. Falls when another machine takes its place.
    on_disk: BTreeMap<ProducerRun, u64>,
    pub(super) checkpoints: BTreeMap<String, Vec<u8>>,
    /// Rows that were given up because the spool was full.
    pub(super) dropped_rows: u64,
    /// Damage that the reader met in the segment being written: the writer leaves it.
    pub(super) leave_active: bool,
}

impl SpoolIndex {
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    pub(super) fn floor(&self, run: ProducerRun) -> u64 {
        self.floors.get(&run).copied().unwrap_or(0)
    }

    /// Raises the floor of a run that has entries here; false if it was there already. Floors of the Rack's other spool come, too.
    pub(super) fn raise(&mut self, floor: &DurableFloor) -> bool {
        let run = ProducerRun {
            entity: floor.entity_id,
            epoch: floor.boot_epoch,
        };
        if !self.has(run) {
            return false;
        }
        let known = self.floors.entry(run).or_default();
        let raised = floor.seq > *known;
        *known = floor.seq.max(*known);
        self.on_disk.insert(run, floor.on_disk);
        if raised {
            let floor = floor.seq.to_le_bytes().to_vec();
            self.checkpoints.insert(floor_key(run), floor);
        }
        raised
    }

    /// Restores the floors that an earlier run wrote down, and forgets those of runs that have nothing here.
    pub(super) fn restore_floors(&mut self) {
        let spans = self.segments.iter().flat_map(|segment| &segment.spans);
        let runs: BTreeSet<ProducerRun> = spans.map(|span| span.run).collect();
        let keys: BTreeSet<String> = runs.iter().map(|run| floor_key(*run)).collect();
        self.checkpoints
            .retain(|key, _| !key.starts_with(FLOOR) || keys.contains(key));
        for run in runs {
            let floor = self.checkpoints.get(&floor_key(run)).cloned();
            if let Some(floor) = floor.and_then(|bytes| bytes.try_into().ok()) {
                self.floors.insert(run, u64::from_le_bytes(floor));
            }
        }
    }

    /// Whether a run has entries here.
    fn has(&self, run: ProducerRun) -> bool {
        let mut spans = self.segments.iter().flat_map(|segment| &segment.spans);
        spans.any(|span| span.run == run)
    }

    /// Whether everything in the segment is durable at the Mixer.
    pub(super) fn is_settled(&self, segment: &SpoolSegment) -> bool {
        segment.spans.iter().all(|span| span.last <= self.floor(span.run))
    }

    /// The sequence up to which nothing of the run will be sent any more: durable at the Mixer, or given up here.
    pub(super) fn settled(&self, run: ProducerRun) -> u64 {
        let kept = self
            .segments
            .iter()
            .flat_map(|segment| &segment.spans)
            .filter(|span| span.run == run)
            .map(|span| span.first)
            .min();
        kept.map_or(0, |first| first.saturating_sub(1)).max(self.floor(run))
    }

    /// The first run of which something is neither durable at the Mixer nor on its disk, as far as it said, and how far it is.
    pub(super) fn first_waiting(&self) -> Option<(ProducerRun, u64)> {
        let has = |run: ProducerRun| self.floor(run).max(self.on_disk.get(&run).copied().unwrap_or(0));
        let mut spans = self.segments.iter().flat_map(|segment| &segment.spans);
        let first = spans.find(|span| span.last > has(span.run))?;
        Some((first.run, has(first.run)))
    }

    /// Bytes of segments that hold something not known to be durable at the Mixer.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let waiting = self.segments.iter().filter(|segment| !self.is_settled(segment));
        waiting.map(|segment| segment.len).sum()
    }

    /// When the oldest segment that still waits was begun.
    pub(super) fn waiting_since(&self) -> Option<Timestamp> {
        let mut waiting = self.segments.iter().filter(|segment| !self.is_settled(segment));
        waiting.next().map(|segment| segment.opened)
    }

    /// The last sequence of each run that waits for its floor, oldest first, at most `limit`.
    pub(super) fn waiting(&self, limit: usize) -> Vec<DurableFloor> {
        let mut last: BTreeMap<ProducerRun, u64> = BTreeMap::new();
        for span in self.segments.iter().flat_map(|segment| &segment.spans) {
            let seq = last.entry(span.run).or_default();
            *seq = span.last.max(*seq);
        }
        let waits = last.into_iter().filter(|(run, seq)| *seq > self.floor(*run));
        let mut waits: Vec<_> = waits
            .map(|(run, seq)| DurableFloor {
                entity_id: run.entity,
                boot_epoch: run.epoch,
                seq,
                on_disk: 0,
            })
            .collect();
        waits.sort_by_key(|floor| floor.boot_epoch);
        waits.truncate(limit);
        waits
    }

    /// Forgets floors of runs that have nothing here, except this process's own.
    pub(super) fn forget_floors(&mut self, current_epoch: u64) {
        let known: Vec<ProducerRun> = self.floors.keys().copied().collect();
        for run in known {
            if run.epoch != current_epoch && !self.has(run) {
                self.floors.remove(&run);
                self.on_disk.remove(&run);
                self.checkpoints.remove(&floor_key(run));
            }
        }
    }
}

/// Takes a checkpoint down; one without a value is forgotten.
pub(super) fn apply_checkpoint(checkpoints: &mut BTreeMap<String, Vec<u8>>, note: SourceCheckpoint) {
    if note.value.is_empty() {
        checkpoints.remove(&note.key);
    } else {
        checkpoints.insert(note.key, note.value);
    }
}

/// What the names of floors among the checkpoints begin with.
const FLOOR: &str = "floor ";

/// The checkpoint that keeps the floor of a run.
fn floor_key(run: ProducerRun) -> String {
    format!("{FLOOR}{} {}", run.entity, run.epoch)
}
