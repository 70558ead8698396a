//! The thread that publishes the catalogue: it looks for another list of files every `interval`.
//!
//! # Invariants
//!
//! - Everything that blocks is on this thread, which stands back behind what somebody waits for.
//! - It ends with the Mixer. One that waits for an object store at that moment is left to itself, and ends with the process.
//! - The reason of failures in a row is told once, each is counted, and tried again at the next look. A panic is told, and ends nothing but
//!   the thread; it counts as a failure for as long as nothing is published.
//! - A collection of garbage that fails is in the log alone.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use engine::{Engine, ThreadNiceness};
use iceberg::{CatalogPublisher, CatalogSettings, IcebergCatalog, IcebergError};
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
        let catalog = IcebergCatalog::clone(&publisher.catalog());
        let service = CatalogService::new(Arc::clone(engine), catalog, Some(Arc::clone(&status)));
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
        let (status, again) = (Arc::clone(&self.status), self.interval.min(self.expiry));
        let work = move || {
            let _alive = alive;
            self.publish_until(&ends);
        };
        let started = std::thread::Builder::new().name("iceberg".to_owned()).spawn(work);
        if let Err(error) = started {
            return rest(&status, &format!("its thread did not start: {error}"), (again, &stop)).await;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            _ = &mut died => return rest(&status, "its thread panicked", (again, &stop)).await,
        }
        drop(end);
        if tokio::time::timeout(PATIENCE, died).await.is_err() {
            tracing::warn!("the Mixer ends while the Iceberg catalogue is published; the next start publishes it");
        }
    }

    /// Publishes until the other end is gone.
    fn publish_until(mut self, ends: &mpsc::Receiver<()>) {
        engine::lower_thread_priority(ThreadNiceness::Background);
        let (mut looked, mut expired, mut cleaned) = (None::<Instant>, Instant::now(), Instant::now());
        let (mut published, mut wait) = (None::<u64>, Duration::ZERO);
        let mut is_collection_told = false;
        while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(wait) {
            let is_look = looked.is_none_or(|at| at.elapsed() >= self.interval);
            let is_expiry = expired.elapsed() >= self.expiry;
            if is_expiry && let Err(error) = self.publisher.notice_others() {
                self.tell(&error);
            }
            let is_another = published.is_some_and(|number| number != self.engine.published_number());
            // Snapshots and links that became too old go with a publication. Another list waits for its look all the same.
            if (is_look && (is_another || published.is_none() || self.publisher.is_due())) || (is_expiry && !is_another)
            {
                published = self.publish();
            }
            if cleaned.elapsed() >= CLEANUP {
                cleaned = Instant::now();
                self.publisher.begin_collection();
                is_collection_told = false;
            }
            if let Err(error) = self.publisher.collect_garbage(self.clock.now())
                && !std::mem::replace(&mut is_collection_told, true)
            {
                tracing::warn!(%error, "could not delete old metadata of the Iceberg catalogue; retrying in an hour");
            }
            if is_look {
                looked = Some(Instant::now());
            }
            if is_expiry {
                expired = Instant::now();
            }
            let until_look = looked.map_or(Duration::ZERO, |at| self.interval.saturating_sub(at.elapsed()));
            wait = until_look.min(self.expiry.saturating_sub(expired.elapsed()));
        }
    }

    /// Publishes the list of files as it is now. What the engine called it, if that succeeded.
    pub(crate) fn publish(&mut self) -> Option<u64> {
        // Asked for before the list: what changes in between is published by the next look.
        let number = self.engine.published_number();
        let files = self.engine.published_files();
        match self.publisher.publish(files, self.clock.now()) {
            Ok(_) => {
                self.status.succeed();
                Some(number)
            }
            Err(error) => {
                self.tell(&error);
                None
            }
        }
    }

    fn tell(&self, error: &IcebergError) {
        if self.status.fail(&error.to_string()) {
            tracing::warn!(%error, "could not publish the Iceberg catalogue; retrying");
        }
    }
}

/// Nothing is published any more: says so, and counts a failure again and again until the Mixer's end.
async fn rest(status: &PublicationStatus, reason: &str, (again, stop): (Duration, &CancellationToken)) {
    tracing::error!(
        reason,
        "the Iceberg catalogue is not published until the Mixer starts again"
    );
    let issue = format!("{reason}; restart the Mixer");
    loop {
        status.fail(&issue);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(again) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{PartitionBy, Settings};

    use super::*;
    use crate::testing::{Hand, entropy, eventually};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_of_the_thread_is_told_and_counted_until_the_end_and_ends_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::new(dir.path().join("store"));
        let engine = Engine::open(settings, Hand::new().clock(), entropy()).await.unwrap();
        let settings = CatalogSettings {
            snapshot_age: Duration::from_secs(3_600),
            partition_by: PartitionBy::Hour,
        };
        let broken = Clock::new(|| panic!("of a test"));
        let (thread, _) = PublisherThread::new(&engine, settings, (broken, Duration::from_millis(5)));
        let status = Arc::clone(&thread.status);
        let stop = CancellationToken::new();
        let running = tokio::spawn(thread.run(stop.clone()));
        eventually("failures that are counted again", || async {
            (status.failures() >= 3).then_some(())
        })
        .await;
        assert_eq!(
            status.issue().as_deref(),
            Some("its thread panicked; restart the Mixer")
        );
        assert!(!running.is_finished());
        stop.cancel();
        running.await.unwrap();
        engine.close().await.unwrap();
    }
}
