//! The pages of one row group for parquet's decoders, from the cache or the file.
//!
//! ```text
//! ParquetRecordBatchReader <─ RowGroups <─ one PageReader per column: cache │ SerializedPageReader <─ SegmentBytes <─ file
//! ```
//!
//! Parquet's page API changes between its major versions: it is used here and nowhere else.
//!
//! # Invariants
//!
//! - A page that nobody needs is neither read nor decompressed. An open file has no offset index: where its pages are is found by
//!   their headers, once.
//! - A page counts as read when it comes from the file, as a hit when it comes from the cache.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use bytes::Bytes;
use engine::DataFileHandle;
use model::Table;
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::page_cache::{PageCache, PageKey};
use crate::segment_reader::{ScanMeter, read_range};

/// Bytes read at once where only a page's header is wanted.
const HEADER_BYTES: usize = 4 << 10;

/// A version of a data file, read by position.
#[derive(Debug, Clone)]
pub(super) struct SegmentBytes {
    file: Arc<File>,
    segment: Arc<DataFileHandle>,
    meter: Arc<ScanMeter>,
}

impl Length for SegmentBytes {
    fn len(&self) -> u64 {
        self.segment.size
    }
}

impl ChunkReader for SegmentBytes {
    type T = BufReader<SequentialReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let onward = SequentialReader {
            bytes: self.clone(),
            at: start,
        };
        Ok(BufReader::with_capacity(HEADER_BYTES, onward))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.meter.charge_read(self.segment.id, length as u64)?;
        read_range(&self.segment, &self.file, &(start..start.saturating_add(length as u64)))
    }
}

/// Reads onwards from a position of its own.
#[derive(Debug)]
pub(super) struct SequentialReader {
    bytes: SegmentBytes,
    at: u64,
}

impl Read for SequentialReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let segment = &self.bytes.segment;
        let left = usize::try_from(segment.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let take = buffer.len().min(left);
        let may = self.bytes.meter.charge_read(segment.id, take as u64);
        may.map_err(std::io::Error::other)?;
        let read = self.bytes.file.read_at(&mut buffer[..take], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// One row group of a segment.
#[derive(Debug, Clone)]
pub(super) struct SegmentRowGroup {
    bytes: SegmentBytes,
    metadata: Arc<ParquetMetaData>,
    index: usize,
    cache: Arc<PageCache>,
}

impl SegmentRowGroup {
    /// The row groups of a Parquet segment. Blocks: opens the file, and reads its footer unless it is at hand.
    pub(super) fn all_of(
        segment: &Arc<DataFileHandle>,
        cache: &Arc<PageCache>,
        meter: &Arc<ScanMeter>,
    ) -> std::result::Result<Vec<Self>, engine::Error> {
        // First the file, whose checksum tells damage of the footer too.
        let file = segment.open_shared()?;
        let metadata = segment.metadata()?;
        meter.count_opened(segment.id);
        let bytes = SegmentBytes {
            file,
            segment: Arc::clone(segment),
            meter: Arc::clone(meter),
        };
        let group = |index| Self {
            bytes: bytes.clone(),
            metadata: Arc::clone(&metadata),
            index,
            cache: Arc::clone(cache),
        };
        Ok((0..metadata.num_row_groups()).map(group).collect())
    }

    pub(super) fn bytes(&self) -> &SegmentBytes {
        &self.bytes
    }

    pub(super) fn file(&self) -> &ParquetMetaData {
        &self.metadata
    }

    pub(super) const fn index(&self) -> usize {
        self.index
    }

    pub(super) fn metadata(&self) -> &RowGroupMetaData {
        self.metadata.row_group(self.index)
    }

    pub(super) fn rows(&self) -> usize {
        usize::try_from(self.metadata().num_rows()).unwrap_or(0)
    }

    pub(super) fn meter(&self) -> &ScanMeter {
        &self.bytes.meter
    }

    /// Whether its columns are the table's, a spec's behind them: those of another version of the program may be others.
    pub(super) fn is_of(&self, table: Table) -> bool {
        let ours = table.columns().iter().map(|column| column.name);
        let columns = self.metadata.file_metadata().schema_descr().columns();
        let has_more = table == Table::Messages && columns.len() > table.columns().len();
        let same = columns.iter().map(|column| column.name()).take(table.columns().len());
        ours.eq(same) && (has_more || columns.len() == table.columns().len())
    }

    /// Reads columns, given in the table's order, of selected rows, `batch` rows at once. The fields, one for each of the
    /// table's columns, say as what.
    pub(super) fn read(
        &self,
        fields: &Fields,
        columns: &[usize],
        selection: Option<RowSelection>,
        batch: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let schema = self.metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(schema, columns.iter().copied());
        // What a spec has behind them is not asked for: only its names must be those of the file.
        let more = schema.columns().iter().skip(fields.len());
        let more = more.map(|column| Arc::new(Field::new(column.name(), DataType::Null, true)));
        let levels = if schema.num_columns() > fields.len() {
            let all: Fields = fields.iter().cloned().chain(more).collect();
            parquet_to_arrow_field_levels(schema, mask, Some(&all))?
        } else {
            parquet_to_arrow_field_levels(schema, mask, Some(fields))?
        };
        ParquetRecordBatchReader::try_new_with_row_groups(&levels, self, batch.max(1), selection)
    }

    /// Where the data pages of a column are.
    pub(super) fn places(&self, column: usize) -> Result<Arc<[PageLocation]>> {
        let index = self.metadata.offset_index().and_then(|index| index.get(self.index));
        if let Some(pages) = index.and_then(|columns| columns.get(column)) {
            return Ok(pages.page_locations.as_slice().into());
        }
        let chunk = self.metadata().column(column);
        let key = PageKey::new(&self.bytes.segment, chunk.byte_range().0);
        if let Some(places) = self.cache.places(key) {
            return Ok(places);
        }
        let places = locate_pages(self.bytes.clone(), chunk, self.rows())?.into();
        self.cache.keep_places(key, &places);
        Ok(places)
    }

    fn page_reader(&self, column: usize, places: &[PageLocation]) -> Result<SerializedPageReader<SegmentBytes>> {
        let chunk = self.metadata().column(column);
        SerializedPageReader::new(Arc::new(self.bytes.clone()), chunk, self.rows(), Some(places.to_vec()))
    }

    fn pages(&self, column: usize) -> Result<CachedPages> {
        let chunk = self.metadata().column(column);
        let places = self.places(column)?;
        let start = chunk.byte_range().0;
        let dictionary = places
            .first()
            .is_some_and(|first| first.offset.cast_unsigned() != start);
        Ok(CachedPages {
            inner: None,
            column,
            at: 0,
            dictionary: dictionary.then_some(start),
            places,
            rows: self.rows(),
            group: self.clone(),
        })
    }
}

impl RowGroups for SegmentRowGroup {
    fn num_rows(&self) -> usize {
        self.rows()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(ColumnChunkIterator(Some(self.pages(column)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(Self::metadata(self)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The one column chunk of a row group.
struct ColumnChunkIterator(Option<Result<CachedPages>>);

impl Iterator for ColumnChunkIterator {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let pages = self.0.take()?;
        Some(pages.map(|pages| Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for ColumnChunkIterator {}

/// The pages of a column chunk in order: its dictionary, if it has one, and its data pages.
struct CachedPages {
    /// Reads those that are not kept, made for the first of them: contexts of zstd cost more than most pages that are kept. It is
    /// asked for the page of that number next.
    inner: Option<(SerializedPageReader<SegmentBytes>, usize)>,
    column: usize,
    /// The number of the next page; a dictionary counts.
    at: usize,
    /// Where the dictionary begins.
    dictionary: Option<u64>,
    places: Arc<[PageLocation]>,
    rows: usize,
    group: SegmentRowGroup,
}

impl CachedPages {
    /// The data page that is next, by its number among the data pages; `None` where the dictionary is next.
    fn data_page(&self) -> Option<usize> {
        self.at.checked_sub(usize::from(self.dictionary.is_some()))
    }

    /// Where the next page begins; `None` after the last.
    fn next_begins(&self) -> Option<u64> {
        match self.data_page() {
            None => self.dictionary,
            Some(page) => self.places.get(page).map(|place| place.offset.cast_unsigned()),
        }
    }
}

impl PageReader for CachedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(begins) = self.next_begins() else {
            return Ok(None);
        };
        let key = PageKey::new(&self.group.bytes.segment, begins);
        if let Some(page) = self.group.cache.page(key) {
            self.group.bytes.meter.count_cache_hit();
            self.at += 1;
            return Ok(Some(page));
        }
        let (inner, inner_at) = match &mut self.inner {
            Some(inner) => inner,
            none => none.insert((self.group.page_reader(self.column, &self.places)?, 0)),
        };
        while *inner_at < self.at {
            inner.skip_next_page()?;
            *inner_at += 1;
        }
        let page = inner.get_next_page()?;
        *inner_at += 1;
        self.at += 1;
        if let Some(page) = &page {
            self.group.cache.keep_page(key, page);
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        let metadata = |num_rows, is_dict| PageMetadata {
            num_rows,
            num_levels: None,
            is_dict,
        };
        let Some(page) = self.data_page() else {
            return Ok(Some(metadata(None, true)));
        };
        let Some(place) = self.places.get(page) else {
            return Ok(None);
        };
        let end = self.places.get(page + 1).map(|next| next.first_row_index);
        let end = end.map_or(self.rows, |row| usize::try_from(row).unwrap_or(0));
        let first = usize::try_from(place.first_row_index).unwrap_or(0);
        let rows = end
            .checked_sub(first)
            .ok_or_else(|| ParquetError::General(format!("a page begins at row {first} and ends at row {end}")))?;
        Ok(Some(metadata(Some(rows), false)))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}

impl Iterator for CachedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Remembers where page headers were read.
struct PageHeaderRecorder {
    bytes: SegmentBytes,
    headers: Mutex<Vec<u64>>,
}

impl Length for PageHeaderRecorder {
    fn len(&self) -> u64 {
        self.bytes.len()
    }
}

impl ChunkReader for PageHeaderRecorder {
    type T = BufReader<SequentialReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.headers.lock().push(start);
        self.bytes.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.bytes.get_bytes(start, length)
    }
}

/// Finds the data pages of a column chunk by their headers.
fn locate_pages(bytes: SegmentBytes, chunk: &ColumnChunkMetaData, rows: usize) -> Result<Vec<PageLocation>> {
    let (start, length) = chunk.byte_range();
    let walked = Arc::new(PageHeaderRecorder {
        bytes,
        headers: Mutex::default(),
    });
    let mut reader = SerializedPageReader::new(Arc::clone(&walked), chunk, rows, None)?;
    let mut pages = Vec::new();
    while let Some(page) = reader.peek_next_page()? {
        // Nothing is nested: a level is a row.
        pages.push((page.is_dict, page.num_rows.or(page.num_levels).unwrap_or(0)));
        reader.skip_next_page()?;
    }
    let mut headers = std::mem::take(&mut *walked.headers.lock());
    if headers.len() != pages.len() {
        return Err(ParquetError::General(format!(
            "{} page headers were read for {} pages",
            headers.len(),
            pages.len()
        )));
    }
    headers.push(start + length);
    let mut first_row = 0;
    let mut places = Vec::with_capacity(pages.len());
    for (page, ends) in pages.iter().zip(headers.windows(2)) {
        let (is_dictionary, page_rows) = *page;
        let [begins, end] = *ends else { continue };
        if is_dictionary {
            continue;
        }
        places.push(PageLocation {
            offset: begins.cast_signed(),
            compressed_page_size: i32::try_from(end.saturating_sub(begins))?,
            first_row_index: i64::try_from(first_row)?,
        });
        first_row += page_rows;
    }
    if first_row != rows {
        return Err(ParquetError::General(format!(
            "the pages of a column have {first_row} rows, the row group has {rows}"
        )));
    }
    Ok(places)
}
