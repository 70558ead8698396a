//! Writes sorted rows as the row groups of a sealed file.
//!
//! The first rows wait until there are enough to tell which columns repeat themselves ([`super::dictionary_choice`]) in a whole row
//! group; that one stands for all of the file.
//!
//! # Invariants
//!
//! - A row group has a bounded number of rows, and of bytes before they are encoded.
//! - What waits is a quarter of a row group's bytes, and one piece more.
//!
//! # Not here
//!
//! The row groups of open files: [`super::row_group`].

use std::io::Write;

use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData};

use super::dictionary_choice::DictionaryChoice;
use super::promoted_columns::FileColumns;
use super::schema::{SEALED_GROUP_ROWS, WriteOptions, WritePurpose, writer_options};

/// So many rows tell which columns repeat themselves.
const TELLING_ROWS: usize = SEALED_GROUP_ROWS / 2;
/// The part of a row group's bytes that may wait for more rows.
const TELLING_PART: usize = 4;

/// A writer of row groups.
pub(super) struct GroupWriter<W: Write + Send> {
    columns: FileColumns,
    options: WriteOptions,
    /// All rows that will come.
    rows: usize,
    /// Where the writer will write.
    target: Option<W>,
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    writer: Option<ArrowWriter<W>>,
    /// Bytes of rows in the row group that is being written.
    group_bytes: usize,
}

impl<W: Write + Send> GroupWriter<W> {
    /// `rows`: how many will be written.
    pub(super) fn new(columns: FileColumns, options: WriteOptions, rows: u64, target: W) -> Self {
        Self {
            columns,
            options,
            rows: usize::try_from(rows).unwrap_or(usize::MAX),
            target: Some(target),
            waiting: Vec::new(),
            waiting_bytes: 0,
            writer: None,
            group_bytes: 0,
        }
    }

    /// Appends rows that are sorted and come after those before.
    pub(super) fn write(&mut self, rows: RecordBatch) -> Result<(), ParquetError> {
        if self.writer.is_some() {
            return self.write_bounded(&rows);
        }
        self.waiting_bytes += bytes_of(&rows);
        self.waiting.push(rows);
        let waiting: usize = self.waiting.iter().map(RecordBatch::num_rows).sum();
        if waiting >= TELLING_ROWS || self.waiting_bytes >= self.options.group_max / TELLING_PART {
            self.begin()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), ParquetError> {
        let waiting: usize = self.waiting.iter().map(RecordBatch::num_rows).sum();
        let fit = self.options.group_max / (self.waiting_bytes / waiting.max(1)).max(1);
        let group = self.rows.min(SEALED_GROUP_ROWS).min(fit);
        let repeats = DictionaryChoice::of(&self.columns, self.waiting.iter(), waiting.min(group), group);
        let options = writer_options(&self.columns, &self.options, WritePurpose::Seal(repeats))?;
        if let Some(target) = self.target.take() {
            let writer = ArrowWriter::try_new_with_options(target, self.columns.schema(), options)?;
            self.writer = Some(writer);
        }
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
            .iter()
            .try_for_each(|rows| self.write_bounded(rows))
    }

    /// Writes rows, in a new row group if the present one would take too many bytes: what compresses well is held whole by
    /// those who read it.
    fn write_bounded(&mut self, rows: &RecordBatch) -> Result<(), ParquetError> {
        let (bytes, group_max) = (bytes_of(rows), self.options.group_max);
        if bytes > group_max && rows.num_rows() > 1 {
            let half = rows.num_rows() / 2;
            self.write_bounded(&rows.slice(0, half))?;
            return self.write_bounded(&rows.slice(half, rows.num_rows() - half));
        }
        let Some(writer) = &mut self.writer else {
            return Err(failed());
        };
        if self.group_bytes > 0 && self.group_bytes + bytes > group_max {
            writer.flush()?;
        }
        writer.write(rows)?;
        if writer.in_progress_rows() < rows.num_rows() {
            self.group_bytes = 0;
        }
        self.group_bytes = if writer.in_progress_rows() == 0 {
            0
        } else {
            self.group_bytes + bytes
        };
        Ok(())
    }

    fn ended(mut self) -> Result<ArrowWriter<W>, ParquetError> {
        if self.writer.is_none() {
            self.begin()?;
        }
        self.writer.ok_or_else(failed)
    }

    /// Ends the file, and tells what it has.
    pub(super) fn close(self) -> Result<ParquetMetaData, ParquetError> {
        self.ended()?.close()
    }

    /// Ends the file with `pairs` in its footer, and gives it back.
    pub(super) fn into_inner(self, pairs: Vec<KeyValue>) -> Result<W, ParquetError> {
        let mut writer = self.ended()?;
        pairs
            .into_iter()
            .for_each(|pair| writer.append_key_value_metadata(pair));
        writer.into_inner()
    }
}

fn failed() -> ParquetError {
    ParquetError::General("an earlier write failed".to_owned())
}

fn bytes_of(rows: &RecordBatch) -> usize {
    let bytes = |column: &arrow_array::ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    rows.columns().iter().map(bytes).sum()
}
