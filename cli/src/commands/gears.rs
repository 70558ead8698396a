//! `platform gears`: what gear types this program knows.

use serde_json::json;

use crate::args::{GearsArgs, GearsVerb};
use crate::error::Error;
use crate::output::Printer;

const COLUMNS: &[&str] = &["type", "inputs", "outputs", "summary"];

pub(crate) fn run(args: &GearsArgs) -> Result<(), Error> {
    let GearsVerb::List { output: format } = &args.verb;
    let rows: Vec<_> = rack::manifests()
        .iter()
        .filter_map(|gear| {
            json!({
                "type": gear.kind,
                "inputs": gear.inputs.join(","),
                "outputs": gear.outputs.join(","),
                "summary": gear.summary,
            })
            .as_object()
            .cloned()
        })
        .collect();
    Ok(Printer::of(*format).rows(&rows, COLUMNS)?)
}
