//! Export: sends telemetry to an OpenTelemetry collector, from the store's log, until the collector has taken it.
//!
//! ```text
//! log ─ LogFollower ─> SignalExporter ─ rows ─> OTLP request, gzip ─ CollectorClient ─> collector
//!          ^                │                                                              │
//!          └─ settle ───────┴── accepted │ refused for good: a dead letter │ later: the same bytes again
//! ```
//!
//! # Invariants
//!
//! - A row is settled when the collector has accepted its request, or when a dead letter with it is durable; never before.
//! - A signal has one request in flight, so a collector gets its rows in the order of the log. Signals do not wait for each other.
//! - What the collector does not take for now stays in the log, however long. A refusal that an operator can mend (a wrong key, a
//!   wrong path) is no refusal for good; of others without an acceptance few become dead letters.
//!
//! # Not here
//!
//! What the log keeps and how far it may grow (`engine`), what rows are in OTLP (`protocols`), keys (`config`).

mod answer;
mod client;
mod endpoint;
mod letters;
mod pack;
mod refusal_log;
mod retry_pause;
mod signal_exporter;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use http::HeaderMap;
use model::{Clock, Entropy, Table};

use crate::tasks::{FailureReporter, SupervisedTask};
use client::CollectorClient;
pub(crate) use endpoint::{CollectorTarget, header_map};
pub(crate) use letters::EXPORT_SUBJECT;
use letters::LetterFiles;
use signal_exporter::SignalExporter;
pub(crate) use status::{ExportStatus, SignalStatus};

/// The signals that are exported, and the names of their tasks.
pub(crate) const SIGNALS: [(Table, &str); 3] = [
    (Table::Logs, "export of logs"),
    (Table::Traces, "export of traces"),
    (Table::Metrics, "export of metrics"),
];

/// How requests are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportCompression {
    /// gzip, which every collector unpacks.
    Gzip,
    /// Not at all.
    None,
}

/// Where telemetry is sent and how.
#[derive(Debug, Clone)]
pub(crate) struct ExportSettings {
    pub(crate) target: CollectorTarget,
    /// What every request has beside the protocol's own.
    pub(crate) headers: HeaderMap,
    pub(crate) compression: ExportCompression,
    /// How long one request may take, its answer included.
    pub(crate) timeout: Duration,
    /// The first wait before something is tried again; the next ones are longer.
    pub(crate) first_pause: Duration,
}

/// What an export needs beside its settings.
#[derive(Debug, Clone)]
pub(crate) struct ExportParts {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
}

/// Starts a task for each signal.
///
/// # Errors
/// If no client can be made: this machine's certificate authorities cannot be read.
pub(crate) fn start(
    settings: ExportSettings,
    parts: &ExportParts,
    fatal: &FailureReporter,
) -> Result<(Arc<ExportStatus>, Vec<SupervisedTask>), String> {
    let status = Arc::new(ExportStatus::new(settings.target.to_string()));
    let client = Arc::new(CollectorClient::new(settings, parts.clock.clone())?);
    let files = Arc::new(LetterFiles::default());
    tracing::info!(collector = status.collector(), "telemetry is exported");
    let mut tasks = Vec::new();
    for (signal, name) in SIGNALS {
        let Some(follower) = parts.engine.follow_log(signal) else {
            continue;
        };
        let (client, files, status) = (Arc::clone(&client), Arc::clone(&files), Arc::clone(&status));
        let exporter = SignalExporter::new(follower, client, parts.clone(), status, files);
        tasks.push(SupervisedTask::spawn(name, fatal, |stop| exporter.run(stop)));
    }
    Ok((status, tasks))
}
