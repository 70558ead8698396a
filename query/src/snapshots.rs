//! The snapshots that queries read, and the rows that these pin in memory.
//!
//! Rows go from memory to files while a query runs, and its snapshot has them as they were. The store gives the room of such rows to
//! those that come next, so who reads for long beside fast appends keeps a second generation of them, and each reader another one.
//!
//! ```text
//! a query begins ──▶ pinned with its snapshot ──▶ look, as long as anybody reads:
//!                                                   rows that are in files by now, of all snapshots, each once
//!                                                     │ count as memory of queries
//!                                                     ▼ more than half of it
//!                                                   the query that began first ends: "snapshot too old"
//! ```
//!
//! # Invariants
//!
//! - What snapshots pin is memory of queries, and no more than half of it for longer than a look and an end take.
//! - Those that end are those that began first, no more of them than is needed.
//! - At an ordinary pace nobody is ended: a snapshot pins what came between two publishes.
//!
//! # Not here
//!
//! Rows that are hot still: they are in the store's budget.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::{Engine, ReadView};
use model::{ByteSize, Table};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// How often pinned rows are counted while somebody reads.
const LOOK: Duration = Duration::from_millis(50);

/// The snapshots of running queries.
#[derive(Debug)]
pub(crate) struct Snapshots {
    engine: Arc<Engine>,
    /// What pinned rows may take.
    most: ByteSize,
    pinned: Mutex<Pinned>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Pinned {
    next: u64,
    /// In the order in which they began.
    running: BTreeMap<u64, (ReadView, CancellationToken)>,
}

/// The snapshot of one query; dropped when that ends.
#[derive(Debug)]
pub(crate) struct PinnedSnapshot {
    number: u64,
    too_old: CancellationToken,
    all: Arc<Snapshots>,
}

impl Snapshots {
    /// None so far; pinned rows may take so much.
    pub(crate) fn new(engine: &Arc<Engine>, most: ByteSize) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            most,
            pinned: Mutex::default(),
            came: Notify::new(),
        })
    }

    /// The snapshot of a query that is about to begin, and that ends with `stop`: it pins what a view pins that is taken next.
    pub(crate) fn pin(self: &Arc<Self>, stop: &CancellationToken) -> PinnedSnapshot {
        let too_old = stop.child_token();
        let mut pinned = self.pinned.lock();
        let number = pinned.next;
        pinned.next += 1;
        pinned.running.insert(number, (self.engine.view(), too_old.clone()));
        let is_first = pinned.running.len() == 1;
        drop(pinned);
        if is_first {
            self.came.notify_one();
        }
        PinnedSnapshot {
            number,
            too_old,
            all: Arc::clone(self),
        }
    }

    /// Counts what is pinned as memory of a pool, for ever, and ends queries that pin too much.
    pub(crate) async fn watch(self: Arc<Self>, pool: Arc<dyn MemoryPool>) {
        let counted = MemoryConsumer::new("rows of earlier snapshots").register(&pool);
        loop {
            self.came.notified().await;
            while self.look(&counted) {
                // Sooner if one is gone that had to end.
                let _ = tokio::time::timeout(LOOK, self.came.notified()).await;
            }
        }
    }

    /// Whether anybody reads.
    fn look(&self, counted: &MemoryReservation) -> bool {
        let running: Vec<_> = self.pinned.lock().running.values().cloned().collect();
        // It is there, whether or not the pool has room: others get less.
        counted.resize(usize::try_from(pinned_bytes(&running)).unwrap_or(usize::MAX));
        let (ending, mut going): (Vec<_>, Vec<_>) = running.into_iter().partition(|(_, end)| end.is_cancelled());
        let is_read = !(ending.is_empty() && going.is_empty());
        while pinned_bytes(&going) > self.most.get() {
            tracing::warn!(
                most = self.most.get(),
                "queries keep too many rows in memory that are in files by now: the one that began first is ended"
            );
            let (_, first) = going.remove(0);
            first.cancel();
        }
        is_read
    }

    /// How many queries run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.pinned.lock().running.len()
    }
}

impl PinnedSnapshot {
    /// Cancelled when the query must end for what it pins, and when it ends anyway.
    pub(crate) const fn end(&self) -> &CancellationToken {
        &self.too_old
    }

    /// Waits until the query must end for what it pins.
    pub(crate) async fn too_old(&self) -> Error {
        self.too_old.cancelled().await;
        Error::SnapshotTooOld(self.all.most)
    }
}

impl Drop for PinnedSnapshot {
    fn drop(&mut self) {
        let gone = self.all.pinned.lock().running.remove(&self.number);
        // Rows are freed without the lock.
        drop(gone);
        if self.too_old.is_cancelled() {
            self.all.came.notify_one();
        }
    }
}

/// The bytes of rows that views keep and the store does not count, each once.
fn pinned_bytes(running: &[(ReadView, CancellationToken)]) -> u64 {
    let mut seen = HashSet::new();
    let hot = running
        .iter()
        .flat_map(|(view, _)| Table::ALL.map(|table| view.hot(table)));
    hot.flatten()
        .filter(|hot| seen.insert(Arc::as_ptr(hot)))
        .map(|hot| hot.retained_bytes())
        .sum()
}
