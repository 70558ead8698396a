//! `platform audit`.

use model::filter::AuditFilter;

use crate::args::AuditArgs;
use crate::client::ApiClient;
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &[
    "ts",
    "kind",
    "by",
    "rack",
    "entity_id",
    "reference",
    "from",
    "to",
    "why",
];

pub(crate) fn run(args: &AuditArgs) -> Result<(), Error> {
    let (since, until) = args.page.window()?;
    let filter = AuditFilter {
        since,
        until,
        rack: args.rack.clone(),
        kind: args.kind.clone(),
        limit: Some(args.page.limit),
        cursor: None,
    };
    let page = ApiClient::new(&args.page.api).page_within("/api/v1/audit", &filter, args.page.wait)?;
    RowPrinter::from(&args.page.api).rows(&page.rows, COLUMNS)?;
    super::notes(&page, "no such events in this window")
}
