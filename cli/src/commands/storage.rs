//! `platform storage`.

use serde_json::Value;

use crate::args::{ApiArgs, OutputFormat};
use crate::client::{self, ApiClient, Row};
use crate::error::Error;
use crate::output::RowPrinter;

/// The Mixer's storage figures: two tables for people, the object itself for programs.
pub(crate) fn run(api: &ApiArgs) -> Result<(), Error> {
    let answer = ApiClient::new(api).get("/api/v1/storage", &())?;
    let mut row = client::one(answer, "it has no figures")?;
    let printer = RowPrinter::from(api);
    if printer.format != OutputFormat::Table {
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        return Ok(printer.rows(std::slice::from_ref(&row), &columns)?);
    }
    let tables = row.remove("tables");
    let tables: Vec<Row> = tables
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(table)
        .collect();
    let mut figures = Vec::new();
    for (name, value) in row {
        add(&mut figures, name, value, printer);
    }
    let figures = printer.table(&figures, &["figure", "value"]);
    Ok(printer.text(&format!("{}\n{figures}", printer.table(&tables, &TABLE)))?)
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

/// Adds a figure, or those of an object under its name; lists, and what has no value, are for programs.
fn add(figures: &mut Vec<Row>, name: String, value: Value, printer: RowPrinter) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                add(figures, format!("{name}.{key}"), value, printer);
            }
        }
        Value::Array(_) | Value::Null => {}
        value => {
            let shown = match &value {
                Value::String(text) => printer.time_and_age(text),
                other => printer.value(&name, other),
            };
            figures.push(Row::from_iter([
                ("figure".to_owned(), name.into()),
                ("value".to_owned(), shown.into()),
            ]));
        }
    }
}
