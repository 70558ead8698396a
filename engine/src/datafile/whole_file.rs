//! Reads all rows of a small data file at once, for one that is rewritten with more.
//!
//! # Not here
//!
//! Reading a file of any size: `query`; merging its row groups: [`super::row_group_merge`].

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use model::Table;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::file_format::FileFormat;
use super::file_prefix::FilePrefix;
use super::footer::{FileBody, FooterFacts, inspect_at, unreadable};
use super::ndjson::NdjsonReader;
use super::promoted_columns::PromotedColumns;
use crate::Error;

/// A file as it is read.
#[derive(Debug)]
pub(crate) struct WholeFile {
    pub(crate) facts: FooterFacts,
    /// Its columns behind the table's.
    pub(crate) promoted: Option<Arc<PromotedColumns>>,
    /// Its rows, with these columns.
    pub(crate) rows: Vec<RecordBatch>,
}

/// Reads a file whose checksum was found right; `None` if its rows take more than `most` bytes.
///
/// # Errors
/// If it is damaged or cannot be read.
pub(crate) fn read_whole(
    table: Table,
    file: &FilePrefix,
    path: &Path,
    most: usize,
) -> Result<Option<WholeFile>, Error> {
    let found = inspect_at(file, path)?;
    let arrow = Error::arrow("read", table);
    let (promoted, rows) = match found.shape {
        FileBody::Parquet(metadata) => {
            let promoted = PromotedColumns::of_file(table, metadata.file_metadata());
            let promoted = promoted.map_err(|reason| Error::damaged(path, reason))?;
            let metadata = ArrowReaderMetadata::try_new(Arc::new(*metadata), ArrowReaderOptions::new());
            let metadata = metadata.map_err(unreadable(path))?;
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata).build();
            let rows = within(most, reader.map_err(unreadable(path))?);
            (promoted, rows.map_err(arrow)?)
        }
        FileBody::Lines(_) => {
            let lines = NdjsonReader::new(table, path, FileFormat::of_path(path), file, found.extent.rows)?;
            (None, within(most, lines)?)
        }
    };
    Ok(rows.map(|rows| WholeFile {
        facts: found.facts,
        promoted,
        rows,
    }))
}

/// All rows, if they take no more than `most` bytes.
fn within<E>(
    most: usize,
    batches: impl Iterator<Item = Result<RecordBatch, E>>,
) -> Result<Option<Vec<RecordBatch>>, E> {
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    for batch in batches {
        let batch = batch?;
        bytes = bytes.saturating_add(batch.get_array_memory_size());
        if bytes > most {
            return Ok(None);
        }
        rows.push(batch);
    }
    Ok(Some(rows))
}
