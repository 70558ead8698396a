//! Live tail: rows in the order in which they became visible, for followers of a table.
//!
//! ```text
//! committer, under `state` ─> Ring per table: │ arrival │ arrival │ … │ newest │        bounded by bytes
//! replay of the log ────────────^             └ start: everything from this LSN on is here
//!                                    Follow (position) ──take──> arrivals, or how many rows are gone
//! ```
//!
//! An arrival shares its rows with the hot batches. It keeps them in memory when they are in files and the hot rows are gone: that
//! is what [`crate::Settings::tail_max`] bounds, and [`crate::EngineStats::tail_bytes`] tells.
//!
//! # What is kept
//!
//! Of a table that somebody follows, and for [`LINGER`] after the last one left (of logs also after the store was opened): the newest
//! rows, up to the bound. Of other tables nothing. Who had everything resumes exactly even then, as long as nothing new came.
//!
//! # Invariants
//!
//! - An arrival is pushed under `state`, durable and in its order; a [`TailFollower`] and its view are taken under `state` too: the
//!   view has exactly the rows before the position.
//! - A ring has every arrival of its table from `start` on. What is missing is counted in rows, or known to be unknown.
//! - The committer waits for nobody here: it pushes, forgets what is too old, and frees that after its lock.
//! - A position means the same after a restart: LSNs go on, and a batch has its rows in the same order in the log.
//!
//! # Not here
//!
//! Filters, texts, who follows for how long: the query room.

mod arrival_ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use model::Table;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::arrival_ring::ArrivalRing;
pub use self::arrival_ring::{ArrivalPosition, TailArrival};
use crate::engine_core::EngineCore;
use crate::memtable::PartitionKey;
use crate::snapshot::table_index;
use crate::{Engine, Error, HotBatch, ReadView};

/// So long rows are kept for followers that may come back.
pub const LINGER: Duration = Duration::from_secs(600);
/// Tables whose followers may come back when the store was opened.
const EXPECTED: [Table; 1] = [Table::Logs];

/// What is kept of all tables.
#[derive(Debug)]
pub(crate) struct TailBuffers {
    most: u64,
    tables: [TableTail; Table::ALL.len()],
    /// Every batch up to this LSN was pushed, where rows are kept.
    last: AtomicU64,
}

/// What is kept of one table.
#[derive(Debug)]
struct TableTail {
    ring: Mutex<ArrivalRing>,
    /// Whether rows are kept.
    keeps: AtomicBool,
    followers: AtomicUsize,
    /// When the last follower left, in seconds since the store was opened.
    left: AtomicU64,
    news: watch::Sender<()>,
}

impl TailBuffers {
    pub(crate) fn new(most: u64) -> Self {
        let tail = |table| TableTail {
            ring: Mutex::default(),
            keeps: EXPECTED.contains(&table).into(),
            followers: 0.into(),
            left: 0.into(),
            news: watch::Sender::new(()),
        };
        Self {
            most,
            tables: Table::ALL.map(tail),
            last: 0.into(),
        }
    }

    /// Whether a table's rows are kept.
    pub(crate) fn keeps(&self, table: Table) -> bool {
        self.tables[table_index(table)].keeps.load(Ordering::Relaxed)
    }

    /// A durable batch as an arrival, if its table's rows are kept.
    pub(crate) fn arrival(
        &self,
        table: Table,
        lsn: u64,
        pieces: &[(PartitionKey, Arc<HotBatch>, u64)],
    ) -> Option<(Table, TailArrival)> {
        let arrival = self.keeps(table).then(|| TailArrival::of(lsn, pieces))?;
        (arrival.rows > 0).then_some((table, arrival))
    }

    /// Puts in what was committed, up to the LSN `last`; under `state`. Returns what is too old, to be freed without that lock.
    pub(crate) fn push(&self, arrivals: Vec<(Table, TailArrival)>, last: u64) -> Vec<Arc<TailArrival>> {
        let mut past = Vec::new();
        for (table, arrival) in arrivals {
            self.tables[table_index(table)]
                .ring
                .lock()
                .push(arrival, self.most, &mut past);
        }
        self.last.fetch_max(last, Ordering::Release);
        past
    }

    /// The same with a batch of the log that is read again. One that was pushed is not pushed again.
    pub(crate) fn replay(&self, table: Table, lsn: u64, pieces: &[(PartitionKey, Arc<HotBatch>, u64)]) {
        if lsn <= self.last.load(Ordering::Relaxed) {
            return;
        }
        self.begin(lsn);
        let arrival = self.arrival(table, lsn, pieces);
        self.push(arrival.into_iter().collect(), lsn);
    }

    /// The next batch has this LSN. If one before it is not known here, none is.
    pub(crate) fn begin(&self, next: u64) {
        let last = next.saturating_sub(1);
        if self.last.swap(last, Ordering::Relaxed) != last {
            for table in &self.tables {
                table.ring.lock().forget(next);
            }
        }
    }

    /// Tells followers that something came; without any lock.
    pub(crate) fn notify_followers(&self, tables: &[Table]) {
        for table in tables.iter().map(|table| &self.tables[table_index(*table)]) {
            if table.followers.load(Ordering::Relaxed) > 0 {
                table.news.send_replace(());
            }
        }
    }

    /// Forgets the rows of tables that nobody has followed for long; under `state`. What it returns is to be freed without that
    /// lock.
    pub(crate) fn drop_idle(&self, uptime: Duration) -> Vec<Arc<TailArrival>> {
        let mut past = Vec::new();
        for table in &self.tables {
            let is_kept = table.keeps.load(Ordering::Relaxed) && table.followers.load(Ordering::Relaxed) == 0;
            if is_kept && uptime.as_secs() >= table.left.load(Ordering::Relaxed) + LINGER.as_secs() {
                table.keeps.store(false, Ordering::Relaxed);
                past.extend(table.ring.lock().forget(u64::MAX));
            }
        }
        past
    }

    /// Bytes of the rows that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |table: &TableTail| {
            let ring = table.ring.lock();
            ring.passed.1 - ring.gone().1
        };
        self.tables.iter().map(bytes).sum()
    }

    pub(crate) fn followers(&self) -> usize {
        let followers = |table: &TableTail| table.followers.load(Ordering::Relaxed);
        self.tables.iter().map(followers).sum()
    }
}

/// What a follower is given.
#[derive(Debug, Default)]
pub struct ArrivalBatch {
    /// So many rows before these are gone.
    pub lost: u64,
    /// The next ones, the first of them perhaps from a row in its middle on: see [`TailFollower::position`].
    pub arrivals: Vec<Arc<TailArrival>>,
}

/// Somebody who follows a table, from a position on.
#[derive(Debug)]
pub struct TailFollower {
    shared: Arc<EngineCore>,
    at: usize,
    position: ArrivalPosition,
    /// Rows before the position since the ring began.
    passed: u64,
    news: watch::Receiver<()>,
}

impl Engine {
    /// Follows a table from now on: the view has exactly the rows that came before.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] of an engine that takes no rows.
    pub fn follow(&self, table: Table) -> Result<(ReadView, TailFollower), Error> {
        let shared = &self.shared;
        if shared.remote.as_ref().is_some_and(|remote| remote.is_reader()) {
            return Err(Error::ReadOnly);
        }
        let tails = &shared.tails;
        let tail = &tails.tables[table_index(table)];
        let news = tail.news.subscribe();
        let state = shared.state.lock();
        let next = state.committed + 1;
        tail.followers.fetch_add(1, Ordering::Relaxed);
        if !tail.keeps.swap(true, Ordering::Relaxed) {
            tail.ring.lock().forget(next);
        }
        let view = self.view();
        let passed = tail.ring.lock().passed.0;
        drop(state);
        let follow = TailFollower {
            shared: Arc::clone(shared),
            at: table_index(table),
            position: ArrivalPosition::before(next),
            passed,
            news,
        };
        Ok((view, follow))
    }

    /// The store's id, which positions belong to.
    #[must_use]
    pub fn store_id(&self) -> uuid::Uuid {
        self.shared.store
    }
}

impl TailFollower {
    /// The next row's place.
    #[must_use]
    pub const fn position(&self) -> ArrivalPosition {
        self.position
    }

    /// Goes to an earlier position. `false`, and nothing happens, if not every row from there on is kept.
    pub fn seek(&mut self, position: ArrivalPosition) -> bool {
        let ring = self.shared.tails.tables[self.at].ring.lock();
        if position.lsn < ring.start || position > self.position {
            return false;
        }
        self.passed = ring.rows_before(position);
        self.position = position;
        true
    }

    /// Goes to the oldest row that is kept, or stays. Returns that row's batch.
    pub fn seek_oldest(&mut self) -> Option<Arc<TailArrival>> {
        let ring = self.shared.tails.tables[self.at].ring.lock();
        let oldest = ring.kept.front().filter(|oldest| oldest.lsn < self.position.lsn)?;
        self.position = ArrivalPosition::before(oldest.lsn);
        self.passed = oldest.before.0;
        Some(Arc::clone(oldest))
    }

    /// The next arrivals, at most so many; none if there are none yet. Passes what is gone. Call [`TailFollower::pass`] for what was
    /// looked at.
    pub fn take(&mut self, most: usize) -> ArrivalBatch {
        self.take_while(most, |_, _| true)
    }

    /// As [`TailFollower::take`], of those that are going to be forgotten soon.
    pub fn take_expiring(&mut self, most: usize) -> ArrivalBatch {
        let limit = self.shared.tails.most / 4 * 3;
        self.take_while(most, move |arrival, passed| passed - arrival.before.1 > limit)
    }

    fn take_while(&mut self, most: usize, wanted: impl Fn(&TailArrival, u64) -> bool) -> ArrivalBatch {
        // What was pushed up to here is in the ring when that is looked at.
        let last = self.shared.tails.last.load(Ordering::Acquire);
        let ring = self.shared.tails.tables[self.at].ring.lock();
        let mut lost = 0;
        if self.position.lsn < ring.start {
            lost = ring.gone().0.saturating_sub(self.passed);
            self.passed += lost;
            self.position = ArrivalPosition::before(ring.start);
        }
        let from = ring.find(self.position.lsn);
        if from == ring.kept.len() {
            self.position = self.position.max(ArrivalPosition::before(last + 1));
        }
        let kept = ring.kept.iter().skip(from).take(most);
        let arrivals = kept.take_while(|arrival| wanted(arrival, ring.passed.1)).cloned();
        ArrivalBatch {
            lost,
            arrivals: arrivals.collect(),
        }
    }

    /// Passes the rows of an arrival up to the number `row`, all of them at its end.
    pub fn pass(&mut self, arrival: &TailArrival, row: usize) {
        self.passed = arrival.before.0 + row.min(arrival.rows) as u64;
        self.position = if row < arrival.rows {
            ArrivalPosition { lsn: arrival.lsn, row }
        } else {
            ArrivalPosition::before(arrival.lsn + 1)
        };
    }

    /// Waits until something came since the last look.
    pub async fn news(&mut self) {
        // The sender lives as long as `shared`.
        let _ = self.news.changed().await;
    }
}

impl Drop for TailFollower {
    fn drop(&mut self) {
        let tail = &self.shared.tails.tables[self.at];
        tail.left.store(self.shared.uptime().as_secs(), Ordering::Relaxed);
        tail.followers.fetch_sub(1, Ordering::Relaxed);
    }
}
