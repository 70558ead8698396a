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
mod handle;
mod index;
mod reader;
mod recovery;
mod segment;
mod segment_log;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use model::control::DurableFloor;
use model::{Clock, Timestamp};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use admission::AdmissionControl;
use index::SpoolIndex;
use segment_log::SpoolLog;
use writer::SpoolWriter;

pub(crate) use admission::AdmissionClass;
pub use checkpoint::{DURABLE_BYTES, RecordingError, SourceCheckpoint};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz_segment;
pub(crate) use handle::{SpoolHandle, SpoolPermit};
pub(crate) use reader::{SpoolCursor, SpoolEntry, SpoolItem, SpoolReader};
pub(crate) use recovery::SpoolRecoveryReport;
pub(crate) use segment::{ProducerRun, fits_checkpoint};
pub use segment_log::SpoolFullPolicy;
pub(crate) use segment_log::{SpoolBatch, SpoolLimits};

/// How many batches may wait for the writer: enough for one group to form while the one before is being synced.
const SLOTS: usize = 32;
/// The most bytes of a group, about.
const GROUP_BYTES: u64 = 2 << 20;

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
    /// A segment that another version of this program wrote.
    #[error(
        "the spool segment {} has format {found}, this program knows {}: start the version that wrote it; it was not changed",
        path.display(),
        segment::VERSION
    )]
    Newer {
        /// The segment.
        path: PathBuf,
        /// Its format.
        found: u32,
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
