//! `platform logs` and `platform dead-letters`.

use std::fmt::Write;

use model::filter::LogFilter;
use serde_json::Value;

use crate::args::{Format, LogsArgs, PageArgs};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::{Paint, Printer, plain, safe};

const COLUMNS: &[&str] = &[
    "ts",
    "entity_id",
    "entity_name",
    "flux_id",
    "level",
    "message",
    "attributes",
];
const LETTERS: &[&str] = &["ts", "subject", "reason", "content_type"];

/// Newest last on a terminal's table, as people read logs; newest first everywhere else, as the API answers.
pub(crate) fn run(args: &LogsArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let filter = LogFilter {
        level: args.level,
        min_level: args.min_level,
        since,
        until,
        gear_id: args.gear.clone(),
        entity: args.entity.clone(),
        flux_id: args.flux_id,
        trace_id: args.trace_id,
        q: args.q.clone(),
        limit: Some(args.page.limit),
        ..LogFilter::default()
    };
    let page = Client::new(&args.page.api).page_within("/api/v1/telemetry/logs", &filter, args.page.wait)?;
    let printer = Printer::from(&args.page.api);
    match printer.format {
        Format::Table => printer.text(&lines(&page.rows, printer))?,
        _ => printer.rows(&page.rows, COLUMNS)?,
    }
    super::notes(&page, super::NO_ROWS);
    Ok(())
}

pub(crate) fn dead_letters(args: &PageArgs) -> Result<(), Error> {
    let (since, until) = args.window()?;
    let filter = LogFilter {
        since,
        until,
        limit: Some(args.limit),
        ..LogFilter::default()
    };
    let page = Client::new(&args.api).page_within("/api/v1/telemetry/dead_letters", &filter, args.wait)?;
    Printer::from(&args.api).rows(&page.rows, LETTERS)?;
    super::notes(&page, "no dead letters in this window");
    Ok(())
}

fn lines(rows: &[Row], printer: Printer) -> String {
    let paint = Paint::for_stdout();
    let text = |row: &Row, key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut lines = String::new();
    for row in rows.iter().rev() {
        let attributes = row.get("attributes").map(plain).unwrap_or_default();
        let _ = writeln!(
            lines,
            "{} {} {} {} {}",
            printer.time(&text(row, "ts")),
            paint.level(&safe(&text(row, "level"))),
            safe(&text(row, "entity_name")),
            safe(&text(row, "message")),
            paint.dim(&attributes)
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::hostile::{is_a_line_each, rows};

    proptest! {
        #[test]
        fn a_row_is_one_line_whatever_is_stored(rows in rows(|a, b| json!({ "ts": a, "level": b, "entity_name": a, "message": b, "attributes": { (a): b } }))) {
            let lines = lines(&rows, Printer::of(Format::Table));
            prop_assert!(is_a_line_each(&lines, &rows), "{lines:?}");
        }
    }
}
