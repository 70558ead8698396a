//! Rollout status: which Racks run a scenario, and why others do not.

use std::io::Write;

use model::HumanDuration;
use serde_json::{Value, json};

use crate::args::{ApiArgs, OutputFormat};
use crate::client::{self, Row};
use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::output::{RowPrinter, plain};

const COLUMNS: &[&str] = &["rack", "state", "wanted", "running", "converged", "gears", "reason"];
/// Where a table has no room: the reasons stand below it.
const BRIEF: &[&str] = &["rack", "state", "wanted", "running", "converged"];

/// The report that an answer is.
pub(super) fn of(answer: Value) -> Result<Row, Error> {
    client::one(answer, "it is not a status report")
}

/// The Racks as a table for people; the report itself for programs.
pub(super) fn print(report: &Row, api: &ApiArgs) -> Result<(), Error> {
    notes(report);
    let printer = RowPrinter::from(api);
    if matches!(api.output, OutputFormat::Json | OutputFormat::Ndjson) {
        return Ok(printer.rows(std::slice::from_ref(report), &[])?);
    }
    let rows = racks(report);
    if printer.is_fitting(&rows, COLUMNS) {
        return Ok(printer.rows(&rows, COLUMNS)?);
    }
    let reasons: String = rows.iter().filter_map(reason).collect();
    Ok(printer.text(&format!("{}{reasons}", printer.table(&rows, BRIEF)))?)
}

/// Why a Rack does not run what it should, on a line of its own, whole.
fn reason(rack: &Row) -> Option<String> {
    let reason = rack["reason"].as_str()?;
    Some(format!("{}: {}\n", plain(&rack["rack"]), escape_controls(reason)))
}

fn racks(report: &Row) -> Vec<Row> {
    let racks = report.get("racks").and_then(Value::as_array).into_iter().flatten();
    racks.filter_map(row).collect()
}

/// A scenario in a word: its reference, or the beginning of its hash where the Mixer does not know it.
pub(crate) fn word(scenario: &Value) -> Option<String> {
    let reference = scenario["reference"].as_str().filter(|reference| !reference.is_empty());
    let hash = || scenario["hash"].as_str().map(|hash| hash.chars().take(12).collect());
    reference.map(str::to_owned).or_else(hash)
}

fn row(rack: &Value) -> Option<Row> {
    let gears = rack["gears"].as_array().into_iter().flatten();
    let gears: Vec<_> = gears.filter_map(Value::as_str).collect();
    let row = json!({
        "rack": rack["name"],
        "state": rack["state"],
        "wanted": word(&rack["wanted"]),
        "running": word(&rack["running"]),
        "converged": rack["converged"],
        "gears": gears.join(" "),
        "reason": rack["reason"],
    });
    row.as_object().cloned()
}

/// What activating a scenario does to a wire.
fn rewired(wire: &Value) -> String {
    let waiting = || {
        wire["waiting"].as_u64().map_or_else(
            || "what waits".to_owned(),
            |count| format!("{count} waiting bus messages"),
        )
    };
    match wire["change"].as_str().unwrap_or_default() {
        "begins" => "starts with messages from then on".to_owned(),
        "resumes" => {
            "resumes where it was paused; with --resume-from now, it starts with messages from then on".to_owned()
        }
        "takes_over" => {
            let from = wire["from"].as_str().unwrap_or_default();
            format!("takes over {} from {}", waiting(), escape_controls(from))
        }
        "pauses" => format!(
            "pauses; {} stay on the bus while it has room, and in the table messages",
            waiting()
        ),
        other => escape_controls(other).into_owned(),
    }
}

/// Says on standard error what is active, and what its author should know.
fn notes(report: &Row) {
    let mut out = std::io::stderr().lock();
    let text = |value: &Value| {
        value
            .as_str()
            .map(|text| escape_controls(text).into_owned())
            .unwrap_or_default()
    };
    let reference = report
        .get("scenario")
        .map(|scenario| text(&scenario["reference"]))
        .unwrap_or_default();
    let activated = report.get("activated").map(text).unwrap_or_default();
    let _ = match (reference.as_str(), activated.as_str()) {
        ("", _) => writeln!(out, "platform: no scenario is active"),
        (reference, "") => writeln!(out, "platform: {reference} is not active"),
        (reference, since) => writeln!(out, "platform: {reference} is active since {since}"),
    };
    let wires = report.get("wires").and_then(Value::as_array).into_iter().flatten();
    for wire in wires {
        let _ = writeln!(out, "platform: wire {}: {}", text(&wire["wire"]), rewired(wire));
    }
    let warnings = report.get("warnings").and_then(Value::as_array).into_iter().flatten();
    for warning in warnings {
        let _ = writeln!(out, "platform: warning: {}", text(warning));
    }
}

/// An error if the answer was waited for and not every Rack runs the scenario.
pub(super) fn verdict(report: &Row, wait: Option<HumanDuration>) -> Result<(), Error> {
    let awaited = wait.is_none_or(|wait| !wait.get().is_zero());
    if !awaited || report.get("converged") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let racks = racks(report);
    let behind: Vec<_> = racks
        .iter()
        .filter(|rack| rack["converged"] == false)
        .filter_map(|rack| rack["rack"].as_str())
        .collect();
    Err(Error::Behind {
        behind: behind.join(", "),
        count: behind.len(),
        all: racks.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_rack_is_behind_is_a_line_of_its_own() {
        let report = json!({ "racks": [
            { "name": "shop", "reason": "gear door cannot start\nport taken", "converged": false },
            { "name": "office", "reason": null, "converged": true },
        ] });
        let rows = racks(report.as_object().unwrap_or(&Row::new()));
        let reasons: Vec<String> = rows.iter().filter_map(reason).collect();
        assert_eq!(reasons, ["shop: gear door cannot start\\nport taken\n"]);
    }
}
