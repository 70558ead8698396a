//! Merges sorted row groups into one order, in bounded memory.
//!
//! Each group is read by a cursor that holds one page per column and one small batch of decoded rows. With `n` groups the
//! batches share [`DECODED_BYTES`]; pages were bounded when the groups were written ([`super::schema`]). So the memory of a
//! merge depends on the number of groups and the width of their rows, and not on the size of the file. Both are capped
//! together: [`super::OpenDataFile::is_full`].
//!
//! # Invariants
//!
//! - The output is sorted as the groups are; equal rows come in order of arrival, which is the order of the groups.
//! - A group that is not sorted is damage.

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use std::sync::Arc;

use super::file_prefix::FilePrefix;
use super::footer::unreadable;
use super::interleave::gather_batch;
use super::promoted_columns::FileColumns;
use super::row_group::{CHUNK_BYTES, CHUNK_ROWS, conforming};
use super::row_width::{RowWidths, average};
use super::sort_order::{FileSortOrder, MergeHead, SortKeys};
use crate::Error;

/// Decoded rows that all cursors hold together, roughly, in bytes.
const DECODED_BYTES: u64 = 16 << 20;
/// Rows a cursor decodes at once, at most.
const BATCH_ROWS: u64 = 1024;
/// Rows wider than this are decoded as if all rows of their group were as wide.
const WIDE: u64 = 16 << 10;

/// Rows a cursor of one of `groups` groups may decode at once, none wider than `widest` where that is known. Encoded words
/// count less than decoded ones, hence twice the average.
pub(super) fn batch_rows(group: &RowGroupMetaData, widest: Option<u64>, groups: usize) -> usize {
    // A thousand narrow rows weigh more than one wide one among them, so rows of some KiB do not count one by one.
    let wide = widest.filter(|bytes| *bytes > WIDE).unwrap_or(0);
    let row_bytes = wide.max(2 * average(group));
    let share = DECODED_BYTES / (groups as u64).max(1);
    let rows = (share / row_bytes.max(1)).clamp(1, BATCH_ROWS);
    usize::try_from(rows).unwrap_or(1)
}

/// The merge of a file's row groups.
pub(super) struct RowGroupMerge {
    cursors: Vec<RowGroupCursor>,
    heads: BinaryHeap<MergeHead>,
}

impl RowGroupMerge {
    pub(super) fn new(
        columns: &FileColumns,
        path: &Path,
        source: &FilePrefix,
        metadata: Arc<ParquetMetaData>,
        widths: &RowWidths,
        order: FileSortOrder,
    ) -> Result<Self, Error> {
        let groups = metadata.num_row_groups();
        let mut merge = Self {
            cursors: Vec::with_capacity(groups),
            heads: BinaryHeap::with_capacity(groups),
        };
        let metadata = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new()).map_err(unreadable(path))?;
        for index in 0..groups {
            let rows = batch_rows(metadata.metadata().row_group(index), widths.at(index), groups);
            let open = || -> Result<ParquetRecordBatchReader, ParquetError> {
                ParquetRecordBatchReaderBuilder::new_with_metadata(source.clone(), metadata.clone())
                    .with_row_groups(vec![index])
                    .with_batch_size(rows)
                    .build()
            };
            let mut cursor = RowGroupCursor {
                columns: columns.clone(),
                order,
                path: path.to_owned(),
                group: index,
                reader: open().map_err(unreadable(path))?,
                batch: RecordBatch::new_empty(columns.schema()),
                row_bytes: 1,
                at: 0,
                head: MergeHead::first(merge.cursors.len()),
                slot: None,
            };
            if cursor.load()? {
                cursor.step()?;
                merge.heads.push(cursor.head.clone());
                merge.cursors.push(cursor);
            }
        }
        Ok(merge)
    }

    /// The next rows in order, bounded in number and bytes; `None` after the last.
    pub(super) fn next_chunk(&mut self) -> Result<Option<RecordBatch>, Error> {
        let mut chunk = MergeChunk::default();
        self.cursors.iter_mut().for_each(|cursor| cursor.slot = None);
        while !chunk.is_full() {
            let Some(MergeHead { group, .. }) = self.heads.pop() else {
                break;
            };
            let cursor = &mut self.cursors[group];
            if cursor.take_run(self.heads.peek(), &mut chunk)? {
                self.heads.push(cursor.head.clone());
            }
        }
        let Some(first) = self.cursors.first().filter(|_| !chunk.rows.is_empty()) else {
            return Ok(None);
        };
        let held: Vec<&RecordBatch> = chunk.held.iter().collect();
        let rows = gather_batch(&held, &chunk.rows).map_err(Error::arrow("merge", first.columns.table))?;
        Ok(Some(rows))
    }
}

/// Rows picked for one output batch.
#[derive(Default)]
struct MergeChunk {
    held: Vec<RecordBatch>,
    rows: Vec<(usize, usize)>,
    bytes: usize,
}

impl MergeChunk {
    fn is_full(&self) -> bool {
        self.rows.len() >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }
}

/// A place in one row group.
struct RowGroupCursor {
    columns: FileColumns,
    order: FileSortOrder,
    path: PathBuf,
    group: usize,
    reader: ParquetRecordBatchReader,
    batch: RecordBatch,
    row_bytes: usize,
    at: usize,
    /// The present row.
    head: MergeHead,
    /// Where the present batch lies in the chunk being picked.
    slot: Option<usize>,
}

impl RowGroupCursor {
    /// Moves to the next batch; `false` at the end of the group.
    fn load(&mut self) -> Result<bool, Error> {
        for batch in self.reader.by_ref() {
            let batch = batch.map_err(Error::arrow("read", self.columns.table))?;
            if batch.num_rows() > 0 {
                self.batch = conforming(&self.columns, &batch)?;
                self.row_bytes = (batch.get_array_memory_size() / batch.num_rows()).max(1);
                (self.at, self.slot) = (0, None);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes notice of the present row, which does not come before the one before.
    fn step(&mut self) -> Result<(), Error> {
        let keys = SortKeys::new(self.columns.table, self.order, &self.batch)?;
        let ts = keys.ts(self.at);
        match ts.filter(|ts| self.head.advance(keys.series(self.at), *ts)) {
            Some(_) => Ok(()),
            None => Err(Error::damaged(
                &self.path,
                format!("row group {} is not sorted", self.group),
            )),
        }
    }

    /// Picks rows as long as this cursor comes before `next`; `false` at its end.
    fn take_run(&mut self, next: Option<&MergeHead>, chunk: &mut MergeChunk) -> Result<bool, Error> {
        loop {
            let slot = *self.slot.get_or_insert_with(|| {
                chunk.held.push(self.batch.clone());
                chunk.held.len() - 1
            });
            chunk.rows.push((slot, self.at));
            chunk.bytes += self.row_bytes;
            self.at += 1;
            if self.at == self.batch.num_rows() && !self.load()? {
                return Ok(false);
            }
            self.step()?;
            if chunk.is_full() || next.is_some_and(|next| *next > self.head) {
                return Ok(true);
            }
        }
    }
}
