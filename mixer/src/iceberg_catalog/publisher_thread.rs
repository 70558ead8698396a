//! The thread that publishes the catalogue: it looks for another list of files every `interval`.
//!
//! # Invariants
//!
//! - Everything that blocks is on this thread, which stands back behind what somebody waits for.
//! - It ends with the Mixer. One that waits for an object store at that moment is left to itself, and ends with the process.
//! - A failure is told once, counted each time, and tried again at the next look. A panic is told, and ends nothing but the thread.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use engine::{Engine, ThreadNiceness};
use iceberg::{CatalogPublisher, CatalogSettings, IcebergError};
use model::Clock;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::catalog_service::CatalogService;
use super::publication_status::PublicationStatus;

/// How often metadata that nobody names any more is deleted.
const CLEANUP: Duration = Duration::from_secs(3_600);
/// How often snapshots and links that became too old are given up at least, although no file came or went.
const EXPIRY: Duration = Duration::from_secs(300);
/// How long the end of the Mixer waits for a publication that is under way.
const PATIENCE: Duration = Duration::from_secs(2);

/// The publisher and what it publishes.
pub(crate) struct PublisherThread {
    engine: Arc<Engine>,
    publisher: CatalogPublisher,
    status: Arc<PublicationStatus>,
    clock: Clock,
    interval: Duration,
    /// How often it is looked for snapshots and links that became too old.
    expiry: Duration,
}

impl PublisherThread {
    /// Of a store that this Mixer writes, with what is served of it.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        settings: CatalogSettings,
        (clock, interval): (Clock, Duration),
    ) -> (Self, Arc<CatalogService>) {
        let expiry = settings.snapshot_age.min(EXPIRY);
        let publisher = CatalogPublisher::new(engine.side_objects(), engine.store_id(), settings);
        let status = Arc::new(PublicationStatus::default());
        let service = CatalogService::new(Arc::clone(engine), publisher.catalog(), Some(Arc::clone(&status)));
        let thread = Self {
            engine: Arc::clone(engine),
            publisher,
            status,
            clock,
            interval,
            expiry,
        };
        (thread, Arc::new(service))
    }

    /// Publishes until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (end, ends) = mpsc::channel::<()>();
        let (alive, mut died) = oneshot::channel::<()>();
        let status = Arc::clone(&self.status);
        let work = move || {
            let _alive = alive;
            self.publish_until(&ends);
        };
        let started = std::thread::Builder::new().name("iceberg".to_owned()).spawn(work);
        if let Err(error) = started {
            return rest(&status, format!("its thread did not start: {error}"), &stop).await;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            _ = &mut died => return rest(&status, "its thread panicked".to_owned(), &stop).await,
        }
        drop(end);
        if tokio::time::timeout(PATIENCE, died).await.is_err() {
            tracing::warn!("the Mixer ends while the Iceberg catalogue is published; the next start publishes it");
        }
    }

    /// Publishes until the other end is gone.
    fn publish_until(mut self, ends: &mpsc::Receiver<()>) {
        engine::lower_thread_priority(ThreadNiceness::Background);
        let begun = Instant::now();
        let (mut published, mut expiry, mut cleanup) = (None, begun + self.expiry, begun + CLEANUP);
        let mut wait = Duration::ZERO;
        while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(wait) {
            wait = self.interval;
            let now = Instant::now();
            let is_expiry = now >= expiry;
            if is_expiry {
                expiry = now + self.expiry;
                if let Err(error) = self.publisher.notice_others() {
                    self.tell(&error);
                }
            }
            // Snapshots and links that became too old go with a publication.
            let is_another = published != Some(self.engine.published_number());
            if is_expiry || is_another || self.publisher.is_due() {
                published = self.publish();
            }
            if now >= cleanup {
                cleanup = now + CLEANUP;
                self.publisher.begin_collection();
            }
            if let Err(error) = self.publisher.collect_garbage(self.clock.now()) {
                self.tell(&error);
            }
        }
    }

    /// Publishes the list of files as it is now. Its number, if that succeeded.
    pub(crate) fn publish(&mut self) -> Option<u64> {
        let files = self.engine.published_files();
        let number = files.number;
        let published = self.publisher.publish(files, self.clock.now());
        let tables = published.and_then(|_| self.publisher.catalog().overview());
        match tables {
            Ok(tables) => {
                self.status.succeed(tables);
                Some(number)
            }
            Err(error) => {
                self.tell(&error);
                None
            }
        }
    }

    fn tell(&self, error: &IcebergError) {
        if self.status.fail(error.to_string()) {
            tracing::warn!(%error, "could not publish the Iceberg catalogue; retrying");
        }
    }
}

/// Nothing is published any more: says so, and waits for the Mixer's end.
async fn rest(status: &PublicationStatus, reason: String, stop: &CancellationToken) {
    tracing::error!(
        reason,
        "the Iceberg catalogue is not published until the Mixer starts again"
    );
    status.fail(format!("{reason}; restart the Mixer"));
    stop.cancelled().await;
}

#[cfg(test)]
mod tests {
    use engine::{PartitionBy, Settings};

    use super::*;
    use crate::testing::{Hand, entropy};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_of_the_thread_is_told_and_ends_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::new(dir.path().join("store"));
        let engine = Engine::open(settings, Hand::new().clock(), entropy()).await.unwrap();
        let settings = CatalogSettings {
            snapshot_age: Duration::from_secs(3_600),
            partition_by: PartitionBy::Hour,
        };
        let broken = Clock::new(|| panic!("of a test"));
        let (thread, _) = PublisherThread::new(&engine, settings, (broken, Duration::from_secs(3_600)));
        let status = Arc::clone(&thread.status);
        let stop = CancellationToken::new();
        let running = tokio::spawn(thread.run(stop.clone()));
        let deadline = Instant::now() + Duration::from_secs(30);
        while status.issue().is_none() {
            assert!(Instant::now() < deadline, "waited in vain for the panic");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            (status.failures(), status.issue().as_deref()),
            (1, Some("its thread panicked; restart the Mixer"))
        );
        assert!(!running.is_finished());
        stop.cancel();
        running.await.unwrap();
        engine.close().await.unwrap();
    }
}
