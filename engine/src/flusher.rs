//! The flusher thread: on each tick, rows of the memtable become row groups of open data files.
//!
//! ```text
//! freeze ─> encode ─> publish into the open file ─┐ for each partition that is due
//! one catalogue record ───────────────────────────┤ commit point of the round
//! forget frozen rows, put files, swap the view ───┤ in one step
//! release the log ────────────────────────────────┘
//! ```
//!
//! # When a partition is due
//!
//! At every tick while its open file has few row groups; later only when it has enough new rows, or at every third tick. Always when
//! rows must leave memory at once: at a flush, at the close, when the log is full. When memory is short, only the partitions with
//! enough rows for a large row group, because large groups need not be encoded again; if there are none, all.
//!
//! # Invariants
//!
//! - Rows that reached a file but whose record failed stay frozen, and that record is tried again before anything else.
//! - A partition's rows go into its files in the order of their LSNs.
//! - A file takes rows only if its columns are those of the spec at the time after the rows were frozen. A spec changes before the
//!   first row is matched by its new version, so every value fits its column.
//! - A damaged file takes no more rows: the next rows go into the file with the next number.

mod damaged_files;
mod open_file_limit;
mod partition_files;
mod prefix_cut;
mod retention_turn;
mod seal_selection;
mod small_file_compaction;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::flush_scheduler::{FlushRequests, SealJob, ShutdownMode};
use crate::io_pacing::IoPriority;
use crate::manifest::ManifestRecord;
use crate::memtable::{FlushCandidate, FrozenRows, PartitionKey};
use crate::open_partition::{FlushedGroup, OpenPartition, append, is_taken};
use crate::retention_enforcer::RetentionEnforcer;
use partition_files::{new_open_partition, seal_in_memory};

/// A row group takes at most about so many rows, and [`crate::Settings::group_max`] bytes of hot rows.
const GROUP_ROWS: usize = 256 << 10;
/// Up to so many row groups a file is young: it gets one at every tick.
const YOUNG_GROUPS: usize = 32;
/// So many bytes of hot rows, a few times what they take in a file, are worth a row group at any tick.
const WORTHWHILE: u64 = 4 << 20;
/// Ticks that a partition with little new waits at most.
const PATIENT_TICKS: u32 = 3;

/// What a tick is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlushGoal {
    /// Every row in a file.
    Everything,
    /// What waited long enough.
    Due,
    /// Room in memory.
    Room,
    /// What was published and could not be recorded, if there is any.
    Nothing,
}

/// The flusher's own things.
#[derive(Debug)]
pub(crate) struct MemtableFlusher {
    shared: Arc<EngineCore>,
    open: BTreeMap<PartitionKey, OpenPartition>,
    /// Full files that wait for their seal.
    full: Vec<SealJob>,
    /// Published into files, not recorded.
    unrecorded: Vec<FlushedGroup>,
    janitor: RetentionEnforcer,
    /// Ticks that partitions without an open file have waited for one.
    late: BTreeMap<PartitionKey, u32>,
    /// While a prefix cut is made: the LSN that it ends with. No row behind it is published.
    cut_at: Option<u64>,
}

impl MemtableFlusher {
    /// Takes up the open files that recovery found: of each partition the newest takes rows, the others are sealed.
    pub(crate) fn new(shared: Arc<EngineCore>, found: Vec<OpenPartition>) -> Self {
        let mut open: BTreeMap<PartitionKey, OpenPartition> = BTreeMap::new();
        let mut full = Vec::new();
        for slot in found {
            let place = slot.place;
            if open
                .get(&place)
                .is_some_and(|other| other.named.number > slot.named.number)
            {
                full.push(SealJob::new(slot));
            } else {
                full.extend(open.insert(place, slot).map(SealJob::new));
            }
        }
        Self {
            janitor: RetentionEnforcer::new(&shared),
            shared,
            open,
            full,
            unrecorded: Vec::new(),
            late: BTreeMap::new(),
            cut_at: None,
        }
    }

    /// Publishes one round of what makes room, before the threads are there.
    pub(crate) fn flush_round(&mut self) -> Result<(), Error> {
        let done = self.record().and_then(|()| {
            let due = self.due(FlushGoal::Room, false);
            self.round(due, IoPriority::Yes).map(|_| ())
        });
        self.record_outcome(done.as_ref().err().map(|error| Arc::<str>::from(error.to_string())));
        done
    }

    /// Publishes every row, before the threads are there.
    pub(crate) fn flush_all(&mut self) -> Result<(), Error> {
        self.flush(FlushGoal::Everything, false)
    }

    /// Flushes on every tick and on demand, until asked to stop.
    pub(crate) fn run(mut self) {
        let _sentinel = PoisonGuard(Arc::clone(&self.shared));
        let interval = self.shared.settings.flush_interval;
        let mut next = Instant::now() + interval;
        loop {
            let tick = self.shared.scheduler.wait(next);
            let on_time = Instant::now() >= next;
            if on_time {
                next = Instant::now() + interval;
            }
            if tick.stop == Some(ShutdownMode::AtOnce) {
                break;
            }
            let stop = tick.stop.is_some();
            self.tick(tick, on_time, stop);
            if stop {
                break;
            }
        }
        self.shared.scheduler.close_seals();
        self.shared.scheduler.mark_stopped();
    }

    fn tick(&mut self, mut tick: FlushRequests, on_time: bool, stop: bool) {
        self.quarantine_damaged(std::mem::take(&mut tick.damaged));
        let want = if stop || tick.pressed || !tick.flushes.is_empty() || (tick.urgent && self.shared.log_is_full()) {
            FlushGoal::Everything
        } else if on_time {
            FlushGoal::Due
        } else if tick.urgent {
            FlushGoal::Room
        } else {
            FlushGoal::Nothing
        };
        let result = match self.shared.poisoned() {
            Some(reason) => Err(Error::Poisoned { reason }),
            None => match self.flush(want, on_time) {
                // What is in doubt stays so.
                Err(error) if !error.is_in_doubt() && self.shared.admission.space.release_ballast() => {
                    self.flush(want, on_time)
                }
                published => published,
            },
        };
        if let Some(error) = result.as_ref().err().filter(|error| error.is_in_doubt()) {
            self.shared.poison(&error.to_string());
        }
        let failed = result.as_ref().err().map(|error| Arc::<str>::from(error.to_string()));
        self.record_outcome(failed.clone());
        for job in tick.returned {
            self.full.push(job);
        }
        self.answer_cuts(tick.cuts);
        // First what expired goes: a seal of it would be for nothing.
        let rotated = self.rotate(!tick.rotations.is_empty(), on_time && !stop);
        if failed.is_none() && !stop {
            if on_time {
                self.shared.admission.space.reserve_ballast();
            }
            self.offer_seals(on_time);
        }
        // Whoever asked may have gone.
        for flush in tick.flushes {
            let _ = flush.send(failed.clone().map_or(Ok(()), Err));
        }
        if let Some(rotated) = rotated {
            for asked in tick.rotations {
                let _ = asked.send(rotated.clone());
            }
        }
        if failed.is_some() && !stop {
            // Appends that wait for room hurry us again at once; what failed will not heal that fast.
            self.shared
                .scheduler
                .wait_for_stop(Duration::from_millis(100).min(self.shared.settings.flush_interval));
        }
    }

    fn record_outcome(&self, failed: Option<Arc<str>>) {
        if failed.is_some() {
            self.shared.counters.flush_failures.add(1);
        }
        let mut last = self.shared.status.publishing.lock();
        match (&*last, &failed) {
            (None, Some(reason)) => {
                tracing::error!(%reason, "could not flush rows to data files; they stay in the log and in memory, \
                                          retrying");
            }
            (Some(_), None) => tracing::info!("flushing rows to data files works again"),
            _ => {}
        }
        *last = failed;
    }

    /// Publishes what is due, in rounds until nothing is left over.
    fn flush(&mut self, want: FlushGoal, on_time: bool) -> Result<(), Error> {
        self.record()?;
        let mut due = self.due(want, on_time);
        let is_calm = want == FlushGoal::Due
            && self.shared.rows.state.lock().hot.weight() < self.shared.settings.hot_max.get() / 4;
        let haste = if is_calm { IoPriority::No } else { IoPriority::Yes };
        while !due.is_empty() {
            due = self.round(due, haste)?;
            if want == FlushGoal::Room {
                due = self.left_over(&due);
            }
        }
        self.advance_log(want, on_time)
    }

    /// Publishes each partition's oldest rows and records them all. The partitions that have more.
    fn round(&mut self, due: Vec<FlushCandidate>, haste: IoPriority) -> Result<Vec<FlushCandidate>, Error> {
        let mut more = Vec::new();
        let mut failed = None;
        for waiting in due {
            match self.flush_partition(waiting, haste) {
                Ok(true) => more.push(waiting),
                Ok(false) => {}
                // The disk is unknown: nothing more is published, nothing is recorded.
                Err(error) if error.is_in_doubt() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.record()?;
        failed.map_or(Ok(more), Err)
    }

    /// Batches without rows to store make no publish and so no record, and no more do those that were exported: their frames go with
    /// a flush of everything, in a full log, and while something is exported at each tick.
    fn advance_log(&mut self, want: FlushGoal, on_time: bool) -> Result<(), Error> {
        let low_water = self.shared.low_water(&self.shared.rows.state.lock());
        let is_wanted = want == FlushGoal::Everything
            || self.shared.log_is_full()
            || (on_time && self.shared.export.get().is_some());
        if is_wanted && self.shared.store.catalog.lock().state().low_water < low_water {
            return self.write_record();
        }
        Ok(())
    }

    /// What is still large of what was published in part: the rest can wait for its tick.
    fn left_over(&self, of: &[FlushCandidate]) -> Vec<FlushCandidate> {
        let waiting = self.shared.rows.state.lock().hot.flush_candidates().into_iter();
        let large = self.large();
        let is_large = |now: &FlushCandidate| now.weight >= large && of.iter().any(|then| then.place == now.place);
        waiting.filter(is_large).collect()
    }

    fn due(&mut self, want: FlushGoal, on_time: bool) -> Vec<FlushCandidate> {
        if want == FlushGoal::Nothing {
            return Vec::new();
        }
        let mut waiting = self.shared.rows.state.lock().hot.flush_candidates();
        let large = self.large();
        if want == FlushGoal::Room && waiting.iter().any(|waiting| waiting.weight >= large) {
            waiting.retain(|waiting| waiting.weight >= large);
        }
        if want == FlushGoal::Due {
            self.admit(&mut waiting);
        }
        waiting.retain(|waiting| {
            let Some(slot) = self.open.get_mut(&waiting.place) else {
                return true;
            };
            if on_time {
                slot.waited += 1;
            }
            want != FlushGoal::Due
                || slot.segment.row_groups() <= YOUNG_GROUPS
                || waiting.weight >= WORTHWHILE
                || slot.waited >= PATIENT_TICKS
        });
        waiting
    }

    /// Publishes a partition's oldest rows; whether more wait behind them. After an error they wait again.
    fn flush_partition(&mut self, waiting: FlushCandidate, haste: IoPriority) -> Result<bool, Error> {
        let place = waiting.place;
        self.set_full_aside(place);
        let in_memory = !self.open.contains_key(&place)
            && (waiting.weight >= self.in_memory_weight() || !self.may_open(place) || self.has_many_small(place));
        let (rows, bytes) = if in_memory {
            (usize::MAX, u64::MAX)
        } else {
            (GROUP_ROWS, self.shared.settings.group_max.get())
        };
        #[cfg(test)]
        self.shared.hooks.before_freeze.now();
        let frozen = {
            let mut state = self.shared.rows.state.lock();
            let committed = self.cut_at.unwrap_or(state.committed);
            state.hot.freeze(place, committed, rows, bytes)
        };
        let Some(mut frozen) = frozen else {
            return Ok(false);
        };
        frozen.limit_through(self.shared.stored_through(place.0));
        let done = if in_memory {
            self.flush_sealed(place, &frozen)
        } else {
            self.flush_frozen(place, &frozen, haste)
        };
        match done {
            Ok(done) => {
                self.late.remove(&place);
                self.unrecorded.push(done);
                Ok(frozen.more)
            }
            Err(error) => {
                self.shared.rows.state.lock().hot.unfreeze(place);
                Err(error)
            }
        }
    }

    /// Publishes rows without an open file.
    fn flush_sealed(&self, place: PartitionKey, frozen: &FrozenRows) -> Result<FlushedGroup, Error> {
        match self.merge_into_small(place, frozen)? {
            Some(done) => Ok(done),
            None => seal_in_memory(&self.shared, place, frozen),
        }
    }

    /// So many bytes of hot rows make a large row group.
    fn large(&self) -> u64 {
        self.shared.settings.group_max.get() / 2
    }

    /// Hot rows that would fill a segment at once. In a file they take about a quarter of their bytes in memory.
    fn in_memory_weight(&self) -> u64 {
        self.shared.settings.segment_size.get().saturating_mul(2)
    }

    fn flush_open(
        &mut self,
        place: PartitionKey,
        frozen: &FrozenRows,
        haste: IoPriority,
    ) -> Result<FlushedGroup, Error> {
        let slot = match self.open.entry(place) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(free) => free.insert(new_open_partition(&self.shared, place, frozen)),
        };
        let done = append(&self.shared.time.clock, slot, frozen, haste);
        if let Err(error) = &done {
            // A file that never came to be gives its number up.
            if slot.version == 0 && (is_taken(error) || !slot.segment.path().exists()) {
                self.open.remove(&place);
            }
        }
        done
    }

    /// Takes a file that has reached its cap, or is not as its spec's files are now, out of the way of the next rows.
    fn set_full_aside(&mut self, place: PartitionKey) {
        let cap = self.shared.settings.segment_size.get();
        let form = self.shared.file_form(place);
        let takes_no_more =
            |slot: &OpenPartition| slot.segment.is_full() || slot.segment.size() >= cap || !slot.is_of(&form);
        if self.open.get(&place).is_some_and(takes_no_more)
            && let Some(slot) = self.open.remove(&place)
        {
            self.full.push(SealJob::new(slot));
        }
    }

    /// Makes what was published count: one record, then one view.
    fn record(&mut self) -> Result<(), Error> {
        if self.unrecorded.is_empty() {
            return Ok(());
        }
        self.write_record()
    }

    fn write_record(&mut self) -> Result<(), Error> {
        let relied_on = self.janitor.relied_on(&self.shared).micros();
        let record = {
            let mut catalog = self.shared.store.catalog.lock();
            let watermarks = self.shared.watermarks.lock();
            let low_water = self.shared.low_water(&self.shared.rows.state.lock());
            let record = ManifestRecord {
                put: self.unrecorded.iter().map(|done| done.entry.clone()).collect(),
                through: self.unrecorded.iter().map(|done| (done.place, done.through)).collect(),
                low_water,
                // What the catalogue has of marks it has up to their latest change.
                watermarks: watermarks.since(catalog.state().watermarks.latest()),
                relied_on,
                ..ManifestRecord::default()
            };
            drop(watermarks);
            catalog.commit(record.clone())?;
            record
        };
        let done = std::mem::take(&mut self.unrecorded);
        for done in &done {
            if let Some(slot) = self.open.get_mut(&done.place) {
                slot.segment.mark_recorded();
            }
            let counters = &self.shared.counters;
            counters.flushes.add(1);
            counters.flushed_rows.add(done.rows);
            counters.file_written_bytes.add(done.bytes);
        }
        self.drop_flushed(&done);
        self.shared.admission.queue.release(record.low_water);
        Ok(())
    }

    fn drop_flushed(&self, done: &[FlushedGroup]) {
        // What is cold is freed without the lock, for which appends wait.
        let mut cold = Vec::with_capacity(done.len());
        let mut state = self.shared.rows.state.lock();
        for done in done {
            let (weight, rows) = state.hot.drop_flushed(done.place);
            cold.push(rows);
            self.shared
                .return_room(&mut state, u64::from(crate::engine_core::units(weight)));
            state.put_file(self.shared.segment(&done.entry, &done.lineage));
        }
        let mut tables: Vec<_> = done.iter().map(|done| done.place.0).collect();
        tables.sort_unstable();
        tables.dedup();
        self.shared.publish_snapshot(&mut state, tables);
        drop(state);
        let displaced = done.iter().filter_map(|done| done.displaced.as_ref());
        displaced.for_each(|lineage| lineage.displace());
    }
}
