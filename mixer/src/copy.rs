//! `platform-mixer copy FROM TO`: copies a store between a folder and a bucket.
//!
//! # Not here
//!
//! The work itself ([`engine::copy_to_remote`], [`engine::copy_from_remote`]).

use std::io::{IsTerminal, Write};

use chassis::ExitReason;
use engine::{CopyReport, RemoteSettings, Settings};
use model::{Clock, Entropy};

use crate::app::settings;
use crate::bucket;
use crate::config::MixerConfig;
use crate::retention::ReportFormat;
use crate::start_error::of_engine;

/// Copies the store at `from` to `to`; one of them is a folder (a `store.dir`), the other an `s3://` URL. The report.
///
/// # Errors
/// A sentence and an exit code if there is no store at `from`, one at `to`, or either cannot be used.
pub fn copy(
    config: &MixerConfig,
    (clock, entropy): (&Clock, &Entropy),
    (from, to): (&str, &str),
    output: ReportFormat,
) -> Result<String, (ExitReason, String)> {
    let bucket = |url: &str| -> Result<RemoteSettings, (ExitReason, String)> {
        let allow_http = config.storage.allow_http;
        bucket::of_url(url, allow_http, std::env::vars()).map_err(|error| (ExitReason::Config, error.to_string()))
    };
    let folder = |dir: &str| folder(config, dir);
    let copied = match (is_url(from), is_url(to)) {
        (false, true) => engine::copy_to_remote(&folder(from), &bucket(to)?, clock.now(), entropy, progress()),
        (true, false) => engine::copy_from_remote(&bucket(from)?, &folder(to), entropy, progress()),
        _ => {
            let sentence = format!("{from} and {to}: one must be a folder, a store.dir, the other an s3:// URL");
            return Err((ExitReason::Usage, sentence));
        }
    };
    let report = copied.map_err(|error| {
        let exit = of_engine(error.kind());
        (exit, error.to_string())
    })?;
    Ok(match output {
        ReportFormat::Json => format!("{}\n", serde_json::json!(report)),
        ReportFormat::Table => text(&report, from, to),
    })
}

fn is_url(place: &str) -> bool {
    place.contains("://")
}

/// The settings of a store in a folder. The configured one may have its data files elsewhere.
fn folder(config: &MixerConfig, dir: &str) -> Settings {
    if config.store.dir == std::path::Path::new(dir) {
        settings::engine(config)
    } else {
        Settings {
            compression: config.storage.compression,
            ..Settings::new(dir)
        }
    }
}

fn text(report: &CopyReport, from: &str, to: &str) -> String {
    let CopyReport {
        files,
        rows,
        bytes,
        there_before,
        sealed,
    } = report;
    let mut text = format!(
        "{files} files, {rows} rows, {bytes} bytes copied from {from} to {to}, each compared with its checksum\n"
    );
    if *there_before > 0 {
        text.push_str(&format!("{there_before} of them had been copied before\n"));
    }
    if *sealed > 0 {
        text.push_str(&format!("{sealed} of them were open and are sealed in the copy\n"));
    }
    text
}

/// A bar on standard error, where somebody looks.
fn progress() -> impl FnMut(u64, u64) {
    const WIDTH: u64 = 30;
    let mut stderr = std::io::stderr();
    let shown = stderr.is_terminal();
    move |done, all| {
        if shown {
            let full = usize::try_from((WIDTH * done).checked_div(all).unwrap_or(WIDTH)).unwrap_or(0);
            let empty = usize::try_from(WIDTH).unwrap_or(0).saturating_sub(full);
            let end = if done == all { "\n" } else { "" };
            // Who closed standard error does not want it.
            let _ = write!(
                stderr,
                "\r[{}{}] {done} of {all} files{end}",
                "#".repeat(full),
                ".".repeat(empty)
            );
        }
    }
}
