//! `platform traces` and `platform trace ID`.

use std::collections::HashMap;
use std::io::{self, Write};

use model::filter::TraceFilter;
use serde_json::Value;

use crate::args::{Format, TraceArgs, TracesArgs};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::{self, Paint, safe};

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

pub(crate) fn list(args: &TracesArgs) -> Result<(), Error> {
    let filter = TraceFilter {
        flux_id: args.flux_id,
        since: args.page.since,
        until: args.page.until,
        min_duration_ms: args.min_duration_ms,
        status: args.status,
        entity: args.entity.clone(),
        span_name: args.span_name.clone(),
        limit: Some(args.page.limit),
        ..TraceFilter::default()
    };
    let page = Client::new(&args.page.api).page_within("/api/v1/telemetry/traces", &filter, args.page.wait)?;
    output::rows(&page.rows, COLUMNS, args.page.api.output)?;
    super::notes(&page, super::NO_ROWS);
    Ok(())
}

/// One trace: a tree for people, the spans in time order for programs. Exit code 1 if there is none.
pub(crate) fn show(args: &TraceArgs) -> Result<(), Error> {
    let answer = Client::new(&args.api).get(&format!("/api/v1/telemetry/traces/{}", args.id), &())?;
    let spans = collect(&answer);
    if spans.is_empty() {
        return Err(Error::NotFound(format!("there is no trace {}", args.id)));
    }
    match args.api.output {
        Format::Table => Ok(tree(&spans)?),
        format => Ok(output::rows(&spans, COLUMNS, format)?),
    }
}

/// The spans of an answer, flat, earliest first.
fn collect(answer: &Value) -> Vec<Row> {
    let data = answer.get("data").unwrap_or(answer);
    let list = data.as_array().or_else(|| data.get("spans").and_then(Value::as_array));
    let mut spans: Vec<Row> = list
        .into_iter()
        .flatten()
        .filter_map(|span| span.as_object().cloned())
        .collect();
    spans.sort_by(|a, b| text(a, "ts").cmp(text(b, "ts")));
    spans
}

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn tree(spans: &[Row]) -> io::Result<()> {
    let known: HashMap<&str, usize> = spans
        .iter()
        .enumerate()
        .map(|(at, span)| (text(span, "span_id"), at))
        .collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        match known.get(text(span, "parent_span_id")) {
            Some(parent) if *parent != at => children.entry(*parent).or_default().push(at),
            _ => roots.push(at),
        }
    }
    let mut out = io::stdout().lock();
    let first = &spans[roots.first().copied().unwrap_or(0)];
    writeln!(
        out,
        "trace {}  flux {}  {} spans",
        text(first, "trace_id"),
        text(first, "flux_id"),
        spans.len()
    )?;
    let paint = Paint::for_stdout();
    let mut seen = vec![false; spans.len()];
    // Depth first, without recursion: a stored cycle must not exhaust the stack.
    let mut open: Vec<(usize, usize)> = roots.iter().rev().map(|at| (*at, 0)).collect();
    while let Some((at, depth)) = open.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        line(&mut out, &spans[at], depth, paint)?;
        open.extend(
            children
                .get(&at)
                .into_iter()
                .flatten()
                .rev()
                .map(|child| (*child, depth + 1)),
        );
    }
    for (at, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        line(&mut out, &spans[at], 0, paint)?;
    }
    out.flush()
}

fn line(out: &mut impl Write, span: &Row, depth: usize, paint: Paint) -> io::Result<()> {
    let duration = span.get("duration_ms").and_then(Value::as_f64).unwrap_or(0.0);
    let status = text(span, "status");
    let status = if status == "error" {
        paint.level("error")
    } else {
        status.to_owned()
    };
    writeln!(
        out,
        "{:indent$}{} {:.3} ms {} {} {}",
        "",
        safe(text(span, "span_name")),
        duration,
        status,
        safe(text(span, "entity_name")),
        paint.dim(text(span, "ts")),
        indent = 2 + depth * 2
    )
}
