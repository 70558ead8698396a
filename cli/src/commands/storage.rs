//! `platform storage`.

use serde_json::Value;

use crate::args::{ApiArgs, Format};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output;

/// The Mixer's storage figures: name and value for people, the object itself for programs.
pub(crate) fn run(api: &ApiArgs) -> Result<(), Error> {
    let mut answer = Client::new(api).get("/api/v1/storage", &())?;
    let data = answer.get_mut("data").map(Value::take).unwrap_or(answer);
    let row: Row = data
        .as_object()
        .cloned()
        .ok_or_else(|| Error::Answer("it is not an object".to_owned()))?;
    if api.output != Format::Table {
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        return Ok(output::rows(std::slice::from_ref(&row), &columns, api.output)?);
    }
    let rows: Vec<Row> = row
        .into_iter()
        .map(|(name, value)| {
            [("figure".to_owned(), Value::from(name)), ("value".to_owned(), value)]
                .into_iter()
                .collect()
        })
        .collect();
    Ok(output::rows(&rows, &["figure", "value"], Format::Table)?)
}
