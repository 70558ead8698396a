//! The published files that kept snapshots name: what is to stay in its place.
//!
//! # Invariants
//!
//! - What the current snapshot names is held, and what an earlier one named until no kept snapshot names it.
//! - They are let go only after a version of the metadata without those snapshots was published.

use std::sync::Arc;

use engine::PublishedFile;

use crate::table_files::TableFiles;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct HeldFiles {
    current: TableFiles,
    /// What left the current snapshot, each with the sequence number of the first snapshot without it.
    removed: Vec<(i64, Vec<Arc<PublishedFile>>)>,
}

impl HeldFiles {
    /// The files of a snapshot that was just published.
    pub(crate) fn replace(&mut self, files: TableFiles, sequence_number: i64) {
        let earlier = std::mem::replace(&mut self.current, files);
        let gone = earlier.all().iter().filter(|file| !self.current.contains(file));
        let gone: Vec<_> = gone.cloned().collect();
        if !gone.is_empty() {
            self.removed.push((sequence_number, gone));
        }
    }

    /// Lets go of what only snapshots before `oldest_kept` named.
    pub(crate) fn release(&mut self, oldest_kept: i64) {
        self.removed.retain(|(first_without, _)| *first_without > oldest_kept);
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PublishedFile> {
        let removed = self.removed.iter().flat_map(|(_, files)| files);
        self.current.all().iter().chain(removed).map(|file| &**file)
    }

    /// Those of the current snapshot.
    pub(crate) const fn current(&self) -> &TableFiles {
        &self.current
    }

    /// How many files are held that are in no current snapshot.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.removed.iter().map(|(_, files)| files.len()).sum()
    }
}
