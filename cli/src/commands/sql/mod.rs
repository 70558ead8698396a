//! `platform sql`: one statement, its rows printed as those of any other command; without one, a shell (`shell`).
//!
//! | file | what |
//! |---|---|
//! | `shell` | reads, asks, prints, until it is left |
//! | `commands` | what begins with a backslash |
//! | `editor` | the line that is typed: its end, its completion |
//! | `words` | what can be completed |
//! | `statements` | where statements end |
//! | `pointer` | where a statement went wrong |
//! | `history` | where statements are kept |
//! | `result_view` | headers, types and plans as people write them |

mod completion;
mod error_caret;
mod history;
mod line_editor;
mod result_view;
mod shell;
mod shell_commands;
mod statement_splitter;

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::args::{GlobalArgs, OutputFormat, SqlArgs};
use crate::client::{ApiClient, Row, problem_error, rows};
use crate::error::Error;
use crate::output::RowPrinter;

const PATH: &str = "/api/v1/sql";

/// What a statement came to.
#[derive(Debug)]
struct SqlResultSet {
    /// Names and types, in order.
    columns: Vec<(String, String)>,
    rows: Vec<Row>,
    truncated: bool,
    partial: Option<String>,
    /// How long the Mixer took.
    ms: Option<u64>,
}

pub(crate) fn run(global: &GlobalArgs, args: &SqlArgs) -> Result<(), Error> {
    let Some(text) = text(args)? else {
        return shell::run(global, args);
    };
    let parameters = args.parameters.iter().cloned().collect();
    let mut answer = ask(&ApiClient::new(&args.api), &text, parameters, args.limit)?;
    let printer = RowPrinter::from(&args.api).exact();
    let (printer, columns) = answer.prepare(printer);
    printer.rows(&answer.rows, &columns.iter().map(String::as_str).collect::<Vec<_>>())?;
    answer.notes(args.limit)
}

/// The statement; none where somebody sits at a terminal and gave none.
fn text(args: &SqlArgs) -> Result<Option<String>, Error> {
    let from_stdin = || {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        read.map(|_| Some(text)).map_err(|source| Error::Read {
            path: "standard input".into(),
            source,
        })
    };
    match (args.statement.as_deref(), args.file.as_deref()) {
        (Some("-"), _) => from_stdin(),
        (_, Some(file)) if file == Path::new("-") => from_stdin(),
        (Some(text), _) => Ok(Some(text.to_owned())),
        (None, Some(file)) => std::fs::read_to_string(file).map(Some).map_err(|source| Error::Read {
            path: file.to_owned(),
            source,
        }),
        (None, None) if !std::io::stdin().is_terminal() => from_stdin(),
        (None, None) if std::io::stdout().is_terminal() => Ok(None),
        (None, None) => Err(Error::Usage(
            "there is no statement: platform sql \"SELECT count(*) FROM logs\", or -f FILE, or - for standard input"
                .to_owned(),
        )),
    }
}

fn ask(client: &ApiClient, text: &str, parameters: Row, limit: Option<u64>) -> Result<SqlResultSet, Error> {
    let mut body = json!({ "query": text });
    if let Some(limit) = limit {
        body["limit"] = limit.into();
    }
    if !parameters.is_empty() {
        body["parameters"] = Value::Object(parameters);
    }
    read(client.post(PATH, &body)?)
}

/// An answer as the API writes it; one that ended early is an error.
fn read(mut answer: Value) -> Result<SqlResultSet, Error> {
    if let Some(error) = answer.get("error") {
        let status = error.get("status").and_then(Value::as_u64);
        let status = status.and_then(|status| u16::try_from(status).ok());
        return Err(problem_error(status.unwrap_or(500), error));
    }
    let column = |column: &Value| {
        let text = |key: &str| Some(column.get(key)?.as_str()?.to_owned());
        Some((text("name")?, text("type")?))
    };
    let columns = answer.get("columns").and_then(Value::as_array);
    let columns = columns.and_then(|columns| columns.iter().map(column).collect::<Option<_>>());
    let rows = rows(&mut answer)?;
    let stats = answer.get("stats");
    let stat = |key: &str| stats.and_then(|stats| stats.get(key));
    Ok(SqlResultSet {
        columns: columns.ok_or_else(|| Error::Answer("it has no list named columns".to_owned()))?,
        truncated: stat("truncated").and_then(Value::as_bool).unwrap_or_default(),
        partial: stat("partial").and_then(Value::as_str).map(str::to_owned),
        ms: stat("ms").and_then(Value::as_u64),
        rows,
    })
}

impl SqlResultSet {
    /// Makes rows what a printer shows: the printer, and the names of their columns.
    fn prepare(&mut self, mut printer: RowPrinter) -> (RowPrinter, Vec<String>) {
        if printer.format == OutputFormat::Table {
            self.show_times(printer);
            self.show_types();
            self.shorten_headers();
            if self.is_plan() {
                self.split_plan();
                printer = printer.whole();
            }
        }
        (printer, self.columns.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Times as people read them.
    fn show_times(&mut self, printer: RowPrinter) {
        let times = self.columns.iter().filter(|(_, kind)| kind == "timestamptz");
        for (name, _) in times {
            for value in self.rows.iter_mut().filter_map(|row| row.get_mut(name)) {
                if let Some(text) = value.as_str() {
                    *value = printer.time(text).into();
                }
            }
        }
    }

    /// Says on standard error that there are more rows than `limit`, which was asked for. An error if the answer is partial.
    fn notes(&self, limit: Option<u64>) -> Result<(), Error> {
        let rows = self.rows.len();
        let is_asked_for = limit.is_some_and(|limit| limit <= rows as u64);
        if self.truncated && is_asked_for {
            let _ = writeln!(
                std::io::stderr(),
                "platform: there are more rows than these {rows}: --limit cut them"
            );
        }
        let is_cut = self.truncated && !is_asked_for;
        let cut = is_cut.then(|| format!("there are more rows than these {rows}, as many as query.max_rows allows"));
        Error::if_partial(self.partial.clone().into_iter().chain(cut))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_answer_that_ended_early_is_an_error_with_its_reason() {
        let problem = json!({ "status": 504, "title": "Gateway Timeout", "detail": "too long" });
        let error = read(json!({ "columns": [], "data": [], "error": problem })).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { status: 504, detail, .. } if detail == "too long"),
            "{error}"
        );
        assert!(read(json!({ "data": [] })).is_err());
    }

    #[test]
    fn rows_keep_the_order_of_their_columns_and_say_if_some_are_missing() {
        let columns = json!([{ "name": "z", "type": "text" }, { "name": "a", "type": "timestamptz" }]);
        let data = json!([{ "z": "x", "a": "2026-11-21T10:00:00Z" }, { "z": null, "a": null }]);
        let answer = json!({ "columns": columns, "data": data, "stats": { "truncated": true } });
        let mut answer = read(answer).unwrap();
        assert_eq!(answer.columns[0].0, "z");
        assert!(answer.truncated);
        answer.show_times(RowPrinter::of(OutputFormat::Table));
        let names: Vec<_> = answer.columns.iter().map(|(name, _)| name.as_str()).collect();
        let table = RowPrinter::of(OutputFormat::Table).table(&answer.rows, &names);
        assert!(table.starts_with("Z  A"), "{table}");
        assert_eq!(table.lines().count(), 3);
    }
}
