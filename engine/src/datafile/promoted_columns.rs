//! The columns of a data file: its table's, and behind them those that a spec promotes.
//!
//! Rows in the log and in memory have the table's columns alone. What a spec promotes is in their `promoted` as JSON, and becomes
//! columns when a row group is encoded: so the log, its replay and the rows in memory know nothing of specs, and a file's columns
//! are those that its spec had when the file was begun.
//!
//! # Invariants
//!
//! - All row groups of a file have the same columns, which its schema names: a file that is taken up again goes on with them.
//! - The values of a promoted column follow from `promoted` alone.
//!
//! # Not here
//!
//! Types and values of such columns: [`model::spec::columns`].

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use model::spec::columns::{schema, widened};
use model::spec::{FieldType, SpecColumn};
use model::{ColumnType, Table, TableColumn};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Encoding;
use parquet::file::metadata::FileMetaData;

use super::schema::WriteOptions;

/// What a spec adds to the columns of `messages`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PromotedColumns {
    columns: Vec<SpecColumn>,
    schema: SchemaRef,
}

impl PromotedColumns {
    /// `None` if a spec adds none.
    pub(crate) fn new(columns: &[SpecColumn]) -> Option<Arc<Self>> {
        (!columns.is_empty()).then(|| {
            Arc::new(Self {
                columns: columns.to_vec(),
                schema: schema(columns),
            })
        })
    }

    /// What a file of `table` has behind the table's columns.
    pub(super) fn of_file(table: Table, file: &FileMetaData) -> Result<Option<Arc<Self>>, String> {
        let base = table.columns().len();
        if file.schema_descr().num_columns() <= base {
            return Ok(None);
        }
        let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata());
        let schema = schema.map_err(|error| error.to_string())?;
        let column = |field: &Arc<arrow_schema::Field>| {
            SpecColumn::of_arrow(field)
                .ok_or_else(|| format!("its column {} is of {}", field.name(), field.data_type()))
        };
        let columns: Vec<_> = schema
            .fields()
            .iter()
            .skip(base)
            .map(column)
            .collect::<Result<_, _>>()?;
        Ok(Self::new(&columns))
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileColumns {
    pub(super) table: Table,
    promoted: Option<Arc<PromotedColumns>>,
}

impl From<Table> for FileColumns {
    fn from(table: Table) -> Self {
        Self { table, promoted: None }
    }
}

impl FileColumns {
    pub(super) fn new(table: Table, options: &WriteOptions) -> Self {
        Self {
            table,
            promoted: options.promoted.clone(),
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        match &self.promoted {
            None => self.table.schema(),
            Some(promoted) => Arc::clone(&promoted.schema),
        }
    }

    /// Those behind the table's.
    pub(super) fn promoted(&self) -> &[SpecColumn] {
        self.promoted.as_ref().map_or(&[], |promoted| &promoted.columns)
    }

    /// The columns of which [`super::dictionary_choice`] says whether they repeat themselves, by their places.
    pub(super) fn may_repeat(&self) -> impl Iterator<Item = (usize, TableColumn)> {
        let own = self.table.columns().iter().copied();
        let texts = self.promoted().iter().map(|column| TableColumn {
            name: "",
            kind: match column.kind {
                FieldType::String => ColumnType::Text,
                _ => ColumnType::Double,
            },
            nullable: true,
        });
        own.chain(texts).enumerate()
    }

    /// A batch under exactly this schema: readers add metadata to fields that writers refuse, and rows from memory lack what is
    /// promoted.
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let schema = self.schema();
        if !self.promoted().is_empty() && batch.num_columns() == self.table.columns().len() {
            return widened(batch, self.promoted(), &schema);
        }
        RecordBatch::try_new(schema, batch.columns().to_vec())
    }
}

/// The encoding of values of a promoted column that are in no dictionary.
pub(super) const fn encoding(kind: FieldType) -> Encoding {
    match kind {
        FieldType::Int | FieldType::Timestamp => Encoding::DELTA_BINARY_PACKED,
        FieldType::String | FieldType::Float | FieldType::Bool | FieldType::Uuid => Encoding::PLAIN,
    }
}

/// Whether a filter of a promoted column pays: one looks for a name, a number of an order, an id; not for a moment or a price.
pub(super) const fn has_filter(kind: FieldType) -> bool {
    matches!(kind, FieldType::String | FieldType::Int | FieldType::Uuid)
}
