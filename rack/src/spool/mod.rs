//! The spool: an on-disk queue of batches until the Mixer has them as durable.
//!
//! One thread writes: it takes everything that waits as one group and syncs once for all of it. Everyone else talks to it
//! through a [`SpoolHandle`].
//!
//! # Invariants
//!
//! - At most [`SLOTS`] batches wait in memory: [`SpoolHandle::submit`] waits for a free slot.
//! - A spool that never drops has room for everything that was admitted ([`admission`]), so its writer waits for the disk only.
//! - What is on disk is what was handed over up to some moment: once a batch was given up, none behind it is written.
//! - [`SpoolThread::close`] returns within its time even if the disk refuses everything.
//!
//! # Not here
//!
//! The files ([`segment_log`], [`segment`]).

mod admission;
mod boot_epoch;
mod bounded_submit;
mod checkpoint;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod index;
mod reader;
mod recovery;
mod segment;
mod segment_log;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use model::control::DurableFloor;
use model::{Clock, EntityId, Timestamp};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use admission::AdmissionControl;
use index::SpoolIndex;
use segment_log::SpoolLog;

pub(crate) use admission::AdmissionClass;
pub use checkpoint::{DURABLE_BYTES, RecordingError, SourceCheckpoint};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz_segment;
pub(crate) use reader::{SpoolCursor, SpoolEntry, SpoolItem, SpoolReader};
pub(crate) use recovery::SpoolRecoveryReport;
pub(crate) use segment::{ProducerRun, fits_checkpoint};
pub use segment_log::SpoolFullPolicy;
pub(crate) use segment_log::{SpoolBatch, SpoolLimits};

/// How many batches may wait for the writer: enough for one group to form while the one before is being synced.
const SLOTS: usize = 32;
/// The most bytes of a group, about.
const GROUP_BYTES: u64 = 2 << 20;
/// How long the writer waits before it tries a disk again that refused.
const RETRY: Duration = Duration::from_secs(1);

/// Why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A file or folder of it.
    #[error("the spool at {} cannot be used: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's words.
        source: std::io::Error,
    },
    /// A file or folder of it cannot be written.
    #[error(transparent)]
    File(#[from] durable_fs::DurableFsError),
    /// What was just written does not read back.
    #[error("the spool segment {} does not read back as it was written; a new one is begun", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
    },
    /// The writer's thread cannot be started.
    #[error("the spool's thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// How full the spool is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpoolStatus {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Bytes not known to be durable at the Mixer, by whole segments.
    pub(crate) waiting_bytes: u64,
    /// Since when the oldest of them waits.
    pub(crate) waiting_since: Option<Timestamp>,
    /// Rows given up because the spool was full.
    pub(crate) dropped_rows: u64,
    /// The runs that wait for their floor.
    pub(crate) waiting: Vec<DurableFloor>,
}

/// What a spool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpoolKind {
    /// Rows about the Rack and its gears.
    Telemetry,
    /// Business messages of the guaranteed lane.
    Messages,
}

/// Where who waits for a batch hears that it is durable.
pub(crate) type DurabilityNotifier = oneshot::Sender<Result<(), RecordingError>>;

struct PendingAppend {
    /// What is written together.
    batches: Vec<SpoolBatch>,
    done: Vec<DurabilityNotifier>,
    /// Whether it is written even if nobody waits for it any more.
    is_bound: bool,
    /// Admitted.
    bytes: u64,
    _slot: OwnedSemaphorePermit,
}

impl PendingAppend {
    /// Whether whoever waits for it still does. A source that was stopped begins again at its checkpoint: rows of it that
    /// are not written so far must not be written behind its back.
    fn has_waiter(&self) -> bool {
        self.is_bound || self.done.is_empty() || self.done.iter().any(|done| !done.is_closed())
    }
}

#[derive(Default)]
struct SpoolWriterQueue {
    pending: VecDeque<PendingAppend>,
    floors: Vec<DurableFloor>,
    closing: bool,
}

struct SpoolCore {
    inbox: Mutex<SpoolWriterQueue>,
    wake: Condvar,
    slots: Arc<Semaphore>,
    index: Arc<Mutex<SpoolIndex>>,
    changed: watch::Sender<u64>,
    boot_epoch: u64,
    heard: AtomicU64,
    /// Of everybody where the spool never drops; else only of those who can be told to come again.
    admission: AdmissionControl,
    never_drops: bool,
}

impl SpoolCore {
    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.admission.release(bytes);
        }
    }
}

/// Bytes that were admitted; given back unless they are handed over.
struct ByteReservation {
    shared: Arc<SpoolCore>,
    bytes: u64,
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.shared.release(self.bytes);
            self.shared.changed.send_modify(|version| *version += 1);
        }
    }
}

/// The spool, for everyone but its writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SpoolHandle(Arc<SpoolCore>);

impl SpoolHandle {
    /// Hands a batch to the writer; `done` is notified when it is durable. Waits for a free slot.
    pub(crate) async fn submit(
        &self,
        batch: SpoolBatch,
        done: Option<DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        let bytes = if batch.rows > 0 {
            segment_log::size_of_batch(&batch) as u64
        } else {
            0
        };
        let room = self.acquire_permit(bytes, AdmissionClass::Consumer).await?;
        room.push(|| vec![batch], done.into_iter().collect(), false)
    }

    /// Waits until so many bytes are admitted, and for a free slot, for batches that are written together.
    pub(crate) async fn acquire_permit(
        &self,
        bytes: u64,
        class: AdmissionClass,
    ) -> Result<SpoolPermit, RecordingError> {
        let reservation = self.reserve(bytes, class).await?;
        self.acquire_slot(reservation).await
    }

    async fn acquire_slot(&self, reservation: ByteReservation) -> Result<SpoolPermit, RecordingError> {
        let slot = Arc::clone(&self.0.slots).acquire_owned().await;
        Ok(SpoolPermit {
            reservation,
            slot: slot.map_err(|_| RecordingError::Closed)?,
        })
    }

    async fn reserve(&self, bytes: u64, class: AdmissionClass) -> Result<ByteReservation, RecordingError> {
        if !self.0.never_drops || bytes == 0 {
            let shared = Arc::clone(&self.0);
            return Ok(ByteReservation { shared, bytes: 0 });
        }
        let admission = &self.0.admission;
        let _turn = admission.queue(class).lock().await;
        let mut changed = self.changed();
        loop {
            if self.0.slots.is_closed() {
                return Err(RecordingError::Closed);
            }
            if let Some(reservation) = self.try_reserve(bytes, class) {
                admission.reset_full_warning();
                return Ok(reservation);
            }
            admission.warn_full();
            changed.changed().await.map_err(|_| RecordingError::Closed)?;
        }
    }

    fn try_reserve(&self, bytes: u64, class: AdmissionClass) -> Option<ByteReservation> {
        let on_disk = || self.0.index.lock().waiting_bytes();
        let is_admitted = self.0.admission.try_reserve(bytes, on_disk, class);
        is_admitted.then(|| ByteReservation {
            shared: Arc::clone(&self.0),
            bytes,
        })
    }

    /// Takes floors from the Mixer.
    pub(crate) fn apply_floors(&self, floors: impl IntoIterator<Item = DurableFloor>) {
        self.0.heard.fetch_add(1, Relaxed);
        self.0.inbox.lock().floors.extend(floors);
        self.0.wake.notify_one();
    }

    /// The last value of a checkpoint.
    pub(crate) fn checkpoint(&self, key: &str) -> Option<Vec<u8>> {
        self.0.index.lock().checkpoints.get(key).cloned()
    }

    /// The keys of checkpoints that begin so, with their values.
    pub(crate) fn checkpoints(&self, prefix: &str) -> Vec<SourceCheckpoint> {
        let index = self.0.index.lock();
        let behind = index.checkpoints.range(prefix.to_owned()..);
        let of = behind.take_while(|(key, _)| key.starts_with(prefix));
        of.map(|(key, value)| SourceCheckpoint {
            key: key.clone(),
            value: value.clone(),
        })
        .collect()
    }

    /// How often the Mixer has spoken of floors, raised or not.
    pub(crate) fn floor_updates(&self) -> u64 {
        self.0.heard.load(Relaxed)
    }

    /// The last sequence of an entity in this process's run that is durable at the Mixer.
    pub(crate) fn floor(&self, entity: EntityId) -> u64 {
        let epoch = self.boot_epoch();
        self.0.index.lock().floor(ProducerRun { entity, epoch })
    }

    /// Waits until the spool takes nothing any more.
    pub(crate) async fn wait_closed(&self) {
        let mut changed = self.changed();
        while !self.0.slots.is_closed() && changed.changed().await.is_ok() {}
    }

    /// This process's run.
    pub(crate) fn boot_epoch(&self) -> u64 {
        self.0.boot_epoch
    }

    /// The reading end.
    pub(crate) fn reader(&self) -> SpoolReader {
        SpoolReader::new(Arc::clone(&self.0.index))
    }

    /// Changes whenever there is something new to send, or a floor rose.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// How full it is.
    pub(crate) fn status(&self) -> SpoolStatus {
        let index = self.0.index.lock();
        SpoolStatus {
            bytes: index.bytes(),
            waiting_bytes: index.waiting_bytes(),
            waiting_since: index.waiting_since(),
            dropped_rows: index.dropped_rows,
            waiting: index.waiting(64),
        }
    }
}

/// A free slot at the writer, and bytes that were admitted.
pub(crate) struct SpoolPermit {
    reservation: ByteReservation,
    slot: OwnedSemaphorePermit,
}

impl SpoolPermit {
    fn push(
        mut self,
        make: impl FnOnce() -> Vec<SpoolBatch>,
        done: Vec<DurabilityNotifier>,
        is_bound: bool,
    ) -> Result<(), RecordingError> {
        let shared = Arc::clone(&self.reservation.shared);
        let mut inbox = shared.inbox.lock();
        if inbox.closing {
            return Err(RecordingError::Closed);
        }
        inbox.pending.push_back(PendingAppend {
            batches: make(),
            done,
            is_bound,
            bytes: std::mem::take(&mut self.reservation.bytes),
            _slot: self.slot,
        });
        shared.wake.notify_one();
        Ok(())
    }

    /// Hands batches over that are written together, whether or not somebody still waits for them then. They are made at the
    /// moment from which on their order is fixed.
    pub(crate) fn submit_transaction(
        self,
        make: impl FnOnce() -> Vec<SpoolBatch>,
        done: Vec<DurabilityNotifier>,
    ) -> Result<(), RecordingError> {
        let whole = || {
            let mut batches = make();
            let parts = batches.len().saturating_sub(1);
            batches.iter_mut().take(parts).for_each(|batch| batch.is_part = true);
            batches
        };
        self.push(whole, done, true)
    }
}

/// The writer; whoever opened it closes it.
pub(crate) struct SpoolThread {
    shared: Arc<SpoolCore>,
    done: oneshot::Receiver<()>,
    thread: std::thread::JoinHandle<()>,
}

impl std::fmt::Debug for SpoolThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpoolThread").finish_non_exhaustive()
    }
}

/// Opens the spool in a folder and starts its writer.
pub(crate) fn open(
    dir: &Path,
    limits: SpoolLimits,
    clock: Clock,
    lane: SpoolKind,
) -> Result<(SpoolHandle, SpoolThread, SpoolRecoveryReport), SpoolError> {
    let (spool, found) = SpoolLog::open(dir, limits, clock, lane)?;
    let shared = Arc::new(SpoolCore {
        inbox: Mutex::default(),
        wake: Condvar::new(),
        slots: Arc::new(Semaphore::new(SLOTS)),
        index: spool.index(),
        changed: watch::Sender::new(0),
        boot_epoch: spool.epoch(),
        heard: AtomicU64::new(0),
        admission: AdmissionControl::new(limits.max_bytes),
        never_drops: limits.when_full == SpoolFullPolicy::Block,
    });
    let (finished, done) = oneshot::channel();
    let mut writer = SpoolWriter {
        spool,
        group_bytes: limits.segment_bytes.min(GROUP_BYTES),
        shared: Arc::clone(&shared),
        has_given_up: false,
    };
    let thread = std::thread::Builder::new()
        .name("rack-spool".to_owned())
        .spawn(move || {
            writer.run();
            let _ = finished.send(());
        })
        .map_err(SpoolError::Thread)?;
    let handle = SpoolHandle(Arc::clone(&shared));
    Ok((handle, SpoolThread { shared, done, thread }, found))
}

impl SpoolThread {
    /// Writes what was submitted, once, and ends. False if the disk did not let it end in time.
    pub(crate) async fn close(self, within: Duration) -> bool {
        self.shared.inbox.lock().closing = true;
        self.shared.slots.close();
        self.shared.changed.send_modify(|version| *version += 1);
        self.shared.wake.notify_one();
        match tokio::time::timeout(within, self.done).await {
            Ok(_) => self.thread.join().is_ok(),
            Err(_) => false,
        }
    }
}

struct SpoolWriter {
    spool: SpoolLog,
    /// About how much is written at once: enough to share a sync, little enough not to hold the first batch up.
    group_bytes: u64,
    shared: Arc<SpoolCore>,
    /// Whether a group was not written because the Rack stops.
    has_given_up: bool,
}

impl SpoolWriter {
    fn run(&mut self) {
        loop {
            let (floors, group, closing) = self.next();
            self.spool.apply_floors(&floors);
            let empty = group.is_empty();
            if !empty {
                self.write(group);
            }
            self.shared.changed.send_modify(|version| *version += 1);
            if closing && empty {
                // The floors are durable with it, so the next run does not send again what the Mixer has.
                if let Err(error) = self.spool.roll() {
                    tracing::debug!(%error, "could not persist the floors");
                }
                break;
            }
        }
    }

    /// Waits for something to do.
    fn next(&self) -> (Vec<DurableFloor>, Vec<PendingAppend>, bool) {
        let mut inbox = self.shared.inbox.lock();
        while inbox.pending.is_empty() && inbox.floors.is_empty() && !inbox.closing {
            self.shared.wake.wait(&mut inbox);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < self.group_bytes
            && let Some(pending) = inbox.pending.pop_front()
        {
            if !pending.has_waiter() {
                self.shared.release(pending.bytes);
            } else {
                let sizes = pending
                    .batches
                    .iter()
                    .map(|batch| segment_log::size_of_batch(batch) as u64);
                bytes += sizes.sum::<u64>();
                group.push(pending);
            }
        }
        (std::mem::take(&mut inbox.floors), group, inbox.closing)
    }

    /// Writes a group, however long that takes; when closing, tries once, unless one before it was given up: what is later says
    /// that what was earlier is there.
    fn write(&mut self, mut group: Vec<PendingAppend>) {
        let mut told = false;
        let result = loop {
            if self.has_given_up {
                break Err(RecordingError::Closed);
            }
            let error = match self.spool.append(group.iter().flat_map(|pending| &pending.batches)) {
                Ok(()) => break Ok(()),
                Err(error) => error,
            };
            if !std::mem::replace(&mut told, true) {
                tracing::error!(%error, "cannot write the spool; retrying every second");
            }
            self.has_given_up = self.pause();
            group.retain(|pending| {
                let is_wanted = pending.has_waiter();
                if !is_wanted {
                    self.shared.release(pending.bytes);
                }
                is_wanted
            });
        };
        for pending in group {
            self.shared.release(pending.bytes);
            for done in pending.done {
                // Who does not wait any more learns from the checkpoint.
                let _ = done.send(result.clone());
            }
        }
    }

    /// Waits a while, and takes floors; true if the Rack stops.
    fn pause(&mut self) -> bool {
        let floors = {
            let mut inbox = self.shared.inbox.lock();
            if inbox.floors.is_empty() && !inbox.closing {
                self.shared.wake.wait_for(&mut inbox, RETRY);
            }
            if inbox.closing {
                return true;
            }
            std::mem::take(&mut inbox.floors)
        };
        self.spool.apply_floors(&floors);
        self.shared.changed.send_modify(|version| *version += 1);
        false
    }
}
