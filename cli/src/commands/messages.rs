//! `platform messages`, once or as they come.

use std::borrow::Cow;

use model::filter::{MessageFilter, RawForm, TimePoint};
use serde_json::Value;

use super::tail::{self, FollowTarget};
use crate::args::{MessagesArgs, OutputFormat};
use crate::client::{ApiClient, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, TextPainter, plain};
use crate::span_tree::text;

const COLUMNS: &[&str] = &[
    "ts",
    "flux_id",
    "trace_id",
    "entity_name",
    "src_gear_id",
    "dst_gear_id",
    "msg_type",
    "direction",
    "status",
    "promoted",
];
const WITH_BYTES: &[&str] = &[
    "ts",
    "flux_id",
    "trace_id",
    "entity_name",
    "src_gear_id",
    "dst_gear_id",
    "msg_type",
    "direction",
    "status",
    "promoted",
    "raw_msg",
];

/// Exit code 1 if nothing has the id that was asked for. A table leaves out the bytes of messages, unless it is to say what is in them; JSON has them as hex.
pub(crate) fn run(args: &MessagesArgs) -> Result<(), Error> {
    let printer = RowPrinter::from(&args.page.api);
    let raw = args.raw.unwrap_or(match printer.format {
        OutputFormat::Json | OutputFormat::Ndjson => RawForm::Hex,
        OutputFormat::Table | OutputFormat::Csv => RawForm::None,
    });
    if args.follow {
        return tail::follow(&args.page.api, filter(args, raw)?, followed(raw));
    }
    let path = "/api/v1/messages";
    if args.all {
        let columns = if raw == RawForm::None { COLUMNS } else { WITH_BYTES };
        return super::every_row(path, &filter(args, raw)?, &args.page, columns);
    }
    let mut page = ApiClient::new(&args.page.api).page_within(path, &filter(args, raw)?, args.page.wait)?;
    let shown = match (printer.format, raw) {
        (_, RawForm::None) => None,
        (OutputFormat::Table, RawForm::Json) => {
            page.rows.iter_mut().for_each(add_body);
            Some("body")
        }
        _ => Some("raw_msg"),
    };
    let columns: Vec<&str> = COLUMNS.iter().copied().chain(shown).collect();
    printer.rows(&page.rows, &columns)?;
    if let Some(id) = asked_for(args).filter(|_| page.rows.is_empty()) {
        Error::if_partial(page.partial)?;
        return Err(Error::NotFound(format!(
            "no archived message {id}; platform flux ID finds its spans and log records too"
        )));
    }
    super::notes(
        &page,
        "no messages in this window (--since, --until; default: the last 24 h, or everything for one signal)",
    )
}

/// What is asked for by id: then it is an error that there is nothing.
fn asked_for(args: &MessagesArgs) -> Option<String> {
    let is_narrow = args.page.since.is_some() || args.page.until.is_some();
    match (args.flux_id, args.trace_id) {
        (Some(id), _) if is_narrow => Some(format!("of the signal {id} in this window")),
        (Some(id), _) => Some(format!("of the signal {id}")),
        (None, Some(id)) if is_narrow => Some(format!("of the trace {id} in this window")),
        (None, Some(id)) => Some(format!(
            "of the trace {id} in the last 24 h (--since goes further back)"
        )),
        (None, None) => None,
    }
}

/// The columns of CSV are the same for all messages: they are written before the first one comes.
fn followed(raw: RawForm) -> FollowTarget {
    FollowTarget {
        path: "/api/v1/messages/tail",
        columns: if raw == RawForm::None { COLUMNS } else { WITH_BYTES },
        line,
    }
}

/// A message for people, on a line: when, from where to where, what it is, which signal, and what is promoted or in it.
fn line(row: &Row, printer: RowPrinter, paint: TextPainter) -> String {
    let said = |key: &str| escape_controls(text(row, key)).into_owned();
    let shown = match row.get("raw_msg") {
        Some(Value::Object(bytes)) => escape_controls(&body(bytes)).into_owned(),
        Some(bytes) => plain(bytes),
        None => row.get("promoted").map(plain).unwrap_or_default(),
    };
    format!(
        "{} {}/{} → {} {} {} {shown}\n",
        printer.time(text(row, "ts")),
        said("entity_name"),
        said("src_gear_id"),
        said("dst_gear_id"),
        said("msg_type"),
        paint.dim(&said("flux_id")),
    )
}

fn filter(args: &MessagesArgs, raw: RawForm) -> Result<MessageFilter, Error> {
    let (since, until) = args.page.window()?;
    Ok(MessageFilter {
        flux_id: args.flux_id,
        trace_id: args.trace_id,
        rack_id: args.rack_id.clone(),
        entity: args.entity.clone(),
        src_gear_id: args.from.clone(),
        dst_gear_id: args.to.clone(),
        msg_type: args.msg_type.clone(),
        direction: args.direction,
        status: args.status,
        promoted: crate::args::values_by_key("promoted", &args.promoted)?,
        since: since.or(args.flux_id.map(|_| TimePoint::EVER)),
        until,
        raw: Some(raw),
        limit: Some(args.page.limit),
        ..MessageFilter::default()
    })
}

/// What people look for in a message that says what it is.
fn add_body(row: &mut Row) {
    if let Some(said) = row.get("raw_msg").and_then(Value::as_object) {
        let body = body(said).into_owned();
        row.insert("body".to_owned(), body.into());
    }
}

/// The body of a decoded message as one text, or why there is none.
pub(crate) fn body(said: &Row) -> Cow<'_, str> {
    match (said.get("body"), text(said, "error")) {
        (Some(Value::String(body)), _) => body.into(),
        (Some(Value::Null) | None, "") => "".into(),
        (Some(Value::Null) | None, error) => format!("(it cannot be read: {error})").into(),
        (Some(body), _) => body.to_string().into(),
    }
}
