//! `platform flux ID`.

use std::collections::BTreeMap;

use model::filter::{FluxFilter, RawForm};

use super::timeline;
use crate::args::{FluxArgs, OutputFormat, window};
use crate::client::{ApiClient, Row};
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter};
use crate::span_tree::text;
use crate::terminal::TerminalSize;

const COLUMNS: &[&str] = &[
    "kind",
    "ts",
    "entity_name",
    "src_gear_id",
    "dst_gear_id",
    "msg_type",
    "direction",
    "span_id",
    "parent_span_id",
    "span_name",
    "duration_ms",
    "status",
    "level",
    "message",
    "flux_id",
    "trace_id",
    "attributes",
    "promoted",
    "raw_msg",
];

/// One signal over time: lines for people, rows in the same order for programs. Exit code 1 if nothing has the id.
pub(crate) fn show(args: &FluxArgs) -> Result<(), Error> {
    let (since, until) = window((args.since, args.until), args.api.zone())?;
    let filter = FluxFilter {
        since,
        until,
        raw: Some(RawForm::Json),
        limit: Some(args.limit),
        ..FluxFilter::default()
    };
    let page = ApiClient::new(&args.api).page(&format!("/api/v1/flux/{}", args.id), &filter)?;
    let printer = RowPrinter::from(&args.api);
    match printer.format {
        OutputFormat::Table => {
            let width = TerminalSize::of_stdout().map(|_| TerminalSize::drawing_width());
            let lines = timeline::draw(&page.rows, width, TextPainter::for_stdout());
            printer.text(&format!("{}\n{lines}", head(args, &page.rows, printer)))?;
        }
        _ => printer.rows(&page.rows, COLUMNS)?,
    }
    super::notes(&page, "no more rows")
}

/// What there is, and when it begins.
fn head(args: &FluxArgs, rows: &[Row], printer: RowPrinter) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(text(row, "kind")).or_default() += 1;
    }
    let count = |kind, noun: &str| match counts.get(kind).copied().unwrap_or(0) {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let from = rows.first().map(|row| printer.time(text(row, "ts")));
    format!(
        "flux {}  {}, {}, {}  from {}",
        args.id,
        count("message", "message"),
        count("span", "span"),
        count("log", "log record"),
        from.unwrap_or_default()
    )
}
