//! Query caller: what one caller has of the places of queries, and how much its queries have read.
//!
//! # Invariants
//!
//! - A caller runs at most as many queries as it has places, over every way that it asks.
//! - Of its places statements never have all, unless there is one only: its lists are answered beside its statements.
//! - Who waits for a place holds a connection: at most [`WAITING`] queries of a caller do, or twice as many as it has places.
//! - A query that begins while its caller runs no other one has the caller's first turn.
//!
//! Not here: the places of all (`admission_gate`); who has how many places, and what is done about what was read (`mixer`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Error;

/// So many queries of a caller may wait at least.
const WAITING: usize = 16;

/// One who asks, over all of its connections.
#[derive(Debug)]
pub struct QueryCaller {
    places: Arc<Semaphore>,
    statements: Arc<Semaphore>,
    most: usize,
    first: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    most_followers: usize,
    waiting: Arc<Semaphore>,
    patience: Duration,
    bytes_read: AtomicU64,
}

/// A place of a caller.
#[derive(Debug)]
pub(crate) struct CallerPlace {
    _own: OwnedSemaphorePermit,
    _of_statements: Option<OwnedSemaphorePermit>,
    /// The caller's first turn, or what the gate gives in its place.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
}

impl QueryCaller {
    /// One that runs at most so many queries, which wait so long for each other, and follows with so many tails; one at least of each.
    #[must_use]
    pub fn new(most: usize, most_followers: usize, patience: Duration) -> Arc<Self> {
        let (most, most_followers) = (clamped(most), clamped(most_followers));
        Arc::new(Self {
            places: Arc::new(Semaphore::new(most)),
            statements: Arc::new(Semaphore::new(statement_share(most))),
            most,
            first: Arc::new(Semaphore::new(1)),
            followers: Arc::new(Semaphore::new(most_followers)),
            most_followers,
            waiting: Arc::new(Semaphore::new(clamped(most.saturating_mul(2)).max(WAITING))),
            patience,
            bytes_read: AtomicU64::new(0),
        })
    }

    /// The bytes that its queries have read of files since this was called last.
    pub fn take_bytes_read(&self) -> u64 {
        self.bytes_read.swap(0, Ordering::Relaxed)
    }

    /// How many places it has.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A place of its own for a list or a chart, if one of its queries ends in time.
    pub(crate) async fn enter(&self) -> Result<CallerPlace, Error> {
        self.place(None, self.deadline()).await
    }

    /// A place of its own for a statement, if one of its statements ends in time.
    pub(crate) async fn enter_statement(&self) -> Result<CallerPlace, Error> {
        let (share, deadline) = (statement_share(self.most), self.deadline());
        let of_statements = self.wait_for((&self.statements, share), deadline).await?;
        self.place(Some(of_statements), deadline).await
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    async fn place(
        &self,
        of_statements: Option<OwnedSemaphorePermit>,
        deadline: Instant,
    ) -> Result<CallerPlace, Error> {
        Ok(CallerPlace {
            _own: self.wait_for((&self.places, self.most), deadline).await?,
            _of_statements: of_statements,
            turn: Arc::clone(&self.first).try_acquire_owned().ok(),
        })
    }

    /// One of so many places.
    async fn wait_for(
        &self,
        (places, most): (&Arc<Semaphore>, usize),
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        let Ok(_waits) = self.waiting.try_acquire() else {
            return Err(Error::CallerBusy { running: most });
        };
        let waited = tokio::time::timeout_at(deadline, Arc::clone(places).acquire_owned()).await;
        let place = waited.map_err(|_| Error::CallerBusy { running: most })?;
        place.map_err(|_| Error::Closed)
    }

    /// A place for a tail.
    pub(crate) fn follow(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = Arc::clone(&self.followers).try_acquire_owned();
        place.map_err(|_| Error::CallerFollows(self.most_followers))
    }
}

/// What statements may have of places: three quarters, but one at least; and never all of more than one.
pub(crate) const fn statement_share(places: usize) -> usize {
    let kept = places.div_ceil(4);
    if places > 1 { places - kept } else { places }
}

fn clamped(most: usize) -> usize {
    most.clamp(1, Semaphore::MAX_PERMITS)
}
