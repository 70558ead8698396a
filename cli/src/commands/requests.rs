//! `platform requests`: changes that wait for a second person.

use serde_json::json;

use crate::args::{RequestsArgs, RequestsVerb};
use crate::client::{self, ApiClient};
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &[
    "id",
    "change",
    "rack",
    "reference",
    "details",
    "requested_by",
    "requested",
    "until",
];

pub(crate) fn run(args: &RequestsArgs) -> Result<(), Error> {
    match &args.verb {
        RequestsVerb::List(api) => {
            let page = ApiClient::new(api).page("/api/v1/requests", &())?;
            RowPrinter::from(api).rows(&page.rows, COLUMNS)?;
            super::notes(&page, "no change waits for a second person")
        }
        RequestsVerb::Withdraw { id, api } => {
            let gone = ApiClient::new(api).post(&format!("/api/v1/requests/{id}/withdraw"), &json!({}))?;
            Ok(RowPrinter::from(api).rows(&[client::one(gone, "it is not a request")?], COLUMNS)?)
        }
    }
}
