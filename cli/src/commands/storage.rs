//! `platform storage`.

use std::io::Write;

use serde_json::Value;

use crate::args::{ApiArgs, Format};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output;

/// The Mixer's storage figures: two tables for people, the object itself for programs.
pub(crate) fn run(api: &ApiArgs) -> Result<(), Error> {
    let mut answer = Client::new(api).get("/api/v1/storage", &())?;
    let data = answer.get_mut("data").map(Value::take).unwrap_or(answer);
    let mut row: Row = data
        .as_object()
        .cloned()
        .ok_or_else(|| Error::Answer("it is not an object".to_owned()))?;
    if api.output != Format::Table {
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        return Ok(output::rows(std::slice::from_ref(&row), &columns, api.output)?);
    }
    let tables = row.remove("tables");
    let tables: Vec<Row> = tables
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(table)
        .collect();
    output::rows(&tables, &TABLE, Format::Table)?;
    writeln!(std::io::stdout())?;
    let mut figures = Vec::new();
    for (name, value) in row {
        add(&mut figures, name, value);
    }
    Ok(output::rows(&figures, &["figure", "value"], Format::Table)?)
}

/// What is shown of each telemetry table.
const TABLE: [&str; 8] = [
    "table",
    "files",
    "open_files",
    "rows",
    "hot_rows",
    "bytes",
    "earliest",
    "latest",
];

fn table((name, facts): (&String, &Value)) -> Row {
    let mut row = facts.as_object().cloned().unwrap_or_default();
    row.insert("table".to_owned(), name.as_str().into());
    row
}

/// Adds a figure, or those of an object under its name; lists are for programs.
fn add(figures: &mut Vec<Row>, name: String, value: Value) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                add(figures, format!("{name}.{key}"), value);
            }
        }
        Value::Array(_) => {}
        value => figures.push(Row::from_iter([
            ("figure".to_owned(), name.into()),
            ("value".to_owned(), value),
        ])),
    }
}
