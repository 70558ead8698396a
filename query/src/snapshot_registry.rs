//! The snapshots that statements and backlogs of tails read, and the rows that these pin in memory.
//!
//! Rows go from memory to files while a query runs, and its snapshot has them as they were. The store gives the room of such rows to
//! those that come next, so who reads for long beside fast appends retains a second generation of them, and each reader another one.
//!
//! ```text
//! a query begins ──▶ pins its snapshot ──▶ sampled, as long as anybody reads:
//!                                            hot rows of all pinned snapshots that the present one has not, each once
//!                                              │ count as memory of queries
//!                                              ▼ more than half of it
//!                                            the first query whose end frees some of them ends: "snapshot too old"
//! ```
//!
//! # Invariants
//!
//! - What snapshots retain is memory of queries, and no more than half of it for longer than a sample and an end take.
//! - Those that end are the first ones, but for those that retain only what a later one retains as well.
//! - One snapshot retains what the hot rows of the store may have (three eighths of the store's memory) at most. Where that is no more
//!   than half of the memory of queries, as by default, nobody ends who reads alone.
//!
//! # Not here
//!
//! Typed queries: they are short, and a list of what the store has in memory must not end because that is published meanwhile.
//! Rows that are hot still: they are in the store's budget. Rows that are kept for followers are in theirs and, while a snapshot has
//! them too, in this one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::{Engine, HotBatch, ReadView};
use model::{ByteSize, Table};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// How often retained rows are counted while somebody reads.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The snapshots of running queries.
#[derive(Debug)]
pub(crate) struct SnapshotRegistry {
    engine: Arc<Engine>,
    /// What retained rows may take.
    most: ByteSize,
    readers: Mutex<SnapshotReaders>,
    /// The first reader came, or one is gone that had to end.
    news: Notify,
}

#[derive(Debug, Default)]
struct SnapshotReaders {
    next: u64,
    /// In the order in which they began.
    running: BTreeMap<u64, (ReadView, CancellationToken)>,
}

/// The snapshot of one query; dropped when that ends.
#[derive(Debug)]
pub(crate) struct PinnedSnapshot {
    number: u64,
    too_old: CancellationToken,
    all: Arc<SnapshotRegistry>,
}

impl SnapshotRegistry {
    /// An empty registry; retained rows may take `most` bytes.
    pub(crate) fn new(engine: &Arc<Engine>, most: ByteSize) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            most,
            readers: Mutex::default(),
            news: Notify::new(),
        })
    }

    /// The snapshot that a query is about to read.
    pub(crate) fn pin(self: &Arc<Self>, view: ReadView) -> PinnedSnapshot {
        let too_old = CancellationToken::new();
        let mut readers = self.readers.lock();
        let number = readers.next;
        readers.next += 1;
        readers.running.insert(number, (view, too_old.clone()));
        let is_first = readers.running.len() == 1;
        drop(readers);
        if is_first {
            self.news.notify_one();
        }
        PinnedSnapshot {
            number,
            too_old,
            all: Arc::clone(self),
        }
    }

    /// Counts what is retained as memory of a pool, for ever, and ends queries that retain too much.
    pub(crate) async fn watch(self: Arc<Self>, pool: Arc<dyn MemoryPool>) {
        let counted = MemoryConsumer::new("rows of earlier snapshots").register(&pool);
        loop {
            self.news.notified().await;
            while self.enforce_limit(&counted) {
                let _ = tokio::time::timeout(SAMPLE_INTERVAL, self.news.notified()).await;
            }
        }
    }

    /// Whether anybody reads.
    fn enforce_limit(&self, counted: &MemoryReservation) -> bool {
        let mut running: Vec<_> = self.readers.lock().running.values().cloned().collect();
        let is_read = !running.is_empty();
        // Taken after those: what it has the store counts.
        let present = self.engine.view();
        // They are there, whether or not the pool has room: others get less.
        counted.resize(usize::try_from(retained_bytes(&running, &present)).unwrap_or(usize::MAX));
        running.retain(|(_, too_old)| !too_old.is_cancelled());
        let mut bytes = retained_bytes(&running, &present);
        while bytes > self.most.get() {
            let (_, too_old) = running.remove(0);
            let left = retained_bytes(&running, &present);
            if left < bytes {
                tracing::warn!(
                    bytes,
                    "queries retain too many rows that are in files by now: the first of them ends"
                );
                too_old.cancel();
            }
            bytes = left;
        }
        is_read
    }

    /// How many queries run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.readers.lock().running.len()
    }

    /// Why a query ends whose snapshot is too old.
    pub(crate) const fn too_old(&self) -> Error {
        Error::SnapshotTooOld(self.most)
    }
}

impl PinnedSnapshot {
    /// Cancelled when the query must end for what it retains.
    pub(crate) const fn too_old(&self) -> &CancellationToken {
        &self.too_old
    }
}

impl Drop for PinnedSnapshot {
    fn drop(&mut self) {
        let gone = self.all.readers.lock().running.remove(&self.number);
        // Rows are freed without the lock.
        drop(gone);
        if self.too_old.is_cancelled() {
            self.all.news.notify_one();
        }
    }
}

/// The bytes of hot rows that views have and the present one has not, each once.
fn retained_bytes(running: &[(ReadView, CancellationToken)], present: &ReadView) -> u64 {
    let mut seen: HashSet<_> = hot(present).map(Arc::as_ptr).collect();
    let retained = running.iter().flat_map(|(view, _)| hot(view));
    let retained = retained.filter(|batch| seen.insert(Arc::as_ptr(batch)));
    retained.map(|batch| batch.weight()).sum()
}

fn hot(view: &ReadView) -> impl Iterator<Item = &Arc<HotBatch>> {
    Table::ALL.into_iter().flat_map(|table| view.hot(table))
}
