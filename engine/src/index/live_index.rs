//! Indexes of open files: of each row group a sidecar that is kept in memory, made in the background once the group is published.
//!
//! ```text
//! publish ─> view ─> indexer: reads the groups that came, makes their sidecars ─> FileLineage::live ─> DataFileHandle::ids, ::text
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

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use parquet::file::metadata::ParquetMetaData;

use super::column_reader::IndexSource;
use super::minute_rollup::{LiveRollup, MinuteRollup, RollupDimension};
use super::section_cache::SectionCache;
use super::sidecar_format::IndexedFile;
use super::{BLOCK_ROWS, BlockSelection, IndexLookup, SidecarIndex, sidecar_builder};
use crate::Error;
use crate::datafile::FilePrefix;

/// What was made of the row groups of an open file, from the first one on.
#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    groups: RwLock<Vec<SidecarIndex>>,
    counted: Mutex<Vec<LiveRollup>>,
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

    /// What the indexes of the row groups of a version with so many rows say; `None` if nothing.
    pub(crate) fn look_up(
        &self,
        file: &FileVersionExtent,
        footer: impl FnOnce() -> Option<Arc<ParquetMetaData>>,
        find: impl Fn(&SidecarIndex) -> IndexLookup,
    ) -> Option<BlockSelection> {
        let (mut met, mut blocks, mut rows, mut known) = (Vec::new(), 0, 0, 0);
        for group in self.groups.read().iter() {
            // What is behind came with a later version.
            if rows == file.rows {
                break;
            }
            let all = blocks..blocks + group.blocks;
            match find(group).blocks {
                BlockSelection::All => met.extend(all.clone()),
                BlockSelection::Some(some) => met.extend(some.into_iter().map(|block| blocks + block)),
            }
            (blocks, rows, known) = (all.end, rows + group.rows, known + 1);
        }
        if rows == file.rows && met.is_empty() {
            return Some(BlockSelection::NONE);
        }
        // A seal has moved the rows: what is of one group is anywhere.
        if known == 0 || file.sealed {
            return None;
        }
        if rows < file.rows {
            let footer = footer()?;
            let rest = footer.row_groups().iter().skip(known);
            let rest = rest.map(|group| u32::try_from(group.num_rows()).unwrap_or(u32::MAX).div_ceil(BLOCK_ROWS));
            let end = rest.fold(blocks, u32::saturating_add);
            met.extend(blocks..end);
            blocks = end;
        }
        (met.len() < blocks as usize).then_some(BlockSelection::Some(met))
    }

    /// Whether a version with so many rows has row groups that are not indexed, and there may be room for the next one.
    pub(crate) fn lacks_groups(&self, rows: u64, memory: &SectionCache) -> bool {
        self.extent().1 < rows && memory.has_room_for_open(self.refused.load(Ordering::Relaxed).max(1))
    }

    /// Indexes the next row group. Whether that is done and there may be more; not if `go_on` says that it is not wanted any more.
    /// `open` opens the file: for each group anew, as whoever has a file open makes the flusher copy it.
    pub(crate) fn index_next_group(
        &self,
        owner: &IndexedFile,
        (path, metadata): (&Path, &ParquetMetaData),
        memory: &Arc<SectionCache>,
        open: impl FnOnce() -> Result<FilePrefix, Error>,
        go_on: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let (group, rows) = self.extent();
        let Some(about) = metadata.row_groups().get(group).filter(|_| rows < owner.rows) else {
            return Ok(false);
        };
        let owner = IndexedFile {
            size: u64::try_from(about.compressed_size()).unwrap_or(0),
            rows: u64::try_from(about.num_rows()).unwrap_or(0),
            ..owner.clone()
        };
        let file = open()?;
        let source = IndexSource {
            file: &file,
            path,
            metadata,
        };
        let Some(bytes) = sidecar_builder::build_group(&source, group, &owner, go_on)? else {
            return Ok(false);
        };
        let length = bytes.len();
        let index = SidecarIndex::of_group(bytes, memory).map_err(|bad| Error::damaged(path, bad.to_string()))?;
        Ok(self.keep(index, length))
    }

    /// How many of the first `rows` rows each minute has, group by group, and how many bytes were read for that; `None` if that is
    /// not known. Groups that were not counted yet are counted if `open` gives the file.
    pub(crate) fn counts(
        &self,
        by: RollupDimension,
        rows: u64,
        open: impl FnOnce() -> Option<(Arc<ParquetMetaData>, FilePrefix)>,
    ) -> Option<(Vec<MinuteRollup>, u64)> {
        let mut counted = self.counted.lock();
        let so_far = |counted: &[LiveRollup]| counted.iter().map(LiveRollup::rows).sum::<u64>();
        let mut bytes = 0;
        if so_far(&counted) < rows
            && let Some((footer, file)) = open()
        {
            for group in counted.len()..footer.num_row_groups() {
                counted.push(LiveRollup::of_group(&file, &footer, group)?);
                bytes += u64::try_from(footer.row_group(group).compressed_size()).unwrap_or(0);
            }
        }
        if so_far(&counted) < rows {
            return None;
        }
        // Those of later versions are behind.
        let mut left = rows;
        let ours = counted.iter().take_while(|group| {
            let is_ours = left > 0;
            left = left.saturating_sub(group.rows());
            is_ours
        });
        let counts = ours.map(|group| group.get(by)).collect::<Option<_>>()?;
        Some((counts, bytes))
    }
}

/// What a lookup must know of a version of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileVersionExtent {
    pub(crate) rows: u64,
    pub(crate) sealed: bool,
}
