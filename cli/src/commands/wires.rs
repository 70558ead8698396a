//! `platform wires`.

use crate::args::ApiArgs;
use crate::client::Client;
use crate::error::Error;
use crate::output::Printer;

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
    let page = Client::new(api).page("/api/v1/wires", &())?;
    Ok(Printer::from(api).rows(&page.rows, COLUMNS)?)
}
