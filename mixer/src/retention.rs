//! `platform-mixer retention --dry-run`: what rotation would remove now, as text or JSON.
//!
//! # Not here
//!
//! Removing: only the running Mixer does that, on its own, every `observability.embedded.rotation.check_interval`.

use std::fmt::Write as _;

use chassis::ExitReason;
use engine::{RetentionPolicy, RetentionPreview, RetentionReason};
use model::{ByteSize, Clock};

use crate::app::settings;
use crate::config::MixerConfig;
use crate::start_error::of_engine;

/// How to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ReportFormat {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
}

/// What rotation would remove now under this configuration, from the catalogue on disk; beside a running Mixer or not.
///
/// # Errors
/// A sentence and an exit code if there is no store or it cannot be read.
pub fn dry_run(config: &MixerConfig, clock: &Clock, output: ReportFormat) -> Result<String, (ExitReason, String)> {
    let settings = settings::engine(config);
    let preview = engine::preview_rotation(&settings, clock).map_err(|error| {
        let exit = of_engine(error.kind());
        (exit, error.to_string())
    })?;
    Ok(match output {
        ReportFormat::Json => format!("{}\n", serde_json::json!(preview)),
        ReportFormat::Table => text(&preview, &settings),
    })
}

fn rule(settings: &engine::Settings) -> String {
    let days = settings.max_age.as_secs() / 86_400;
    let size = settings.rotation.max_size;
    match settings.rotation.policy {
        RetentionPolicy::Time => format!("older than {days} days"),
        RetentionPolicy::Size => format!("oldest while the store has more than {size}"),
        RetentionPolicy::Both => format!("older than {days} days, or oldest while the store has more than {size}"),
    }
}

fn text(preview: &RetentionPreview, settings: &engine::Settings) -> String {
    let mut text = String::new();
    let total = ByteSize::bytes(preview.total_bytes);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "rule: {}\nstore: {} files, {total}\n",
        rule(settings),
        preview.files
    );
    if preview.removals.is_empty() {
        text.push_str("nothing would be removed\n");
    } else {
        let _ = writeln!(
            text,
            "{:<14}{:<16}{:>7}{:>14}{:>12}  why",
            "table", "partition", "files", "rows", "size"
        );
    }
    for removal in &preview.removals {
        let why = match removal.reason {
            RetentionReason::Age => "age",
            RetentionReason::Size => "size",
        };
        let _ = writeln!(
            text,
            "{:<14}{:<16}{:>7}{:>14}{:>12}  {why}",
            removal.table.name(),
            removal.partition,
            removal.files,
            removal.rows,
            ByteSize::bytes(removal.bytes).to_string(),
        );
    }
    if let Some(seconds) = preview.clock_ahead_seconds {
        let _ = writeln!(
            text,
            "\nthe clock is {seconds} s ahead of the store's last record: a Mixer that starts now waits as long, a day at most, \
             before it removes anything for its age"
        );
    }
    text
}
