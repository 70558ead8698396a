//! Live tail: keeps the newest rows in the order in which they became visible, for the followers of a table.
//!
//! ```text
//! committer, under `state` ─> ArrivalRing per table: │ arrival │ arrival │ … │ newest │        bounded by bytes
//! replay of the log ────────────^             └ start: everything from this LSN on is here
//!                             TailFollower (position) ──take──> arrivals, or how many rows are gone
//! ```
//!
//! An arrival shares its rows with the hot batches, and keeps them in memory after the hot rows have gone into files.
//! [`crate::Settings::tail_max`] bounds that memory, and [`crate::TailStats::bytes`] reports it.
//!
//! # What is kept
//!
//! For a table with followers, and for [`LINGER`] after the last one left (for logs also after the store was opened): the newest
//! rows, up to the bound. For other tables nothing. A follower that had every row resumes exactly even then, as long as no new row came.
//!
//! # Invariants
//!
//! - An arrival is added under `state`, durable and in order. A [`crate::TailFollower`] and its view are taken under `state` too, so
//!   the view has exactly the rows before the position.
//! - A ring has every arrival of its table from `start` on. Missing rows are counted, or their number is reported as unknown.
//! - The committer waits for nobody here: it adds arrivals, drops those that are too old, and frees their memory after it has released
//!   the lock.
//! - A position means the same after a restart: LSNs continue, and a batch has its rows in the same order in the log.
//!
//! # Not here
//!
//! Filters, texts, and how long somebody follows: `query`.

mod arrival_ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use model::Table;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::arrival_ring::ArrivalRing;
pub use self::arrival_ring::{ArrivalPosition, TailArrival};
use crate::HotBatch;
use crate::memtable::PartitionKey;
use crate::snapshot::table_index;

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

    /// Somebody follows a table from the LSN `next` on; under `state`. News of it, and the rows before since the ring began.
    pub(crate) fn subscribe(&self, table: Table, next: u64) -> (watch::Receiver<()>, u64) {
        let table = &self.tables[table_index(table)];
        table.followers.fetch_add(1, Ordering::Relaxed);
        let mut ring = table.ring.lock();
        if !table.keeps.swap(true, Ordering::Relaxed) {
            ring.forget(next);
        }
        (table.news.subscribe(), ring.passed.0)
    }

    /// Somebody follows a table no more.
    pub(crate) fn unsubscribe(&self, table: Table, uptime: Duration) {
        let table = &self.tables[table_index(table)];
        table.left.store(uptime.as_secs(), Ordering::Relaxed);
        table.followers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The rows before a position since the ring began; `None` if not every row from there on is kept.
    pub(crate) fn rows_before(&self, table: Table, position: ArrivalPosition) -> Option<u64> {
        let ring = self.tables[table_index(table)].ring.lock();
        (position.lsn >= ring.start).then(|| ring.rows_before(position))
    }

    /// The oldest arrival that is kept, and the rows before it.
    pub(crate) fn oldest(&self, table: Table) -> Option<(Arc<TailArrival>, u64)> {
        let ring = self.tables[table_index(table)].ring.lock();
        ring.kept.front().map(|oldest| (Arc::clone(oldest), oldest.before.0))
    }

    /// Arrivals with more bytes from their begin to the newest row are forgotten soon.
    pub(crate) const fn expiry_bytes(&self) -> u64 {
        self.most / 4 * 3
    }

    /// The arrivals from `cursor` on, at most `most`, as long as there are more than `beyond` bytes from the begin of one to the newest
    /// row. Moves the cursor behind what is gone.
    pub(crate) fn read(&self, table: Table, cursor: &mut TailCursor, most: usize, beyond: u64) -> ArrivalBatch {
        // What was pushed up to here is in the ring when that is looked at.
        let last = self.last.load(Ordering::Acquire);
        let ring = self.tables[table_index(table)].ring.lock();
        let mut lost = 0;
        if cursor.position.lsn < ring.start {
            lost = ring.gone().0.saturating_sub(cursor.passed);
            cursor.passed += lost;
            cursor.position = ArrivalPosition::before(ring.start);
        }
        let from = ring.find(cursor.position.lsn);
        if from == ring.kept.len() {
            cursor.position = cursor.position.max(ArrivalPosition::before(last + 1));
        }
        let is_wanted = |arrival: &&Arc<TailArrival>| ring.passed.1 - arrival.before.1 > beyond;
        let arrivals = ring.kept.iter().skip(from).take(most).take_while(is_wanted).cloned();
        ArrivalBatch {
            lost,
            arrivals: arrivals.collect(),
        }
    }
}

/// How far a follower is.
#[derive(Debug)]
pub(crate) struct TailCursor {
    /// The next row's place.
    pub(crate) position: ArrivalPosition,
    /// Rows before it since the ring began.
    pub(crate) passed: u64,
}

impl TailCursor {
    /// Passes the rows of an arrival up to the number `row`, all of them at its end.
    pub(crate) fn pass(&mut self, arrival: &TailArrival, row: usize) {
        self.passed = arrival.before.0 + row.min(arrival.rows) as u64;
        self.position = if row < arrival.rows {
            ArrivalPosition { lsn: arrival.lsn, row }
        } else {
            ArrivalPosition::before(arrival.lsn + 1)
        };
    }
}

/// What a follower is given.
#[derive(Debug, Default)]
pub struct ArrivalBatch {
    /// So many rows before these are gone.
    pub lost: u64,
    /// The next ones, the first of them perhaps from a row in its middle on: see [`crate::TailFollower::position`].
    pub arrivals: Vec<Arc<TailArrival>>,
}
