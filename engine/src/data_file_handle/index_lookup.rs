//! Lookups of ids, texts and counts in a data file: its sidecar answers, or while it is open the indexes of its row groups.
//!
//! # Invariants
//!
//! - Rows of groups that have no index yet are in the answer; each row is counted once, or nothing is told of it.
//!
//! # Not here
//!
//! The indexes themselves: [`crate::index`].

use std::sync::Arc;

use model::Table;
use uuid::Uuid;

use super::DataFileHandle;
use crate::Error;
use crate::datafile::FilePrefix;
use crate::index::{
    BlockSelection, FileVersionExtent, IdColumn, IndexLookup, IndexedFile, MinuteRollup, NgramQuery, RollupDimension,
    SectionCache, SidecarIndex, is_indexed,
};

impl DataFileHandle {
    /// The blocks whose rows can have an id, given by the bytes by which the column stores it. May read from the disk.
    #[must_use]
    pub fn ids(&self, column: IdColumn, id: &[u8]) -> IndexLookup {
        self.look_up(|index| index.ids(column, id))
    }

    /// The blocks with a message that can have a text, ignoring case. May read from the disk.
    #[must_use]
    pub fn text(&self, grams: &NgramQuery) -> IndexLookup {
        self.look_up(|index| index.text(grams))
    }

    fn look_up(&self, find: impl Fn(&SidecarIndex) -> IndexLookup) -> IndexLookup {
        match self.index() {
            Some(index) => find(&index),
            None => {
                let file = FileVersionExtent {
                    rows: self.rows,
                    sealed: self.sealed,
                };
                let blocks = self.lineage().live().look_up(&file, || self.metadata().ok(), find);
                IndexLookup::free(blocks.unwrap_or(BlockSelection::All))
            }
        }
    }

    /// How many rows it has in each minute, piece by piece, and how many bytes were read for that; `None` if that is not known. Of an
    /// open file that is here, rows that were not counted yet are; a sealed one that has no sidecar yet has the rows of the open one.
    /// May read from the disk.
    #[must_use]
    pub fn counts(&self, by: RollupDimension) -> Option<(Vec<MinuteRollup>, u64)> {
        if let Some(index) = self.index() {
            let (counts, bytes) = index.counts(by)?;
            return Some((vec![counts], bytes));
        }
        if !self.is_parquet() || self.table != Table::Logs {
            return None;
        }
        let open = || {
            if self.sealed || self.is_uploaded() {
                return None;
            }
            Some((self.metadata().ok()?, FilePrefix::new(self.open().ok()?, self.size)))
        };
        self.lineage().live().counts(by, self.rows, open)
    }

    /// Whether it has row groups that are to be indexed, and there may be room for it.
    pub(crate) fn lacks_live_index(&self, memory: &SectionCache) -> bool {
        // A piece in a bucket is fetched for questions alone.
        if self.sealed || self.is_uploaded() || !self.is_parquet() || !is_indexed(self.table) {
            return false;
        }
        self.lineage().live().lacks_groups(self.rows, memory)
    }

    /// Indexes its next row group. Whether that is done and there may be more; not if `go_on` says that it is not wanted any more.
    pub(crate) fn index_next_group(
        &self,
        owner: &IndexedFile,
        memory: &Arc<SectionCache>,
        go_on: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let metadata = self.metadata()?;
        let open = || Ok(FilePrefix::new(self.open_here()?, self.size));
        let live = self.lineage().live();
        live.index_next_group(owner, (&self.path, &metadata), memory, open, go_on)
    }

    /// Whether it should have a sidecar.
    pub(crate) fn wants_index(&self) -> bool {
        self.sealed && self.is_parquet() && is_indexed(self.table)
    }

    /// What its sidecar is of.
    pub(crate) fn indexed_file(&self, store: Uuid) -> IndexedFile {
        IndexedFile {
            store,
            table: self.table,
            segment: self.id,
            version: self.version,
            size: self.size,
            crc: self.crc(),
            rows: self.rows,
        }
    }
}
