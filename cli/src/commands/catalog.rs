//! `platform catalog`: the tables of the Iceberg catalogue.

use serde_json::Value;

use crate::args::{CatalogArgs, OutputFormat};
use crate::client::{self, ApiClient, Row};
use crate::error::Error;
use crate::key_value_view::KeyValueView;
use crate::nearest_word::nearest;
use crate::output::RowPrinter;
use crate::span_tree::text;

const COLUMNS: &[&str] = &[
    "table",
    "files",
    "rows",
    "bytes",
    "latest",
    "waiting_rows",
    "lag_seconds",
    "version",
    "snapshots",
    "snapshot_id",
    "published",
    "left_out",
];
/// Those that hold times.
const TIMES: &[&str] = &["latest", "latest_stored", "published"];
const ONE: &[&str] = &[
    "table",
    "files",
    "rows",
    "bytes",
    "latest",
    "latest_stored",
    "waiting_rows",
    "lag_seconds",
    "version",
    "snapshots",
    "snapshot_id",
    "published",
];

pub(crate) fn run(args: &CatalogArgs) -> Result<(), Error> {
    let answer = ApiClient::new(&args.api).get("/api/v1/catalog", &())?;
    let mut catalog = client::one(answer, "it has no catalogue")?;
    let printer = RowPrinter::from(&args.api);
    let Some(Value::Array(tables)) = catalog.remove("tables") else {
        return Err(Error::Answer("it has no list named tables".to_owned()));
    };
    let mut tables: Vec<Row> = tables.into_iter().filter_map(object).collect();
    if matches!(printer.format, OutputFormat::Table | OutputFormat::Csv) {
        tables.iter_mut().for_each(join_names);
    }
    // They come first: they say why a table is not there.
    if tables.is_empty() && text(&catalog, "reason").is_empty() {
        super::note("no tables yet; they are there once the Mixer that writes the store has published them");
    }
    for key in ["reason", "trouble"] {
        let says = text(&catalog, key);
        if !says.is_empty() {
            super::note(says);
        }
    }
    match &args.table {
        None => Ok(printer.rows(&tables, COLUMNS)?),
        Some(name) => one(&tables, name, printer),
    }
}

fn object(value: Value) -> Option<Row> {
    match value {
        Value::Object(row) => Some(row),
        _ => None,
    }
}

/// Makes one text of the names of the columns that a table lacks.
fn join_names(table: &mut Row) {
    if let Some(Value::Array(names)) = table.get("left_out") {
        let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
        let names = names.join(",");
        table.insert("left_out".to_owned(), names.into());
    }
}

fn one(tables: &[Row], name: &str, printer: RowPrinter) -> Result<(), Error> {
    let Some(table) = tables.iter().find(|table| text(table, "table") == name) else {
        let names = tables.iter().map(|table| text(table, "table"));
        let meant = nearest(name, names).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        return Err(Error::NotFound(format!("the catalogue has no table {name:?}{meant}")));
    };
    if printer.format != OutputFormat::Table {
        return Ok(printer.rows(std::slice::from_ref(table), COLUMNS)?);
    }
    let mut view = KeyValueView::new(printer);
    view.add_keys(table, ONE, TIMES);
    let left_out = text(table, "left_out");
    if !left_out.is_empty() {
        view.add(
            "left_out",
            &format!("{left_out} (types differ between files; their values are in promoted)"),
        );
    }
    Ok(printer.text(&view.finish())?)
}
