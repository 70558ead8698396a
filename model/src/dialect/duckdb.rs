//! The tables as DuckDB sees them: views of data files, found by pattern whenever a view is asked.
//!
//! # Invariants
//!
//! - Columns have the specification's names, order and types, whatever a file's form: UUID, JSON, TIMESTAMP WITH TIME ZONE.
//! - A view names no file: it outlives publishing, sealing and the end of a partition.
//! - `TABLE_between(since, until)` opens the partitions that meet `[since, until)` and no others.

use super::DataFileSet;
use crate::{ColumnType, Table, TableColumn};

/// A line with a blob may have so many bytes, as blobs are hexadecimal digits; DuckDB takes 16 MiB of others. It takes memory by this.
const LONGEST_LINE: u64 = 64 << 20;
/// The partition in a file's name: its day, and its hour if it has one.
const PARTITION: &str = r"regexp_extract(filename, '/(\d{4}/\d\d/\d\d(/\d\d)?)/[^/]*$', 1)";

pub(super) const fn kind(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Time => "TIMESTAMP WITH TIME ZONE",
        ColumnType::Uuid => "UUID",
        ColumnType::Text | ColumnType::Word => "VARCHAR",
        ColumnType::Json => "JSON",
        ColumnType::Float => "FLOAT",
        ColumnType::Double => "DOUBLE",
        ColumnType::Blob => "BLOB",
    }
}

/// The view and the macro of `table` over these files; empty ones of the right types where there are none.
///
/// DuckDB refuses a pattern that no file matches: name only forms that the table has.
#[must_use]
pub fn views(table: Table, files: &[DataFileSet<'_>]) -> String {
    let all = select(table, files, false);
    let some = select(table, files, true);
    let name = table.name();
    let columns = list(table, |column| column.name.to_owned());
    format!(
        "CREATE OR REPLACE VIEW {name} AS\n{all};\n\
         CREATE OR REPLACE MACRO {name}_between(since, until) AS TABLE\nSELECT {columns} FROM (\n{some}\n)\n{};\n",
        within()
    )
}

/// The rows of a macro's range of time, and the files that can have some.
pub(super) fn within() -> String {
    let partition_is = |moment: &str, relation: &str| {
        format!(
            "{PARTITION} {relation} left(strftime({moment}::TIMESTAMPTZ AT TIME ZONE 'UTC', '%Y/%m/%d/%H'), length({PARTITION}))"
        )
    };
    format!(
        "WHERE {}\n  AND {}\n  AND ts >= since::TIMESTAMPTZ AND ts < until::TIMESTAMPTZ",
        partition_is("since", ">="),
        partition_is("until", "<="),
    )
}

/// The rows of all these files, and the names of their files if wanted.
fn select(table: Table, files: &[DataFileSet<'_>], named: bool) -> String {
    if files.is_empty() {
        let name = if named { ", NULL::VARCHAR AS filename" } else { "" };
        let columns = list(table, |column| {
            format!("NULL::{} AS {}", kind(column.kind), column.name)
        });
        return format!("SELECT {columns}{name} WHERE false");
    }
    let parts: Vec<String> = files.iter().map(|files| select_form(table, files, named)).collect();
    parts.join("\nUNION ALL\n")
}

fn select_form(table: Table, files: &DataFileSet<'_>, named: bool) -> String {
    let name = if named { ", filename" } else { "" };
    let (columns, reader) = match files {
        DataFileSet::Parquet(pattern) => {
            let columns = list(table, |column| match column.kind {
                // Files may have been written as plain strings.
                ColumnType::Json => format!("{0}::JSON AS {0}", column.name),
                _ => column.name.to_owned(),
            });
            (columns, format!("read_parquet({}", text(pattern)))
        }
        DataFileSet::Lines(pattern) => {
            let columns = list(table, |column| match column.kind {
                ColumnType::Blob => format!("unhex({0}) AS {0}", column.name),
                _ => column.name.to_owned(),
            });
            (columns, lines_reader(table, pattern))
        }
        // Every column is the error, or a filter that no NULL passes would leave the rows out without it.
        DataFileSet::Unreadable(why) => {
            let columns = list(table, |column| format!("e::{} AS {}", kind(column.kind), column.name));
            let name = if named { ", e::VARCHAR AS filename" } else { "" };
            return format!("SELECT {columns}{name} FROM (SELECT error({}) AS e) WHERE e", text(why));
        }
    };
    let named_too = if named { ", filename = true" } else { "" };
    format!("SELECT {columns}{name} FROM {reader}, hive_partitioning = false{named_too})")
}

/// What reads files of lines, without its last parameters.
pub(super) fn lines_reader(table: Table, pattern: &str) -> String {
    let types = list(table, |column| {
        let written = match column.kind {
            ColumnType::Blob => ColumnType::Text,
            kind => kind,
        };
        format!("{}: '{}'", column.name, kind(written))
    });
    let has_blob = table.columns().iter().any(|column| column.kind == ColumnType::Blob);
    let longest = if has_blob {
        format!(", maximum_object_size = {LONGEST_LINE}")
    } else {
        String::new()
    };
    format!(
        "read_json({}, format = 'newline_delimited'{longest}, columns = {{{types}}}",
        text(pattern)
    )
}

fn list(table: Table, text: impl Fn(&TableColumn) -> String) -> String {
    table.columns().iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A string literal.
pub(super) fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// A path within a pattern: what patterns are made of means itself.
#[must_use]
pub fn literal(path: &str) -> String {
    path.chars()
        .fold(String::with_capacity(path.len()), |mut text, letter| {
            match letter {
                '*' | '?' | '[' => text.extend(['[', letter, ']']),
                letter => text.push(letter),
            }
            text
        })
}
