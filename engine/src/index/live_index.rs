//! Indexes of open files: of each row group a sidecar that is kept in memory, made in the background once the group is published.
//!
//! ```text
//! publish ─> view ─> keeper: reads the groups that came, makes their sidecars ─> Lineage::live ─> Segment::ids, Segment::text
//! seal ─> the sealed version takes them over until it has its own sidecar
//! ```
//!
//! A row group never changes, and later versions of an open file begin with those of the earlier ones, so all versions share what was
//! made of them. Rows in memory are not indexed: an index costs more than many readings of them, and a tick later they are in a file.
//!
//! # Invariants
//!
//! - Rows of groups that have no index yet are in the answer, for want of time, of memory, or after a restart.
//! - All of them together take at most as many bytes as [`SectionCache`] has for open files, what keeping them costs included.
//! - They go with the last version that shares them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::column_reader::IndexSource;
use super::section_cache::SectionCache;
use super::{
    BLOCK_ROWS, BlockSelection, IdColumn, IndexLookup, LiveRollup, NgramQuery, SidecarIndex, is_indexed,
    sidecar_builder,
};
use crate::Error;
use crate::datafile::FilePrefix;
use crate::index::sidecar_format::IndexedFile;
use crate::manifest::DataFileHandle;

/// What was made of the row groups of an open file, from the first one on.
#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    groups: RwLock<Vec<SidecarIndex>>,
    pub(super) counted: Mutex<Vec<LiveRollup>>,
    /// What the next group takes, for which there was no room.
    refused: AtomicUsize,
}

impl LiveIndex {
    /// How many groups are indexed, and their rows.
    fn extent(&self) -> (usize, u64) {
        let groups = self.groups.read();
        (groups.len(), groups.iter().map(|group| group.rows).sum())
    }

    /// Keeps the index of the next group. Whether there was room.
    fn keep(&self, index: Option<SidecarIndex>, bytes: usize) -> bool {
        let Some(index) = index else {
            self.refused.store(bytes, Ordering::Relaxed);
            return false;
        };
        self.groups.write().push(index);
        true
    }
}

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
            None => IndexLookup::free(self.look_up_groups(find).unwrap_or(BlockSelection::All)),
        }
    }

    /// What the indexes of its row groups say; `None` if nothing.
    fn look_up_groups(&self, find: impl Fn(&SidecarIndex) -> IndexLookup) -> Option<BlockSelection> {
        let live = self.lineage().live();
        let (mut met, mut blocks, mut rows, mut known) = (Vec::new(), 0, 0, 0);
        for group in live.groups.read().iter() {
            // What is behind came with a later version.
            if rows == self.rows {
                break;
            }
            let all = blocks..blocks + group.blocks;
            match find(group).blocks {
                BlockSelection::All => met.extend(all.clone()),
                BlockSelection::Some(some) => met.extend(some.into_iter().map(|block| blocks + block)),
            }
            (blocks, rows, known) = (all.end, rows + group.rows, known + 1);
        }
        if rows == self.rows && met.is_empty() {
            return Some(BlockSelection::NONE);
        }
        // A seal has moved the rows: what is of one group is anywhere.
        if known == 0 || self.sealed {
            return None;
        }
        if rows < self.rows {
            let footer = self.metadata().ok()?;
            let rest = footer.row_groups().iter().skip(known);
            let rest = rest.map(|group| u32::try_from(group.num_rows()).unwrap_or(u32::MAX).div_ceil(BLOCK_ROWS));
            let end = rest.fold(blocks, u32::saturating_add);
            met.extend(blocks..end);
            blocks = end;
        }
        (met.len() < blocks as usize).then_some(BlockSelection::Some(met))
    }

    /// Whether it has row groups that are to be indexed, and there may be room for it.
    pub(super) fn lacks_live_index(&self, memory: &SectionCache) -> bool {
        // A piece in a bucket is fetched for questions alone.
        if self.sealed || self.is_uploaded() || !self.is_parquet() || !is_indexed(self.table) {
            return false;
        }
        let live = self.lineage().live();
        live.extent().1 < self.rows && memory.has_room_for_open(live.refused.load(Ordering::Relaxed).max(1))
    }

    /// Indexes its next row group. Whether that is done and there may be more; not if `go_on` says that it is not wanted any more.
    pub(super) fn index_next_group(
        &self,
        owner: &IndexedFile,
        memory: &Arc<SectionCache>,
        go_on: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let live = self.lineage().live();
        let (group, rows) = live.extent();
        let metadata = self.metadata()?;
        let Some(about) = metadata.row_groups().get(group).filter(|_| rows < self.rows) else {
            return Ok(false);
        };
        let owner = IndexedFile {
            size: u64::try_from(about.compressed_size()).unwrap_or(0),
            rows: u64::try_from(about.num_rows()).unwrap_or(0),
            ..owner.clone()
        };
        // Opened for each group: whoever has a file open makes the flusher copy it.
        let file = FilePrefix::new(self.open_here()?, self.size);
        let source = IndexSource {
            file: &file,
            path: &self.path,
            metadata: &metadata,
        };
        let Some(bytes) = sidecar_builder::build_group(&source, group, &owner, go_on)? else {
            return Ok(false);
        };
        let length = bytes.len();
        let index = SidecarIndex::of_group(bytes, memory).map_err(|bad| Error::damaged(&self.path, bad.to_string()))?;
        Ok(live.keep(index, length))
    }
}
