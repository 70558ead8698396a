//! Promoted fields as columns: their types, their numbers in files, and their values out of `promoted`.
//!
//! | [`FieldType`] | Arrow | Parquet (see `engine`) |
//! |---|---|---|
//! | `string` | Utf8 | BYTE_ARRAY UTF8 |
//! | `int` | Int64 | INT64 |
//! | `float` | Float64 | DOUBLE |
//! | `bool` | Boolean | BOOLEAN |
//! | `timestamp` | Timestamp(µs, UTC) | INT64 TIMESTAMP(MICROS, adjusted) |
//! | `uuid` | FixedSizeBinary(16), extension `arrow.uuid` | FLBA(16) UUID |
//!
//! # Invariants
//!
//! - A field's number follows from its name alone, and is none of the numbers of a table's own columns.
//! - The values of a column are those of the JSON in `promoted`, in every file and in memory: a value that is missing there, or
//!   is not of the column's type, is null.

use std::str::FromStr as _;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::extension::Uuid as UuidExtension;
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::promote::of_type;
use super::{FieldType, SpecField};
use crate::{Table, Timestamp};

/// The least number of a promoted field in files.
const FIRST_ID: u32 = 1000;
/// The metadata key of a field's number.
const FIELD_ID: &str = "PARQUET:field_id";

/// A column that a spec adds to those of `messages`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SpecColumn {
    /// Its name.
    pub name: String,
    /// What its values are.
    #[serde(rename = "type")]
    pub kind: FieldType,
}

impl SpecColumn {
    /// The column of a field.
    #[must_use]
    pub fn of(field: &SpecField) -> Self {
        Self {
            name: field.name.clone(),
            kind: field.kind,
        }
    }

    /// The column that a field of a file's schema is, if it is one.
    #[must_use]
    pub fn of_arrow(field: &ArrowField) -> Option<Self> {
        let kind = match field.data_type() {
            DataType::Utf8 => FieldType::String,
            DataType::Int64 => FieldType::Int,
            DataType::Float64 => FieldType::Float,
            DataType::Boolean => FieldType::Bool,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => FieldType::Timestamp,
            DataType::FixedSizeBinary(16) => FieldType::Uuid,
            _ => return None,
        };
        Some(Self {
            name: field.name().clone(),
            kind,
        })
    }

    fn arrow(&self) -> ArrowField {
        let kind = match self.kind {
            FieldType::String => DataType::Utf8,
            FieldType::Int => DataType::Int64,
            FieldType::Float => DataType::Float64,
            FieldType::Bool => DataType::Boolean,
            FieldType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            FieldType::Uuid => DataType::FixedSizeBinary(16),
        };
        let id = field_id(self).to_string();
        let field = ArrowField::new(&self.name, kind, true).with_metadata([(FIELD_ID.to_owned(), id)].into());
        if self.kind == FieldType::Uuid {
            field.with_extension_type(UuidExtension)
        } else {
            field
        }
    }
}

/// A column's number in files: of its name alone.
pub(super) fn field_id(column: &SpecColumn) -> u32 {
    let digest = Sha256::digest(column.name.as_bytes());
    let hash = digest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    FIRST_ID + hash % (i32::MAX.cast_unsigned() - FIRST_ID)
}

/// The schema of `messages` with these columns behind its own.
#[must_use]
pub fn schema(columns: &[SpecColumn]) -> SchemaRef {
    let base = Table::Messages.schema();
    if columns.is_empty() {
        return base;
    }
    let more = columns.iter().map(|column| Arc::new(column.arrow()));
    Arc::new(Schema::new(
        base.fields().iter().cloned().chain(more).collect::<Vec<_>>(),
    ))
}

/// Rows of `messages` with these columns behind their own.
///
/// # Errors
/// If they are no rows of `messages`.
pub fn widened(rows: &RecordBatch, columns: &[SpecColumn], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let at = Table::Messages.schema().index_of(Table::Messages.notes_column())?;
    let promoted = rows.columns().get(at).and_then(|column| column.as_string_opt::<i32>());
    let promoted = promoted.ok_or_else(|| ArrowError::SchemaError("promoted is not a text".to_owned()))?;
    let mut all = rows.columns().to_vec();
    all.extend(values(promoted, columns)?);
    RecordBatch::try_new(Arc::clone(schema), all)
}

/// The values of columns, out of the JSON of `promoted`.
///
/// # Errors
/// Only if a builder fails, a defect.
pub fn values(promoted: &StringArray, columns: &[SpecColumn]) -> Result<Vec<ArrayRef>, ArrowError> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut builders: Vec<SpecColumnBuilder> = columns
        .iter()
        .map(|column| SpecColumnBuilder::of(column, promoted.len()))
        .collect();
    for row in 0..promoted.len() {
        let object = if promoted.is_null(row) {
            None
        } else {
            serde_json::from_str::<Map<String, Value>>(promoted.value(row)).ok()
        };
        for (column, builder) in columns.iter().zip(&mut builders) {
            let value = object.as_ref().and_then(|object| object.get(&column.name));
            builder.append(value.and_then(|value| of_type(column.kind, value)))?;
        }
    }
    Ok(builders.into_iter().map(SpecColumnBuilder::finish).collect())
}

enum SpecColumnBuilder {
    String(StringBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

impl SpecColumnBuilder {
    fn of(column: &SpecColumn, rows: usize) -> Self {
        match column.kind {
            FieldType::String => Self::String(StringBuilder::with_capacity(rows, rows * 16)),
            FieldType::Int => Self::Int(Int64Builder::with_capacity(rows)),
            FieldType::Float => Self::Float(Float64Builder::with_capacity(rows)),
            FieldType::Bool => Self::Bool(BooleanBuilder::with_capacity(rows)),
            FieldType::Timestamp => {
                Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC"))
            }
            FieldType::Uuid => Self::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16)),
        }
    }

    /// Appends a value that is of the column's type.
    fn append(&mut self, value: Option<Value>) -> Result<(), ArrowError> {
        match self {
            Self::String(builder) => builder.append_option(value.as_ref().and_then(Value::as_str)),
            Self::Int(builder) => builder.append_option(value.as_ref().and_then(Value::as_i64)),
            Self::Float(builder) => builder.append_option(value.as_ref().and_then(Value::as_f64)),
            Self::Bool(builder) => builder.append_option(value.as_ref().and_then(Value::as_bool)),
            Self::Timestamp(builder) => {
                let at = value.as_ref().and_then(Value::as_str);
                let at = at.and_then(|text| Timestamp::from_str(text).ok());
                builder.append_option(at.map(Timestamp::micros));
            }
            Self::Uuid(builder) => {
                let id = value.as_ref().and_then(Value::as_str);
                match id.and_then(|text| Uuid::try_parse(text).ok()) {
                    Some(id) => builder.append_value(id.as_bytes())?,
                    None => builder.append_null(),
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::String(mut builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder) => Arc::new(builder.finish()),
            Self::Uuid(mut builder) => Arc::new(builder.finish()),
        }
    }
}
