//! `platform wires`.

use crate::args::ApiArgs;
use crate::client::ApiClient;
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &[
    "wire",
    "waiting_batches",
    "waiting_bytes",
    "limit_bytes",
    "is_held",
    "is_paused",
    "overflow",
    "dropped_messages",
];

pub(crate) fn run(api: &ApiArgs) -> Result<(), Error> {
    let page = ApiClient::new(api).page("/api/v1/wires", &())?;
    RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
    super::notes(
        &page,
        "no wires of lane guaranteed; `platform scenario status` shows what is active",
    )
}
