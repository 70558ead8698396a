//! Writes rows as one row group of an open file, or a few, and defines the sort order of every file.
//!
//! A small group is written cheaply, a seal encodes its rows anew. A large one ([`RUN_ROWS`]) is written in its final form,
//! with filters and a page index, as groups of about the size that sealed files have, so that a seal copies it as it is:
//! rows of a fast stream are encoded once.
//!
//! # Not here
//!
//! Where the group's bytes end up: [`super::open_file`]. Merging what is already sorted: [`super::row_group_merge`].

use std::ops::Range;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use model::Table;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::column_encoder::write_groups;
use super::dictionary_choice::DictionaryChoice;
use super::footer::{RowBounds, unwritable};
use super::interleave::gather_batch;
use super::ndjson;
use super::promoted_columns::FileColumns;
use super::schema::{SEALED_GROUP_ROWS, WriteOptions, WritePurpose, writer_options};
use super::sort_order::{FileSortOrder, SortKeys, sort};
use crate::Error;
use crate::io_pacing::IoPriority;

/// Rows handed to a writer at once, at most.
pub(super) const CHUNK_ROWS: usize = 8192;
/// Bytes handed to a writer at once, roughly; a single larger row is a chunk of its own.
pub(super) const CHUNK_BYTES: usize = 8 << 20;

/// Pieces of fewer rows are cut by what their rows really take.
const FEW_ROWS: usize = 256;

/// From so many rows on …
const RUN_ROWS: u64 = 128 << 10;
/// … or so many bytes in memory, a group is written in its final form.
const RUN_BYTES: usize = 32 << 20;

/// Rows encoded as a row group, or as several one after the other, their offsets as if they began a file.
#[derive(Debug)]
pub(crate) struct RowGroup {
    pub(super) table: Table,
    /// The magic, then the pages, then the filters; a frame of lines.
    pub(super) bytes: Vec<u8>,
    /// Of Parquet row groups.
    pub(super) metadata: Option<ParquetMetaData>,
    pub(super) extent: RowBounds,
    /// No row of it takes more bytes in memory.
    pub(super) widest: u64,
    pub(super) haste: IoPriority,
}

impl RowGroup {
    /// Its rows.
    pub(crate) fn rows(&self) -> u64 {
        self.extent.rows
    }
}

/// Encodes rows, sorted: as one row group, or as a few where they are many.
///
/// # Errors
/// If there are no rows, or they are not the table's.
pub(crate) fn encode(
    table: Table,
    batches: &[RecordBatch],
    options: &WriteOptions,
    haste: IoPriority,
) -> Result<RowGroup, Error> {
    if !options.form.is_parquet() {
        return ndjson::frame(table, batches, options, haste);
    }
    let columns = FileColumns::new(table, options);
    let sorted = SortedBatches::new(&columns, options.order, batches)?;
    let is_run = sorted.extent.rows >= RUN_ROWS || sorted.bytes >= RUN_BYTES;
    let rows = sorted.rows();
    let (purpose, each) = if is_run {
        let groups = ((rows + SEALED_GROUP_ROWS / 2) / SEALED_GROUP_ROWS).max(1);
        let each = rows.div_ceil(groups);
        let repeats = DictionaryChoice::of(&columns, sorted.batches.iter(), each, each);
        (WritePurpose::Run(repeats), each)
    } else {
        (WritePurpose::Publish, rows)
    };
    let mut bytes = Vec::new();
    let metadata = writer_options(&columns, options, purpose)
        .and_then(|options| write_groups((&sorted, haste), each, &columns.schema(), options, &mut bytes))
        .map_err(unwritable(Path::new(table.name())))?;
    let end = metadata.row_groups().iter().map(|group| byte_range(group).1).max();
    bytes.truncate(usize::try_from(end.unwrap_or(0)).unwrap_or(usize::MAX));
    Ok(RowGroup {
        table,
        bytes,
        metadata: Some(metadata),
        extent: sorted.extent,
        widest: sorted.widest as u64,
        haste,
    })
}

/// Where the pages and the filters of a group begin and end.
pub(super) fn byte_range(group: &RowGroupMetaData) -> (u64, u64) {
    let mut range = (u64::MAX, 0);
    for column in group.columns() {
        let (at, length) = column.byte_range();
        range = (range.0.min(at), range.1.max(at + length));
        let filter = column.bloom_filter_offset().zip(column.bloom_filter_length());
        if let Some((Ok(at), Ok(length))) = filter.map(|(at, length)| (u64::try_from(at), u64::try_from(length))) {
            range.1 = range.1.max(at + length);
        }
    }
    range
}

/// Rows of several batches in stored order.
pub(super) struct SortedBatches {
    batches: Vec<RecordBatch>,
    order: Vec<(usize, usize)>,
    bytes: usize,
    widest: usize,
    pub(super) extent: RowBounds,
}

impl SortedBatches {
    pub(super) fn new(columns: &FileColumns, order: FileSortOrder, batches: &[RecordBatch]) -> Result<Self, Error> {
        let table = columns.table;
        let batches = batches
            .iter()
            .map(|batch| conforming(columns, batch))
            .collect::<Result<Vec<_>, Error>>()?;
        let keys = batches
            .iter()
            .map(|batch| SortKeys::new(table, order, batch))
            .collect::<Result<Vec<_>, Error>>()?;
        let extents = keys.iter().filter_map(|keys| RowBounds::of(keys.times()));
        let extent = extents
            .reduce(RowBounds::and)
            .ok_or_else(|| Error::rows(table, "there are none"))?;
        let order = sort(&keys);
        Ok(Self {
            order,
            bytes: batches.iter().map(RecordBatch::get_array_memory_size).sum(),
            widest: batches.iter().map(widest).max().unwrap_or(0),
            batches,
            extent,
        })
    }

    /// The rows in order, in pieces of bounded size.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let pieces = self.pieces(0..self.rows()).into_iter();
        pieces.map(move |piece| gather_batch(&batches, self.order.get(piece).unwrap_or_default()))
    }

    /// Where each row is, as its batch and its place there, in order.
    pub(super) fn order(&self) -> &[(usize, usize)] {
        &self.order
    }

    pub(super) fn rows(&self) -> usize {
        self.order.len()
    }

    /// A column of every batch.
    pub(super) fn column(&self, at: usize) -> impl Iterator<Item = &dyn Array> {
        let columns = self.batches.iter().filter_map(move |batch| batch.columns().get(at));
        columns.map(AsRef::as_ref)
    }

    /// Ranges of [`Self::order`] that follow each other in `rows` and are of bounded size.
    pub(super) fn pieces(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        let mut at = rows.start;
        while let Some(rest) = self.order.get(at..rows.end).filter(|rest| !rest.is_empty()) {
            let end = at + self.next_rows(rest);
            pieces.push(at..end);
            at = end;
        }
        pieces
    }

    /// How many of the rows that are left make the next piece: at least one, if there are any.
    fn next_rows(&self, rest: &[(usize, usize)]) -> usize {
        let most = rest.len().min(CHUNK_ROWS);
        // Where no row is so wide that pieces would become small, the widest row decides for all of them.
        let safe = CHUNK_BYTES / self.widest.max(1);
        if safe >= most.min(FEW_ROWS) {
            return most.min(safe);
        }
        let mut bytes = 0;
        let fits = rest.iter().take(most).take_while(|(batch, row)| {
            bytes += row_bytes(&self.batches[*batch], *row);
            bytes <= CHUNK_BYTES
        });
        fits.count().max(most.min(1))
    }
}

/// The bytes of one row: of its texts and blobs; what a column of fixed width takes is small.
pub(super) fn row_bytes(batch: &RecordBatch, row: usize) -> usize {
    let length = |column: &ArrayRef| {
        offsets(column).map_or(FIXED_WIDTH, |at| usize::try_from(at[row + 1] - at[row]).unwrap_or(0))
    };
    batch.columns().iter().map(length).sum()
}

/// A bound for [`row_bytes`] of every row.
pub(super) fn widest(batch: &RecordBatch) -> usize {
    let longest = |column: &ArrayRef| match offsets(column) {
        Some(at) => at
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .map_or(0, |most| usize::try_from(most).unwrap_or(0)),
        None => FIXED_WIDTH,
    };
    batch.columns().iter().map(longest).sum()
}

/// Where the values of a column of variable width begin and end.
fn offsets(column: &ArrayRef) -> Option<&[i32]> {
    let text = column.as_string_opt::<i32>().map(|texts| texts.value_offsets());
    text.or_else(|| column.as_binary_opt::<i32>().map(|blobs| blobs.value_offsets()))
}

/// What a value of fixed width takes, at most.
const FIXED_WIDTH: usize = 16;

/// As [`FileColumns::of`].
pub(super) fn conforming(columns: &FileColumns, batch: &RecordBatch) -> Result<RecordBatch, Error> {
    columns.of(batch).map_err(Error::arrow("write", columns.table))
}

/// The values of the first column, `ts`, which has no nulls.
pub(super) fn times(table: Table, batch: &RecordBatch) -> Result<&[i64], Error> {
    let column = batch.columns().first();
    let times = column.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    match times {
        Some(times) if times.null_count() == 0 => Ok(times.values()),
        _ => Err(Error::rows(table, "their first column is not a time for every row")),
    }
}
