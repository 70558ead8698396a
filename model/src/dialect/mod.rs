//! SQL dialects of external readers: the statements that read the data files with the right types.
//!
//! | dialect | what is printed |
//! |---|---|
//! | `duckdb` | views, and macros for a range of time |
//! | `clickhouse` | views over `file()`, with types |
//! | `spark` | Python: readers with a schema, without which Spark refuses UUID columns, and finds no files |
//! | `trino` | external tables of the Hive connector |
//! | `polars` | Python: lazy frames, ids as text |
//!
//! # Invariants
//!
//! - Columns come from [`Table::columns`] alone.
//!
//! # Not here
//!
//! Which files there are (`engine`); files of lines, except in [`duckdb`].

pub mod duckdb;
pub mod specs;

use std::fmt::Write as _;
use std::str::FromStr;

use crate::{ColumnType, Table, TableColumn};

/// An outside reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are names")]
pub enum SchemaDialect {
    Duckdb,
    Clickhouse,
    Spark,
    Trino,
    Polars,
}

/// Data files of one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataFileSet<'a> {
    /// Parquet files, by their pattern.
    Parquet(&'a str),
    /// Files of lines, by their pattern.
    Lines(&'a str),
    /// Files that the reader does not read, and why: whoever asks is told.
    Unreadable(&'a str),
}

/// Not the name of a dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a dialect: duckdb, clickhouse, spark, trino or polars")]
pub struct BadDialect(String);

impl SchemaDialect {
    /// Every dialect.
    pub const ALL: [Self; 5] = [Self::Duckdb, Self::Clickhouse, Self::Spark, Self::Trino, Self::Polars];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Duckdb => "duckdb",
            Self::Clickhouse => "clickhouse",
            Self::Spark => "spark",
            Self::Trino => "trino",
            Self::Polars => "polars",
        }
    }

    /// The statements by which this reader opens `tables` of the store in `store`, a folder or a URL.
    #[must_use]
    pub fn schema(self, tables: &[Table], store: &str) -> String {
        let store = store.trim_end_matches('/');
        let mut out = self.head().to_owned();
        for table in tables {
            out.push('\n');
            out.push_str(&match self {
                Self::Duckdb => duckdb::views(
                    *table,
                    &[DataFileSet::Parquet(&pattern(*table, &duckdb::literal(store)))],
                ),
                Self::Clickhouse => clickhouse(*table, store),
                Self::Spark => spark(*table, store),
                Self::Trino => trino(*table, store),
                Self::Polars => polars(*table, store),
            });
        }
        out
    }

    const fn head(self) -> &'static str {
        match self {
            Self::Duckdb => {
                "-- DuckDB refuses a pattern without files: leave out tables without rows, or use platform.sql of the store.\n"
            }
            Self::Clickhouse => "-- A server reads files below its user_files_path; clickhouse-local anywhere.\n",
            Self::Spark => "# In pyspark; ids are binary: hex(entity_id).\n",
            Self::Trino => {
                "-- A catalog of the Hive connector with hive.recursive-directories=true and hive.timestamp-precision=MICROSECONDS;\n\
                 -- the store is a URL (--store file:///srv/platform/data); times are UTC, ids are binary: to_hex(entity_id).\n"
            }
            Self::Polars => {
                "# Make a frame anew for each look: it remembers footers, and fails once such a file was sealed. Ids are hexadecimal text.\n\
                 import polars as pl\n"
            }
        }
    }
}

impl FromStr for SchemaDialect {
    type Err = BadDialect;

    fn from_str(name: &str) -> Result<Self, BadDialect> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| BadDialect(name.to_owned()))
    }
}

/// Where a table's files lie in a store.
fn folder(table: Table, store: &str) -> String {
    match table {
        Table::Messages => format!("{store}/messages"),
        _ => format!("{store}/telemetry/{}", table.name()),
    }
}

fn pattern(table: Table, store: &str) -> String {
    format!("{}/**/*.parquet", folder(table, store))
}

fn list(table: Table, separator: &str, text: impl Fn(&TableColumn) -> String) -> String {
    table.columns().iter().map(text).collect::<Vec<_>>().join(separator)
}

fn clickhouse(table: Table, store: &str) -> String {
    let columns = list(table, ", ", |column| {
        let kind = match column.kind {
            ColumnType::Time => r"DateTime64(6, \'UTC\')",
            ColumnType::Uuid => "UUID",
            ColumnType::Text | ColumnType::Word | ColumnType::Json | ColumnType::Blob => "String",
            ColumnType::Float => "Float32",
            ColumnType::Double => "Float64",
        };
        if column.nullable {
            format!("{} Nullable({kind})", column.name)
        } else {
            format!("{} {kind}", column.name)
        }
    });
    let files = pattern(table, store).replace('\\', r"\\").replace('\'', r"\'");
    format!(
        "CREATE OR REPLACE VIEW {} AS SELECT * FROM file('{files}', Parquet, '{columns}');\n",
        table.name()
    )
}

fn spark(table: Table, store: &str) -> String {
    let columns = list(table, ", ", |column| {
        let kind = match column.kind {
            ColumnType::Time => "timestamp",
            ColumnType::Uuid | ColumnType::Blob => "binary",
            ColumnType::Text | ColumnType::Word | ColumnType::Json => "string",
            ColumnType::Float => "float",
            ColumnType::Double => "double",
        };
        format!("{} {kind}", column.name)
    });
    let name = table.name();
    format!(
        "{name} = spark.read.schema(\"{columns}\").option(\"recursiveFileLookup\", \"true\").parquet({})\n\
         {name}.createOrReplaceTempView(\"{name}\")\n",
        python(&folder(table, store))
    )
}

fn trino(table: Table, store: &str) -> String {
    let mut out = format!("CREATE TABLE {} (\n", table.name());
    let columns = list(table, ",\n", |column| {
        let kind = match column.kind {
            ColumnType::Time => "timestamp(6)",
            ColumnType::Uuid | ColumnType::Blob => "varbinary",
            ColumnType::Text | ColumnType::Word | ColumnType::Json => "varchar",
            ColumnType::Float => "real",
            ColumnType::Double => "double",
        };
        format!("    {} {kind}", column.name)
    });
    let location = folder(table, store).replace('\'', "''");
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{columns}\n) WITH (external_location = '{location}', format = 'PARQUET');"
    );
    out
}

fn polars(table: Table, store: &str) -> String {
    let name = table.name();
    let files = python(&pattern(table, store));
    let ids: Vec<&TableColumn> = table
        .columns()
        .iter()
        .filter(|column| column.kind == ColumnType::Uuid)
        .collect();
    let mut out = format!("{name} = pl.scan_parquet({files}, hive_partitioning=False)");
    if !ids.is_empty() {
        let names = ids
            .iter()
            .map(|column| format!("\"{}\"", column.name))
            .collect::<Vec<_>>();
        let _ = write!(out, ".with_columns(pl.col({}).bin.encode(\"hex\"))", names.join(", "));
    }
    out.push('\n');
    out
}

/// A string literal of Python.
fn python(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', r"\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_dialect_names_every_column_of_every_table() {
        for dialect in SchemaDialect::ALL {
            assert_eq!(dialect.name().parse(), Ok(dialect));
            let text = dialect.schema(&Table::ALL, "data");
            for table in Table::ALL {
                assert!(text.contains(&folder(table, "data")), "{}: {table:?}", dialect.name());
                // polars takes names and types from the files.
                let named = |column: &&TableColumn| dialect != SchemaDialect::Polars || column.kind == ColumnType::Uuid;
                for column in table.columns().iter().filter(named) {
                    assert!(text.contains(column.name), "{}: {}", dialect.name(), column.name);
                }
            }
        }
        assert!("postgres".parse::<SchemaDialect>().is_err());
    }

    #[test]
    fn a_path_with_letters_of_patterns_and_literals_means_itself() {
        let text = SchemaDialect::Duckdb.schema(&[Table::Logs], "/srv/it's [old]*");
        assert!(
            text.contains("'/srv/it''s [[]old][*]/telemetry/logs/**/*.parquet'"),
            "{text}"
        );
        let text = SchemaDialect::Clickhouse.schema(&[Table::Logs], r"/srv/it's");
        assert!(text.contains(r"'/srv/it\'s/telemetry"), "{text}");
        let text = SchemaDialect::Polars.schema(&[Table::Logs], "a\"b\\");
        assert!(text.contains(r#""a\"b\\/telemetry"#), "{text}");
    }

    #[test]
    fn a_table_without_files_is_an_empty_view_and_one_of_unreadable_files_says_so() {
        let none = duckdb::views(Table::Metrics, &[]);
        assert!(
            none.contains("NULL::TIMESTAMP WITH TIME ZONE AS ts") && none.contains("WHERE false"),
            "{none}"
        );
        let unreadable = duckdb::views(Table::Metrics, &[DataFileSet::Unreadable("snappy")]);
        assert!(
            unreadable.contains("(SELECT error('snappy') AS e) WHERE e"),
            "{unreadable}"
        );
    }
}
