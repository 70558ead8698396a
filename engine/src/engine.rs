//! The engine's public face.

use std::sync::Arc;

use arc_swap::ArcSwap;
use model::{Clock, EntityId, Entropy};

use crate::view::Snapshot;
use crate::{Appended, Batch, Error, ReadView, Settings, Stats};

/// An open store. One per folder; shared behind its `Arc`.
#[derive(Debug)]
pub struct Engine {
    view: ArcSwap<Snapshot>,
}

/// Why the engine is not ready to take rows just now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The log failed: nothing more is accepted until a restart.
    #[error("the log failed: {0}")]
    Poisoned(Arc<str>),
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
    /// Opens the store: takes its lock, recovers what was acknowledged, starts its threads.
    ///
    /// # Errors
    /// If another process has it, if it is damaged, or if the system refuses.
    pub async fn open(_settings: Settings, _clock: Clock, _entropy: Entropy) -> Result<Arc<Self>, Error> {
        Err(Error::Closed)
    }

    /// Stores a batch. When this returns, its rows are durable and in every view taken from then on. Waits while the log or
    /// the memory for hot rows is at its cap. Dropping the future may leave the batch stored.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`], or a batch that can never be stored.
    pub async fn append(&self, _batch: Batch) -> Result<Appended, Error> {
        Err(Error::Closed)
    }

    /// The state of the store now.
    #[must_use]
    pub fn view(&self) -> ReadView {
        ReadView::new(self.view.load_full())
    }

    /// The durable floor of a producer's run: every sequence up to and with it is stored or was given up by its producer.
    #[must_use]
    pub fn floor(&self, _entity: EntityId, _boot_epoch: u64) -> u64 {
        0
    }

    /// Publishes every row that is visible now into data files.
    ///
    /// # Errors
    /// If publishing fails; the rows stay in the log and in memory.
    pub async fn flush(&self) -> Result<(), Error> {
        Err(Error::Closed)
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Why rows are not taken just now, or not published; `None` when all is well.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Returns when the log has failed, with the reason: the process should end with exit code 74 then.
    pub async fn poisoned(&self) -> Arc<str> {
        std::future::pending().await
    }

    /// Publishes, syncs, stops the threads. Appends that wait get [`Error::Closed`]. A second call waits for the first.
    ///
    /// # Errors
    /// If the last publish failed; the rows are safe in the log.
    pub async fn close(&self) -> Result<(), Error> {
        Err(Error::Closed)
    }
}
