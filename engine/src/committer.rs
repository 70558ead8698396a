//! Who owns the log: groups of appends become durable, then visible, then answered. Whose turn it is: [`crate::turns`].
//!
//! ```text
//! gather a group ─> judge duplicates ─> log, one write ─> fdatasync ─> marks ─> hot rows, view ─> answers
//! ```
//!
//! # Invariants
//!
//! - Nothing of a group is visible, marked or answered before its sync returned.
//! - Marks are set before rows can be published: a record that calls rows cold knows their origins.
//! - A duplicate is answered after the group that it came with, so its original, in this group or earlier, is durable.
//! - A full log or a disk that is almost full makes the group wait, or is put back where the caller may not wait; it is neither
//!   refused nor dropped. A failed write or sync poisons the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::Table;

use crate::intake::{Append, Work};
use crate::journal::Key as BatchKey;
use crate::shared::{Shared, units};
use crate::tail::Arrival;
use crate::wal::{Frame, Wal};
use crate::watermark::Verdict;
use crate::{Appended, Error, Origin};

/// Where an appender waits.
type Answer = tokio::sync::oneshot::Sender<Result<Appended, Error>>;

/// How long a full log waits before it looks at the disk again.
const PATIENCE: Duration = Duration::from_millis(250);

/// The disk is looked at after so many bytes for the log, a fraction of what must be free …
const LOOK_BYTES: u64 = 256 << 10;
/// … or so long after the last time: others fill it too.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Groups for which nobody waits after some whose companions did not come, at most.
const WITHOUT_COMPANIONS: u32 = 64;

/// The committer's own things.
#[derive(Debug)]
pub(crate) struct Committer {
    shared: Arc<Shared>,
    wal: Wal,
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
struct Judged {
    fresh: Vec<Append>,
    duplicates: Vec<Append>,
    regressions: u64,
}

/// What became of the appends of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Durable,
    /// Nothing of them is in the log, and the caller may not wait.
    NoRoom,
    /// The store closed before there was room.
    Closed,
}

/// What makes two appends of one group the same batch.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Request(uuid::Uuid, u32),
    Producer(model::wire::BatchId),
    Bus(String, i64, u64, i64),
}

fn key(origin: &Origin) -> Option<Key> {
    let bus = origin.bus_key();
    let request = origin.request.map(|part| Key::Request(part.id, part.part));
    request
        .or_else(|| origin.producer_key().map(Key::Producer))
        .or_else(|| bus.map(|at| Key::Bus(at.stream.clone(), at.incarnation, at.seq, at.stored.micros())))
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, wal: Wal, next_lsn: u64) -> Self {
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

    /// How many appends may come at once, and how long to wait for them.
    pub(crate) fn expects(&self) -> (usize, Duration) {
        let most = self.shared.settings.group_linger;
        let linger = if self.alone > 0 {
            Duration::ZERO
        } else {
            most.min(self.last_took)
        };
        (self.last_group, linger)
    }

    /// Learns from the wait for a group of the size that was expected.
    pub(crate) fn learn(&mut self, is_complete: bool, linger: Duration) {
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

    /// Does what there is to do. Where there is no room in the log or on the disk the group is put back if the caller may not
    /// wait, and the last group is marked as synced only if he may.
    pub(crate) fn work(&mut self, work: Work, may_wait: bool) {
        if let Some(low_water) = work.release {
            self.release(low_water);
        }
        if !work.group.is_empty() {
            let began = Instant::now();
            self.last_group = work.group.len();
            self.commit(work.group, may_wait);
            self.last_took = began.elapsed();
        } else if work.mark {
            self.mark();
        }
    }

    fn commit(&mut self, group: Vec<Append>, may_wait: bool) {
        if self.shared.poisoned().is_some() {
            refuse(group, &self.shared);
            return;
        }
        let mut judged = self.judge(group);
        let first = self.next_lsn;
        for append in &mut judged.fresh {
            append.frame.lsn = self.next_lsn;
            self.next_lsn += 1;
        }
        match self.store(&judged.fresh, may_wait) {
            Ok(Stored::Durable) => {
                self.finish(judged);
                // The next group says the same.
                if self.shared.intake.len() == 0 {
                    if may_wait {
                        self.mark();
                    } else {
                        self.shared.intake.leave_mark();
                    }
                }
            }
            Ok(Stored::NoRoom) => {
                self.next_lsn = first;
                let group = judged.fresh.into_iter().chain(judged.duplicates).collect();
                self.shared.intake.put_back(group);
            }
            Ok(Stored::Closed) => refuse(judged.fresh.into_iter().chain(judged.duplicates), &self.shared),
            Err(error) => {
                self.shared.poison(&error.to_string());
                refuse(judged.fresh.into_iter().chain(judged.duplicates), &self.shared);
            }
        }
        self.shared.counters.wal_bytes.set(self.wal.used_bytes());
    }

    fn judge(&self, group: Vec<Append>) -> Judged {
        let marks = self.shared.marks.lock();
        let mut judged = Judged::default();
        let mut here = HashSet::new();
        for append in group {
            let verdict = marks.judge(&append.origin);
            let seen_here = key(&append.origin).is_some_and(|key| !here.insert(key));
            if verdict == Verdict::Duplicate || seen_here {
                judged.duplicates.push(append);
                continue;
            }
            judged.regressions += u64::from(verdict == Verdict::NewUnderUsedSequence);
            judged.fresh.push(self.without_known_parts(append));
        }
        judged
    }

    /// Leaves out what a lost machine had uploaded of a batch.
    fn without_known_parts(&self, mut append: Append) -> Append {
        let parts = &self.shared.parts;
        if parts.is_empty() {
            return append;
        }
        let key = BatchKey::of(&append.origin);
        append.pieces.retain(|(place, _, _)| !parts.has(key.as_ref(), *place));
        append.rows = append.pieces.iter().map(|(_, rows, _)| rows.batch.num_rows()).sum();
        let needed: u64 = append
            .pieces
            .iter()
            .map(|(_, _, weight)| u64::from(units(*weight)))
            .sum();
        let spare = append
            .room
            .num_permits()
            .saturating_sub(usize::try_from(needed).unwrap_or(usize::MAX));
        // Dropping it gives the room back.
        drop(append.room.split(spare));
        append
    }

    fn store(&mut self, appends: &[Append], may_wait: bool) -> Result<Stored, Error> {
        if appends.is_empty() {
            return Ok(Stored::Durable);
        }
        let frames: Vec<Frame> = appends.iter().map(|append| append.frame.clone()).collect();
        self.unseen += frames.iter().map(Frame::encoded_len).sum::<u64>();
        if self.disk_is_short() {
            self.wal.leave_word();
            if !may_wait {
                return Ok(Stored::NoRoom);
            }
            if !self.wait_for_the_disk() {
                return Ok(Stored::Closed);
            }
        }
        loop {
            match self.wal.append(&frames) {
                Ok(()) => break,
                Err(Error::LogFull { .. } | Error::NoSpace { .. }) if !may_wait => return Ok(Stored::NoRoom),
                Err(error @ (Error::LogFull { .. } | Error::NoSpace { .. })) => {
                    if !self.wait_for_room(&error) {
                        return Ok(Stored::Closed);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.shared.log_is_full.store(false, Ordering::Relaxed);
        self.wal.sync()?;
        self.shared.counters.fsyncs.add(1);
        Ok(Stored::Durable)
    }

    /// Marks the last group as synced, when its appenders have their answers.
    fn mark(&mut self) {
        if let Err(error) = self.wal.mark() {
            self.shared.poison(&error.to_string());
        }
    }

    /// Whether too little is free on the disk; asks the system only now and then.
    fn disk_is_short(&mut self) -> bool {
        if !self.shared.space.is_short() && self.unseen < LOOK_BYTES && self.looked.elapsed() < LOOK_PAUSE {
            return false;
        }
        (self.looked, self.unseen) = (Instant::now(), 0);
        self.shared.space.look()
    }

    /// Waits until enough is free on the disk; `false` if the store closes instead.
    fn wait_for_the_disk(&mut self) -> bool {
        let (free, wanted) = self.shared.space.told();
        tracing::warn!(free, wanted, "appends wait for room on the disk");
        self.mark();
        loop {
            let (closed, release) = self.shared.intake.wait_for_release(PATIENCE);
            if let Some(low_water) = release {
                self.release(low_water);
            }
            if closed {
                return false;
            }
            if !self.disk_is_short() {
                tracing::info!("there is room on the disk again: appends go on");
                return true;
            }
        }
    }

    /// Waits until something of the log may go; `false` if the store closes instead.
    fn wait_for_room(&mut self, error: &Error) -> bool {
        if !self.shared.log_is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "appends wait for room in the log");
            self.mark();
        }
        self.shared.desk.hurry();
        let (closed, release) = self.shared.intake.wait_for_release(PATIENCE);
        if let Some(low_water) = release {
            self.release(low_water);
        }
        !closed
    }

    fn release(&mut self, low_water: u64) {
        if let Err(error) = self.wal.release(low_water) {
            if self.wal.poisoned().is_some() {
                self.shared.poison(&error.to_string());
            } else {
                tracing::warn!(%error, "a segment of the log could not be released; the next release tries again");
            }
        }
        self.shared.counters.wal_bytes.set(self.wal.used_bytes());
    }

    /// Marks, shows and answers a group that is durable.
    fn finish(&mut self, judged: Judged) {
        let Judged {
            fresh,
            duplicates,
            regressions,
        } = judged;
        {
            let mut marks = self.shared.marks.lock();
            for append in fresh.iter().chain(&duplicates) {
                marks.mark(&append.origin);
            }
        }
        let counters = &self.shared.counters;
        counters.commits.add(u64::from(!fresh.is_empty()));
        counters.bus_regressions.add(regressions);
        counters.duplicates.add(duplicates.len() as u64);
        counters.appended_batches.add(fresh.len() as u64);
        for append in &fresh {
            let places = append.pieces.iter().map(|(place, _, _)| *place).collect();
            self.shared.journal(append.frame.lsn, &append.origin, places);
        }
        let mut places: Vec<_> = fresh
            .iter()
            .flat_map(|append| &append.pieces)
            .map(|piece| piece.0)
            .collect();
        let (answers, past) = self.insert(fresh);
        for (answer, rows) in answers {
            // The appender may have gone; the rows stay.
            let _ = answer.send(Ok(Appended::Stored { rows }));
        }
        drop(past);
        for append in duplicates {
            let _ = append.answer.send(Ok(Appended::Duplicate));
        }
        places.sort_unstable();
        places.dedup();
        let mut state = self.shared.state.lock();
        for place in places {
            state.hot.join(place);
        }
    }

    /// Makes rows visible. Returns the answers that may be given now, and what is to be freed after that.
    fn insert(&self, fresh: Vec<Append>) -> (Vec<(Answer, usize)>, Vec<Arc<Arrival>>) {
        if fresh.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let counters = &self.shared.counters;
        let mut tables: Vec<Table> = Vec::new();
        let mut arrivals = Vec::new();
        let mut last = 0;
        let mut answers = Vec::with_capacity(fresh.len());
        let mut state = self.shared.state.lock();
        for append in fresh {
            let Some(table) = Table::from_number(append.frame.table) else {
                continue;
            };
            counters.appended_rows.add(append.rows as u64);
            counters.misdated_rows.add(append.misdated);
            let taken = u32::try_from(append.room.num_permits()).unwrap_or(u32::MAX);
            append.room.forget();
            last = append.frame.lsn;
            arrivals.extend(self.shared.tails.arrival(table, last, &append.pieces));
            Shared::insert(
                &mut state,
                table,
                append.pieces,
                append.frame.lsn,
                &append.origin,
                taken,
            );
            tables.push(table);
            answers.push((append.answer, append.rows));
        }
        tables.sort_unstable();
        tables.dedup();
        self.shared.show(&mut state, tables.iter().copied());
        let mut past = self.shared.tails.push(arrivals, last);
        past.extend(self.shared.tails.rest(self.shared.uptime()));
        let crowded = state.hot.weight() >= self.shared.settings.hot_max.get() / 2;
        drop(state);
        self.shared.tails.tell(&tables);
        if crowded {
            self.shared.desk.hurry();
        }
        (answers, past)
    }
}

fn refuse(appends: impl IntoIterator<Item = Append>, shared: &Shared) {
    for append in appends {
        let _ = append.answer.send(Err(shared.refusal()));
    }
}
