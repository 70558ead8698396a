//! The engine's public face, and the start and end of its threads.
//!
//! # Who spawns, joins
//!
//! `open` starts five threads: committer, publisher, sealer, scrubber, indexer; with an object store a sixth, uploader or
//! follower. `close` joins them in this order: the committer stops taking appends, the publisher publishes what is left, the
//! sealer ends with the file it is at, the scrubber, the indexer and the sixth where they are.
//! Dropping an engine that was not
//! closed stops the threads where they are, like the end of the process would; nothing acknowledged is lost by that.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapAny;
use model::{Clock, EntityId, Entropy, Table};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, oneshot};
use uuid::Uuid;

use crate::desk::Stop;
use crate::hot::weight;
use crate::intake::Append;
use crate::place::Rule;
use crate::recovery::{self, Opened};
use crate::remote::follower::Follower;
use crate::remote::uploader::Uploader;
use crate::shared::{Shared, units};
use crate::turns::Turns;
use crate::wal::Frame;
use crate::{
    AllSpecFiles, Appended, Batch, Error, ReadView, RotationHistory, RotationRun, Settings, SpecName, Stats,
    StoredRequest, index, origin, place, scrubber, sealer, sys,
};

/// An append that has waited so long for room has every hot row published.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// An open store. One per folder; shared behind its `Arc`.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
    closing: tokio::sync::Mutex<()>,
    pub(crate) turns: Arc<Turns>,
}

#[derive(Debug)]
struct Threads {
    committer: JoinHandle<()>,
    publisher: JoinHandle<()>,
    sealer: JoinHandle<()>,
    scrubber: JoinHandle<()>,
    /// Unless nothing is indexed.
    indexer: Option<JoinHandle<()>>,
    /// The uploader or the follower, if there is an object store.
    remote: Option<JoinHandle<()>>,
}

/// Why the engine is not ready to take rows just now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
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
    #[error("the log is full ({used} of {max} bytes): appends wait until rows are published")]
    WalFull {
        /// Bytes in use.
        used: u64,
        /// The cap.
        max: u64,
    },
    /// Rows cannot be published into data files; they stay in the log and in memory.
    #[error("rows cannot be published into data files: {0}")]
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

    fn start(opened: Opened) -> Result<Arc<Self>, Error> {
        let Opened {
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
                    sys::step_forward();
                } else {
                    sys::step_back();
                }
                run();
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            thread.map_err(Error::io("start a thread for", &shared.settings.store_dir))
        };
        let remote = connected.map(|connected| {
            let (shared, link) = (Arc::clone(&shared), connected.link);
            if link.is_reader() {
                let follower = Follower::new(shared, link, connected.chain);
                spawn("engine-follower", Box::new(move || follower.run()))
            } else {
                let uploader = Uploader::new(shared, link, connected.chain);
                spawn("engine-uploader", Box::new(move || uploader.run()))
            }
        });
        let remote = remote.transpose()?;
        let for_sealer = Arc::clone(&shared);
        let sealer = spawn("engine-sealer", Box::new(move || sealer::run(&for_sealer)))?;
        let for_scrubber = Arc::clone(&shared);
        let scrubber = spawn("engine-scrubber", Box::new(move || scrubber::run(&for_scrubber)))?;
        let for_indexer = Arc::clone(&shared);
        let index = || spawn("engine-indexer", Box::new(move || index::run(&for_indexer)));
        let indexer = shared.settings.index.then(index).transpose()?;
        let publisher = spawn("engine-publisher", Box::new(move || publisher.run()))?;
        let turns = Arc::new(Turns::new(Arc::clone(&shared), committer));
        let for_committer = Arc::clone(&turns);
        let committer = spawn("engine-committer", Box::new(move || for_committer.run()))?;
        Ok(Arc::new(Self {
            threads: Mutex::new(Some(Threads {
                committer,
                publisher,
                sealer,
                scrubber,
                indexer,
                remote,
            })),
            closing: tokio::sync::Mutex::default(),
            turns,
            shared,
        }))
    }

    /// Stores a batch. When this returns, its rows are durable and in every view taken from then on. Waits while the log or
    /// the memory for hot rows is at its cap. Dropping the future may leave the batch stored. Polled on a thread that
    /// no runtime knows, it may commit a few rows there, which takes as long as a sync of the disk.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`], or a batch that can never be stored.
    pub async fn append(&self, batch: Batch) -> Result<Appended, Error> {
        self.append_to(batch, None).await
    }

    /// As [`Engine::append`], for messages of a spec: they lie in that spec's folder.
    ///
    /// # Errors
    /// As there; also if the batch is not of messages.
    pub async fn append_of_spec(&self, batch: Batch, spec: SpecName) -> Result<Appended, Error> {
        if batch.table != Table::Messages {
            return Err(Error::Rows {
                table: batch.table,
                reason: format!("the spec {spec} is of messages"),
            });
        }
        self.append_to(batch, Some(spec)).await
    }

    /// Says how files of specs are made from now on: the next rows of one that changed begin a new file.
    pub fn set_specs(&self, specs: &AllSpecFiles) {
        self.shared.specs.store(Arc::new(specs.into()));
    }

    async fn append_to(&self, batch: Batch, spec: Option<SpecName>) -> Result<Appended, Error> {
        let shared = &self.shared;
        if shared.remote.as_ref().is_some_and(|remote| remote.is_reader()) {
            return Err(Error::ReadOnly);
        }
        let rule = Rule { spec, ..shared.rule() };
        let arrived = shared.clock.now();
        let placed = place::place(batch.table, &batch.rows, arrived, rule)?;
        let frame = Frame {
            lsn: 0,
            table: batch.table.number(),
            arrived,
            origin: origin::encode(&batch.origin, rule),
            payload: batch.payload,
        };
        let limit = shared.largest_frame;
        if frame.encoded_len() > limit {
            return Err(Error::TooLarge {
                table: batch.table,
                bytes: frame.encoded_len(),
                limit,
            });
        }
        let pieces: Vec<_> = placed
            .pieces
            .into_iter()
            .map(|(partition, rows)| {
                let weight = weight(&rows.batch);
                ((batch.table, partition), Arc::new(rows), weight)
            })
            .collect();
        let wanted: u64 = pieces.iter().map(|(_, _, weight)| u64::from(units(*weight))).sum();
        let room = self.take_room(wanted).await?;
        let (answer, answered) = oneshot::channel();
        let append = Append {
            frame,
            origin: batch.origin,
            pieces,
            rows: placed.rows,
            misdated: placed.misdated,
            room,
            answer,
        };
        self.turns.push(append);
        answered.await.unwrap_or_else(|_| Err(shared.refusal()))
    }

    async fn take_room(&self, wanted: u64) -> Result<OwnedSemaphorePermit, Error> {
        let shared = &self.shared;
        let most = Shared::total_room(&shared.settings);
        let wanted = u32::try_from(wanted).unwrap_or(most).min(most);
        let room = match Arc::clone(&shared.room).try_acquire_many_owned(wanted) {
            Err(TryAcquireError::NoPermits) => {
                shared.desk.hurry();
                let room = Arc::clone(&shared.room).acquire_many_owned(wanted);
                tokio::pin!(room);
                loop {
                    // What is published first may not be enough for a large batch: then everything must go.
                    match tokio::time::timeout(LONG_WAIT, &mut room).await {
                        Ok(room) => break room.ok(),
                        Err(_) => shared.desk.press(),
                    }
                }
            }
            now => now.ok(),
        };
        room.ok_or_else(|| shared.refusal())
    }

    /// The state of the store now.
    #[must_use]
    pub fn view(&self) -> ReadView {
        ReadView::new(ArcSwapAny::load_full(&self.shared.view))
    }

    /// The durable floor of a producer's run: every sequence up to and with it is stored or was given up by its producer.
    #[must_use]
    pub fn floor(&self, entity: EntityId, boot_epoch: u64) -> u64 {
        self.shared.marks.lock().floor(entity, boot_epoch)
    }

    /// What was stored of a request, if it is among the last [`crate::REQUESTS_KNOWN`].
    #[must_use]
    pub fn request(&self, id: Uuid) -> Option<StoredRequest> {
        self.shared.marks.lock().request(id)
    }

    /// Publishes every row that is visible now into data files.
    ///
    /// # Errors
    /// If publishing fails; the rows stay in the log and in memory.
    pub async fn flush(&self) -> Result<(), Error> {
        let Some(flushed) = self.shared.desk.flush() else {
            return Err(self.shared.refusal());
        };
        let flushed = flushed.await.map_err(|_| self.shared.refusal())?;
        flushed.map_err(|reason| Error::Publishing { reason })
    }

    /// Checks the rotation rules now, whenever the next check would be due, and says what went.
    ///
    /// # Errors
    /// If the removal could not be recorded; nothing went then.
    pub async fn rotate(&self) -> Result<RotationRun, Error> {
        let Some(rotated) = self.shared.desk.rotate() else {
            return Err(self.shared.refusal());
        };
        let rotated = rotated.await.map_err(|_| self.shared.refusal())?;
        rotated.map_err(|reason| Error::Rotation { reason })
    }

    /// Uploads every sealed file to the object store; of an engine that only reads, looks for what is new there. At once
    /// done without an object store.
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
    pub fn rotation(&self) -> RotationHistory {
        self.shared.rotation.lock().clone()
    }

    /// The settings that the store was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Why rows are not taken just now, or not published; `None` when all is well.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let shared = &self.shared;
        if let Some(reason) = shared.poisoned() {
            return Some(Trouble::Poisoned(reason));
        }
        if shared.space.is_short() {
            let (free, wanted) = shared.space.told();
            return Some(Trouble::DiskFull { free, wanted });
        }
        if let Some(reason) = shared.publishing.lock().clone() {
            return Some(Trouble::Publishing(reason));
        }
        shared.log_is_full().then(|| Trouble::WalFull {
            used: shared.counters.wal_bytes.get(),
            max: shared.settings.wal_max.get(),
        })
    }

    /// Why the object store is not served just now, or not followed; `None` when all is well, or there is none. Rows are
    /// taken all the same.
    #[must_use]
    pub fn object_store_trouble(&self) -> Option<String> {
        let failing = self.shared.remote.as_ref()?.failing.lock().clone();
        failing.map(|reason| reason.to_string())
    }

    /// Returns when the log has failed, with the reason: the process should end with exit code 74 then.
    pub async fn poisoned(&self) -> Arc<str> {
        let mut poison = self.shared.poison.subscribe();
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
        let closed = tokio::task::spawn_blocking(move || {
            shared.room.close();
            shared.intake.close();
            // A thread that panicked has poisoned the store.
            let _ = threads.committer.join();
            shared.desk.stop(Stop::Orderly);
            let _ = threads.publisher.join();
            let _ = threads.sealer.join();
            let _ = threads.scrubber.join();
            shared.indexes.stop();
            threads.indexer.map(JoinHandle::join);
            if let (Some(remote), Some(thread)) = (&shared.remote, threads.remote) {
                remote.stop();
                let _ = thread.join();
            }
            shared.locks.lock().clear();
            match (shared.poisoned(), shared.publishing.lock().clone()) {
                (Some(reason), _) => Err(Error::Poisoned { reason }),
                (None, Some(reason)) => Err(Error::Publishing { reason }),
                (None, None) => Ok(()),
            }
        });
        closed.await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(threads) = self.threads.get_mut().take() else {
            return;
        };
        self.shared.room.close();
        self.shared.desk.stop(Stop::AtOnce);
        self.shared.intake.abandon();
        let _ = threads.committer.join();
        let _ = threads.publisher.join();
        let _ = threads.sealer.join();
        let _ = threads.scrubber.join();
        self.shared.indexes.stop();
        threads.indexer.map(JoinHandle::join);
        if let (Some(remote), Some(thread)) = (&self.shared.remote, threads.remote) {
            remote.stop();
            let _ = thread.join();
        }
    }
}
