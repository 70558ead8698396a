//! The columns of a row group, encoded side by side: a large group in haste on two threads, each taking the widest column
//! that is left.
//!
//! # Invariants
//!
//! - The bytes do not depend on how many threads there were.
//! - At most two columns are gathered at once, each a bounded piece at a time; what is encoded is held until the group is complete.
//!
//! # Not here
//!
//! Which rows, and their order: [`super::row_group`].

use std::num::NonZero;
use std::ops::Range;

use arrow_array::Array;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowWriterOptions, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use super::interleave::gather;
use super::row_group::SortedBatches;
use crate::io_pacing::IoPriority;

/// A group of fewer rows is encoded before a second thread has begun.
const SHARED_ROWS: usize = 16 << 10;

/// Writes rows as a file of row groups of `each` rows, the last of what is left.
pub(super) fn write_groups(
    (sorted, haste): (&SortedBatches, IoPriority),
    each: usize,
    schema: &SchemaRef,
    options: ArrowWriterOptions,
    to: &mut Vec<u8>,
) -> Result<ParquetMetaData, ParquetError> {
    let writer = ArrowWriter::try_new_with_options(to, SchemaRef::clone(schema), options)?;
    let (mut file, factory) = writer.into_serialized_writer()?;
    for (at, first) in (0..sorted.rows()).step_by(each.max(1)).enumerate() {
        let rows = first..sorted.rows().min(first + each);
        let work = ColumnEncoder::new((sorted, rows), schema, factory.create_column_writers(at)?);
        let mut group = file.next_row_group()?;
        for chunk in work.done(haste)? {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
    }
    file.close()
}

/// A column that nobody has taken yet.
struct PendingColumn {
    at: usize,
    bytes: usize,
    writer: ArrowColumnWriter,
}

/// What there is to do.
struct ColumnEncoder<'a> {
    sorted: &'a SortedBatches,
    schema: &'a SchemaRef,
    pieces: Vec<Range<usize>>,
    /// The widest last.
    columns: Mutex<Vec<PendingColumn>>,
}

impl<'a> ColumnEncoder<'a> {
    fn new(
        (sorted, rows): (&'a SortedBatches, Range<usize>),
        schema: &'a SchemaRef,
        writers: Vec<ArrowColumnWriter>,
    ) -> Self {
        let columns = writers.into_iter().enumerate();
        let mut columns: Vec<PendingColumn> = columns
            .map(|(at, writer)| PendingColumn {
                at,
                bytes: sorted.column(at).map(Array::get_array_memory_size).sum(),
                writer,
            })
            .collect();
        columns.sort_by_key(|column| column.bytes);
        Self {
            sorted,
            schema,
            pieces: sorted.pieces(rows),
            columns: Mutex::new(columns),
        }
    }

    /// Every column, encoded, in the order of the schema.
    fn done(&self, haste: IoPriority) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut chunks = if haste == IoPriority::Yes && cores > 1 && self.sorted.rows() >= SHARED_ROWS {
            self.share()?
        } else {
            self.encode()?
        };
        chunks.sort_by_key(|(at, _)| *at);
        Ok(chunks.into_iter().map(|(_, chunk)| chunk).collect())
    }

    fn share(&self) -> Result<Vec<(usize, ArrowColumnChunk)>, ParquetError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("engine-encoder".to_owned());
            // Where no thread is to be had, all columns are left for this one.
            let other = thread.spawn_scoped(scope, || self.encode()).ok();
            let mut chunks = self.encode()?;
            if let Some(other) = other {
                let panicked = |_| ParquetError::General("the thread of a column panicked".to_owned());
                chunks.extend(other.join().map_err(panicked)??);
            }
            Ok(chunks)
        })
    }

    /// Encodes columns until none is left.
    fn encode(&self) -> Result<Vec<(usize, ArrowColumnChunk)>, ParquetError> {
        let mut chunks = Vec::new();
        loop {
            let next = self.columns.lock().pop();
            let Some(PendingColumn { at, mut writer, .. }) = next else {
                return Ok(chunks);
            };
            let parts: Vec<&dyn Array> = self.sorted.column(at).collect();
            for piece in &self.pieces {
                let rows = self.sorted.order().get(piece.clone()).unwrap_or_default();
                let values = gather(&parts, rows)?;
                for leaf in compute_leaves(self.schema.field(at), &values)? {
                    writer.write(&leaf)?;
                }
            }
            chunks.push((at, writer.close()?));
        }
    }
}
