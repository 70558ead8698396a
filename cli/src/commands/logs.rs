//! `platform logs` and `platform dead-letters`.

use model::filter::LogFilter;
use serde_json::Value;

use super::tail;
use crate::args::{Format, LogsArgs, PageArgs};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::{Paint, Printer, plain, safe};

pub(crate) const COLUMNS: &[&str] = &[
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
        since,
        until,
        limit: Some(args.page.limit),
        ..args.rows.filter()
    };
    if args.follow {
        return tail::follow(&args.page.api, filter);
    }
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
    rows.iter().rev().map(|row| line(row, printer, paint)).collect()
}

/// A row for people, on a line.
pub(crate) fn line(row: &Row, printer: Printer, paint: Paint) -> String {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let attributes = row.get("attributes").map(plain).unwrap_or_default();
    format!(
        "{} {} {} {} {}\n",
        printer.time(text("ts")),
        paint.level(&safe(text("level"))),
        safe(text("entity_name")),
        safe(text("message")),
        paint.dim(&attributes)
    )
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
