//! Writes rows as JSON, JSON lines, CSV and the Arrow stream format, for lists and statements alike.
//!
//! | format | before the rows | after them |
//! |---|---|---|
//! | JSON | `{"data":[`, of statements `{"columns":[{"name":…,"type":…},…],"data":[` | `],"stats":{…},…}`, or `],"error":{…}}` |
//! | JSON lines | | nothing, or a line `{"error":{…}}` |
//! | CSV | names | nothing; an answer that is not whole has no proper end |
//! | Arrow | schema | the end mark; an answer that is not whole has none |
//!
//! # Values
//!
//! Times are RFC 3339, in UTC where they have a zone; ids are text; blobs are lower-case hex. The JSON columns of tables are JSON.
//! Numbers that JSON lacks are their names. In CSV null is nothing and an empty text is `""`. What a sparse column lacks is left out
//! of the objects of JSON; CSV and Arrow have all columns.

mod json_validator;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, downcast_dictionary_array};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef, TimeUnit};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use model::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::json_validator::JsonValidator;
use crate::Error;
use crate::columns::SqlColumn;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowFormat {
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// Comma-separated values with a header.
    Csv,
    /// The Arrow IPC stream format.
    Arrow,
}

/// Writes one answer.
pub struct RowWriter {
    format: RowFormat,
    json: Vec<bool>,
    /// Names as JSON with what stands before and behind them: `{"a":`, `,"b":`.
    keys: Vec<String>,
    /// Whether JSON leaves a column out where it has no value; never the first one.
    sparse: Vec<bool>,
    first: bool,
    arrow: Option<StreamWriter<Vec<u8>>>,
    out: Vec<u8>,
}

impl std::fmt::Debug for RowWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl RowWriter {
    /// A writer for rows of these columns, whose first bytes are ready. `head` has fields that JSON shows before the rows, each with a
    /// comma behind it; `sparse` names columns.
    pub(crate) fn new(
        format: RowFormat,
        columns: &[SqlColumn],
        schema: &SchemaRef,
        head: &str,
        sparse: &[&str],
    ) -> Result<Self, Error> {
        let mut writer = Self {
            format,
            json: Vec::new(),
            keys: Vec::new(),
            sparse: Vec::new(),
            first: true,
            arrow: None,
            out: Vec::new(),
        };
        writer.set_columns(columns, sparse);
        match format {
            RowFormat::Json => writer.out.extend(format!("{{{head}\"data\":[").bytes()),
            RowFormat::Ndjson => {}
            RowFormat::Csv => {
                for (index, column) in columns.iter().enumerate() {
                    separate(&mut writer.out, index);
                    quoted(&mut writer.out, &column.name);
                }
                writer.out.push(b'\n');
            }
            RowFormat::Arrow => writer.arrow = Some(StreamWriter::try_new(Vec::new(), schema)?),
        }
        Ok(writer)
    }

    fn set_columns(&mut self, columns: &[SqlColumn], sparse: &[&str]) {
        let keys = columns.iter().enumerate().map(|(index, column)| {
            let before = if index == 0 { '{' } else { ',' };
            format!("{before}{}:", serde_json::Value::from(column.name.as_str()))
        });
        self.keys = keys.collect();
        self.json = columns.iter().map(|column| column.kind == "json").collect();
        let is_sparse = |column: &SqlColumn| sparse.contains(&column.name.as_str());
        self.sparse = columns.iter().map(is_sparse).collect();
    }

    /// Ends the array of rows and begins another one of JSON, whose rows have these columns.
    pub(crate) fn begin_array(&mut self, name: &str, columns: &[SqlColumn], sparse: &[&str]) {
        self.set_columns(columns, sparse);
        self.first = true;
        self.out.extend(format!("],\"{name}\":[").bytes());
    }

    /// Writes rows from the number `from` on until there are `enough` bytes; the number of the next row. Arrow has as many of them in one
    /// batch as are about so many bytes, or all where there are views.
    ///
    /// # Errors
    /// If a value cannot be written.
    pub fn write(&mut self, batch: &RecordBatch, from: usize, enough: usize) -> Result<usize, Error> {
        let rows = batch.num_rows();
        if let Some(arrow) = &mut self.arrow {
            let most = match bytes_of(batch)? {
                Some(bytes) => rows.saturating_mul(enough) / bytes.max(1),
                None => rows,
            };
            let count = most.max(1).min(rows - from);
            if count > 0 {
                arrow.write(&batch.slice(from, count))?;
            }
            return Ok(from + count);
        }
        let mut next = from;
        while next < rows && self.out.len() < enough {
            if self.format == RowFormat::Csv {
                self.csv(batch, next)?;
            } else {
                self.json(batch, next)?;
            }
            next += 1;
        }
        Ok(next)
    }

    fn json(&mut self, batch: &RecordBatch, row: usize) -> Result<(), Error> {
        if self.format == RowFormat::Json && !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        for (index, (key, column)) in self.keys.iter().zip(batch.columns()).enumerate() {
            if self.sparse[index] && is_null(column, row) {
                continue;
            }
            self.out.extend_from_slice(key.as_bytes());
            value(&mut self.out, column, row, self.json[index])?;
        }
        if self.keys.is_empty() {
            self.out.push(b'{');
        }
        self.out.push(b'}');
        if self.format == RowFormat::Ndjson {
            self.out.push(b'\n');
        }
        Ok(())
    }

    fn csv(&mut self, batch: &RecordBatch, row: usize) -> Result<(), Error> {
        let mut cell = Vec::new();
        for (index, column) in batch.columns().iter().enumerate() {
            separate(&mut self.out, index);
            if is_null(column, row) {
                continue;
            }
            cell.clear();
            value(&mut cell, column, row, false)?;
            // A text within JSON is a text; all else is written as JSON has it.
            match serde_json::from_slice::<String>(&cell) {
                Ok(text) => quoted(&mut self.out, &text),
                Err(_) => quoted(&mut self.out, &String::from_utf8_lossy(&cell)),
            }
        }
        self.out.push(b'\n');
        Ok(())
    }

    /// Writes what comes after the last row; `after` is an object whose fields JSON shows there.
    ///
    /// # Errors
    /// If the end cannot be written.
    pub fn end(&mut self, after: &impl Serialize) -> Result<(), Error> {
        if let Some(arrow) = &mut self.arrow {
            arrow.finish()?;
        }
        if self.format == RowFormat::Json {
            let after = serde_json::to_string(after).unwrap_or_default();
            let fields = after.strip_prefix('{').unwrap_or("}");
            self.out.extend(format!("],{fields}\n").bytes());
        }
        Ok(())
    }

    /// Writes that the answer ends here and is not whole, where the format has a place for it.
    pub fn fail(&mut self, error: &serde_json::Value) {
        match self.format {
            RowFormat::Json => self.out.extend(format!("],\"error\":{error}}}\n").bytes()),
            RowFormat::Ndjson => self.out.extend(format!("{{\"error\":{error}}}\n").bytes()),
            RowFormat::Csv | RowFormat::Arrow => {}
        }
    }

    /// How many bytes the next [`RowWriter::take`] has.
    #[must_use]
    pub fn pending(&self) -> usize {
        let out = self.arrow.as_ref().map_or(&self.out, StreamWriter::get_ref);
        out.len()
    }

    /// What was written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        match &mut self.arrow {
            Some(arrow) => std::mem::take(arrow.get_mut()),
            None => std::mem::take(&mut self.out),
        }
    }
}

/// How many bytes a batch has; `None` if its parts would not have less: with each part of views all their texts are written.
fn bytes_of(batch: &RecordBatch) -> Result<Option<usize>, ArrowError> {
    let is_whole = |kind: &DataType| matches!(kind, DataType::Utf8View | DataType::BinaryView) || kind.is_nested();
    if batch.columns().iter().any(|column| is_whole(column.data_type())) {
        return Ok(None);
    }
    let sizes = batch
        .columns()
        .iter()
        .map(|column| column.to_data().get_slice_memory_size());
    sizes.sum::<Result<usize, _>>().map(Some)
}

fn separate(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

/// A cell of CSV, in quotes where it needs them.
fn quoted(out: &mut Vec<u8>, text: &str) {
    if !text.is_empty() && !text.contains(['"', ',', '\n', '\r']) {
        out.extend(text.bytes());
        return;
    }
    out.push(b'"');
    out.extend(text.replace('"', "\"\"").bytes());
    out.push(b'"');
}

/// Whether there is no value; a column of nothing but nulls does not count them.
fn is_null(column: &ArrayRef, row: usize) -> bool {
    column.is_null(row) || column.data_type().is_null()
}

/// A value as JSON.
///
/// # Errors
/// If it cannot be written.
pub fn json_of(column: &ArrayRef, row: usize) -> Result<String, Error> {
    let mut out = Vec::new();
    value(&mut out, column, row, false)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn value(out: &mut Vec<u8>, column: &ArrayRef, row: usize, is_json: bool) -> Result<(), Error> {
    if is_null(column, row) {
        out.extend(b"null");
        return Ok(());
    }
    match column.data_type() {
        DataType::Utf8 => text(out, column.as_string::<i32>().value(row), is_json),
        DataType::LargeUtf8 => text(out, column.as_string::<i64>().value(row), is_json),
        DataType::Utf8View => text(out, column.as_string_view().value(row), is_json),
        DataType::FixedSizeBinary(16) => {
            let id = Uuid::from_slice(column.as_fixed_size_binary().value(row)).unwrap_or_default();
            text(out, id.hyphenated().encode_lower(&mut Uuid::encode_buffer()), false);
        }
        DataType::FixedSizeBinary(_) => hex(out, column.as_fixed_size_binary().value(row)),
        DataType::Binary => hex(out, column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hex(out, column.as_binary::<i64>().value(row)),
        DataType::BinaryView => hex(out, column.as_binary_view().value(row)),
        DataType::Float32 => number(out, column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => number(out, column.as_primitive::<Float64Type>().value(row)),
        DataType::Timestamp(unit, zone) => match moment(column, row, *unit, zone.as_deref()) {
            Some(at) => text(out, &at.to_string(), false),
            None => text(out, &shown(column, row)?, false),
        },
        DataType::Boolean | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            out.extend(shown(column, row)?.bytes());
        }
        kind if kind.is_integer() => out.extend(shown(column, row)?.bytes()),
        DataType::List(_) => list(out, &column.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(out, &column.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(out, &column.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => object(out, fields, column.as_struct().columns(), row)?,
        DataType::Dictionary(..) => downcast_dictionary_array!(
            column => {
                let Some(key) = column.key(row) else {
                    out.extend(b"null");
                    return Ok(());
                };
                value(out, column.values(), key, is_json)?;
            }
            _ => text(out, &shown(column, row)?, false)
        ),
        _ => text(out, &shown(column, row)?, false),
    }
    Ok(())
}

fn list(out: &mut Vec<u8>, items: &ArrayRef) -> Result<(), Error> {
    out.push(b'[');
    for index in 0..items.len() {
        separate(out, index);
        value(out, items, index, false)?;
    }
    out.push(b']');
    Ok(())
}

fn object(out: &mut Vec<u8>, fields: &[FieldRef], columns: &[ArrayRef], row: usize) -> Result<(), Error> {
    out.push(b'{');
    for (index, (field, column)) in fields.iter().zip(columns).enumerate() {
        separate(out, index);
        text(out, field.name(), false);
        out.push(b':');
        value(out, column, row, false)?;
    }
    out.push(b'}');
    Ok(())
}

/// A text as JSON, or the JSON that it is, in one line and such that readers can read it.
fn text(out: &mut Vec<u8>, text: &str, is_json: bool) {
    // Writing into memory does not fail.
    if !is_json || serde_json::from_str::<JsonValidator>(text).is_err() {
        let _ = serde_json::to_writer(out, text);
    } else if text.contains(['\n', '\r']) {
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let _ = serde_json::to_writer(out, &value);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    text(out, &hex::encode(bytes), false);
}

/// The shortest decimal form that reads as the number.
fn number<F: Copy + Into<f64> + Serialize + std::fmt::Display>(out: &mut Vec<u8>, value: F) {
    if value.into().is_finite() {
        let _ = serde_json::to_writer(out, &value);
    } else {
        text(out, &value.to_string(), false);
    }
}

/// A time in UTC in whole microseconds, as nearly all are.
fn moment(column: &ArrayRef, row: usize, unit: TimeUnit, zone: Option<&str>) -> Option<Timestamp> {
    if !matches!(zone, Some("UTC" | "+00:00" | "Z")) {
        return None;
    }
    let micros = match unit {
        TimeUnit::Second => column
            .as_primitive::<TimestampSecondType>()
            .value(row)
            .checked_mul(1_000_000)?,
        TimeUnit::Millisecond => column
            .as_primitive::<TimestampMillisecondType>()
            .value(row)
            .checked_mul(1_000)?,
        TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => {
            let nanos = column.as_primitive::<TimestampNanosecondType>().value(row);
            (nanos.rem_euclid(1_000) == 0).then(|| nanos.div_euclid(1_000))?
        }
    };
    Some(Timestamp::from_micros(micros))
}

/// A value as Arrow shows it.
fn shown(column: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    let options = FormatOptions::new().with_display_error(true);
    Ok(ArrayFormatter::try_new(column.as_ref(), &options)?
        .value(row)
        .to_string())
}
