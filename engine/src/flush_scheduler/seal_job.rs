//! A data file to seal, with its attempts so far and the back-off between them.

use std::sync::Arc;

use crate::data_file_handle::DataFileHandle;
use crate::manifest::FileEntry;
use crate::open_partition::OpenPartition;

/// A file to seal.
#[derive(Debug)]
pub(crate) struct SealJob {
    pub(crate) slot: OpenPartition,
    /// Set once the sealed file has the name.
    pub(crate) installed: Option<InstalledFile>,
    pub(crate) failures: u32,
    /// Ticks to let pass before the next attempt.
    pause: u32,
}

/// A sealed file that has the name.
#[derive(Debug)]
pub(crate) struct InstalledFile {
    pub(crate) entry: FileEntry,
    pub(crate) segment: Arc<DataFileHandle>,
}

/// Ticks between two attempts, at most.
const LONGEST_PAUSE: u32 = 256;

impl SealJob {
    pub(crate) const fn new(slot: OpenPartition) -> Self {
        Self {
            slot,
            installed: None,
            failures: 0,
            pause: 0,
        }
    }

    /// Whether the sealed file has the name already, though no record says so yet.
    pub(crate) const fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    /// Whether it is time for an attempt; ticks are counted.
    pub(crate) fn tick_backoff(&mut self, is_tick: bool) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(u32::from(is_tick));
        due
    }

    /// Counts a failure and doubles the pause. Whether it is to be reported: the first one, and every one after the longest
    /// pause.
    pub(crate) fn record_failure(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.pause = 1u32
            .checked_shl(self.failures)
            .map_or(LONGEST_PAUSE, |pause| pause.min(LONGEST_PAUSE));
        self.failures == 1 || self.pause == LONGEST_PAUSE
    }
}
