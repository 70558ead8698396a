//! DuckDB over the live tree: the outside reader.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{Failure, process, tool};

/// The first value of a query's answer, as text.
///
/// # Errors
/// What DuckDB says.
pub fn scalar(sql: &str, folder: &Path) -> Result<String, Failure> {
    let done = process::run(&tool("duckdb")?, &["-noheader", "-csv", "-c", sql], folder, &[])?;
    if done.code == Some(0) {
        Ok(done.out.trim().to_owned())
    } else {
        Err(format!("{sql}: {}", done.err).into())
    }
}

/// The number of rows that a condition selects of a table's files; 0 while there are none.
///
/// # Errors
/// What DuckDB says.
pub fn count(telemetry: &Path, table: &str, condition: &str) -> Result<u64, Failure> {
    let root = telemetry.join(table);
    if !root.is_dir() {
        return Ok(0);
    }
    let sql = format!(
        "select count(*) from read_parquet('{}/**/*.parquet') where {condition}",
        root.display()
    );
    Ok(scalar(&sql, telemetry)?.parse()?)
}

/// The rows of a statement over the tables of a store, as views of its files.
///
/// # Errors
/// What DuckDB says.
pub fn rows(statement: &str, store: &Path) -> Result<Vec<Map<String, Value>>, Failure> {
    let views = [
        ("logs", "telemetry/logs"),
        ("traces", "telemetry/traces"),
        ("metrics", "telemetry/metrics"),
        ("messages", "messages"),
    ];
    let views = views.map(|(name, folder)| {
        let files = store.join(folder).join("**/*.parquet");
        format!(
            "create view {name} as select * from read_parquet('{}', hive_partitioning = false);",
            files.display()
        )
    });
    let script = format!("set timezone = 'UTC'; {} {statement}", views.concat());
    let done = process::run(&tool("duckdb")?, &["-json", "-c", &script], store, &[])?;
    if done.code != Some(0) {
        return Err(format!("{statement}: {}", done.err).into());
    }
    if done.out.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&done.out).map_err(|error| format!("{statement}: {error}: {}", done.out).into())
}
