//! DuckDB over the live tree: the outside reader.

use std::path::Path;

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
