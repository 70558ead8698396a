//! The lock on the bus store. `nats-server` takes none: two of them run happily, and wrongly, on one store.
//!
//! # Invariants
//!
//! - The lock belongs to the open file, not to the process: the child inherits it (as its standard input) and keeps it
//!   when the Mixer is killed, so that a new Mixer waits for an orphan instead of starting a second server.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use durable_fs::{FileLock, LockError};
use tokio::time::{Instant, sleep};

use super::BusError;

/// The file in a bus's store that is locked.
pub(crate) const STORE_LOCK: &str = "store.lock";

/// How long an orphan may take to end.
const ORPHAN: Duration = Duration::from_secs(3);

/// A held lock; given back when every handle to it, the child's too, is closed.
#[derive(Debug)]
pub(super) struct StoreLock(FileLock);

impl StoreLock {
    /// Takes the lock of a store. Waits a moment: the server of a Mixer that was just killed is about to end too.
    pub(super) async fn take(store: &Path) -> Result<Self, BusError> {
        let deadline = Instant::now() + ORPHAN;
        loop {
            match Self::try_take(store) {
                Err(BusError::Locked { .. }) if Instant::now() < deadline => sleep(Duration::from_millis(50)).await,
                taken => return taken,
            }
        }
    }

    fn try_take(store: &Path) -> Result<Self, BusError> {
        match FileLock::take(&store.join(STORE_LOCK)) {
            Ok(lock) => Ok(Self(lock.inherited())),
            Err(LockError::Held { .. }) => Err(BusError::Locked { path: store.to_owned() }),
            Err(LockError::File(error)) => Err(error.into()),
        }
    }

    /// Another handle to the same lock, for the child.
    pub(super) fn share(&self) -> std::io::Result<File> {
        self.0.file().try_clone()
    }
}
