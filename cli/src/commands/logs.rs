//! `platform logs` and `platform dead-letters`.

use model::filter::{HistogramFilter, HistogramGrouping, LogFilter, RowFilter, RowPosition, TopFilter};
use serde::Serialize;
use serde_json::Value;

use super::tail;
use crate::args::{LogsArgs, LogsTopArgs, LogsVerb, OutputFormat, PageArgs};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter, plain};

use super::metrics::{drawn, oldest_first};

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

/// The newest rows, oldest first in every format, as people read logs and a tail goes on.
pub(crate) fn run(args: &LogsArgs) -> Result<(), Error> {
    if let Some(LogsVerb::Top(args)) = &args.verb {
        return top(args);
    }
    let (since, until) = args.page.window()?;
    let filter = LogFilter {
        since,
        until,
        limit: (!args.histogram && args.around.is_none()).then_some(args.page.limit),
        ..args.rows.filter()?
    };
    if args.histogram {
        return histogram(args, &filter);
    }
    let path = "/api/v1/telemetry/logs";
    if args.all {
        return super::every_row(path, &filter, &args.page, COLUMNS);
    }
    if args.follow {
        return tail::follow(&args.page.api, filter, tail::LOGS);
    }
    let rows = rows_shown(args)?;
    let listed = ListParams { filter: &filter, rows };
    let client = ApiClient::new(&args.page.api);
    let mut page = client.page_within(path, &listed, args.page.wait)?;
    page.rows.reverse();
    let printer = RowPrinter::from(&args.page.api);
    match printer.format {
        OutputFormat::Table => printer.text(&lines(&page.rows, printer))?,
        _ => printer.rows(&page.rows, COLUMNS)?,
    }
    super::notes(&page, &super::no_rows(&client, &page, args.rows.entity.as_deref()))
}

/// The parameters of a list.
#[derive(Serialize)]
struct ListParams<'a> {
    #[serde(flatten)]
    filter: &'a LogFilter,
    #[serde(flatten)]
    rows: RowFilter,
}

/// Around which moment they are, if around one.
fn rows_shown(args: &LogsArgs) -> Result<RowFilter, Error> {
    let now = chassis::system_clock().now();
    let around = args.around.map(|time| time.when(args.page.api.zone(), now));
    let around = around
        .transpose()
        .map_err(|reason| Error::Usage(format!("--around: {reason}")))?;
    Ok(RowFilter {
        around: around.map(|time| RowPosition::of_moment(time.resolve(now))),
        before: args.before,
        after: args.after,
        ..RowFilter::default()
    })
}

/// The parameters of counted values.
#[derive(Serialize)]
struct TopParams {
    #[serde(flatten)]
    filter: LogFilter,
    #[serde(flatten)]
    top: TopFilter,
}

/// The most frequent values of a field, the most frequent first.
fn top(args: &LogsTopArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let params = TopParams {
        filter: LogFilter {
            since,
            until,
            limit: Some(args.page.limit),
            ..args.rows.filter()?
        },
        top: TopFilter {
            field: Some(args.field.clone()),
        },
    };
    let path = "/api/v1/telemetry/logs/top";
    let page = ApiClient::new(&args.page.api).page_within(path, &params, args.page.wait)?;
    RowPrinter::from(&args.page.api)
        .exact()
        .rows(&page.rows, &["value", "count"])?;
    super::notes(&page, super::NO_ROWS)
}

/// The parameters of a histogram.
#[derive(Serialize)]
struct HistogramParams<'a> {
    #[serde(flatten)]
    filter: &'a LogFilter,
    #[serde(flatten)]
    shape: HistogramFilter,
}

/// How many there were over time; a table has bars, or a line for each group.
fn histogram(args: &LogsArgs, filter: &LogFilter) -> Result<(), Error> {
    let shape = HistogramFilter {
        interval: args.interval,
        by: args.by,
        fill: Some(true),
    };
    let path = "/api/v1/telemetry/logs/histogram";
    let mut page =
        ApiClient::new(&args.page.api).page_within(path, &HistogramParams { filter, shape }, args.page.wait)?;
    oldest_first(&mut page.rows);
    let printer = RowPrinter::from(&args.page.api);
    let columns = match args.by {
        Some(HistogramGrouping::Level) => vec!["ts", "level", "count"],
        Some(HistogramGrouping::EntityName) => vec!["ts", "entity_name", "count"],
        None | Some(HistogramGrouping::None) => vec!["ts", "count"],
    };
    match printer.format {
        OutputFormat::Table => {
            let valued: Vec<Row> = page.rows.iter().cloned().map(with_value).collect();
            printer.text(&drawn(&valued, columns, args.interval, printer))?;
        }
        _ => printer.rows(&page.rows, &columns)?,
    }
    super::notes(&page, super::NO_ROWS)
}

/// What is drawn of a bucket is its count.
fn with_value(mut row: Row) -> Row {
    let count = row.get("count").cloned().unwrap_or_default();
    row.insert("value".to_owned(), count);
    row
}

pub(crate) fn dead_letters(args: &PageArgs) -> Result<(), Error> {
    let (since, until) = args.window()?;
    let filter = LogFilter {
        since,
        until,
        limit: Some(args.limit),
        ..LogFilter::default()
    };
    let page = ApiClient::new(&args.api).page_within("/api/v1/telemetry/dead_letters", &filter, args.wait)?;
    RowPrinter::from(&args.api).rows(&page.rows, LETTERS)?;
    super::notes(&page, "no dead letters in this window")
}

fn lines(rows: &[Row], printer: RowPrinter) -> String {
    let paint = TextPainter::for_stdout();
    rows.iter().map(|row| line(row, printer, paint)).collect()
}

/// A row for people, on a line.
pub(crate) fn line(row: &Row, printer: RowPrinter, paint: TextPainter) -> String {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let flux = match escape_controls(text("flux_id")) {
        none if none.is_empty() => String::new(),
        id => format!("flux_id={id} "),
    };
    let attributes = row.get("attributes").map(plain).unwrap_or_default();
    format!(
        "{} {} {} {} {}\n",
        printer.time(text("ts")),
        paint.level(&escape_controls(text("level"))),
        escape_controls(text("entity_name")),
        escape_controls(text("message")),
        paint.dim(&format!("{flux}{attributes}"))
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::test_strings::{is_one_line_per_row, rows};

    #[test]
    fn counts_over_time_are_bars_and_counts_of_groups_lines() {
        let row = |at: usize, level: Option<&str>, count: usize| {
            let mut row = json!({ "ts": format!("2026-11-21T10:{at:02}:00.000000Z"), "count": count });
            if let Some(level) = level {
                row["level"] = level.into();
            }
            with_value(row.as_object().cloned().unwrap_or_default())
        };
        let printer = RowPrinter::of(OutputFormat::Table);
        let mut counts: Vec<Row> = [(3, 8), (2, 0), (1, 4)]
            .map(|(at, count)| row(at, None, count))
            .to_vec();
        oldest_first(&mut counts);
        let interval = "1m".parse().ok();
        insta::assert_snapshot!("histogram", drawn(&counts, vec!["ts", "count"], interval, printer));
        let mut groups: Vec<Row> = [(2, "error", 1), (2, "info", 9), (1, "error", 3), (1, "info", 0)]
            .map(|(at, level, count)| row(at, Some(level), count))
            .to_vec();
        oldest_first(&mut groups);
        insta::assert_snapshot!(
            "histogram_by_level",
            drawn(&groups, vec!["ts", "level", "count"], interval, printer)
        );
    }

    proptest! {
        #[test]
        fn a_row_is_one_line_whatever_is_stored(rows in rows(|a, b| json!({ "ts": a, "level": b, "entity_name": a, "flux_id": b, "message": b, "attributes": { (a): b } }))) {
            let lines = lines(&rows, RowPrinter::of(OutputFormat::Table));
            prop_assert!(is_one_line_per_row(&lines, &rows), "{lines:?}");
        }
    }
}
