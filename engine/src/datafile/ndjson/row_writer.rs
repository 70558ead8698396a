//! Writes rows as lines.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, BinaryArray, FixedSizeBinaryArray, Float32Array, Float64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use model::{ColumnType, Table, Timestamp};
use uuid::Uuid;

use super::json_scan::is_object;
use crate::Error;

/// A column, ready to be written.
enum NdjsonColumn<'a> {
    Time(&'a TimestampMicrosecondArray),
    Uuid(&'a FixedSizeBinaryArray),
    Text(&'a StringArray),
    Json(&'a StringArray),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Blob(&'a BinaryArray),
}

/// Writes rows of one batch.
pub(super) struct NdjsonRowWriter<'a> {
    /// What stands before each value: `{"ts":`, `,"level":`, …
    columns: Vec<(String, NdjsonColumn<'a>)>,
}

impl<'a> NdjsonRowWriter<'a> {
    pub(super) fn new(table: Table, batch: &'a RecordBatch) -> Result<Self, Error> {
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (column, array) in table.columns().iter().zip(batch.columns()) {
            let values = match column.kind {
                ColumnType::Time => array
                    .as_primitive_opt::<TimestampMicrosecondType>()
                    .map(NdjsonColumn::Time),
                ColumnType::Uuid => array.as_fixed_size_binary_opt().map(NdjsonColumn::Uuid),
                ColumnType::Text | ColumnType::Word => array.as_string_opt::<i32>().map(NdjsonColumn::Text),
                ColumnType::Json => array.as_string_opt::<i32>().map(NdjsonColumn::Json),
                ColumnType::Float => array.as_primitive_opt::<Float32Type>().map(NdjsonColumn::Float),
                ColumnType::Double => array.as_primitive_opt::<Float64Type>().map(NdjsonColumn::Double),
                ColumnType::Blob => array.as_binary_opt::<i32>().map(NdjsonColumn::Blob),
            };
            let values = values
                .ok_or_else(|| Error::rows(table, format!("the column {} is of {}", column.name, array.data_type())))?;
            let before = if columns.is_empty() { '{' } else { ',' };
            columns.push((format!("{before}\"{}\":", column.name), values));
        }
        Ok(Self { columns })
    }

    /// Appends a row, without the newline.
    pub(super) fn write(&self, row: usize, to: &mut Vec<u8>) {
        for (before, values) in &self.columns {
            to.extend_from_slice(before.as_bytes());
            values.write(row, to);
        }
        to.push(b'}');
    }
}

impl NdjsonColumn<'_> {
    fn write(&self, row: usize, to: &mut Vec<u8>) {
        let array: &dyn Array = match self {
            Self::Time(array) => *array,
            Self::Uuid(array) => *array,
            Self::Text(array) | Self::Json(array) => *array,
            Self::Float(array) => *array,
            Self::Double(array) => *array,
            Self::Blob(array) => *array,
        };
        if array.is_null(row) {
            to.extend_from_slice(b"null");
            return;
        }
        // Writing into memory does not fail.
        let _ = match self {
            Self::Time(array) => write!(to, "\"{}\"", Timestamp::from_micros(array.value(row))),
            Self::Uuid(array) => {
                let id = Uuid::from_slice(array.value(row)).unwrap_or_default();
                write!(to, "\"{}\"", id.hyphenated())
            }
            Self::Text(array) => serde_json::to_writer(&mut *to, array.value(row)).map_err(Into::into),
            Self::Json(array) if is_object(array.value(row)) => to.write_all(array.value(row).as_bytes()),
            Self::Json(array) => serde_json::to_writer(&mut *to, array.value(row)).map_err(Into::into),
            Self::Float(array) => number(array.value(row).is_finite(), array.value(row), to),
            Self::Double(array) => number(array.value(row).is_finite(), array.value(row), to),
            Self::Blob(array) => {
                to.push(b'"');
                for byte in array.value(row) {
                    to.push(HEX[usize::from(byte >> 4)]);
                    to.push(HEX[usize::from(byte & 15)]);
                }
                to.write_all(b"\"")
            }
        };
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The shortest text that is this number again.
fn number(finite: bool, value: impl serde::Serialize + std::fmt::Display, to: &mut Vec<u8>) -> std::io::Result<()> {
    if finite {
        serde_json::to_writer(to, &value).map_err(Into::into)
    } else {
        write!(to, "\"{value}\"")
    }
}
