//! Result types of queries.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::extension::Json;
use arrow_schema::{DataType, Field, Schema};
use datafusion::arrow::compute::take_record_batch;
use datafusion::execution::memory_pool::MemoryReservation;
use model::batch::row_json;
use model::{HumanDuration, MetricType};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::columns::{SqlColumn, columns_of};
use crate::row_writer::{RowFormat, RowWriter};
use crate::session_pool::QuerySession;

/// Rows as columns, in the order that was asked for. They count as memory of queries until it and its clones are dropped.
#[derive(Debug, Clone)]
pub struct ListAnswer {
    columns: Vec<SqlColumn>,
    rows: RecordBatch,
    /// Columns that objects leave out where they have no value.
    sparse: Vec<&'static str>,
    /// Where the next page begins; `None` after the last row.
    pub next_cursor: Option<String>,
    /// What the answer cost.
    pub stats: QueryStats,
    /// What the rows belong to, where JSON says it after them: the name of the field and its value.
    pub about: Option<(&'static str, Value)>,
    /// Other rows that belong to these, which JSON has in a field of this name after them.
    pub beside: Option<(&'static str, Box<Self>)>,
    /// A number that is another one when the same question has another answer; `None` where that cannot be told.
    pub tag: Option<u64>,
    _memory: Option<Arc<MemoryReservation>>,
}

impl ListAnswer {
    /// The rows of a batch.
    pub(crate) fn new(rows: &RecordBatch, next_cursor: Option<String>, stats: QueryStats) -> Result<Self, Error> {
        let (columns, schema) = columns_of(rows.schema_ref());
        Ok(Self {
            columns,
            rows: RecordBatch::try_new(schema, rows.columns().to_vec())?,
            sparse: Vec::new(),
            next_cursor,
            stats,
            about: None,
            beside: None,
            tag: None,
            _memory: None,
        })
    }

    /// With its rows counted as memory of queries for as long as it is held.
    pub(crate) fn reserve_memory(self, session: &QuerySession) -> Result<Self, Error> {
        let parts = std::iter::once(&self).chain(self.beside.as_ref().map(|(_, rows)| rows.as_ref()));
        let memory = session.reserve_answer(parts.map(|list| list.rows.get_array_memory_size()).sum())?;
        Ok(Self {
            _memory: Some(Arc::new(memory)),
            ..self
        })
    }

    /// The rows of these numbers, in their order.
    pub(crate) fn take(self, numbers: &UInt64Array) -> Result<Self, Error> {
        Ok(Self {
            rows: take_record_batch(&self.rows, numbers)?,
            ..self
        })
    }

    /// Its columns, and their cells.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&SqlColumn, &ArrayRef)> {
        self.columns.iter().zip(self.rows.columns())
    }

    /// With other cells in its columns, of the same types.
    pub(crate) fn with_cells(self, cells: Vec<ArrayRef>) -> Result<Self, Error> {
        Ok(Self {
            rows: RecordBatch::try_new(self.rows.schema(), cells)?,
            ..self
        })
    }

    /// With one more column.
    pub(crate) fn with_column(self, name: &str, column: ArrayRef) -> Result<Self, Error> {
        let field = Field::new(name, column.data_type().clone(), true);
        self.with_field(field, column)
    }

    /// With one more column of texts that are JSON.
    pub(crate) fn with_json_column(self, name: &str, column: ArrayRef) -> Result<Self, Error> {
        let field = Field::new(name, DataType::Utf8, true).with_extension_type(Json::default());
        self.with_field(field, column)
    }

    fn with_field(self, field: Field, column: ArrayRef) -> Result<Self, Error> {
        let (mut columns, schema) = (self.columns, self.rows.schema());
        columns.extend(columns_of(&Schema::new(vec![field.clone()])).0);
        let fields = schema.fields().iter().cloned().chain([Arc::new(field)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = self.rows.columns().iter().cloned().chain([column]);
        Ok(Self {
            columns,
            rows: RecordBatch::try_new(schema, arrays.collect())?,
            ..self
        })
    }

    /// With other rows that belong to these.
    pub(crate) fn with_beside(self, name: &'static str, rows: Self) -> Self {
        Self {
            beside: Some((name, Box::new(rows))),
            ..self
        }
    }

    /// With a field that JSON has after the rows.
    #[must_use]
    pub fn about(self, name: &'static str, value: Value) -> Self {
        Self {
            about: Some((name, value)),
            ..self
        }
    }

    /// With more columns that objects leave out where they have no value; the first is never one of them.
    pub(crate) fn with_sparse(mut self, sparse: Vec<&'static str>) -> Self {
        self.sparse.extend(sparse);
        self
    }

    /// A row as an object.
    fn object(&self, row: usize) -> Map<String, Value> {
        let mut object = row_json(&self.rows, row);
        object.retain(|name, value| !value.is_null() || !self.sparse.contains(&name.as_str()));
        object
    }

    /// Its rows as objects. Each adds to `memory` what it takes and what is written of it.
    pub(crate) fn into_objects(self, memory: &MemoryReservation) -> Result<JsonPage, Error> {
        let mut rows = Vec::with_capacity(self.rows.num_rows());
        for row in 0..self.rows.num_rows() {
            let object = self.object(row);
            memory.try_grow(2 * object_bytes(&object))?;
            rows.push(object);
        }
        Ok(JsonPage {
            rows,
            next_cursor: self.next_cursor,
            stats: self.stats,
            memory: AnswerMemory::default(),
        })
    }

    /// The rows, which can be written slice by slice.
    #[must_use]
    pub const fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// What writes them in a format.
    ///
    /// # Errors
    /// If the schema cannot be written.
    pub fn writer(&self, format: RowFormat) -> Result<RowWriter, Error> {
        RowWriter::new(format, &self.columns, &self.rows.schema(), "", &self.sparse)
    }

    /// What writes them after other rows, in an array of this name. Formats other than JSON have no place for them.
    pub fn write_beside(&self, name: &str, writer: &mut RowWriter) {
        writer.begin_array(name, &self.columns, &self.sparse);
    }
}

impl From<ListAnswer> for JsonPage {
    fn from(list: ListAnswer) -> Self {
        Self {
            rows: (0..list.rows.num_rows()).map(|row| list.object(row)).collect(),
            next_cursor: list.next_cursor,
            stats: list.stats,
            memory: AnswerMemory::default(),
        }
    }
}

/// What an answer has of the memory of queries, until this and its clones are dropped.
#[derive(Debug, Clone, Default)]
pub struct AnswerMemory {
    _held: Option<Arc<MemoryReservation>>,
}

/// About how many bytes an object takes.
pub(crate) fn object_bytes(object: &Map<String, Value>) -> usize {
    let member = |(key, value): (&String, &Value)| size_of::<(String, Value)>() + key.len() + value_bytes(value);
    object.iter().map(member).sum()
}

/// About how many bytes a value takes beside its own place.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| size_of::<Value>() + value_bytes(item)).sum(),
        Value::Object(members) => object_bytes(members),
    }
}

/// Rows as objects, in the order that was asked for.
#[derive(Debug, Clone, Default)]
pub struct JsonPage {
    /// One object per row, under the specification's column names.
    pub rows: Vec<Map<String, Value>>,
    /// Where the next page begins; `None` after the last row.
    pub next_cursor: Option<String>,
    /// What the answer cost.
    pub stats: QueryStats,
    /// What it has of the memory of queries; to be held until it has been sent.
    pub memory: AnswerMemory,
}

impl JsonPage {
    /// With so many bytes counted as memory of queries for as long as its memory is held.
    pub(crate) fn reserve_memory(self, session: &QuerySession, bytes: usize) -> Result<Self, Error> {
        let held = session.reserve_answer(bytes)?;
        Ok(Self {
            memory: AnswerMemory {
                _held: Some(Arc::new(held)),
            },
            ..self
        })
    }

    /// The first rows only, which says so if there are more.
    pub(crate) fn truncate_to(mut self, most: usize) -> Self {
        if self.rows.len() > most {
            self.rows.truncate(most);
            self.stats.rows = most as u64;
            self.stats.add_partial_reason(&format!(
                "there are more than these {most}, as many as limit lets through"
            ));
        }
        self
    }
}

/// The rows of batches as objects.
pub(crate) fn objects(batches: &[RecordBatch]) -> impl Iterator<Item = Map<String, Value>> {
    let of_batch = |batch| (0..RecordBatch::num_rows(batch)).map(|row| row_json(batch, row));
    batches.iter().flat_map(of_batch)
}

/// What an answer cost, and whether it is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueryStats {
    /// Data files of the table in the view.
    pub files_considered: u64,
    /// Of these, files that the catalogue or their index ruled out, or whose counts answered for them.
    pub files_pruned: u64,
    /// Files that were opened.
    pub files_read: u64,
    /// Bytes read from files and from their indexes.
    pub bytes_read: u64,
    /// Pages of files that were at hand and not read.
    pub cache_hits: u64,
    /// Rows in memory that were looked at.
    pub hot_rows: u64,
    /// Rows of files and of memory that a list of rows or a sum of metric points looked at; plans do not count them.
    pub rows_scanned: u64,
    /// Rows in the answer.
    pub rows: u64,
    /// Wall time, in milliseconds.
    pub ms: u64,
    /// Why rows are missing, if a part of the store cannot be read or what has no pages was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl QueryStats {
    /// Without what tells of rows outside a scope: files hold rows of many entities.
    pub(crate) fn of_scope(self) -> Self {
        Self {
            rows: self.rows,
            ms: self.ms,
            partial: self.partial,
            ..Self::default()
        }
    }

    /// What two looks at one view cost that were made one after the other; `self` from the beginning to the end.
    pub(crate) fn add_cost(self, part: Self) -> Self {
        Self {
            files_considered: self.files_considered + part.files_considered,
            files_pruned: self.files_pruned + part.files_pruned,
            files_read: self.files_read + part.files_read,
            bytes_read: self.bytes_read + part.bytes_read,
            cache_hits: self.cache_hits + part.cache_hits,
            hot_rows: self.hot_rows + part.hot_rows,
            rows_scanned: self.rows_scanned + part.rows_scanned,
            rows: self.rows + part.rows,
            ..self
        }
    }

    /// Adds a reason why rows are missing.
    pub(crate) fn add_partial_reason(&mut self, reason: &str) {
        self.partial = Some(match self.partial.take() {
            Some(others) => format!("{others}; {reason}"),
            None => reason.to_owned(),
        });
    }
}

/// The points of one metric, and what it is.
#[derive(Debug, Clone)]
pub struct MetricPage {
    /// The metric.
    pub name: String,
    /// What its values mean.
    pub metric_type: Option<MetricType>,
    /// The unit of its values (label `otel.unit`).
    pub unit: Option<String>,
    /// The keys of its labels, sorted, without those of one point.
    pub label_keys: Vec<String>,
    /// The points or buckets.
    pub list: ListAnswer,
}

/// How many rows there were over time.
#[derive(Debug, Clone)]
pub struct LogHistogram {
    /// The width of a bucket.
    pub interval: HumanDuration,
    /// One row per bucket and group.
    pub page: JsonPage,
}
