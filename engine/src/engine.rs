//! The engine's public interface, and the start and stop of its threads.
//!
//! # Who spawns, joins
//!
//! `open` starts five threads: committer, flusher, sealer, scrubber, indexer; with an object store a sixth, the uploader or the
//! follower. `close` joins them in this order: the committer stops taking appends, the flusher publishes the remaining rows, the
//! sealer finishes its present file; the scrubber, the indexer and the sixth thread stop at once.
//! An engine that is dropped without `close` stops its threads at once, as the end of the process would; no acknowledged row is
//! lost.

mod appending;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapAny;
use model::{Clock, EntityId, Entropy, Table};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::engine_core::EngineCore;
use crate::flush_scheduler::ShutdownMode;
use crate::log_follower::LogFollower;
use crate::object_storage::RemoteLink;
use crate::recovery::{self, RecoveredStore};
use crate::replication::{CutUploader, ReplicaFollower};
use crate::tail_follower::TailFollower;
use crate::{
    AckDurability, AllSpecFiles, EngineStats, Error, InboundShares, ReadView, RetentionHistory, RetentionRun, Settings,
    StoredRequest, StreamTail, indexer, scrubber, sealer, thread_priority,
};

/// An open store. One per folder; shared behind its `Arc`.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<EngineCore>,
    threads: Mutex<Option<EngineThreads>>,
    closing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct EngineThreads {
    committer: JoinHandle<()>,
    /// Flusher, sealer, scrubber: told to stop by the flush scheduler.
    of_desk: [JoinHandle<()>; 3],
    /// Unless nothing is indexed.
    indexer: Option<JoinHandle<()>>,
    /// The uploader or the follower, if there is an object store.
    remote: Option<JoinHandle<()>>,
}

impl EngineThreads {
    /// Joins them, the committer first. One that panicked has poisoned the store.
    fn join(self, shared: &EngineCore, after_committer: impl FnOnce()) {
        let _ = self.committer.join();
        after_committer();
        for thread in self.of_desk {
            let _ = thread.join();
        }
        shared.indexes.stop();
        self.indexer.map(JoinHandle::join);
        if let Some(remote) = &shared.remote {
            remote.stop();
        }
        self.remote.map(JoinHandle::join);
    }
}

/// Why the engine is not ready to take rows just now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HealthIssue {
    /// The log failed: nothing more is accepted until a restart.
    #[error("the store accepts no more rows until the process has restarted: {0}")]
    Poisoned(Arc<str>),
    /// Appends wait because too little is free on the disk.
    #[error(
        "the disk is almost full ({free} bytes free, {wanted} must be): appends wait until there is room; nothing is lost"
    )]
    DiskFull {
        /// Bytes that may still be written.
        free: u64,
        /// What must be free for appends to go on.
        wanted: u64,
    },
    /// Appends wait because the log is at its cap.
    #[error("the log is full ({used} of {max} bytes): appends wait until rows are flushed")]
    WalFull {
        /// Bytes in use.
        used: u64,
        /// The cap.
        max: u64,
    },
    /// Rows cannot be published into data files; they stay in the log and in memory.
    #[error("rows cannot be flushed to data files: {0}")]
    Publishing(Arc<str>),
}

impl Engine {
    /// Opens the store: takes its lock, recovers what was acknowledged, starts its threads. `entropy` makes the id of a new
    /// store.
    ///
    /// # Errors
    /// If another process has it, if it is damaged, or if the system refuses.
    pub async fn open(settings: Settings, clock: Clock, entropy: Entropy) -> Result<Arc<Self>, Error> {
        let opening = tokio::task::spawn_blocking(move || {
            let opened = recovery::open(settings, clock, &entropy)?;
            Self::start(opened)
        });
        // A recovery that ends by a panic is a defect; it must not look like an empty store.
        opening.await.unwrap_or(Err(Error::Closed))
    }

    fn start(opened: RecoveredStore) -> Result<Arc<Self>, Error> {
        let RecoveredStore {
            shared,
            committer,
            publisher,
            connected,
        } = opened;
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            // Appends wait for the committer, and for nobody else.
            let is_awaited = name == "engine-committer";
            let run = move || {
                if is_awaited {
                    thread_priority::raise_thread_priority();
                } else {
                    thread_priority::lower_thread_priority(thread_priority::ThreadNiceness::Background);
                }
                run();
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            thread.map_err(Error::io("start a thread for", &shared.settings.store_dir))
        };
        let remote = connected.map(|connected| {
            let (shared, link) = (Arc::clone(&shared), connected.link);
            if link.is_reader() {
                let follower = ReplicaFollower::new(shared, link, connected.chain);
                spawn("engine-follower", Box::new(move || follower.run()))
            } else {
                let uploader = CutUploader::new(shared, link, connected.chain);
                spawn("engine-uploader", Box::new(move || uploader.run()))
            }
        });
        let remote = remote.transpose()?;
        let spawn_on_shared = |name, run: fn(&Arc<EngineCore>)| {
            let shared = Arc::clone(&shared);
            spawn(name, Box::new(move || run(&shared)))
        };
        let sealer = spawn_on_shared("engine-sealer", sealer::run)?;
        let scrubber = spawn_on_shared("engine-scrubber", scrubber::run)?;
        let index = || spawn_on_shared("engine-indexer", indexer::run);
        let indexer = shared.settings.index.then(index).transpose()?;
        let publisher = spawn("engine-publisher", Box::new(move || publisher.run()))?;
        let committer = spawn("engine-committer", Box::new(move || committer.run()))?;
        Ok(Arc::new(Self {
            threads: Mutex::new(Some(EngineThreads {
                committer,
                of_desk: [publisher, sealer, scrubber],
                indexer,
                remote,
            })),
            closing: tokio::sync::Mutex::default(),
            shared,
        }))
    }

    /// Says how files of specs are made from now on: the next rows of one that changed begin a new file.
    pub fn set_specs(&self, specs: &AllSpecFiles) {
        self.shared.store.templates.store(Arc::new(specs.into()));
    }

    /// The memory for bodies and messages: whoever takes them in has room there, before it holds them and until they are stored.
    #[must_use]
    pub fn inbound(&self) -> &InboundShares {
        &self.shared.admission.inbound
    }

    /// The state of the store now.
    #[must_use]
    pub fn view(&self) -> ReadView {
        ReadView::new(ArcSwapAny::load_full(&self.shared.rows.view))
    }

    /// Follows a table from now on: the view has exactly the rows that came before.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] of an engine that takes no rows.
    pub fn follow(&self, table: Table) -> Result<(ReadView, TailFollower), Error> {
        TailFollower::start(&self.shared, table)
    }

    /// Follows a signal in the log from the first row on that is not settled: there is one exporter for each. `None` if nothing is
    /// exported ([`crate::ExportMode`]), or the table is no signal.
    #[must_use]
    pub fn follow_log(&self, signal: Table) -> Option<LogFollower> {
        LogFollower::start(&self.shared, signal)
    }

    /// The store's id, which positions belong to.
    #[must_use]
    pub fn store_id(&self) -> uuid::Uuid {
        self.shared.store.id
    }

    /// Returns when every file that can be indexed is, or could not be just now; at once where nothing is indexed.
    ///
    /// # Errors
    /// If the store is closed meanwhile.
    pub async fn index_all(&self) -> Result<(), Error> {
        if !self.shared.settings.index || self.shared.indexes.all().await {
            return Ok(());
        }
        Err(self.shared.refusal())
    }

    /// The time that rotation relied on last, at most an hour ago while data comes: one that a clock which jumped ahead does not change.
    #[must_use]
    pub fn relied_on(&self) -> Option<model::Timestamp> {
        self.shared.store.catalog.lock().state().relied_on()
    }

    /// The durable floor of a producer's run: every sequence up to and with it is stored or was given up by its producer. With
    /// [`AckDurability::Bucket`] only what the object store has counts.
    #[must_use]
    pub fn floor(&self, entity: EntityId, boot_epoch: u64) -> u64 {
        let in_bucket = |link: &&Arc<RemoteLink>| link.settings.floor == AckDurability::Bucket;
        match self.shared.remote.as_ref().filter(in_bucket) {
            Some(link) => link.watermarks.lock().floor(entity, boot_epoch),
            None => self.floor_on_disk(entity, boot_epoch),
        }
    }

    /// As [`Self::floor`], of what this machine's disk has.
    #[must_use]
    pub fn floor_on_disk(&self, entity: EntityId, boot_epoch: u64) -> u64 {
        self.shared.watermarks.lock().floor(entity, boot_epoch)
    }

    /// Waits until the object store has every row that was appended before this call, and hurries the cut that brings them
    /// there. At once done without an object store.
    ///
    /// # Errors
    /// Why the last attempt failed, when `patience` is over: the rows are on this machine's disk, and go up later.
    pub async fn wait_for_upload(&self, patience: Duration) -> Result<(), Error> {
        let Some(link) = self.shared.remote.as_ref().filter(|link| !link.is_reader()) else {
            return Ok(());
        };
        let wanted = self.shared.rows.state.lock().committed;
        link.wait_for(wanted, patience).await
    }

    /// What was stored of a sender's request, if it is known still ([`crate::BatchOrigin::request`]).
    #[must_use]
    pub fn request(&self, sender: u64, id: Uuid) -> Option<StoredRequest> {
        self.shared.watermarks.lock().request(sender, id)
    }

    /// How far a bus stream that was created then (µs) is stored. Whoever reads the stream compares it with the bus before it
    /// appends anything: a stream that lost its end goes on under the next incarnation.
    #[must_use]
    pub fn stream_tail(&self, stream: &str, created: i64) -> Option<StreamTail> {
        self.shared.watermarks.lock().stream_tail(stream, created)
    }

    /// The first sequence not below `from` of which no message of a stream's incarnation is known to be stored.
    #[must_use]
    pub fn first_missing(&self, stream: &str, incarnation: i64, from: u64) -> u64 {
        let stream = (stream.to_owned(), incarnation);
        self.shared.watermarks.lock().first_missing(&stream, from)
    }

    /// Counts every message of a stream's incarnation up to `floor` as done: its reader never gets one of them again. So what
    /// is remembered of a stream stays small of which only some subjects are stored.
    pub fn raise_stream_floor(&self, stream: &str, incarnation: i64, floor: u64) {
        let stream = (stream.to_owned(), incarnation);
        self.shared.watermarks.lock().raise_stream(&stream, floor);
    }

    /// Publishes every row that is visible now into data files.
    ///
    /// # Errors
    /// If publishing fails; the rows stay in the log and in memory.
    pub async fn flush(&self) -> Result<(), Error> {
        let Some(flushed) = self.shared.scheduler.flush() else {
            return Err(self.shared.refusal());
        };
        let flushed = flushed.await.map_err(|_| self.shared.refusal())?;
        flushed.map_err(|reason| Error::Publishing { reason })
    }

    /// Checks the rotation rules now, whenever the next check would be due, and says what went.
    ///
    /// # Errors
    /// If the removal could not be recorded; nothing went then.
    pub async fn rotate(&self) -> Result<RetentionRun, Error> {
        let Some(rotated) = self.shared.scheduler.rotate() else {
            return Err(self.shared.refusal());
        };
        let rotated = rotated.await.map_err(|_| self.shared.refusal())?;
        rotated.map_err(|reason| Error::Rotation { reason })
    }

    /// Uploads every row that is visible now to the object store; of an engine that only reads, looks for what is new there. At
    /// once done without an object store.
    ///
    /// # Errors
    /// If the object store does not do it; it is tried again.
    pub async fn sync_remote(&self) -> Result<(), Error> {
        let Some(remote) = &self.shared.remote else {
            return Ok(());
        };
        let answered = remote.ask().ok_or(Error::Closed)?;
        let done = answered.await.map_err(|_| self.shared.refusal())?;
        done.map_err(|reason| Error::Publishing { reason })
    }

    /// What rotation did since the store was opened.
    #[must_use]
    pub fn rotation(&self) -> RetentionHistory {
        self.shared.status.rotation.lock().clone()
    }

    /// The settings that the store was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.shared.stats()
    }

    /// Why rows are not taken just now, or not published; `None` when all is well.
    #[must_use]
    pub fn health_issue(&self) -> Option<HealthIssue> {
        let shared = &self.shared;
        if let Some(reason) = shared.poisoned() {
            return Some(HealthIssue::Poisoned(reason));
        }
        if shared.admission.space.check_low() {
            let (free, wanted) = shared.admission.space.last_reading();
            return Some(HealthIssue::DiskFull { free, wanted });
        }
        if let Some(reason) = shared.status.publishing.lock().clone() {
            return Some(HealthIssue::Publishing(reason));
        }
        shared.log_is_full().then(|| HealthIssue::WalFull {
            used: shared.counters.wal_bytes.get(),
            max: shared.settings.wal_max.get(),
        })
    }

    /// Why the object store is not served just now, or not followed; `None` when all is well, or there is none. Rows are
    /// taken all the same.
    #[must_use]
    pub fn object_store_issue(&self) -> Option<String> {
        let failing = self.shared.remote.as_ref()?.failing.lock().clone();
        failing.map(|reason| reason.to_string())
    }

    /// Returns when the log has failed, with the reason: the process should end with exit code 74 then.
    pub async fn poisoned(&self) -> Arc<str> {
        let mut poison = self.shared.status.poison.subscribe();
        // The sender lives as long as `self`, so this ends with a reason or not at all.
        match poison.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Publishes, syncs, stops the threads. Appends that wait get [`Error::Closed`]. A second call waits for the first.
    ///
    /// # Errors
    /// If the last publish failed; the rows are safe in the log.
    pub async fn close(&self) -> Result<(), Error> {
        let _one_at_a_time = self.closing.lock().await;
        let Some(threads) = self.threads.lock().take() else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let runtime = Handle::current();
        let closed = tokio::task::spawn_blocking(move || {
            shared.admission.room.close();
            shared.admission.queue.close();
            if let Some(Err(error)) = shared.export.get().map(|export| export.cursors.sync()) {
                tracing::warn!(%error, "some of what was exported may be exported again");
            }
            threads.join(&shared, || {
                runtime.block_on(upload_rest(&shared));
                shared.scheduler.stop(ShutdownMode::Orderly);
            });
            shared.store.locks.lock().clear();
            match (shared.poisoned(), shared.status.publishing.lock().clone()) {
                (Some(reason), _) => Err(Error::Poisoned { reason }),
                (None, Some(reason)) => Err(Error::Publishing { reason }),
                (None, None) => Ok(()),
            }
        });
        closed.await.unwrap_or(Err(Error::Closed))
    }
}

/// The last cut of a store that is closed in order: who takes over from it lacks nothing.
async fn upload_rest(shared: &EngineCore) {
    let Some(link) = shared.remote.as_ref().filter(|link| !link.is_reader()) else {
        return;
    };
    let Some(asked) = link.ask().filter(|_| shared.poisoned().is_none()) else {
        return;
    };
    let patience = link.settings.close_patience;
    if !matches!(tokio::time::timeout(patience, asked).await, Ok(Ok(Ok(())))) {
        let rows = shared.stats().remote.map_or(0, |remote| remote.unuploaded_rows);
        tracing::warn!(
            rows,
            "closed before all rows were uploaded; they are on this machine's disk"
        );
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(threads) = self.threads.get_mut().take() else {
            return;
        };
        self.shared.admission.room.close();
        self.shared.scheduler.stop(ShutdownMode::AtOnce);
        self.shared.admission.queue.abandon();
        threads.join(&self.shared, || {});
    }
}
