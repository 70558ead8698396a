//! Tail follower: returns the rows of a table that became visible since the last call, in their order.
//!
//! # Invariants
//!
//! - A follower and its view are taken under `state`: the view has exactly the rows before the position.
//! - Rows that the live tail no longer has are counted, never skipped in silence.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::Table;
use tokio::sync::watch;

use crate::engine_core::EngineCore;
use crate::live_tail::{ArrivalPosition, TailArrival};
use crate::snapshot::table_index;
use crate::{Error, ReadView};

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

impl TailFollower {
    /// Follows a table from now on: the view has exactly the rows that came before.
    pub(crate) fn start(shared: &Arc<EngineCore>, table: Table) -> Result<(ReadView, Self), Error> {
        if shared.remote.as_ref().is_some_and(|remote| remote.is_reader()) {
            return Err(Error::ReadOnly);
        }
        let tails = &shared.rows.tails;
        let tail = &tails.tables[table_index(table)];
        let news = tail.news.subscribe();
        let state = shared.rows.state.lock();
        let next = state.committed + 1;
        tail.followers.fetch_add(1, Ordering::Relaxed);
        if !tail.keeps.swap(true, Ordering::Relaxed) {
            tail.ring.lock().forget(next);
        }
        let view = ReadView::new(shared.rows.view.load_full());
        let passed = tail.ring.lock().passed.0;
        drop(state);
        let follow = Self {
            shared: Arc::clone(shared),
            at: table_index(table),
            position: ArrivalPosition::before(next),
            passed,
            news,
        };
        Ok((view, follow))
    }

    /// The next row's place.
    #[must_use]
    pub const fn position(&self) -> ArrivalPosition {
        self.position
    }

    /// Goes to an earlier position. `false`, and nothing happens, if not every row from there on is kept.
    pub fn seek(&mut self, position: ArrivalPosition) -> bool {
        let ring = self.shared.rows.tails.tables[self.at].ring.lock();
        if position.lsn < ring.start || position > self.position {
            return false;
        }
        self.passed = ring.rows_before(position);
        self.position = position;
        true
    }

    /// Goes to the oldest row that is kept, or stays. Returns that row's batch.
    pub fn seek_oldest(&mut self) -> Option<Arc<TailArrival>> {
        let ring = self.shared.rows.tails.tables[self.at].ring.lock();
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
        let limit = self.shared.rows.tails.most / 4 * 3;
        self.take_while(most, move |arrival, passed| passed - arrival.before.1 > limit)
    }

    fn take_while(&mut self, most: usize, wanted: impl Fn(&TailArrival, u64) -> bool) -> ArrivalBatch {
        // What was pushed up to here is in the ring when that is looked at.
        let last = self.shared.rows.tails.last.load(Ordering::Acquire);
        let ring = self.shared.rows.tails.tables[self.at].ring.lock();
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
        let tail = &self.shared.rows.tails.tables[self.at];
        tail.left.store(self.shared.uptime().as_secs(), Ordering::Relaxed);
        tail.followers.fetch_sub(1, Ordering::Relaxed);
    }
}
