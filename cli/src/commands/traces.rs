//! `platform traces`, `platform trace ID`, and what spans come to: `platform services` and `platform dependencies`.

use std::fmt::Write;

use model::filter::TraceFilter;
use serde_json::Value;

use crate::args::{OutputFormat, SpanListArgs, TraceArgs, TracesArgs};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter};
use crate::span_tree::{collect, duration_ms, text, tree_order};
use crate::terminal::TerminalSize;
use crate::waterfall;

const COLUMNS: &[&str] = &[
    "ts",
    "trace_id",
    "span_id",
    "flux_id",
    "entity_name",
    "span_name",
    "duration_ms",
    "status",
];

const WHOLE: &[&str] = &[
    "ts",
    "trace_id",
    "span_id",
    "parent_span_id",
    "flux_id",
    "entity_id",
    "entity_name",
    "span_name",
    "duration_ms",
    "status",
    "attributes",
];

const SERVICES: &[&str] = &["service", "spans", "errors", "p50_ms", "p99_ms", "last_seen"];
const DEPENDENCIES: &[&str] = &["caller", "callee", "calls", "errors"];

pub(crate) fn list(args: &SpanListArgs) -> Result<(), Error> {
    let (all, args) = (args.all, &args.spans);
    let columns = columns(args.page.api.output);
    if all {
        return super::every_row("/api/v1/telemetry/traces", &filter(args)?, &args.page, columns);
    }
    query(args, "traces", columns)
}

/// A table has what people look for, CSV all that is stored.
const fn columns(format: OutputFormat) -> &'static [&'static str] {
    match format {
        OutputFormat::Csv => WHOLE,
        _ => COLUMNS,
    }
}

pub(crate) fn services(args: &TracesArgs) -> Result<(), Error> {
    query(args, "services", SERVICES)
}

pub(crate) fn dependencies(args: &TracesArgs) -> Result<(), Error> {
    query(args, "dependencies", DEPENDENCIES)
}

/// Prints the rows of a path that takes filters of spans.
fn query(args: &TracesArgs, path: &str, columns: &[&str]) -> Result<(), Error> {
    let path = format!("/api/v1/telemetry/{path}");
    let client = ApiClient::new(&args.page.api);
    let page = client.page_within(&path, &filter(args)?, args.page.wait)?;
    RowPrinter::from(&args.page.api).rows(&page.rows, columns)?;
    super::notes(&page, &super::no_rows(&client, &page, args.entity.as_deref()))
}

fn filter(args: &TracesArgs) -> Result<TraceFilter, Error> {
    let (since, until) = args.page.window()?;
    Ok(TraceFilter {
        flux_id: args.flux_id,
        since,
        until,
        min_duration_ms: args.min_duration_ms,
        status: args.status,
        entity: args.entity.clone(),
        service: args.service.clone(),
        span_name: args.span_name.clone(),
        attributes: crate::args::values_by_key("attr", &args.attr)?,
        not_entity: args.not_entity.iter().cloned().collect(),
        not_service: args.not_service.iter().cloned().collect(),
        not_span_name: args.not_span_name.iter().cloned().collect(),
        not_attributes: crate::args::value_sets_by_key(&args.not_attr),
        limit: Some(args.page.limit),
        ..TraceFilter::default()
    })
}

/// One trace: drawn over time or as a tree for people, the spans in time order for programs. Exit code 1 if there is none.
pub(crate) fn show(args: &TraceArgs) -> Result<(), Error> {
    let answer = ApiClient::new(&args.api).get(&format!("/api/v1/telemetry/traces/{}", args.id), &())?;
    let spans = collect(&answer);
    let Some(first) = spans.first() else {
        return Err(Error::NotFound(format!("there is no trace {}", args.id)));
    };
    let whole = check_whole(&answer, spans.len());
    let printer = RowPrinter::from(&args.api);
    if printer.format != OutputFormat::Table {
        printer.rows(&spans, columns(printer.format))?;
        return whole;
    }
    let paint = TextPainter::for_stdout();
    let body = if printer.draws(args.chart) {
        waterfall::draw(&spans, TerminalSize::drawing_width(), paint)
    } else {
        tree(&spans, printer, paint)
    };
    let (flux, count) = (escape_controls(text(first, "flux_id")), spans.len());
    printer.text(&format!(
        "trace {}  flux {flux}  {count} spans{}\n{body}",
        args.id,
        when(args, first, printer)
    ))?;
    whole
}

/// An error if the trace has other spans than those that came. Its log records are not shown.
fn check_whole(answer: &Value, spans: usize) -> Result<(), Error> {
    let partial = answer["partial"].as_str().map(str::to_owned);
    let is_cut = answer["trace"]["truncated"].as_bool() == Some(true);
    let cut = is_cut.then(|| format!("the trace has more spans than these {spans}"));
    Error::if_partial(partial.into_iter().chain(cut))
}

/// A drawing has no times, so its head says when it starts.
fn when(args: &TraceArgs, first: &Row, printer: RowPrinter) -> String {
    if printer.draws(args.chart) {
        format!("  from {}", printer.time(text(first, "ts")))
    } else {
        String::new()
    }
}

fn tree(spans: &[Row], printer: RowPrinter, paint: TextPainter) -> String {
    let mut lines = String::new();
    for place in tree_order(spans) {
        let span = &spans[place.at];
        let status = match text(span, "status") {
            "error" => paint.level("error"),
            other => escape_controls(other).into_owned(),
        };
        let _ = writeln!(
            lines,
            "{:indent$}{} {:.3} ms {status} {} {}",
            "",
            escape_controls(text(span, "span_name")),
            duration_ms(span),
            escape_controls(text(span, "entity_name")),
            paint.dim(&printer.time(text(span, "ts"))),
            indent = 2 + place.depth * 2
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::test_strings::{is_one_line_per_row, rows};

    #[test]
    fn a_trace_with_more_spans_than_an_answer_holds_is_partial() {
        let answer = |is_cut: bool| json!({ "data": [], "trace": { "truncated": is_cut } });
        assert!(check_whole(&answer(false), 3).is_ok());
        let cut = check_whole(&answer(true), 3).map_err(|error| (error.exit_code(), error.to_string()));
        let told = "the answer is partial: the trace has more spans than these 3";
        assert_eq!(cut, Err((65, told.to_owned())));
    }

    proptest! {
        #[test]
        fn a_row_is_one_line_whatever_is_stored(rows in rows(|a, b| json!({ "ts": a, "span_id": b, "status": a, "entity_name": b, "span_name": a }))) {
            let lines = tree(&rows, RowPrinter::of(OutputFormat::Table), TextPainter::none());
            prop_assert!(is_one_line_per_row(&lines, &rows), "{lines:?}");
        }
    }
}
