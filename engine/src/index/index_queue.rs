//! The queue of the indexer, and its progress.
//!
//! # Invariants
//!
//! - Nobody waits for a indexer that has stopped, however it did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Table;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::section_cache::SectionCache;
use crate::layout::FileVersionKey;

/// How long to stand back before looking again: a look at a hundred thousand files takes some milliseconds.
const REST: Duration = Duration::from_millis(100);

/// What the indexer is asked for, and how far it is.
#[derive(Debug)]
pub(crate) struct IndexQueue {
    /// What is kept of sidecars.
    pub(crate) memory: Arc<SectionCache>,
    orders: Mutex<IndexRequests>,
    changed: Condvar,
    settled: watch::Sender<IndexProgress>,
}

#[derive(Debug, Default)]
struct IndexRequests {
    asked: u64,
    /// Sidecars of files that were shown with them.
    shown: Vec<(FileVersionKey, Table)>,
    /// Somebody waits: no standing back.
    is_urgent: bool,
    stop: bool,
}

/// Orders up to this one are done.
#[derive(Debug, Clone, Copy, Default)]
struct IndexProgress {
    through: u64,
    stopped: bool,
}

impl IndexQueue {
    /// Nothing yet; so many bytes may be kept, half of sidecars and half of indexes of open files.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            memory: Arc::new(SectionCache::new(memory / 2)),
            orders: Mutex::default(),
            changed: Condvar::new(),
            settled: watch::Sender::default(),
        }
    }

    /// Something changed: the indexer looks at the view again.
    pub(crate) fn request_pass(&self) {
        self.orders.lock().asked += 1;
        self.changed.notify_all();
    }

    /// Returns when every file of the view that can have a sidecar has one, or cannot be indexed now. Whether it did: not if the
    /// indexer stops.
    pub(crate) async fn all(&self) -> bool {
        let asked = {
            let mut orders = self.orders.lock();
            orders.asked += 1;
            orders.is_urgent = true;
            orders.asked
        };
        self.changed.notify_all();
        let mut settled = self.settled.subscribe();
        let done = settled.wait_for(|now| now.stopped || now.through >= asked).await;
        done.is_ok_and(|now| now.through >= asked)
    }

    /// A file is in the view whose sidecar the indexer has not made.
    pub(crate) fn report_shown(&self, key: FileVersionKey, table: Table) {
        self.orders.lock().shown.push((key, table));
    }

    /// Those that came since.
    pub(crate) fn take_shown(&self) -> Vec<(FileVersionKey, Table)> {
        std::mem::take(&mut self.orders.lock().shown)
    }

    pub(crate) fn stop(&self) {
        self.orders.lock().stop = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.orders.lock().stop
    }

    /// Whether a look is worth more than to go on: there are later orders than this one, or no more work.
    pub(crate) fn has_news(&self, asked: u64) -> bool {
        let orders = self.orders.lock();
        orders.stop || orders.asked > asked
    }

    /// The number of the last order, when there is one beyond `done` or it is `until`; `None` when there will be no more.
    pub(crate) fn next_request(&self, done: u64, until: Option<Instant>) -> Option<u64> {
        let mut orders = self.orders.lock();
        loop {
            if orders.stop {
                return None;
            }
            if orders.asked > done || until.is_some_and(|until| until <= Instant::now()) {
                return Some(orders.asked);
            }
            match until {
                Some(until) => drop(self.changed.wait_until(&mut orders, until)),
                None => self.changed.wait(&mut orders),
            }
        }
    }

    pub(crate) fn mark_done(&self, through: u64) {
        let mut orders = self.orders.lock();
        orders.is_urgent &= orders.asked > through;
        drop(orders);
        self.settled.send_modify(|settled| settled.through = through);
    }

    /// Stands back for a moment, unless somebody waits.
    pub(crate) fn back_off(&self) {
        let end = Instant::now() + REST;
        let mut orders = self.orders.lock();
        while !orders.stop && !orders.is_urgent && !self.changed.wait_until(&mut orders, end).timed_out() {}
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.orders.lock().is_urgent
    }
}

/// However the indexer ends, nobody waits for it.
pub(crate) struct IndexerGuard<'a>(pub(crate) &'a IndexQueue);

impl Drop for IndexerGuard<'_> {
    fn drop(&mut self) {
        self.0.settled.send_modify(|settled| settled.stopped = true);
    }
}
