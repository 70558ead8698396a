//! `platform-mixer check`: is every data file what the catalogue recorded, as text or JSON; with `--repair` and `--rebuild`
//! the store is made fit to start again, with `--rebuild-index` what is known of its files is made anew.
//!
//! # Not here
//!
//! The work itself ([`engine::check_store`], [`engine::repair_store`], [`engine::rebuild_catalogue`],
//! [`engine::rebuild_index`]).

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use chassis::ExitReason;
use engine::{CheckReport, FileProblem, IndexReport, RebuildReport};
use model::{ByteSize, Clock};
use serde::Serialize;

use crate::app::settings;
use crate::config::MixerConfig;
use crate::retention::ReportFormat;
use crate::start_error::of_engine;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read every byte.
    pub deep: bool,
    /// Take what is damaged or missing out of the store.
    pub repair: bool,
    /// Rebuild the catalogue.
    pub rebuild: bool,
    /// Rebuild the indexes.
    pub rebuild_index: bool,
}

/// Checks the store of this configuration; beside a running Mixer or not where nothing is to be changed. The report, and
/// [`ExitReason::Data`] if there is damage, repaired or not.
///
/// # Errors
/// A sentence and an exit code if there is no store, its catalogue is damaged, a Mixer has the store that is to be changed,
/// or it cannot be read.
pub fn check(
    config: &MixerConfig,
    clock: &Clock,
    task: CheckOptions,
    output: ReportFormat,
) -> Result<(String, ExitReason), (ExitReason, String)> {
    let settings = settings::engine_and_bucket(config).map_err(|error| (ExitReason::Config, error.to_string()))?;
    let checked = if task.rebuild_index {
        engine::rebuild_index(&settings, progress()).map(|report| {
            let exit = exit(&report.problems);
            (render(&report, output, indexed), exit)
        })
    } else if task.rebuild {
        engine::rebuild_catalogue(&settings, clock.now(), progress()).map(|report| {
            let exit = exit(&report.problems);
            (render(&report, output, rebuilt), exit)
        })
    } else {
        let report = if task.repair {
            engine::repair_store(&settings, task.deep, progress(), announce)
        } else {
            engine::check_store(&settings, task.deep, progress())
        };
        report.map(|report| {
            let exit = exit(&report.problems);
            (render(&report, output, text), exit)
        })
    };
    checked.map_err(|error| {
        let exit = of_engine(error.kind());
        (exit, error.to_string())
    })
}

const fn exit(problems: &[FileProblem]) -> ExitReason {
    if problems.is_empty() {
        ExitReason::Ok
    } else {
        ExitReason::Data
    }
}

fn progress() -> impl FnMut(u64, u64) {
    let mut stderr = std::io::stderr();
    let shown = stderr.is_terminal();
    move |done, all| {
        if shown {
            let end = if done == all { "\n" } else { "" };
            // Who closed standard error does not want it.
            let _ = write!(stderr, "\r{done} of {all} files{end}");
        }
    }
}

/// What becomes of a damaged copy whose object is sound.
const SOUND: &str =
    "no row is lost: the object in the bucket is sound, the file is fetched again from the bucket when it is read";

/// Says what is about to be taken out of the store.
fn announce(problem: &FileProblem) {
    let FileProblem { path, what, rows, .. } = problem;
    let outcome = if problem.object_is_sound {
        format!("quarantining the copy; {SOUND}")
    } else {
        format!("its {rows} rows leave the store, except those that are still in the log")
    };
    let _ = writeln!(
        std::io::stderr(),
        "platform-mixer: {}: {what}; {outcome}",
        path.display()
    );
}

fn render<R: Serialize>(report: &R, output: ReportFormat, text: fn(&R) -> String) -> String {
    match output {
        ReportFormat::Json => format!("{}\n", serde_json::json!(report)),
        ReportFormat::Table => text(report),
    }
}

fn list(text: &mut String, problems: &[FileProblem]) {
    for problem in problems {
        let FileProblem { path, what, rows, .. } = problem;
        // Writing to a string does not fail.
        let _ = write!(text, "damaged: {}: {what} ({rows} rows)", path.display());
        if let Some(kept) = &problem.kept {
            let _ = write!(text, "; now {}", kept.display());
        }
        let _ = match problem.object_is_sound {
            true => writeln!(text, "; {SOUND}"),
            false => writeln!(text),
        };
    }
}

fn text(report: &CheckReport) -> String {
    let mut text = String::new();
    let CheckReport { files, rows, .. } = report;
    let compared = if report.deep {
        "every byte"
    } else {
        "lengths and footers; every byte with --deep"
    };
    let _ = writeln!(
        text,
        "{files} data files, {rows} rows, {}: {compared}",
        ByteSize::bytes(report.bytes)
    );
    list(&mut text, &report.problems);
    for path in &report.strangers {
        let _ = writeln!(text, "not in the catalogue: {}", path.display());
    }
    for path in &report.quarantined {
        let _ = writeln!(text, "quarantined: {}", path.display());
    }
    let copies = report.problems.iter().filter(|problem| problem.object_is_sound).count();
    let lost = report.problems.len() - copies;
    let _ = match (copies, report.repaired) {
        (0, _) => Ok(()),
        (_, true) => writeln!(
            text,
            "{copies} damaged copies quarantined: all of their rows are still in the store"
        ),
        (_, false) => writeln!(
            text,
            "{copies} damaged copies of sound objects: quarantine them with --repair, no row is lost"
        ),
    };
    let _ = match (lost, report.repaired) {
        (0, _) if copies > 0 => Ok(()),
        (0, _) => writeln!(text, "no damage"),
        (_, true) => writeln!(
            text,
            "{lost} damaged, taken out of the store: it starts without their rows"
        ),
        (_, false) => writeln!(
            text,
            "{lost} damaged: put copies of these files back from a backup, or take them out of the store with --repair"
        ),
    };
    text
}

fn indexed(report: &IndexReport) -> String {
    let mut text = String::new();
    let IndexReport { files, bytes, .. } = report;
    let _ = writeln!(text, "{files} indexes, {}", ByteSize::bytes(*bytes));
    for FileProblem { path, what, rows, .. } in &report.problems {
        let _ = writeln!(text, "not indexed: {}: {what} ({rows} rows)", path.display());
    }
    text
}

fn rebuilt(report: &RebuildReport) -> String {
    let mut text = String::new();
    let RebuildReport { files, rows, .. } = report;
    let _ = writeln!(
        text,
        "a new catalogue of {files} data files, {rows} rows, {}",
        ByteSize::bytes(report.bytes)
    );
    list(&mut text, &report.problems);
    for path in &report.strangers {
        let _ = writeln!(text, "not of this store: {}", path.display());
    }
    for unknown in &report.unknown {
        let _ = writeln!(text, "not known: {unknown}");
    }
    if let Some(kept) = &report.kept {
        let _ = writeln!(text, "the old catalogue is kept in {}", kept.display());
    }
    text.push_str("start the Mixer: it replays the log\n");
    text
}
