//! Sealed files assembled from row groups that were large and in their final form from the start.
//!
//! Such groups are copied, newest first; the few small ones between them are merged into one more. Each group is sorted.
//! The file as a whole is sorted only as far as the groups do not overlap in time: where late rows make them overlap, the
//! file is a list of *runs*, each a row group sorted by `ts` descending, which readers merge.
//!
//! # Invariants
//!
//! - No runs are named exactly where the file as a whole is sorted.
//! - Page indexes lie together before the footer, as in any file: readers fetch them in one piece.
//!
//! # Not here
//!
//! Encoding everything anew, when most of a file came in small groups: [`super::seal()`].

use std::cmp::Reverse;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use model::{Table, Timestamp};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::TrackedWrite;
use serde::{Deserialize, Serialize};

use super::file_prefix::FilePrefix;
use super::footer::{FooterFacts, MAGIC, file_like, key_values, unwritable};
use super::group_writer::GroupWriter;
use super::open_file::{OpenDataFile, OpenFileVersion, ParquetFooter};
use super::promoted_columns::FileColumns;
use super::row_group::byte_range;
use super::row_group_merge::RowGroupMerge;
use super::row_width::RowWidths;
use super::schema::WriteOptions;
use super::shadow_file;
use super::sort_order::FileSortOrder;
use crate::Error;
use crate::io_pacing::{IoPriority, PacedWriter};

/// A row group of a sealed file, sorted by `ts` descending, that overlaps others in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortedRun {
    /// Where the group's first page begins in the file, which tells it from the others.
    pub at: u64,
    /// Its rows.
    pub rows: u64,
    /// Their earliest `ts`.
    pub min_ts: Timestamp,
    /// Their latest `ts`.
    pub max_ts: Timestamp,
}

/// The runs of a file; none if its groups, in their order, are sorted as a whole, are sorted by series, or do not say when
/// their rows are.
pub(super) fn runs_of(groups: &[RowGroupMetaData]) -> Vec<SortedRun> {
    let by_time = |group: &RowGroupMetaData| group.sorting_columns() == Some(&FileSortOrder::Newest.columns());
    let runs: Option<Vec<SortedRun>> = groups
        .iter()
        .map(|group| run_of(group).filter(|_| by_time(group)))
        .collect();
    let mut runs = runs.unwrap_or_default();
    if runs.is_sorted_by(|newer, older| newer.min_ts >= older.max_ts) {
        runs.clear();
    }
    runs
}

pub(super) fn run_of(group: &RowGroupMetaData) -> Option<SortedRun> {
    let ts = group.columns().first()?;
    let Statistics::Int64(times) = ts.statistics()? else {
        return None;
    };
    Some(SortedRun {
        at: u64::try_from(first_page(ts)).ok()?,
        rows: u64::try_from(group.num_rows()).ok()?,
        min_ts: Timestamp::from_micros(*times.min_opt()?),
        max_ts: Timestamp::from_micros(*times.max_opt()?),
    })
}

fn first_page(column: &ColumnChunkMetaData) -> i64 {
    column
        .dictionary_page_offset()
        .unwrap_or_else(|| column.data_page_offset())
}

/// The page index of one row group, as it was written.
#[derive(Debug)]
pub(super) struct PageIndex {
    columns: Vec<ColumnIndexMetaData>,
    pages: Vec<OffsetIndexMetaData>,
    /// Where the group began when it was written.
    began: u64,
}

impl PageIndex {
    /// Of the group at `at`, if it has one.
    pub(super) fn of(metadata: &ParquetMetaData, at: usize) -> Option<Self> {
        let group = metadata.row_groups().get(at)?;
        let columns = metadata.column_index()?.get(at)?.clone();
        let pages = metadata.offset_index()?.get(at)?.clone();
        Some(Self {
            columns,
            pages,
            began: byte_range(group).0,
        })
    }

    /// Where the pages are when the group begins at `at`.
    fn pages_at(&self, at: u64) -> Result<Vec<OffsetIndexMetaData>, ParquetError> {
        let by = distance(self.began, at)?;
        let mut pages = self.pages.clone();
        for page in pages.iter_mut().flat_map(|column| &mut column.page_locations) {
            page.offset += by;
        }
        Ok(pages)
    }
}

fn distance(from: u64, to: u64) -> Result<i64, ParquetError> {
    let by = i128::from(to) - i128::from(from);
    i64::try_from(by).map_err(|_| ParquetError::General(format!("a row group at {to}")))
}

/// A group's metadata after its bytes were moved. Where its page index lies is for a footer with page indexes to say.
pub(super) fn moved(group: &RowGroupMetaData, ordinal: usize, by: i64) -> Result<RowGroupMetaData, ParquetError> {
    let columns = group.columns().iter().map(|column| {
        let dictionary = column.dictionary_page_offset().map(|offset| offset + by);
        let filter = column.bloom_filter_offset().map(|offset| offset + by);
        column
            .clone()
            .into_builder()
            .set_data_page_offset(column.data_page_offset() + by)
            .set_dictionary_page_offset(dictionary)
            .set_bloom_filter_offset(filter)
            .set_offset_index_offset(None)
            .set_offset_index_length(None)
            .set_column_index_offset(None)
            .set_column_index_length(None)
            .build()
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let too_many = |_| ParquetError::General(format!("{ordinal} row groups"));
    let file_offset = group
        .file_offset()
        .map_or_else(|| columns.first().map_or(0, first_page), |offset| offset + by);
    let group = group.clone().into_builder();
    group
        .set_ordinal(i16::try_from(ordinal).map_err(too_many)?)
        .set_file_offset(file_offset)
        .set_column_metadata(columns)
        .build()
}

/// A group to copy: its bytes, its metadata there, its page index.
struct RowGroupCopy<'a> {
    bytes: ByteSource<'a>,
    group: RowGroupMetaData,
    index: Arc<PageIndex>,
    run: SortedRun,
}

#[derive(Clone, Copy)]
enum ByteSource<'a> {
    File(&'a FilePrefix),
    Memory(&'a [u8]),
}

impl RowGroupCopy<'_> {
    fn copy_to(&self, to: &mut impl Write) -> std::io::Result<()> {
        let (start, end) = byte_range(&self.group);
        match self.bytes {
            ByteSource::Memory(bytes) => {
                let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
                let bytes = range.and_then(|(start, end)| bytes.get(start..end));
                to.write_all(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?)
            }
            ByteSource::File(file) => {
                let file = file.prefix(end).ok_or(std::io::ErrorKind::UnexpectedEof)?;
                file.for_each_chunk(start, |_, bytes| to.write_all(bytes))
            }
        }
    }
}

/// Whether the greatest part of the file is in its final form.
pub(super) fn pays(present: &ParquetFooter) -> bool {
    let size = |(at, group): (usize, &RowGroupMetaData)| (present.runs.contains_key(&at), group.compressed_size());
    let (mut ready, mut all) = (0, 0);
    for (is_run, bytes) in present.groups.iter().enumerate().map(size) {
        all += bytes;
        ready += if is_run { bytes } else { 0 };
    }
    ready > 0 && ready >= all / 8 * 7
}

/// Puts the sealed form of `present` together at `staged`. The file is not synced yet.
pub(super) fn assemble(
    open: &OpenDataFile,
    (present, pages): (&OpenFileVersion, &ParquetFooter),
    source: &FilePrefix,
    staged: &Path,
    facts: &FooterFacts,
    options: &WriteOptions,
) -> Result<File, Error> {
    let table = open.identity().table;
    let (small, small_metadata) = merge_small(table, open.path(), (pages, &present.widths), source, options)?;
    let unknown = || Error::damaged(open.path(), "a row group does not say when its rows are");
    let mut pieces = Vec::new();
    for (at, index) in &pages.runs {
        let group = pages.groups.get(*at).cloned().ok_or_else(unknown)?;
        pieces.push(RowGroupCopy {
            bytes: ByteSource::File(source),
            run: run_of(&group).ok_or_else(unknown)?,
            index: Arc::clone(index),
            group,
        });
    }
    for (at, group) in small_metadata
        .iter()
        .flat_map(|metadata| metadata.row_groups().iter().enumerate())
    {
        let index = small_metadata.as_ref().and_then(|metadata| PageIndex::of(metadata, at));
        pieces.push(RowGroupCopy {
            bytes: ByteSource::Memory(&small),
            run: run_of(group).ok_or_else(unknown)?,
            index: Arc::new(index.ok_or_else(unknown)?),
            group: group.clone(),
        });
    }
    pieces.sort_by_key(|piece| Reverse((piece.run.max_ts, piece.run.min_ts)));
    let pairs = key_values(open.identity(), facts, &present.extent, true);
    let file = file_like(&pages.file, present.extent.rows, pairs).map_err(unwritable(staged))?;
    write(&pieces, file, staged, options.haste)
}

/// The groups that are not in their final form, as groups that are.
fn merge_small(
    table: Table,
    path: &Path,
    (present, all_widths): (&ParquetFooter, &RowWidths),
    source: &FilePrefix,
    options: &WriteOptions,
) -> Result<(Vec<u8>, Option<ParquetMetaData>), Error> {
    let (mut small, mut widths) = (Vec::new(), RowWidths::default());
    let groups = present.groups.iter().enumerate();
    for (at, group) in groups.filter(|(at, _)| !present.runs.contains_key(at)) {
        small.push(group.clone());
        widths.push(all_widths.at(at).unwrap_or(0));
    }
    let mut bytes = Vec::new();
    if small.is_empty() {
        return Ok((bytes, None));
    }
    let rows = small
        .iter()
        .map(|group| u64::try_from(group.num_rows()).unwrap_or(0))
        .sum();
    let metadata = Arc::new(ParquetMetaData::new(present.file.clone(), small));
    let columns = FileColumns::new(table, options);
    let mut merge = RowGroupMerge::new(&columns, path, source, metadata, &widths, options.order)?;
    let mut writer = GroupWriter::new(columns, options.clone(), rows, &mut bytes);
    while let Some(rows) = merge.next_chunk()? {
        writer.write(rows).map_err(unwritable(path))?;
    }
    let metadata = writer.close().map_err(unwritable(path))?;
    Ok((bytes, Some(metadata)))
}

fn write(pieces: &[RowGroupCopy<'_>], file: FileMetaData, staged: &Path, haste: IoPriority) -> Result<File, Error> {
    let mut target = FooterSplitWriter {
        file: PacedWriter::new(shadow_file::create(staged)?, haste),
        tail: None,
    };
    let mut out = TrackedWrite::new(&mut target);
    let (mut groups, mut columns, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    out.write_all(MAGIC).map_err(Error::io("write", staged))?;
    for piece in pieces {
        let at = out.bytes_written() as u64;
        let place = || -> Result<_, ParquetError> {
            let by = distance(byte_range(&piece.group).0, at)?;
            Ok((moved(&piece.group, groups.len(), by)?, piece.index.pages_at(at)?))
        };
        let (group, group_pages) = place().map_err(unwritable(staged))?;
        piece.copy_to(&mut out).map_err(Error::io("write", staged))?;
        groups.push(group);
        columns.push(piece.index.columns.clone());
        pages.push(group_pages);
    }
    out.flush().map_err(Error::io("write", staged))?;
    let metadata = ParquetMetaDataBuilder::new(file)
        .set_row_groups(groups)
        .set_column_index(Some(columns))
        .set_offset_index(Some(pages))
        .build();
    out.inner_mut().tail = Some(Vec::new());
    let footer = ParquetMetaDataWriter::new_with_tracked(out, &metadata);
    footer.finish().map_err(unwritable(staged))?;
    let FooterSplitWriter { mut file, tail } = target;
    file.write_all(&tail.unwrap_or_default())
        .map_err(Error::io("write", staged))?;
    Ok(file.into_inner())
}

/// Where bytes go: to the file, and what the footer's writer writes, which swallows the errors of its last flush, to memory.
struct FooterSplitWriter {
    file: PacedWriter,
    tail: Option<Vec<u8>>,
}

impl Write for FooterSplitWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut self.tail {
            Some(tail) => tail.write(bytes),
            None => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
