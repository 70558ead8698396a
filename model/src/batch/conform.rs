//! Checks whether foreign columns conform to a table's: whole, or row by row.
//!
//! # Numbers
//!
//! A number is finite. NaN and infinity are refused in every encoding and column: Parquet's statistics leave NaN out, Arrow
//! sorts it above every number, so a comparison would find such a row while it is in memory and no longer once it is in a
//! sealed file. A number that is finite and does not fit a column of 32 bits is refused for the same reason. −0.0 is stored as
//! 0.0, because Arrow sorts it below and other readers of the files do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_select::filter::filter;

use crate::flat_json_cache::FlatJsonCache;
use crate::{ColumnType, Table, TableColumn};

/// Why a batch is not one of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaViolation {
    /// A column is missing.
    #[error("column {0} is missing")]
    Missing(&'static str),
    /// A column has another type.
    #[error("column {column} is {found}, not {wanted}")]
    Type {
        /// The column.
        column: &'static str,
        /// Its type in the batch.
        found: String,
        /// The table's type.
        wanted: String,
    },
    /// A required column has nulls.
    #[error("column {0} has nulls")]
    Nulls(&'static str),
    /// A column that the table does not have.
    #[error("column {0} is not one of the table's")]
    Unknown(String),
    /// A value that a column of few words does not allow, or JSON that is not a flat object.
    #[error("column {column} holds {value:?}")]
    Value {
        /// The column.
        column: &'static str,
        /// The first bad value, shortened.
        value: String,
    },
    /// NaN or infinity.
    #[error("column {column} holds {value}, not a finite number")]
    NotFinite {
        /// The column.
        column: &'static str,
        /// The first bad number.
        value: String,
    },
}

/// The same rows under exactly the table's schema (column order and metadata), or the first reason why not.
///
/// # Errors
/// The first difference, by column.
pub fn conform(table: Table, batch: &RecordBatch) -> Result<RecordBatch, SchemaViolation> {
    let columns = arranged(table, batch)?;
    let bad = table.columns().iter().zip(&columns);
    let bad = bad.flat_map(|(column, array)| faults(table, column, array)).next();
    match bad {
        Some((_, reason)) => Err(reason),
        None => of_table(table, columns),
    }
}

/// The good rows under exactly the table's schema, and the bad ones by position, each with its first reason.
///
/// # Errors
/// If the columns are others.
pub fn split_conforming(
    table: Table,
    batch: &RecordBatch,
) -> Result<(RecordBatch, Vec<(usize, SchemaViolation)>), SchemaViolation> {
    let columns = arranged(table, batch)?;
    let mut bad = BTreeMap::new();
    for (column, array) in table.columns().iter().zip(&columns) {
        for (row, reason) in faults(table, column, array) {
            bad.entry(row).or_insert(reason);
        }
    }
    if bad.is_empty() {
        return Ok((of_table(table, columns)?, Vec::new()));
    }
    let good: BooleanArray = (0..batch.num_rows()).map(|row| Some(!bad.contains_key(&row))).collect();
    let kept = columns
        .iter()
        .map(|column| filter(column, &good))
        .collect::<Result<_, _>>();
    let kept = kept.map_err(|error| SchemaViolation::Unknown(error.to_string()))?;
    Ok((of_table(table, kept)?, bad.into_iter().collect()))
}

fn of_table(table: Table, columns: Vec<ArrayRef>) -> Result<RecordBatch, SchemaViolation> {
    RecordBatch::try_new(table.schema(), columns).map_err(|error| SchemaViolation::Unknown(error.to_string()))
}

/// The columns in the table's order and of its types, whatever they hold.
fn arranged(table: Table, batch: &RecordBatch) -> Result<Vec<ArrayRef>, SchemaViolation> {
    let schema = table.schema();
    if let Some(extra) = batch
        .schema()
        .fields()
        .iter()
        .find(|field| schema.index_of(field.name()).is_err())
    {
        return Err(SchemaViolation::Unknown(extra.name().clone()));
    }
    let mut columns = Vec::with_capacity(table.columns().len());
    for (column, field) in table.columns().iter().zip(schema.fields()) {
        let found = batch
            .column_by_name(column.name)
            .ok_or(SchemaViolation::Missing(column.name))?;
        if found.data_type() != field.data_type() {
            return Err(SchemaViolation::Type {
                column: column.name,
                found: found.data_type().to_string(),
                wanted: field.data_type().to_string(),
            });
        }
        columns.push(without_negative_zeros(found));
    }
    Ok(columns)
}

/// The words that a column allows; none where it allows any text.
pub(crate) fn allowed_words(table: Table, column: &str) -> Option<&'static [&'static str]> {
    match (table, column) {
        (Table::Logs, "level") => Some(&["debug", "info", "warn", "error"]),
        (Table::Traces | Table::Messages, "status") => Some(&["ok", "error"]),
        (Table::Messages, "direction") => Some(&["inbound", "outbound", "internal"]),
        (Table::Metrics, "type") => Some(&["counter", "gauge", "histogram"]),
        _ => None,
    }
}

/// The same numbers; adding 0.0 makes 0.0 of −0.0 and leaves all others as they are.
fn without_negative_zeros(array: &ArrayRef) -> ArrayRef {
    const NARROW: u32 = (-0.0_f32).to_bits();
    const WIDE: u64 = (-0.0_f64).to_bits();
    if let Some(narrow) = array.as_primitive_opt::<Float32Type>()
        && narrow.values().iter().any(|value| value.to_bits() == NARROW)
    {
        return Arc::new(narrow.unary::<_, Float32Type>(|value| value + 0.0));
    }
    if let Some(wide) = array.as_primitive_opt::<Float64Type>()
        && wide.values().iter().any(|value| value.to_bits() == WIDE)
    {
        return Arc::new(wide.unary::<_, Float64Type>(|value| value + 0.0));
    }
    Arc::clone(array)
}

/// Whether a column holds no NaN and no infinity; a null may look like one.
fn is_finite(array: &ArrayRef) -> bool {
    let narrow = array.as_primitive_opt::<Float32Type>();
    let wide = array.as_primitive_opt::<Float64Type>();
    narrow.is_none_or(|narrow| narrow.values().iter().all(|value| value.is_finite()))
        && wide.is_none_or(|wide| wide.values().iter().all(|value| value.is_finite()))
}

/// The number of a row, if it is not finite.
fn not_finite(array: &ArrayRef, row: usize) -> Option<f64> {
    let narrow = array.as_primitive_opt::<Float32Type>();
    let wide = array.as_primitive_opt::<Float64Type>();
    let value = match narrow {
        Some(narrow) => f64::from(narrow.value(row)),
        None => wide?.value(row),
    };
    (!value.is_finite()).then_some(value)
}

/// The rows in which a column holds what the table does not allow.
fn faults<'a>(
    table: Table,
    column: &'static TableColumn,
    array: &'a ArrayRef,
) -> Box<dyn Iterator<Item = (usize, SchemaViolation)> + 'a> {
    let lacking = !column.nullable && array.null_count() > 0;
    let words = allowed_words(table, column.name);
    let json = column.kind == ColumnType::Json;
    let numbers = !is_finite(array);
    if !lacking && words.is_none() && !json && !numbers {
        return Box::new(std::iter::empty());
    }
    let texts = array.as_string_opt::<i32>();
    let mut known = json.then(FlatJsonCache::take_thread_cache);
    let mut is_good = move |text: &str| {
        words.is_none_or(|words| words.contains(&text)) && known.as_mut().is_none_or(|known| known.check_flat(text))
    };
    Box::new((0..array.len()).filter_map(move |row| {
        if array.is_null(row) {
            return (!column.nullable).then_some((row, SchemaViolation::Nulls(column.name)));
        }
        if numbers {
            let (column, value) = (column.name, not_finite(array, row)?.to_string());
            return Some((row, SchemaViolation::NotFinite { column, value }));
        }
        let text = texts?.value(row);
        (!is_good(text)).then(|| {
            let value = text.chars().take(40).collect();
            let column = column.name;
            (row, SchemaViolation::Value { column, value })
        })
    }))
}
