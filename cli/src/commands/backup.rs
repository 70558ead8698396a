//! `platform backup`.

use serde_json::json;

use crate::args::ApiArgs;
use crate::client::{self, ApiClient};
use crate::error::Error;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &["ts", "folder", "files"];

/// Has the Mixer make a backup, and says where it lies.
pub(crate) fn run(api: &ApiArgs) -> Result<(), Error> {
    let answer = ApiClient::new(api).post("/api/v1/backup", &json!({}))?;
    let made = client::one(answer, "it does not say where the backup is")?;
    RowPrinter::from(api).rows(&[made], COLUMNS)?;
    Ok(())
}
