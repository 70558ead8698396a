//! Reading one row group, newest or oldest rows first: positions of rows that meet the conditions, and later whole rows by
//! position.
//!
//! Rows lie newest first, and decoders go forward. For the oldest first, blocks are taken from the end, each with a reader of its
//! own; as blocks grow, a decoder begins the less often the longer a scan is.
//!
//! # Invariants
//!
//! - Columns that no condition looks at are read only of rows that are wanted in the end.
//! - A batch of long texts has fewer rows, so that it stays within a few megabytes.

use std::iter::Flatten;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{BooleanArray, RecordBatch};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use engine::BlockSelection;
use model::Table;
use model::filter::SortOrder;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};

use super::prune::{candidates, selection};
use super::rank;
use super::row_group::SegmentRowGroup;
use super::scan_filter::FilterStage;
use super::top_k::{ScanError, TopKScan};

/// Rows read at once, at most.
const BLOCK_ROWS: usize = 2048;
/// Bytes read at once, about.
const BLOCK_BYTES: usize = 4 << 20;
/// Blocks of one step, at most: a scan that finds little asks less often whether to go on.
const MOST_BLOCKS: usize = 16;

/// A row that meets the conditions: its `ts`, and where it is among the rows of its place.
pub(super) type RowHit = (i64, u32);

/// A row group that is being read.
pub(super) struct RowGroupScan {
    group: Arc<SegmentRowGroup>,
    /// The rows that are left.
    rows: RowNumbers,
    /// Reads them; for the oldest first, every step makes one of its own.
    reader: Option<ParquetRecordBatchReader>,
    /// Rows of a block.
    batch: usize,
    blocks: usize,
}

/// What a step of reading found.
#[derive(Default)]
pub(super) struct ReadStep {
    pub(super) hits: Vec<RowHit>,
    /// No row that was not read has a greater rank; `None` if none that counts is left.
    pub(super) frontier: Option<i64>,
}

impl RowGroupScan {
    /// `None` if no row of the group can be wanted.
    pub(super) fn begin(
        group: Arc<SegmentRowGroup>,
        blocks: &BlockSelection,
        search: &TopKScan,
    ) -> Result<Option<Self>, ScanError> {
        if !group.is_of(search.table) || !is_newest_first(&group) {
            return Err(ScanError::NotHere);
        }
        let ranges = candidates(&group, search.window, blocks, &search.needs)?;
        if ranges.is_empty() {
            return Ok(None);
        }
        let columns = search.conditions.first.columns();
        let batch = batch_rows(&group, columns, BLOCK_ROWS);
        let reader = match search.order {
            SortOrder::Desc => {
                let selection = selection(&ranges, group.rows());
                Some(group.read(search.table.schema().fields(), columns, selection, batch)?)
            }
            SortOrder::Asc => None,
        };
        Ok(Some(Self {
            reader,
            rows: RowNumbers::of(ranges),
            batch,
            blocks: 1,
            group,
        }))
    }

    pub(super) const fn group(&self) -> &Arc<SegmentRowGroup> {
        &self.group
    }

    /// Reads on, down to `cut` at most.
    pub(super) fn step(
        &mut self,
        search: &TopKScan,
        cut: Option<i64>,
        memory: &MemoryReservation,
    ) -> Result<ReadStep, ScanError> {
        let blocks = self.blocks;
        self.blocks = (blocks * 2).min(MOST_BLOCKS);
        let mut read = match self.reader {
            Some(_) => self.read_newest(search, cut, blocks, memory)?,
            None => self.read_oldest(search, cut, blocks, memory)?,
        };
        if let Some(stage) = search.conditions.second.as_ref().filter(|_| !read.hits.is_empty()) {
            read.hits = self.apply_second_stage(search, stage, &read.hits, memory)?;
        }
        Ok(read)
    }

    /// Reads so many blocks from the newest row that is left.
    fn read_newest(
        &mut self,
        search: &TopKScan,
        cut: Option<i64>,
        blocks: usize,
        memory: &MemoryReservation,
    ) -> Result<ReadStep, ScanError> {
        let mut read = ReadStep::default();
        for _ in 0..blocks {
            search.check()?;
            let Some(batch) = self.reader.as_mut().and_then(Iterator::next).transpose()? else {
                read.frontier = None;
                break;
            };
            memory.try_resize(batch.get_array_memory_size())?;
            self.group.meter().count_rows(batch.num_rows());
            let rows = self.rows.take(batch.num_rows());
            let within = add_hits(search, cut, &batch, &rows, &mut read.hits)?;
            let goes_on = within.end == batch.num_rows();
            read.frontier = times_of(&batch).last().filter(|_| goes_on).copied();
            if !goes_on {
                break;
            }
        }
        Ok(read)
    }

    /// Reads so many blocks that end with the oldest row that is left.
    fn read_oldest(
        &mut self,
        search: &TopKScan,
        cut: Option<i64>,
        blocks: usize,
        memory: &MemoryReservation,
    ) -> Result<ReadStep, ScanError> {
        let taken = self.rows.take_last(blocks * self.batch);
        let mut read = ReadStep::default();
        let mut left = taken.as_slice();
        let mut newest = None;
        if taken.is_empty() {
            return Ok(read);
        }
        for batch in read_rows(&self.group, search.table, search.conditions.first.columns(), &taken)? {
            search.check()?;
            let batch = batch?;
            memory.try_resize(batch.get_array_memory_size())?;
            self.group.meter().count_rows(batch.num_rows());
            let (rows, others) = left.split_at(batch.num_rows().min(left.len()));
            left = others;
            let within = add_hits(search, cut, &batch, rows, &mut read.hits)?;
            let first = times_of(&batch).first().filter(|_| within.start == 0);
            newest.get_or_insert(first.copied());
        }
        read.frontier = newest.flatten().map(|ts| rank(search.order, ts));
        Ok(read)
    }

    /// The hits that meet the second stage too.
    fn apply_second_stage(
        &self,
        search: &TopKScan,
        stage: &FilterStage,
        hits: &[RowHit],
        memory: &MemoryReservation,
    ) -> Result<Vec<RowHit>, ScanError> {
        let rows: Vec<u32> = hits.iter().map(|(_, row)| *row).collect();
        let mut kept = Vec::new();
        let mut left = hits;
        for batch in read_rows(&self.group, search.table, stage.columns(), &rows)? {
            search.check()?;
            let batch = batch?;
            memory.try_resize(batch.get_array_memory_size())?;
            let (these, others) = left.split_at(batch.num_rows().min(left.len()));
            left = others;
            let mask = stage.keep(&batch, || search.check())?;
            for_each_kept(mask.as_ref(), these.len(), |at| kept.extend(these.get(at)));
        }
        Ok(kept)
    }
}

/// Adds the hits of one block, which is sorted. Which of its rows are within the times that are wanted.
fn add_hits(
    search: &TopKScan,
    cut: Option<i64>,
    batch: &RecordBatch,
    rows: &[u32],
    hits: &mut Vec<RowHit>,
) -> Result<Range<usize>, ScanError> {
    let times = times_of(batch);
    let wanted = search.wanted(cut);
    let from = times.partition_point(|ts| *ts >= wanted.end);
    let within = from..times.partition_point(|ts| *ts >= wanted.start).max(from);
    let (Some(these), Some(rows)) = (times.get(within.clone()), rows.get(within.clone())) else {
        return Err(DataFusionError::Internal("a block has more rows than were selected".to_owned()).into());
    };
    let rows_within = batch.slice(within.start, within.len());
    let mask = search.conditions.first.keep(&rows_within, || search.check())?;
    for_each_kept(mask.as_ref(), these.len(), |at| {
        hits.extend(these.get(at).copied().zip(rows.get(at).copied()));
    });
    Ok(within)
}

/// Reads columns of some rows of a group, given in order.
pub(super) fn read_rows(
    group: &SegmentRowGroup,
    table: Table,
    columns: &[usize],
    rows: &[u32],
) -> parquet::errors::Result<ParquetRecordBatchReader> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in rows {
        let row = *row as usize;
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), group.rows());
    let batch = batch_rows(group, columns, BLOCK_ROWS).min(rows.len());
    group.read(table.schema().fields(), columns, Some(selection), batch)
}

/// How many rows of these columns to read at once, at most so many.
pub(super) fn batch_rows(group: &SegmentRowGroup, columns: &[usize], most: usize) -> usize {
    let chunks = columns.iter().map(|column| group.metadata().column(*column));
    let bytes = chunks.map(|chunk| {
        // A dictionary has a text once that many rows may have.
        let texts = chunk.unencoded_byte_array_data_bytes().unwrap_or(0);
        usize::try_from(chunk.uncompressed_size().max(texts)).unwrap_or(0)
    });
    let per_row = bytes.sum::<usize>() / group.rows().max(1) + 1;
    (BLOCK_BYTES / per_row).clamp(16, most)
}

/// Whether the rows of a group are said to lie by `ts` descending.
fn is_newest_first(group: &SegmentRowGroup) -> bool {
    let columns = group.metadata().sorting_columns();
    columns
        .and_then(|columns| columns.first())
        .is_some_and(|first| first.column_idx == 0 && first.descending)
}

/// The times of a batch whose first column they are.
pub(crate) fn times_of(batch: &RecordBatch) -> &[i64] {
    let column = batch.columns().first();
    let times = column.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    times.map_or(&[], |times| times.values())
}

/// Calls with the number of each row that a mask keeps.
pub(super) fn for_each_kept(mask: Option<&BooleanArray>, rows: usize, mut each: impl FnMut(usize)) {
    match mask {
        Some(mask) => mask.values().set_indices().for_each(each),
        None => (0..rows).for_each(&mut each),
    }
}

/// The rows that a reader gives, by their numbers in the group.
struct RowNumbers(Flatten<IntoIter<Range<usize>>>);

impl RowNumbers {
    fn of(ranges: Vec<Range<usize>>) -> Self {
        Self(ranges.into_iter().flatten())
    }

    fn take(&mut self, count: usize) -> Vec<u32> {
        let mut taken = Vec::with_capacity(count);
        taken.extend(self.0.by_ref().take(count).filter_map(|row| u32::try_from(row).ok()));
        taken
    }

    /// The last rows, in order.
    fn take_last(&mut self, count: usize) -> Vec<u32> {
        let mut taken = Vec::with_capacity(count);
        taken.extend(
            self.0
                .by_ref()
                .rev()
                .take(count)
                .filter_map(|row| u32::try_from(row).ok()),
        );
        taken.reverse();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_reader_are_numbered_as_in_the_group() {
        let mut rows = RowNumbers::of([2..5, 9..10, 20..24].into());
        assert_eq!(rows.take(2), [2, 3]);
        assert_eq!(rows.take(3), [4, 9, 20]);
        assert_eq!(rows.take(9), [21, 22, 23]);
    }

    #[test]
    fn rows_from_the_end_come_in_order_and_each_once() {
        let mut rows = RowNumbers::of([2..5, 9..10, 20..24].into());
        assert_eq!(rows.take_last(3), [21, 22, 23]);
        assert_eq!(rows.take_last(3), [4, 9, 20]);
        assert_eq!(rows.take_last(9), [2, 3]);
        assert_eq!(rows.take_last(9), [0; 0]);
    }
}
