//! Tail follower: returns the rows of a table that became visible since the last call, in their order.
//!
//! # Invariants
//!
//! - A follower and its view are taken under `state`: the view has exactly the rows before the position.
//! - Rows that the live tail no longer has are counted, never skipped in silence.

use std::sync::Arc;

use model::Table;
use tokio::sync::watch;

use crate::engine_core::EngineCore;
use crate::live_tail::{ArrivalBatch, ArrivalPosition, TailArrival, TailCursor};
use crate::{Error, ReadView};

/// Somebody who follows a table, from a position on.
#[derive(Debug)]
pub struct TailFollower {
    shared: Arc<EngineCore>,
    table: Table,
    cursor: TailCursor,
    news: watch::Receiver<()>,
}

impl TailFollower {
    /// Follows a table from now on: the view has exactly the rows that came before.
    pub(crate) fn start(shared: &Arc<EngineCore>, table: Table) -> Result<(ReadView, Self), Error> {
        if shared.remote.as_ref().is_some_and(|remote| remote.is_reader()) {
            return Err(Error::ReadOnly);
        }
        let state = shared.rows.state.lock();
        let next = state.committed + 1;
        let (news, passed) = shared.rows.tails.subscribe(table, next);
        let view = ReadView::new(shared.rows.view.load_full());
        drop(state);
        let cursor = TailCursor {
            position: ArrivalPosition::before(next),
            passed,
        };
        let follow = Self {
            shared: Arc::clone(shared),
            table,
            cursor,
            news,
        };
        Ok((view, follow))
    }

    /// The next row's place.
    #[must_use]
    pub const fn position(&self) -> ArrivalPosition {
        self.cursor.position
    }

    /// Goes to an earlier position. `false`, and nothing happens, if not every row from there on is kept.
    pub fn seek(&mut self, position: ArrivalPosition) -> bool {
        if position > self.cursor.position {
            return false;
        }
        let Some(passed) = self.shared.rows.tails.rows_before(self.table, position) else {
            return false;
        };
        self.cursor = TailCursor { position, passed };
        true
    }

    /// Goes to the oldest row that is kept, or stays. Returns that row's batch.
    pub fn seek_oldest(&mut self) -> Option<Arc<TailArrival>> {
        let (oldest, passed) = self.shared.rows.tails.oldest(self.table)?;
        if oldest.lsn >= self.cursor.position.lsn {
            return None;
        }
        let position = ArrivalPosition::before(oldest.lsn);
        self.cursor = TailCursor { position, passed };
        Some(oldest)
    }

    /// The next arrivals, at most so many; none if there are none yet. Passes what is gone. Call [`TailFollower::pass`] for what was
    /// looked at.
    pub fn take(&mut self, most: usize) -> ArrivalBatch {
        self.shared.rows.tails.read(self.table, &mut self.cursor, most, 0)
    }

    /// As [`TailFollower::take`], of those that are going to be forgotten soon.
    pub fn take_expiring(&mut self, most: usize) -> ArrivalBatch {
        let tails = &self.shared.rows.tails;
        tails.read(self.table, &mut self.cursor, most, tails.expiry_bytes())
    }

    /// Passes the rows of an arrival up to the number `row`, all of them at its end.
    pub fn pass(&mut self, arrival: &TailArrival, row: usize) {
        self.cursor.pass(arrival, row);
    }

    /// Waits until something came since the last look.
    pub async fn news(&mut self) {
        // The sender lives as long as `shared`.
        let _ = self.news.changed().await;
    }
}

impl Drop for TailFollower {
    fn drop(&mut self) {
        let uptime = self.shared.uptime();
        self.shared.rows.tails.unsubscribe(self.table, uptime);
    }
}
