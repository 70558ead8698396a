//! `platform messages`.

use model::filter::{MessageFilter, RawForm};

use crate::args::{Format, MessagesArgs};
use crate::client::Client;
use crate::error::Error;
use crate::output::Printer;

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

/// A table leaves out the bytes of messages; JSON has them as hex.
pub(crate) fn run(args: &MessagesArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let printer = Printer::from(&args.page.api);
    let shows_bytes = matches!(printer.format, Format::Json | Format::Ndjson);
    let filter = MessageFilter {
        flux_id: args.flux_id,
        trace_id: args.trace_id,
        entity: args.entity.clone(),
        src_gear_id: args.from.clone(),
        dst_gear_id: args.to.clone(),
        msg_type: args.msg_type.clone(),
        status: args.status,
        promoted: super::by_key("promoted", &args.promoted)?,
        since,
        until,
        raw: Some(if shows_bytes { RawForm::Hex } else { RawForm::None }),
        limit: Some(args.page.limit),
        ..MessageFilter::default()
    };
    let page = Client::new(&args.page.api).page_within("/api/v1/telemetry/messages", &filter, args.page.wait)?;
    printer.rows(&page.rows, COLUMNS)?;
    super::notes(
        &page,
        "no messages in this window (--since, --until; without them the last 24 h)",
    );
    Ok(())
}
