//! `platform gears`: the gear types of this program.

use std::io::Write;

use model::gear_manifest;
use serde_json::json;

use crate::args::{GearsArgs, GearsVerb};
use crate::error::Error;
use crate::gear_page;
use crate::nearest_word::nearest;
use crate::output::RowPrinter;

const COLUMNS: &[&str] = &["type", "inputs", "outputs", "summary"];
const BRIEF: &[&str] = &["type", "summary"];

pub(crate) fn run(args: &GearsArgs) -> Result<(), Error> {
    let (format, wide) = match &args.verb {
        GearsVerb::List { output, wide } => (*output, *wide),
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
    let printer = RowPrinter::of(format).fitting(wide);
    if printer.is_fitting(&rows, COLUMNS) {
        return Ok(printer.rows(&rows, COLUMNS)?);
    }
    // All four would leave a few words of each summary.
    printer.rows(&rows, BRIEF)?;
    super::note("no room for inputs and outputs; --wide shows all columns");
    Ok(())
}

fn doc(kind: Option<&str>) -> Result<(), Error> {
    let text = match kind {
        None => gear_page::all(gear_spec::manifests()),
        Some(kind) => match gear_manifest::manifest(gear_spec::manifests(), kind) {
            Some(manifest) => gear_page::one(manifest),
            None => {
                let kinds = gear_spec::manifests().iter().map(|gear| gear.kind);
                let meant = nearest(kind, kinds).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
                let known = gear_manifest::names(gear_spec::manifests());
                return Err(Error::NotFound(format!(
                    "there is no gear type {kind:?}; known are {known}{meant}"
                )));
            }
        },
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
