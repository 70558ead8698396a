//! `platform logs` and `platform dead-letters`.

use std::io::{self, Write};

use model::filter::LogFilter;
use serde_json::Value;

use crate::args::{Format, LogsArgs, PageArgs};
use crate::client::{Client, Row};
use crate::error::Error;
use crate::output::{self, Paint, plain, safe};

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
    let filter = LogFilter {
        level: args.level,
        min_level: args.min_level,
        since: args.page.since,
        until: args.page.until,
        gear_id: args.gear.clone(),
        entity: args.entity.clone(),
        flux_id: args.flux_id,
        trace_id: args.trace_id,
        q: args.q.clone(),
        limit: Some(args.page.limit),
        ..LogFilter::default()
    };
    let page = Client::new(&args.page.api).page_within("/api/v1/telemetry/logs", &filter, args.page.wait)?;
    match args.page.api.output {
        Format::Table => lines(&page.rows)?,
        format => output::rows(&page.rows, COLUMNS, format)?,
    }
    super::notes(&page, super::NO_ROWS);
    Ok(())
}

pub(crate) fn dead_letters(args: &PageArgs) -> Result<(), Error> {
    let filter = LogFilter {
        since: args.since,
        until: args.until,
        limit: Some(args.limit),
        ..LogFilter::default()
    };
    let page = Client::new(&args.api).page_within("/api/v1/telemetry/dead_letters", &filter, args.wait)?;
    output::rows(&page.rows, LETTERS, args.api.output)?;
    super::notes(&page, "no dead letters in this window");
    Ok(())
}

fn lines(rows: &[Row]) -> io::Result<()> {
    let paint = Paint::for_stdout();
    let mut out = io::stdout().lock();
    let text = |row: &Row, key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for row in rows.iter().rev() {
        let attributes = row.get("attributes").map(plain).unwrap_or_default();
        writeln!(
            out,
            "{} {} {} {} {}",
            text(row, "ts"),
            paint.level(&text(row, "level")),
            safe(&text(row, "entity_name")),
            safe(&text(row, "message")),
            paint.dim(&attributes)
        )?;
    }
    out.flush()
}
