//! Reads one column of a file, value by value, as its pages hold it.
//!
//! # Invariants
//!
//! - No more is in memory than a page and a dictionary: values are parts of them, however often they repeat themselves.
//! - Rows that are given at once are of one block.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{AsBytes, ByteArrayType, DataType, FixedLenByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::BLOCK_ROWS;
use crate::Error;
use crate::datafile::{FilePrefix, unreadable};

/// Bytes of values read at once, about, where nothing says which rows are of one page.
const BATCH_BYTES: u64 = 1 << 20;

/// A data file that is read to be indexed.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexSource<'a> {
    pub(super) file: &'a FilePrefix,
    pub(super) path: &'a Path,
    /// With its page index, if there is one.
    pub(super) metadata: &'a ParquetMetaData,
}

/// Some rows of a column, and whether equal ones may be at one address.
pub(super) struct ColumnValues<'a> {
    pub(super) rows: &'a [Option<&'a [u8]>],
    pub(super) do_repeat: bool,
}

impl IndexSource<'_> {
    /// Reads a column of a row group through, unless `take` says that it is enough; `None` from it means that the column is not
    /// what was expected. Whether it was read through.
    pub(super) fn read(
        &self,
        group: usize,
        name: &str,
        mut take: impl FnMut(ColumnValues<'_>) -> Option<bool>,
    ) -> Result<bool, Error> {
        let read = match self.chunk(group, name) {
            Some(chunk) if chunk.metadata.column_type() == Type::BYTE_ARRAY => chunk.read::<ByteArrayType>(&mut take),
            Some(chunk) if chunk.metadata.column_type() == Type::FIXED_LEN_BYTE_ARRAY => {
                chunk.read::<FixedLenByteArrayType>(&mut take)
            }
            _ => Ok(None),
        };
        read.map_err(unreadable(self.path))?
            .ok_or_else(|| Error::damaged(self.path, format!("its column {name} is not as expected")))
    }

    fn chunk(&self, group: usize, name: &str) -> Option<ColumnChunkReader<'_>> {
        let at = self.metadata.row_groups().get(group)?;
        let is_it = |column: &ColumnChunkMetaData| column.column_descr().path().string() == name;
        let column = at.columns().iter().position(is_it)?;
        let pages = self
            .metadata
            .offset_index()
            .and_then(|groups| groups.get(group)?.get(column));
        let starts = pages.map(|pages| pages.page_locations().iter());
        let starts = starts.map(|pages| pages.filter_map(|page| usize::try_from(page.first_row_index).ok()));
        let metadata = at.columns().get(column)?;
        let descr = metadata.column_descr();
        (descr.max_rep_level() == 0 && descr.max_def_level() <= 1).then(|| ColumnChunkReader {
            file: self.file,
            group: at,
            metadata,
            starts: starts.map(Iterator::collect).unwrap_or_default(),
        })
    }
}

/// A column of a row group.
struct ColumnChunkReader<'a> {
    file: &'a FilePrefix,
    group: &'a RowGroupMetaData,
    metadata: &'a ColumnChunkMetaData,
    /// The first rows of its pages, if they are known.
    starts: Vec<usize>,
}

impl ColumnChunkReader<'_> {
    fn read<T: DataType>(
        &self,
        take: &mut impl FnMut(ColumnValues<'_>) -> Option<bool>,
    ) -> Result<Option<bool>, ParquetError> {
        let rows = usize::try_from(self.group.num_rows()).unwrap_or(0);
        let pages = SerializedPageReader::new(Arc::new(self.file.clone()), self.metadata, rows, None)?;
        let descr = self.metadata.column_descr_ptr();
        let is_nullable = descr.max_def_level() > 0;
        let mut reader = ColumnReaderImpl::<T>::new(descr, Box::new(pages));
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut row = 0;
        while row < rows {
            values.clear();
            levels.clear();
            let wanted = self.batch(row, rows);
            let levels_read = is_nullable.then_some(&mut levels);
            let (read, _, _) = reader.read_records(wanted, levels_read, None, &mut values)?;
            if read == 0 {
                return Err(ParquetError::EOF("a column has fewer values than rows".to_owned()));
            }
            row += read;
            let mut left = values.iter().map(AsBytes::as_bytes);
            let of_row = |at: usize| {
                if !is_nullable || levels.get(at) == Some(&1) {
                    left.next()
                } else {
                    None
                }
            };
            let batch: Vec<Option<&[u8]>> = (0..read).map(of_row).collect();
            let values = ColumnValues {
                rows: &batch,
                do_repeat: self.metadata.dictionary_page_offset().is_some(),
            };
            match take(values) {
                Some(true) => {}
                enough => return Ok(enough),
            }
        }
        Ok(Some(true))
    }

    /// How many rows to read from a row on: of one block, and of one page.
    fn batch(&self, row: usize, rows: usize) -> usize {
        let block_rows = BLOCK_ROWS as usize;
        let block = (row / block_rows + 1) * block_rows;
        let page = self.starts.partition_point(|start| *start <= row);
        let page = match self.starts.get(page) {
            Some(next) => *next,
            None if self.starts.is_empty() => {
                let bytes = u64::try_from(self.metadata.uncompressed_size()).unwrap_or(0);
                let per_row = bytes / (rows as u64).max(1) + 1;
                row + usize::try_from(BATCH_BYTES / per_row).unwrap_or(0).max(1)
            }
            None => rows,
        };
        block.min(page).min(rows).saturating_sub(row).max(1)
    }
}
