//! The tables and their columns, as data: the only place that knows names, order and types.
//!
//! # Columns
//!
//! | [`ColumnType`] | Arrow | Parquet (see `engine`) |
//! |---|---|---|
//! | `Time` | Timestamp(µs, UTC) | INT64 TIMESTAMP(MICROS, adjusted) |
//! | `Uuid` | FixedSizeBinary(16), extension `arrow.uuid` | FLBA(16) UUID |
//! | `Text` | Utf8 | BYTE_ARRAY UTF8 |
//! | `Word` | Utf8 | BYTE_ARRAY UTF8, dictionary-encoded |
//! | `Json` | Utf8 | BYTE_ARRAY JSON (or UTF8 with `json_type = "string"`) |
//! | `Float` / `Double` | Float32 / Float64 | FLOAT / DOUBLE |
//! | `Blob` | Binary | BYTE_ARRAY |
//!
//! # Invariants
//!
//! - The first column is always `ts`. Field ids are 1-based positions and never change meaning.
//! - Table numbers are stored in the log and are never reused.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use arrow_schema::extension::Uuid as UuidExtension;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::BadId;

/// How a column is stored; see the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the module's table says what each is")]
pub enum ColumnType {
    Time,
    Uuid,
    Text,
    Word,
    Json,
    Float,
    Double,
    Blob,
}

/// One column of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableColumn {
    /// The specification's name.
    pub name: &'static str,
    /// How it is stored.
    pub kind: ColumnType,
    /// Whether a row may lack it.
    pub nullable: bool,
}

/// The stored tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// Log records.
    Logs,
    /// Trace spans.
    Traces,
    /// Metric points.
    Metrics,
    /// Telemetry that could not be decoded, with the reason.
    DeadLetters,
    /// Business messages.
    Messages,
}

const fn col(name: &'static str, kind: ColumnType) -> TableColumn {
    TableColumn {
        name,
        kind,
        nullable: false,
    }
}

const fn opt(name: &'static str, kind: ColumnType) -> TableColumn {
    TableColumn {
        name,
        kind,
        nullable: true,
    }
}

const LOGS: &[TableColumn] = &[
    col("ts", ColumnType::Time),
    col("entity_id", ColumnType::Uuid),
    col("entity_name", ColumnType::Word),
    opt("flux_id", ColumnType::Uuid),
    col("level", ColumnType::Word),
    col("message", ColumnType::Text),
    col("attributes", ColumnType::Json),
];

const TRACES: &[TableColumn] = &[
    col("ts", ColumnType::Time),
    col("trace_id", ColumnType::Text),
    col("span_id", ColumnType::Text),
    opt("parent_span_id", ColumnType::Text),
    opt("flux_id", ColumnType::Uuid),
    col("entity_id", ColumnType::Uuid),
    col("entity_name", ColumnType::Word),
    col("span_name", ColumnType::Word),
    col("duration_ms", ColumnType::Float),
    col("status", ColumnType::Word),
    col("attributes", ColumnType::Json),
];

const METRICS: &[TableColumn] = &[
    col("ts", ColumnType::Time),
    col("name", ColumnType::Word),
    col("entity_id", ColumnType::Uuid),
    col("entity_name", ColumnType::Word),
    col("type", ColumnType::Word),
    col("value", ColumnType::Double),
    col("labels", ColumnType::Json),
];

const DEAD_LETTERS: &[TableColumn] = &[
    col("ts", ColumnType::Time),
    col("subject", ColumnType::Text),
    col("reason", ColumnType::Text),
    opt("content_type", ColumnType::Word),
    col("headers", ColumnType::Json),
    col("payload", ColumnType::Blob),
];

const MESSAGES: &[TableColumn] = &[
    col("ts", ColumnType::Time),
    col("trace_id", ColumnType::Text),
    col("flux_id", ColumnType::Uuid),
    col("entity_id", ColumnType::Uuid),
    col("entity_name", ColumnType::Word),
    col("src_gear_id", ColumnType::Word),
    opt("dst_gear_id", ColumnType::Word),
    col("msg_type", ColumnType::Word),
    col("direction", ColumnType::Word),
    col("status", ColumnType::Word),
    col("raw_msg", ColumnType::Blob),
    col("promoted", ColumnType::Json),
];

impl Table {
    /// Every table, in the order of their stored numbers.
    pub const ALL: [Self; 5] = [
        Self::Logs,
        Self::Traces,
        Self::Metrics,
        Self::DeadLetters,
        Self::Messages,
    ];

    /// The table's name, which is also its folder under `telemetry/` and the prefix of its files; messages have a tree and
    /// names of their own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::DeadLetters => "dead_letters",
            Self::Messages => "messages",
        }
    }

    /// The stored number. Never reused, never changed.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Logs => 1,
            Self::Traces => 2,
            Self::Metrics => 3,
            Self::DeadLetters => 4,
            Self::Messages => 5,
        }
    }

    /// The table with a stored number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.number() == number)
    }

    /// Whether its rows are telemetry that anybody may send: on `flux.telemetry.`, or over HTTP.
    #[must_use]
    pub const fn is_telemetry(self) -> bool {
        matches!(self, Self::Logs | Self::Traces | Self::Metrics)
    }

    /// The columns, in stored order.
    #[must_use]
    pub const fn columns(self) -> &'static [TableColumn] {
        match self {
            Self::Logs => LOGS,
            Self::Traces => TRACES,
            Self::Metrics => METRICS,
            Self::DeadLetters => DEAD_LETTERS,
            Self::Messages => MESSAGES,
        }
    }

    /// The JSON column that takes notes about a row, such as `_ts_original`.
    #[must_use]
    pub const fn notes_column(self) -> &'static str {
        match self {
            Self::Logs | Self::Traces => "attributes",
            Self::Metrics => "labels",
            Self::DeadLetters => "headers",
            Self::Messages => "promoted",
        }
    }

    /// The Arrow schema: what travels, what is logged, what is queried.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        static SCHEMAS: LazyLock<[SchemaRef; 5]> = LazyLock::new(|| Table::ALL.map(|table| Arc::new(build(table))));
        Arc::clone(&SCHEMAS[self.number() as usize - 1])
    }
}

fn build(table: Table) -> Schema {
    let fields = table.columns().iter().zip(1u32..).map(|(column, id)| {
        let kind = match column.kind {
            ColumnType::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ColumnType::Uuid => DataType::FixedSizeBinary(16),
            ColumnType::Text | ColumnType::Word | ColumnType::Json => DataType::Utf8,
            ColumnType::Float => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::Blob => DataType::Binary,
        };
        let mut field = Field::new(column.name, kind, column.nullable)
            .with_metadata([("PARQUET:field_id".to_owned(), id.to_string())].into());
        if column.kind == ColumnType::Uuid {
            field = field.with_extension_type(UuidExtension);
        }
        field
    });
    Schema::new(fields.collect::<Vec<_>>())
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Table {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::ALL
            .into_iter()
            .find(|table| table.name() == text)
            .ok_or_else(|| BadId {
                what: "a table: logs, traces, metrics, dead_letters or messages",
                text: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_begins_with_ts_and_numbers_its_fields_from_one() {
        for table in Table::ALL {
            let schema = table.schema();
            assert_eq!(schema.field(0).name(), "ts");
            for (field, id) in schema.fields().iter().zip(1..) {
                assert_eq!(field.metadata().get("PARQUET:field_id"), Some(&id.to_string()));
            }
            assert_eq!(Table::from_number(table.number()), Some(table));
            assert!(schema.index_of(table.notes_column()).is_ok());
        }
    }
}
