//! Makes a sidecar from a sealed Parquet file: bytes from bytes, nothing is written here.
//!
//! # Invariants
//!
//! - Only a file whose bytes have the recorded checksum is indexed: an index of damaged bytes would hide rows.
//! - Memory is bounded by the entries of the sections, eight bytes each, and by what [`super::counts`] take, whatever the file holds.

use std::path::Path;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use model::{Table, field_text};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::counts::build::Counting;
use super::digest::{Digest, Range};
use super::format::{Kind, Owner, Part, encode};
use super::{BLOCK_ROWS, IdColumn, ids};
use crate::Error;
use crate::segment::{FileAt, read_metadata, unreadable};

/// Rows read at once: their attributes may be long.
const BATCH_ROWS: usize = 256;

/// The sidecar of a file; `None` if `go_on`, which is asked again and again, says that it is not wanted any more.
pub(super) fn build(
    file: &FileAt,
    path: &Path,
    owner: &Owner,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    if !is_as_recorded(file, path, owner, &mut go_on)? {
        return Ok(None);
    }
    let metadata = Arc::new(read_metadata(file, path, false)?);
    let mut counting = Counting::of(owner, &metadata);
    let metadata = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new()).map_err(unreadable(path))?;
    let mut columns = columns_of(owner.table);
    let names = columns.iter().map(|column| column.name);
    let mask = ProjectionMask::columns(metadata.parquet_schema(), names);
    for group in 0..metadata.metadata().num_row_groups() {
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask.clone())
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(unreadable(path))?;
        for batch in reader {
            if !go_on() {
                return Ok(None);
            }
            let batch = batch.map_err(|error| unreadable(path)(error.into()))?;
            for column in &mut columns {
                let values = batch.column_by_name(column.name);
                let taken = values.and_then(|values| column.take(values));
                taken.ok_or_else(|| Error::Damaged {
                    path: path.to_owned(),
                    reason: format!("its column {} is not as expected", column.name),
                })?;
            }
        }
        columns.iter_mut().for_each(|column| column.ids.end_group());
        if let Some(counting) = &mut counting
            && !counting.take(file, group, &mut go_on)
        {
            return Ok(None);
        }
    }
    let counts = counting.map(|counting| counting.finish(owner.rows));
    Ok(Some(finish(owner, columns, counts.unwrap_or_default())))
}

fn is_as_recorded(file: &FileAt, path: &Path, owner: &Owner, go_on: &mut impl FnMut() -> bool) -> Result<bool, Error> {
    let (mut crc, mut is_wanted) = (0, true);
    let read = file.for_each_chunk(0, |_, bytes| {
        crc = crc32c::crc32c_append(crc, bytes);
        is_wanted = go_on();
        // Ends the reading; what is read of it is dropped below.
        if is_wanted {
            Ok(())
        } else {
            Err(std::io::ErrorKind::Interrupted.into())
        }
    });
    if !is_wanted {
        return Ok(false);
    }
    read.map_err(Error::io("read", path))?;
    if crc == owner.crc {
        return Ok(true);
    }
    Err(Error::Damaged {
        path: path.to_owned(),
        reason: format!("its checksum is {crc:08x}, {:08x} was written", owner.crc),
    })
}

fn finish(owner: &Owner, columns: Vec<Column>, counts: Vec<Part>) -> Vec<u8> {
    let blocks = columns.first().map_or(0, |column| column.ids.blocks());
    let ranges: Vec<_> = columns.iter().map(|column| (column.kind, column.range)).collect();
    let mut parts = vec![Part {
        kind: Kind::Digest,
        form: 0,
        bytes: Digest::new(&ranges).encode(),
        is_checked: false,
    }];
    for column in columns {
        parts.extend(column.ids.finish().map(|(form, bytes)| Part {
            kind: column.kind,
            form,
            bytes,
            is_checked: true,
        }));
    }
    parts.extend(counts);
    encode(owner, BLOCK_ROWS, blocks, &parts)
}

/// A column whose values, or the trace ids in them, are indexed.
struct Column {
    name: &'static str,
    kind: Kind,
    ids: ids::Builder,
    range: Range,
}

/// What is indexed of a table; nothing of most.
pub(super) fn columns_of_table(table: Table) -> &'static [(&'static str, IdColumn)] {
    match table {
        Table::Logs => &[("flux_id", IdColumn::FluxId), ("attributes", IdColumn::TraceId)],
        Table::Traces | Table::Messages => &[("flux_id", IdColumn::FluxId), ("trace_id", IdColumn::TraceId)],
        Table::Metrics | Table::DeadLetters => &[],
    }
}

fn columns_of(table: Table) -> Vec<Column> {
    let columns = columns_of_table(table).iter();
    let column = |(name, of): &(&'static str, IdColumn)| Column {
        name,
        kind: of.kind(),
        ids: ids::Builder::default(),
        range: Range::default(),
    };
    columns.map(column).collect()
}

impl Column {
    fn add(&mut self, id: Option<&[u8]>) {
        id.iter().for_each(|id| self.range.add(id));
        self.ids.add(id);
    }

    /// The next rows; `None` if they are not what the column has.
    fn take(&mut self, values: &ArrayRef) -> Option<()> {
        if let Some(ids) = values.as_fixed_size_binary_opt() {
            ids.iter().for_each(|id| self.add(id));
            return Some(());
        }
        let texts = values.as_string_opt::<i32>()?;
        if self.name == "attributes" {
            for attributes in texts {
                let id = attributes.and_then(|attributes| field_text(attributes, "trace_id"));
                self.add(id.as_deref().map(str::as_bytes));
            }
        } else {
            texts.iter().for_each(|id| self.add(id.map(str::as_bytes)));
        }
        Some(())
    }
}
