//! Worker threads of scans, and their deadline.
//!
//! # Invariants
//!
//! - At most so many scans read at once, over all queries. Who waits for a thread gets one in turn: a scan, and a look at files,
//!   gives its thread back after a slice of time.
//! - A scan that nobody waits for ends at its next block.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::SLICE;
use crate::Error;
use crate::admission_gate::close;

/// See the module.
#[derive(Debug)]
pub(super) struct ScanWorkers {
    places: Arc<Semaphore>,
    count: usize,
    /// Whose threads these are: whoever asks, all wait for each other's places, so all threads go as fast.
    threads: Handle,
}

/// The right to a thread.
pub(super) type WorkerPermit = OwnedSemaphorePermit;

impl ScanWorkers {
    pub(super) fn new(count: usize, threads: Handle) -> Self {
        let count = count.max(1);
        Self {
            places: Arc::new(Semaphore::new(count)),
            count,
            threads,
        }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) -> Result<WorkerPermit, Error> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(|_| Error::Closed)
    }

    /// Free places.
    pub(super) fn take_spare(&self) -> Vec<WorkerPermit> {
        let spare = || Arc::clone(&self.places).try_acquire_owned().ok();
        std::iter::from_fn(spare).take(self.count).collect()
    }

    /// A place for work of many steps.
    pub(super) async fn time_sliced_permit(&self, patience: ScanDeadline) -> Result<TimeSlicedPermit, Error> {
        Ok(TimeSlicedPermit {
            patience,
            place: Some(self.enter().await?),
            places: Arc::clone(&self.places),
            until: Instant::now() + SLICE,
        })
    }

    /// Runs work on a thread that may wait for the disk; whatever it has, as a place, is given back when it is done.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.threads.spawn_blocking(work)
    }

    /// Waits until nobody reads any more; from then on nobody does.
    pub(super) async fn close(&self) {
        close(&self.places, self.count).await;
    }
}

/// Work of many steps, whose place others have in between: after each slice of time it is given to who waits for one.
#[derive(Debug)]
pub(super) struct TimeSlicedPermit {
    patience: ScanDeadline,
    place: Option<WorkerPermit>,
    places: Arc<Semaphore>,
    until: Instant,
}

impl TimeSlicedPermit {
    /// Called between two steps, on a thread that may block: waits for the next turn, and ends work that nobody waits for.
    pub(super) fn yield_if_due(&mut self) -> Result<(), Error> {
        if Instant::now() >= self.until {
            self.place = None;
            let next = Arc::clone(&self.places).acquire_owned();
            self.place = Some(Handle::current().block_on(next).map_err(|_| Error::Closed)?);
            self.until = Instant::now() + SLICE;
        }
        self.patience.check()
    }
}

/// How long a scan is waited for.
#[derive(Debug)]
pub(super) struct ScanDeadline {
    left: CancellationToken,
    deadline: Instant,
    timeout: Duration,
}

impl ScanDeadline {
    /// With what is held by who waits.
    pub(super) fn new(started: Instant, timeout: Duration) -> (Self, DropGuard) {
        let left = CancellationToken::new();
        let waiting = left.clone().drop_guard();
        let far = Duration::from_secs(86_400);
        let deadline = started.checked_add(timeout).unwrap_or(started + far);
        (
            Self {
                left,
                deadline,
                timeout,
            },
            waiting,
        )
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.left.is_cancelled() {
            return Err(Error::Aborted("nobody waits for it any more".to_owned()));
        }
        if Instant::now() >= self.deadline {
            return Err(Error::Timeout(self.timeout.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_scan_ends_when_nobody_waits_for_it_or_its_time_is_up() {
        let (patience, waiting) = ScanDeadline::new(Instant::now(), Duration::from_secs(3600));
        assert!(patience.check().is_ok());
        drop(waiting);
        assert!(matches!(patience.check(), Err(Error::Aborted(_))));
        let (patience, _waiting) = ScanDeadline::new(Instant::now(), Duration::ZERO);
        assert!(matches!(patience.check(), Err(Error::Timeout(_))));
        let (patience, _waiting) = ScanDeadline::new(Instant::now(), Duration::MAX);
        assert!(patience.check().is_ok());
    }

    #[tokio::test]
    async fn as_many_read_as_there_are_places_and_closing_waits_for_them() {
        let workers = ScanWorkers::new(2, Handle::current());
        let first = workers.enter().await.unwrap();
        let spare = workers.take_spare();
        assert_eq!((spare.len(), workers.take_spare().len()), (1, 0));
        drop(spare);
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let reading = workers.run(move || {
            let _place = first;
            gone.recv().is_ok()
        });
        let closing = tokio::time::timeout(Duration::from_millis(1), workers.close()).await;
        assert!(closing.is_err(), "one still reads");
        go.send(()).unwrap();
        workers.close().await;
        assert!(reading.await.unwrap());
        assert!(matches!(workers.enter().await, Err(Error::Closed)));
    }
}
