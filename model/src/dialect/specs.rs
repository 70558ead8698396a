//! The tables of specs as DuckDB sees them: the columns of `messages`, and those that a spec promotes.
//!
//! # Invariants
//!
//! - A file that lacks a column, as its spec had it later, gives NULL there; a column of a wider type than a file's has its values.
//! - Of files of lines, promoted columns are read out of `promoted`.

use super::DataFileSet;
use super::duckdb::{kind, text, within};
use crate::spec::{FieldType, SpecColumn, table_name};
use crate::{ColumnType, SpecName, Table};

/// A column: its name, its type, whether it is promoted.
type Typed = (String, &'static str, bool);

const fn promoted_kind(kind: FieldType) -> &'static str {
    match kind {
        FieldType::String => "VARCHAR",
        FieldType::Int => "BIGINT",
        FieldType::Float => "DOUBLE",
        FieldType::Bool => "BOOLEAN",
        FieldType::Timestamp => "TIMESTAMP WITH TIME ZONE",
        FieldType::Uuid => "UUID",
    }
}

/// A name that may have `-` in it.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The view and the macro of a spec's table over these files; empty ones of the right types where there are none.
#[must_use]
pub fn views(spec: &SpecName, columns: &[SpecColumn], files: &[DataFileSet<'_>]) -> String {
    let base = Table::Messages.columns().iter();
    let base = base.map(|column| (quoted(column.name), kind(column.kind), false));
    let more = columns.iter();
    let more = more.map(|column| (quoted(&column.name), promoted_kind(column.kind), true));
    let all: Vec<Typed> = base.chain(more).collect();
    let name = table_name(spec);
    let (view, between) = (quoted(&name), quoted(&format!("{name}_between")));
    let names = list(&all, |(name, ..)| name.clone());
    format!(
        "CREATE OR REPLACE VIEW {view} AS\n{};\n\
         CREATE OR REPLACE MACRO {between}(since, until) AS TABLE\nSELECT {names} FROM (\n{}\n)\n{};\n",
        select(&all, files, false),
        select(&all, files, true),
        within(),
    )
}

fn list(columns: &[Typed], text: impl Fn(&Typed) -> String) -> String {
    columns.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The rows of all these files, and the names of their files if wanted. The first part has no rows, and says the types.
fn select(columns: &[Typed], files: &[DataFileSet<'_>], named: bool) -> String {
    let name = if named { ", filename" } else { "" };
    let typed = list(columns, |(name, kind, _)| format!("NULL::{kind} AS {name}"));
    let null_name = if named { ", NULL::VARCHAR AS filename" } else { "" };
    let mut parts = vec![format!("SELECT {typed}{null_name} WHERE false")];
    parts.extend(files.iter().map(|files| part(columns, files, named)));
    let names = list(columns, |(name, kind, _)| format!("{name}::{kind} AS {name}"));
    format!(
        "SELECT {names}{name} FROM (\n{}\n)",
        parts.join("\nUNION ALL BY NAME\n")
    )
}

fn part(columns: &[Typed], files: &DataFileSet<'_>, named: bool) -> String {
    let named_too = if named { ", filename = true" } else { "" };
    match files {
        DataFileSet::Parquet(pattern) => format!(
            "SELECT * FROM read_parquet({}, union_by_name = true, hive_partitioning = false{named_too})",
            text(pattern)
        ),
        DataFileSet::Lines(pattern) => {
            let shown = list(columns, |(name, kind, is_promoted)| {
                if *is_promoted {
                    let key = text(&format!("$.{name}"));
                    format!("TRY_CAST(json_extract_string(promoted, {key}) AS {kind}) AS {name}")
                } else if *kind == super::duckdb::kind(ColumnType::Blob) {
                    format!("unhex({name}) AS {name}")
                } else {
                    name.clone()
                }
            });
            let name = if named { ", filename" } else { "" };
            format!(
                "SELECT {shown}{name} FROM {}, hive_partitioning = false{named_too})",
                super::duckdb::lines_reader(Table::Messages, pattern)
            )
        }
        DataFileSet::Unreadable(why) => {
            let shown = list(columns, |(name, kind, _)| format!("e::{kind} AS {name}"));
            let name = if named { ", e::VARCHAR AS filename" } else { "" };
            format!("SELECT {shown}{name} FROM (SELECT error({}) AS e) WHERE e", text(why))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_spec_is_a_view_of_its_own_folder_with_its_columns() {
        let column = SpecColumn {
            name: "amount".to_owned(),
            kind: FieldType::Float,
        };
        let spec = "order-paid".parse().unwrap();
        let text = views(
            &spec,
            &[column],
            &[DataFileSet::Parquet("/x/fluxSpec/order-paid/**/*.parquet")],
        );
        for part in [
            "VIEW \"messages_order-paid\"",
            "MACRO \"messages_order-paid_between\"",
            "NULL::DOUBLE AS \"amount\"",
            "union_by_name = true",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
