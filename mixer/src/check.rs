//! `platform-mixer check [--deep]`: is every data file what the catalogue recorded, as text or JSON.
//!
//! # Not here
//!
//! The comparison ([`engine::check_store`]). Repair.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use chassis::Exit;
use engine::{CheckReport, ErrorKind};
use model::ByteSize;

use crate::app::settings;
use crate::config::MixerConfig;
use crate::retention::Output;

/// Checks the store of this configuration, beside a running Mixer or not. The report, and [`Exit::Data`] if there is damage.
///
/// # Errors
/// A sentence and an exit code if there is no store, its catalogue is damaged, or it cannot be read.
pub fn check(config: &MixerConfig, deep: bool, output: Output) -> Result<(String, Exit), (Exit, String)> {
    let mut stderr = std::io::stderr();
    let shown = stderr.is_terminal();
    let progress = |done: u64, all: u64| {
        if shown {
            let end = if done == all { "\n" } else { "" };
            // Who closed standard error does not want it.
            let _ = write!(stderr, "\r{done} of {all} files{end}");
        }
    };
    let report = engine::check_store(&settings::engine(config), deep, progress).map_err(|error| {
        let exit = match error.kind() {
            ErrorKind::Setting => Exit::Config,
            ErrorKind::Damage => Exit::Data,
            _ => Exit::Io,
        };
        (exit, error.to_string())
    })?;
    let exit = if report.problems.is_empty() {
        Exit::Ok
    } else {
        Exit::Data
    };
    let text = match output {
        Output::Json => format!("{}\n", serde_json::json!(report)),
        Output::Table => text(&report),
    };
    Ok((text, exit))
}

fn text(report: &CheckReport) -> String {
    let mut text = String::new();
    let CheckReport { files, rows, .. } = report;
    let compared = if report.deep {
        "every byte"
    } else {
        "lengths and footers; every byte with --deep"
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{files} data files, {rows} rows, {}: {compared}",
        ByteSize::bytes(report.bytes)
    );
    for problem in &report.problems {
        let _ = writeln!(
            text,
            "damaged: {}: {} ({} rows)",
            problem.path.display(),
            problem.what,
            problem.rows
        );
    }
    for path in &report.strangers {
        let _ = writeln!(text, "not in the catalogue: {}", path.display());
    }
    for path in &report.quarantined {
        let _ = writeln!(text, "put aside earlier: {}", path.display());
    }
    match report.problems.len() {
        0 => text.push_str("no damage\n"),
        count => {
            let _ = writeln!(text, "{count} damaged: put copies of these files back from a backup");
        }
    }
    text
}
