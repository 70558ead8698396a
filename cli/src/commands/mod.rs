//! One file per noun. Each takes its parsed flags, asks the Mixer, prints.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod catalog;
pub(crate) mod config;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod flux;
pub(crate) mod gears;
pub(crate) mod init;
pub(crate) mod join;
pub(crate) mod logs;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod program;
pub(crate) mod racks;
pub(crate) mod requests;
pub(crate) mod scenario;
pub(crate) mod schema;
pub(crate) mod spec;
pub(crate) mod sql;
pub(crate) mod storage;
pub(crate) mod tail;
pub(crate) mod tap;
mod timeline;
pub(crate) mod tokens;
pub(crate) mod traces;
pub(crate) mod wires;

use std::io::{self, BufWriter, Write};

use model::filter::{MAX_LIMIT, SortOrder, TimePoint};
use serde::Serialize;

use crate::args::{OutputFormat, PageArgs};
use crate::client::{ApiClient, ResultPage};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::nearest_word::nearest;
use crate::output::RowPrinter;
use crate::span_tree::text;

/// What an answer without rows means where rows were expected.
const NO_ROWS: &str = "no rows in this window (--since, --until; default: the last 24 h); `platform racks list` shows \
                       who reports, --wait 30s waits for the first row";

/// The parameters of one page of many.
#[derive(Serialize)]
struct PageParams<'a, F> {
    #[serde(flatten)]
    filter: &'a F,
    until: TimePoint,
    order: SortOrder,
    limit: u32,
    cursor: Option<String>,
}

/// Prints every row of a list up to now, the oldest first, and holds one page of them at a time.
fn every_row<F: Serialize>(path: &str, filter: &F, args: &PageArgs, columns: &[&str]) -> Result<(), Error> {
    let printer = RowPrinter::from(&args.api);
    if !matches!(printer.format, OutputFormat::Csv | OutputFormat::Ndjson) {
        return Err(Error::Usage("--all prints csv or ndjson: add --output csv".to_owned()));
    }
    let client = ApiClient::new(&args.api);
    let (_, until) = args.window()?;
    let mut params = PageParams {
        filter,
        until: until.unwrap_or_else(|| TimePoint::At(chassis::system_clock().now())),
        order: SortOrder::Asc,
        limit: MAX_LIMIT,
        cursor: None,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    printer.begin(&mut out, columns)?;
    let mut partial = Vec::new();
    loop {
        let page = match client.page(path, &params) {
            // So many are not within the memory of queries; what came is said already.
            Err(Error::Refused { status: 422, .. }) if params.limit > 1 => {
                params.limit /= 2;
                continue;
            }
            page => page?,
        };
        for row in &page.rows {
            printer.one(&mut out, row, columns, |_| String::new())?;
        }
        partial.extend(page.partial);
        if page.next_cursor.is_none() {
            break;
        }
        params.cursor = page.next_cursor;
    }
    out.flush()?;
    partial.dedup();
    Error::if_partial(partial)
}

/// What an answer without rows means: that the entity asked for has none, if another one may be meant.
fn no_rows(client: &ApiClient, page: &ResultPage, entity: Option<&str>) -> String {
    let asked = entity.filter(|_| page.rows.is_empty());
    let racks = asked.and_then(|_| client.page("/api/v1/racks", &()).ok());
    let names = racks.iter().flat_map(|page| &page.rows).map(|rack| text(rack, "name"));
    let meant = asked.and_then(|asked| Some((asked, nearest(asked, names)?)));
    match meant {
        Some((asked, meant)) if asked != meant => format!("no rows of {asked} in this window; did you mean {meant}?"),
        _ => NO_ROWS.to_owned(),
    }
}

/// Says on standard error that there are rows behind the page, or `none` if there is nothing in it. An error if it is partial.
fn notes(page: &ResultPage, none: &str) -> Result<(), Error> {
    if page.rows.is_empty() {
        note(none);
    }
    if page.next_cursor.is_some() {
        note("there are more rows; raise --limit or narrow --since/--until");
    }
    Error::if_partial(page.partial.clone())
}

/// Says something on standard error.
fn note(says: &str) {
    let _ = writeln!(io::stderr(), "platform: {}", escape_controls(says));
}
