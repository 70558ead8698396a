//! Converts rows to columns and back, in exactly the schemas of [`Table`].
//!
//! # Invariants
//!
//! - `rows → batch → rows` is the identity for records whose attributes are flat.
//! - [`conform()`] accepts a foreign batch only if every required column is there with the right type; it never guesses.

mod conform;

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType};
use serde_json::{Map, Value};

use crate::{
    Attributes, EntityId, FluxId, LogRecord, MessageDirection, MetricPoint, Span, SpanStatus, Table, TelemetryRecord,
    Timestamp, TraceId,
};

pub(crate) use conform::allowed_words;
pub use conform::{SchemaViolation, conform, split_conforming};

fn times<'a>(rows: impl ExactSizeIterator<Item = &'a Timestamp>) -> ArrayRef {
    let mut builder = TimestampMicrosecondBuilder::with_capacity(rows.len()).with_timezone("UTC");
    rows.for_each(|ts| builder.append_value(ts.micros()));
    Arc::new(builder.finish())
}

fn uuids<'a>(rows: impl ExactSizeIterator<Item = Option<&'a [u8; 16]>>) -> Result<ArrayRef, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(rows.len(), 16);
    for id in rows {
        match id {
            Some(bytes) => builder.append_value(bytes)?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn texts<T: AsRef<str>>(rows: impl ExactSizeIterator<Item = Option<T>>) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(rows.len(), rows.len() * 16);
    rows.for_each(|text| builder.append_option(text));
    Arc::new(builder.finish())
}

/// Log records as one batch.
///
/// # Errors
/// Only if the columns do not fit the schema, a defect here.
pub fn logs(rows: &[LogRecord]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        times(rows.iter().map(|row| &row.ts)),
        uuids(rows.iter().map(|row| Some(row.entity_id.as_bytes())))?,
        texts(rows.iter().map(|row| Some(&row.entity_name))),
        uuids(rows.iter().map(|row| row.flux_id.as_ref().map(|id| id.as_bytes())))?,
        texts(rows.iter().map(|row| Some(row.level.as_str()))),
        texts(rows.iter().map(|row| Some(&row.message))),
        texts(rows.iter().map(|row| Some(row.attributes.to_json()))),
    ];
    RecordBatch::try_new(Table::Logs.schema(), columns)
}

/// Spans as one batch.
///
/// # Errors
/// Only if the columns do not fit the schema, a defect here.
pub fn spans(rows: &[Span]) -> Result<RecordBatch, ArrowError> {
    let mut durations = Float32Builder::with_capacity(rows.len());
    rows.iter().for_each(|row| durations.append_value(row.duration_ms));
    let columns = vec![
        times(rows.iter().map(|row| &row.ts)),
        texts(rows.iter().map(|row| Some(row.trace_id.to_string()))),
        texts(rows.iter().map(|row| Some(row.span_id.to_string()))),
        texts(rows.iter().map(|row| row.parent_span_id.map(|id| id.to_string()))),
        uuids(rows.iter().map(|row| row.flux_id.as_ref().map(|id| id.as_bytes())))?,
        uuids(rows.iter().map(|row| Some(row.entity_id.as_bytes())))?,
        texts(rows.iter().map(|row| Some(&row.entity_name))),
        texts(rows.iter().map(|row| Some(&row.span_name))),
        Arc::new(durations.finish()),
        texts(rows.iter().map(|row| Some(row.status.as_str()))),
        texts(rows.iter().map(|row| Some(row.attributes.to_json()))),
    ];
    RecordBatch::try_new(Table::Traces.schema(), columns)
}

/// Metric points as one batch.
///
/// # Errors
/// Only if the columns do not fit the schema, a defect here.
pub fn metrics(rows: &[MetricPoint]) -> Result<RecordBatch, ArrowError> {
    let mut values = Float64Builder::with_capacity(rows.len());
    rows.iter().for_each(|row| values.append_value(row.value));
    let columns = vec![
        times(rows.iter().map(|row| &row.ts)),
        texts(rows.iter().map(|row| Some(&row.name))),
        uuids(rows.iter().map(|row| Some(row.entity_id.as_bytes())))?,
        texts(rows.iter().map(|row| Some(&row.entity_name))),
        texts(rows.iter().map(|row| Some(row.metric_type.as_str()))),
        Arc::new(values.finish()),
        texts(rows.iter().map(|row| Some(row.labels.to_json()))),
    ];
    RecordBatch::try_new(Table::Metrics.schema(), columns)
}

impl TelemetryRecord for LogRecord {
    const TABLE: Table = Table::Logs;
    fn ts(&self) -> Timestamp {
        self.ts
    }
    fn to_batch(rows: &[Self]) -> Result<RecordBatch, ArrowError> {
        logs(rows)
    }
}

impl TelemetryRecord for Span {
    const TABLE: Table = Table::Traces;
    fn ts(&self) -> Timestamp {
        self.ts
    }
    fn to_batch(rows: &[Self]) -> Result<RecordBatch, ArrowError> {
        spans(rows)
    }
}

impl TelemetryRecord for MetricPoint {
    const TABLE: Table = Table::Metrics;
    fn ts(&self) -> Timestamp {
        self.ts
    }
    fn to_batch(rows: &[Self]) -> Result<RecordBatch, ArrowError> {
        metrics(rows)
    }
}

/// A telemetry message that could not be decoded.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// When it was given up.
    pub ts: Timestamp,
    /// The subject or path it came by.
    pub subject: String,
    /// Why it could not be stored.
    pub reason: String,
    /// What it said it was.
    pub content_type: Option<String>,
    /// Its headers.
    pub headers: Attributes,
    /// The payload as it came.
    pub payload: Vec<u8>,
}

/// Dead letters as one batch.
///
/// # Errors
/// Only if the columns do not fit the schema, a defect here.
pub fn dead_letters(rows: &[DeadLetter]) -> Result<RecordBatch, ArrowError> {
    let mut payloads = BinaryBuilder::new();
    rows.iter().for_each(|row| payloads.append_value(&row.payload));
    let columns = vec![
        times(rows.iter().map(|row| &row.ts)),
        texts(rows.iter().map(|row| Some(&row.subject))),
        texts(rows.iter().map(|row| Some(&row.reason))),
        texts(rows.iter().map(|row| row.content_type.as_ref())),
        texts(rows.iter().map(|row| Some(row.headers.to_json()))),
        Arc::new(payloads.finish()) as ArrayRef,
    ];
    debug_assert!(columns.iter().all(|column| column.len() == rows.len()));
    RecordBatch::try_new(Table::DeadLetters.schema(), columns)
}

/// A business message as it is stored.
#[derive(Debug, Clone)]
pub struct MessageRow {
    /// When it was made.
    pub ts: Timestamp,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// The business signal.
    pub flux_id: FluxId,
    /// The Rack that sent it.
    pub entity_id: EntityId,
    /// Its name.
    pub entity_name: String,
    /// The gear that sent it.
    pub src_gear_id: String,
    /// The gear that it is for, where that is known.
    pub dst_gear_id: Option<String>,
    /// What kind of message it is.
    pub msg_type: String,
    /// Which way it went.
    pub direction: MessageDirection,
    /// Whether it could be read.
    pub status: SpanStatus,
    /// All of it, in CBOR as it was sent.
    pub raw_msg: Vec<u8>,
    /// What its spec takes out of it.
    pub promoted: Attributes,
}

/// Business messages as one batch.
///
/// # Errors
/// Only if the columns do not fit the schema, a defect here.
pub fn messages(rows: &[MessageRow]) -> Result<RecordBatch, ArrowError> {
    let mut raw = BinaryBuilder::new();
    rows.iter().for_each(|row| raw.append_value(&row.raw_msg));
    let columns = vec![
        times(rows.iter().map(|row| &row.ts)),
        texts(rows.iter().map(|row| Some(row.trace_id.to_string()))),
        uuids(rows.iter().map(|row| Some(row.flux_id.as_bytes())))?,
        uuids(rows.iter().map(|row| Some(row.entity_id.as_bytes())))?,
        texts(rows.iter().map(|row| Some(&row.entity_name))),
        texts(rows.iter().map(|row| Some(&row.src_gear_id))),
        texts(rows.iter().map(|row| row.dst_gear_id.as_ref())),
        texts(rows.iter().map(|row| Some(&row.msg_type))),
        texts(rows.iter().map(|row| Some(row.direction.as_str()))),
        texts(rows.iter().map(|row| Some(row.status.as_str()))),
        Arc::new(raw.finish()) as ArrayRef,
        texts(rows.iter().map(|row| Some(row.promoted.to_json()))),
    ];
    RecordBatch::try_new(Table::Messages.schema(), columns)
}

/// The least and greatest `ts` of a batch of any table; `None` when it is empty.
#[must_use]
pub fn time_range(batch: &RecordBatch) -> Option<(Timestamp, Timestamp)> {
    let ts = batch.column(0).as_primitive_opt::<TimestampMicrosecondType>()?;
    let min = ts.values().iter().min()?;
    let max = ts.values().iter().max()?;
    Some((Timestamp::from_micros(*min), Timestamp::from_micros(*max)))
}

/// The bytes that rows take, without what their buffers share or spare.
#[must_use]
pub fn slice_bytes(batch: &RecordBatch) -> usize {
    let of_column = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    batch.columns().iter().map(of_column).sum()
}

/// One row of any batch as a JSON object under the columns' names: times as RFC 3339, UUIDs as text, JSON columns as
/// objects, nulls as `null`, binary as lower-case hex. Also takes lists and the view and large variants that query plans make.
#[must_use]
pub fn row_json(batch: &RecordBatch, row: usize) -> Map<String, Value> {
    let schema = batch.schema_ref();
    let mut object = Map::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        object.insert(field.name().clone(), value_json(field.name(), column, row));
    }
    object
}

/// The columns that hold JSON text.
fn is_json(name: &str) -> bool {
    matches!(name, "attributes" | "labels" | "promoted" | "headers")
}

fn value_json(name: &str, column: &ArrayRef, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Timestamp(_, _) => column
            .as_primitive_opt::<TimestampMicrosecondType>()
            .map_or(Value::Null, |ts| {
                Timestamp::from_micros(ts.value(row)).to_string().into()
            }),
        DataType::FixedSizeBinary(16) => {
            let bytes = column.as_fixed_size_binary().value(row);
            uuid::Uuid::from_slice(bytes).map_or(Value::Null, |id| id.to_string().into())
        }
        DataType::Utf8 => text_json(name, column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text_json(name, column.as_string::<i64>().value(row)),
        DataType::Utf8View => text_json(name, column.as_string_view().value(row)),
        DataType::Float32 => float32_json(column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
        }
        DataType::Int64 => column.as_primitive::<arrow_array::types::Int64Type>().value(row).into(),
        DataType::UInt64 => column
            .as_primitive::<arrow_array::types::UInt64Type>()
            .value(row)
            .into(),
        DataType::Binary => crate::hex::encode(column.as_binary::<i32>().value(row)).into(),
        DataType::BinaryView => crate::hex::encode(column.as_binary_view().value(row)).into(),
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            (0..items.len()).map(|item| value_json(name, &items, item)).collect()
        }
        _ => Value::Null,
    }
}

fn text_json(name: &str, text: &str) -> Value {
    if is_json(name) {
        return serde_json::from_str(text).unwrap_or_else(|_| text.into());
    }
    text.into()
}

/// The shortest decimal form of the 32-bit value, so that 0.1 shows as 0.1.
fn float32_json(value: f32) -> Value {
    let shortest = value.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(value));
    serde_json::Number::from_f64(shortest).map_or_else(|| value.to_string().into(), Value::Number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Level;

    fn log(n: i64) -> LogRecord {
        LogRecord {
            ts: Timestamp::from_micros(1_700_000_000_000_000 + n),
            entity_id: EntityId::for_name("rack-a"),
            entity_name: "rack-a".into(),
            flux_id: (n % 2 == 0).then(|| FluxId::at(Timestamp::from_micros(n), [1; 10])),
            level: Level::Warn,
            message: format!("line {n}"),
            attributes: Attributes::new().with("n", n),
        }
    }

    #[test]
    fn a_batch_gives_its_rows_back_as_the_records_they_were() {
        let rows: Vec<_> = (0..10).map(log).collect();
        let batch = LogRecord::to_batch(&rows).unwrap();
        let back: Vec<LogRecord> = (0..10)
            .map(|row| serde_json::from_value(Value::Object(row_json(&batch, row))).unwrap())
            .collect();
        assert_eq!(rows, back);
        assert_eq!(time_range(&batch), Some((rows[0].ts, rows[9].ts)));
    }

    #[test]
    fn a_foreign_batch_conforms_in_any_column_order_and_is_refused_by_name() {
        let batch = LogRecord::to_batch(&[log(1)]).unwrap();
        let reversed = batch.project(&[6, 5, 4, 3, 2, 1, 0]).unwrap();
        assert_eq!(conform(Table::Logs, &reversed).unwrap(), batch);
        let missing = batch.project(&[0, 1, 2, 3, 4, 6]).unwrap();
        assert_eq!(conform(Table::Logs, &missing), Err(SchemaViolation::Missing("message")));
        assert!(conform(Table::Metrics, &batch).is_err());
    }

    #[test]
    fn f32_values_show_their_shortest_form() {
        assert_eq!(float32_json(0.1), serde_json::json!(0.1));
    }
}
