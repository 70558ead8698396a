//! `platform gears`: the gear types of this program.

use std::io::Write;

use model::gear_manifest;
use serde_json::json;

use crate::args::{GearsArgs, GearsVerb};
use crate::error::Error;
use crate::gear_page;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &["type", "inputs", "outputs", "summary"];

pub(crate) fn run(args: &GearsArgs) -> Result<(), Error> {
    let format = match &args.verb {
        GearsVerb::List { output } => output,
        GearsVerb::Doc { kind } => return doc(kind.as_deref()),
    };
    let rows: Vec<_> = gear_spec::manifests()
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
    Ok(RowPrinter::of(*format).rows(&rows, COLUMNS)?)
}

fn doc(kind: Option<&str>) -> Result<(), Error> {
    let text = match kind {
        None => gear_page::all(gear_spec::manifests()),
        Some(kind) => match gear_manifest::manifest(gear_spec::manifests(), kind) {
            Some(manifest) => gear_page::one(manifest),
            None => {
                let known = gear_manifest::names(gear_spec::manifests());
                return Err(Error::NotFound(format!(
                    "there is no gear type {kind:?}; known are {known}"
                )));
            }
        },
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
