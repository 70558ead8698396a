//! The thread that publishes the catalogue: it looks for another list of files every `interval`.
//!
//! # Invariants
//!
//! - Everything that blocks is on this thread, which stands back behind what somebody waits for.
//! - It ends with the Mixer. One that waits for an object store at that moment is left to itself, and ends with the process.
//! - A failure is told once, counted each time, and tried again at the next look.

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
        let work = move || {
            let _alive = alive;
            self.publish_until(&ends);
        };
        let started = std::thread::Builder::new().name("iceberg".to_owned()).spawn(work);
        if let Err(error) = started {
            tracing::error!(%error, "could not start the thread that publishes the Iceberg catalogue");
            return;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            // It panicked.
            _ = &mut died => return,
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
