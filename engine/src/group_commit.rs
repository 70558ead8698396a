//! Group commit: one thread owns the log. It batches appends into one fdatasync, then makes them visible, then answers them.
//!
//! ```text
//! gather ─> wait for room ─> take ─> find duplicates ─> log, one write ─> fdatasync ─> watermarks, hot rows, view ─> answers
//!                └─ withdrawn appends leave
//! ```
//!
//! # Invariants
//!
//! - Nothing of a group is visible, remembered as stored, or answered before its sync has returned.
//! - Watermarks are set together with the rows, under the lock of `watermarks`: a record that says that rows are in files knows their
//!   origins, and whoever locks `watermarks` and then `state` sees the two agree.
//! - A duplicate is answered after the group that it came with, so that its original, in this group or an earlier one, is durable.
//! - If the log or the disk is almost full, the group waits; it is not refused. A waiting group is not taken yet: an append that its
//!   appender withdraws leaves it, returns its memory, and gets no LSN. A group that is taken is written at once, and answered.
//! - Duplicates are found among the appends that were taken, so a withdrawn append is never the original of another.
//! - A write or sync that fails poisons the store. So does a panic.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::Table;
use parking_lot::MutexGuard;

use crate::append_queue::AppendRequest;
use crate::dedup::{DedupResult, DedupWatermarks};
use crate::engine_core::{EngineCore, PoisonGuard};
use crate::live_tail::TailArrival;
use crate::wal::{WalFrame, WriteAheadLog};
use crate::{AppendOutcome, BatchOrigin, Error};

/// Where an appender waits.
type AppendReply = tokio::sync::oneshot::Sender<Result<AppendOutcome, Error>>;

/// How long a group without room waits before the committer looks again.
const PATIENCE: Duration = Duration::from_millis(250);

/// The disk is looked at after so many bytes for the log, a fraction of what must be free …
const LOOK_BYTES: u64 = 256 << 10;
/// … or so long after the last time: others fill it too.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Groups for which nobody waits after some whose companions did not come, at most.
const WITHOUT_COMPANIONS: u32 = 64;

/// The committer's own things.
#[derive(Debug)]
pub(crate) struct GroupCommitter {
    shared: Arc<EngineCore>,
    wal: WriteAheadLog,
    next_lsn: u64,
    /// Appends in the last group: how many may come back at once.
    last_group: usize,
    /// What the last group took: nobody waits longer than that for companions.
    last_took: Duration,
    /// So many groups are committed without waiting for companions.
    alone: u32,
    /// So many were the last time; twice as many when waiting is in vain again.
    pause: u32,
    /// When somebody looked last how much is free on the disk.
    looked: Instant,
    /// Bytes for the log since then.
    unseen: u64,
}

/// A group, judged.
#[derive(Debug, Default)]
struct DedupedGroup {
    fresh: Vec<AppendRequest>,
    duplicates: Vec<AppendRequest>,
    regressions: u64,
}

/// What makes two appends of one group the same batch.
#[derive(Debug, PartialEq, Eq, Hash)]
enum DedupKey {
    Request(uuid::Uuid, u64, u64),
    Producer(model::telemetry_codec::BatchId),
    Bus(String, i64, u64),
}

fn key(origin: &BatchOrigin) -> Option<DedupKey> {
    let bus = origin.bus_key();
    let request = origin
        .request
        .map(|part| DedupKey::Request(part.id, part.digest, part.to));
    request
        .or_else(|| origin.producer_key().map(DedupKey::Producer))
        .or_else(|| bus.map(|at| DedupKey::Bus(at.stream.clone(), at.incarnation, at.seq)))
}

impl GroupCommitter {
    pub(crate) fn new(shared: Arc<EngineCore>, wal: WriteAheadLog, next_lsn: u64) -> Self {
        Self {
            shared,
            wal,
            next_lsn,
            last_group: 1,
            last_took: Duration::ZERO,
            alone: 0,
            pause: 0,
            looked: Instant::now(),
            unseen: 0,
        }
    }

    /// Commits until the append queue is closed and empty.
    pub(crate) fn run(mut self) {
        let _sentinel = PoisonGuard(Arc::clone(&self.shared));
        let settings = &self.shared.settings;
        // A group is one write into one segment of the log: it stays small against the log.
        let bytes = settings.group_bytes.get().min(settings.wal_max.get() / 8);
        loop {
            let linger = self.linger();
            let work = self.shared.admission.queue.next(bytes, self.last_group, linger);
            if let Some(low_water) = work.release {
                self.release(low_water);
            }
            if !work.group.is_empty() {
                self.adapt_linger(work.is_complete, linger);
                let began = Instant::now();
                self.last_group = work.group.len();
                self.commit(work.group);
                self.last_took = began.elapsed();
            }
            if work.closed && self.shared.admission.queue.len() == 0 {
                return;
            }
        }
    }

    /// How long to wait for as many appends as the last group had.
    fn linger(&self) -> Duration {
        if self.alone > 0 {
            Duration::ZERO
        } else {
            self.shared.settings.group_linger.min(self.last_took)
        }
    }

    /// Learns from the wait for a group of the size that was expected.
    fn adapt_linger(&mut self, is_complete: bool, linger: Duration) {
        self.alone = if is_complete || linger.is_zero() {
            self.alone.saturating_sub(1)
        } else {
            self.pause = (2 * self.pause).clamp(1, WITHOUT_COMPANIONS);
            self.pause
        };
        if is_complete && !linger.is_zero() && self.last_group > 1 {
            self.pause = 0;
        }
    }

    fn commit(&mut self, mut group: Vec<AppendRequest>) {
        if self.shared.poisoned().is_some() {
            return refuse(group, &self.shared);
        }
        match self.wait_for_room(&mut group) {
            Ok(true) => {}
            Ok(false) => return refuse(group, &self.shared),
            Err(error) => {
                self.shared.poison(&error.to_string());
                return refuse(group, &self.shared);
            }
        }
        // From here on nobody can withdraw.
        group.retain(|append| append.claim.claim());
        let mut judged = self.deduplicate(group);
        for append in &mut judged.fresh {
            append.frame.lsn = self.next_lsn;
            self.next_lsn += 1;
        }
        match self.store(&judged.fresh) {
            Ok(()) => {
                self.finish(judged);
                // The next group says the same.
                if self.shared.admission.queue.len() == 0 {
                    self.write_sync_mark();
                }
            }
            Err(error) => {
                self.shared.poison(&error.to_string());
                refuse(judged.fresh.into_iter().chain(judged.duplicates), &self.shared);
            }
        }
        self.shared.counters.wal_bytes.set(self.wal.used_bytes());
    }

    /// Waits until the log and the disk have room for a group, which what is withdrawn leaves; `false` if the store closes
    /// instead.
    fn wait_for_room(&mut self, group: &mut Vec<AppendRequest>) -> Result<bool, Error> {
        let mut bytes = frame_bytes(group);
        self.unseen += bytes;
        let mut has_waited_for_disk = false;
        let goes_on = loop {
            if self.check_disk_low() {
                if !std::mem::replace(&mut has_waited_for_disk, true) {
                    let (free, wanted) = self.shared.admission.space.last_reading();
                    tracing::warn!(free, wanted, "appends wait for disk space");
                    self.wal.persist_durable_lsn();
                    self.write_sync_mark();
                }
            } else {
                match self.wal.reserve(bytes) {
                    Ok(()) => break true,
                    Err(error @ (Error::LogFull { .. } | Error::NoSpace { .. })) => {
                        if let Error::NoSpace { needed, .. } = error {
                            self.shared.admission.space.set_needed(needed);
                            self.shared.admission.space.look();
                        }
                        if !self.shared.admission.log_is_full.swap(true, Ordering::Relaxed) {
                            tracing::warn!(%error, "appends wait for room in the log");
                            self.write_sync_mark();
                        }
                        self.shared.scheduler.request_flush();
                    }
                    Err(error) => return Err(error),
                }
            }
            if self.are_duplicates(group) {
                break true;
            }
            let (closed, release) = self.shared.admission.queue.wait_for_release(PATIENCE);
            if let Some(low_water) = release {
                self.release(low_water);
            }
            if closed {
                break false;
            }
            group.retain(|append| !append.is_withdrawn());
            bytes = frame_bytes(group);
        };
        self.shared.admission.log_is_full.store(false, Ordering::Relaxed);
        self.shared.admission.space.set_needed(0);
        if has_waited_for_disk {
            tracing::info!("appends no longer wait for disk space");
        }
        Ok(goes_on)
    }

    /// Whether nothing of a group needs room.
    fn are_duplicates(&self, group: &[AppendRequest]) -> bool {
        let marks = self.shared.watermarks.lock();
        let mut appends = group.iter();
        appends.all(|append| marks.check(&append.origin) == DedupResult::Duplicate)
    }

    fn deduplicate(&self, group: Vec<AppendRequest>) -> DedupedGroup {
        let marks = self.shared.watermarks.lock();
        let mut judged = DedupedGroup::default();
        let mut here = HashSet::new();
        for append in group {
            let verdict = marks.check(&append.origin);
            let seen_here = key(&append.origin).is_some_and(|key| !here.insert(key));
            if verdict == DedupResult::Duplicate || seen_here {
                judged.duplicates.push(append);
                continue;
            }
            judged.regressions += u64::from(verdict == DedupResult::NewUnderUsedSequence);
            judged.fresh.push(append);
        }
        judged
    }

    fn store(&mut self, appends: &[AppendRequest]) -> Result<(), Error> {
        if appends.is_empty() {
            return Ok(());
        }
        #[cfg(test)]
        self.shared.hooks.before_write.now();
        let frames: Vec<WalFrame> = appends.iter().map(|append| append.frame.clone()).collect();
        self.wal.append(&frames)?;
        self.wal.sync()?;
        self.shared.counters.fsyncs.add(1);
        Ok(())
    }

    /// Marks the last group as synced, when its appenders have their answers.
    fn write_sync_mark(&mut self) {
        if let Err(error) = self.wal.write_sync_mark() {
            self.shared.poison(&error.to_string());
        }
    }

    /// Whether too little is free on the disk; asks the system only now and then.
    fn check_disk_low(&mut self) -> bool {
        if !self.shared.admission.space.check_low() && self.unseen < LOOK_BYTES && self.looked.elapsed() < LOOK_PAUSE {
            return false;
        }
        (self.looked, self.unseen) = (Instant::now(), 0);
        self.shared.admission.space.look()
    }

    fn release(&mut self, low_water: u64) {
        if let Err(error) = self.wal.release(low_water) {
            if self.wal.poisoned().is_some() {
                self.shared.poison(&error.to_string());
            } else {
                tracing::warn!(%error, "could not release a segment of the log; the next release tries again");
            }
        }
        self.shared.counters.wal_bytes.set(self.wal.used_bytes());
    }

    /// Marks, shows and answers a group that is durable.
    fn finish(&mut self, judged: DedupedGroup) {
        let (fresh, duplicates) = (judged.fresh, judged.duplicates);
        let mut marks = self.shared.watermarks.lock();
        for append in &fresh {
            marks.record(&append.origin, append.frame.lsn);
        }
        for append in &duplicates {
            marks.record(&append.origin, self.next_lsn.saturating_sub(1));
        }
        let counters = &self.shared.counters;
        counters.commits.add(u64::from(!fresh.is_empty()));
        counters.bus_regressions.add(judged.regressions);
        counters.duplicate_batches.add(duplicates.len() as u64);
        counters.appended_batches.add(fresh.len() as u64);
        let mut places: Vec<_> = fresh
            .iter()
            .flat_map(|append| &append.pieces)
            .map(|piece| piece.0)
            .collect();
        let (answers, past) = self.insert(fresh, marks);
        for (answer, rows) in answers {
            // The appender may have gone; the rows stay.
            let _ = answer.send(Ok(AppendOutcome::Stored { rows }));
        }
        drop(past);
        for append in duplicates {
            let _ = append.answer.send(Ok(AppendOutcome::Duplicate));
        }
        places.sort_unstable();
        places.dedup();
        let mut state = self.shared.rows.state.lock();
        for place in places {
            state.hot.join(place);
        }
    }

    /// Makes rows visible whose marks are set under `marks`. Returns the answers that may be given now, and what is to be freed
    /// after that.
    fn insert(
        &self,
        fresh: Vec<AppendRequest>,
        marks: MutexGuard<'_, DedupWatermarks>,
    ) -> (Vec<(AppendReply, usize)>, Vec<Arc<TailArrival>>) {
        if fresh.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let counters = &self.shared.counters;
        let mut tables: Vec<Table> = Vec::new();
        let mut arrivals = Vec::new();
        let mut last = 0;
        let mut answers = Vec::with_capacity(fresh.len());
        let mut state = self.shared.rows.state.lock();
        for append in fresh {
            let Some(table) = Table::from_number(append.frame.table) else {
                continue;
            };
            counters.appended_rows.add(append.rows as u64);
            counters.appended_bytes.add(append.frame.encoded_len());
            counters.out_of_range_rows.add(append.misdated);
            let taken = u32::try_from(append.room.num_permits()).unwrap_or(u32::MAX);
            last = append.frame.lsn;
            let pieces = if self.shared.is_stored(table) {
                append.room.forget();
                append.pieces
            } else {
                // The log has them, until they are exported: their memory is returned here.
                Vec::new()
            };
            arrivals.extend(self.shared.rows.tails.arrival(table, last, &pieces));
            EngineCore::insert(&mut state, table, pieces, last, &append.origin, taken);
            tables.push(table);
            answers.push((append.answer, append.rows));
        }
        tables.sort_unstable();
        tables.dedup();
        self.shared.publish_snapshot(&mut state, tables.iter().copied());
        let mut past = self.shared.rows.tails.push(arrivals, last);
        past.extend(self.shared.rows.tails.drop_idle(self.shared.uptime()));
        let crowded = state.hot.weight() >= self.shared.settings.hot_max.get() / 2;
        drop(state);
        drop(marks);
        self.shared.rows.tails.notify_followers(&tables);
        if let Some(export) = self.shared.export.get() {
            export.durable.send_replace(last);
        }
        if crowded {
            self.shared.scheduler.request_flush();
        }
        (answers, past)
    }
}

fn frame_bytes(group: &[AppendRequest]) -> u64 {
    group.iter().map(|append| append.frame.encoded_len()).sum()
}

fn refuse(appends: impl IntoIterator<Item = AppendRequest>, shared: &EngineCore) {
    for append in appends {
        let _ = append.answer.send(Err(shared.refusal()));
    }
}
