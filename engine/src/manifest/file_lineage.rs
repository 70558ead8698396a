//! File lineage: the state that all versions of one data file share: its fate, how much of it was verified by checksum, and
//! the indexes of its row groups.
//!
//! # Invariants
//!
//! - A file whose name was given away goes with the last version that lies in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::state::FileEntry;
use crate::index::LiveIndex;
use crate::layout::{RetiredPath, StoreLayout};

/// What all versions of a segment share that lie in one file, and what becomes of that file.
#[derive(Debug)]
pub(crate) struct FileLineage {
    retired: RetiredPath,
    displaced: AtomicBool,
    /// How many of its first bytes are known to be what was written, and their checksum.
    pub(crate) checked: Mutex<(u64, u32)>,
    /// What was made of its row groups while it is open.
    pub(crate) live: ArcSwap<LiveIndex>,
}

impl FileLineage {
    pub(crate) fn new(retired: RetiredPath) -> Self {
        Self {
            retired,
            displaced: AtomicBool::new(false),
            checked: Mutex::default(),
            live: ArcSwap::default(),
        }
    }

    /// That of a version of a sealed file.
    pub(crate) fn of_sealed(layout: &StoreLayout, entry: &FileEntry) -> Arc<Self> {
        let retired = layout.retired_sealed(entry.table, entry.id, entry.version);
        Arc::new(Self::new(retired))
    }

    /// What was made of the row groups of the open file.
    pub(crate) fn live(&self) -> Arc<LiveIndex> {
        self.live.load_full()
    }

    /// What was made of an open file is of the sealed one too, until that has an index.
    pub(crate) fn take_over(&self, open: &Self) {
        self.live.store(open.live());
    }

    /// Where the file's bytes are found once its name was given away.
    pub(crate) fn retired(&self) -> PathBuf {
        self.retired.path()
    }

    /// The name was given away: the retired file goes with the last holder.
    pub(crate) fn displace(&self) {
        self.displaced.store(true, Ordering::Release);
    }
}

impl Drop for FileLineage {
    fn drop(&mut self) {
        if *self.displaced.get_mut() {
            // Staging is emptied at the next start: a failure costs space until then.
            let _ = std::fs::remove_file(self.retired.path());
        }
    }
}
