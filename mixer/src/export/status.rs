//! The export's state: counters, what waits since when, and what went wrong last; for metrics, `/readyz` and operators.

use std::sync::atomic::{AtomicI64, Ordering};

use model::{AtomicCounter, Table, Timestamp};
use parking_lot::Mutex;

use super::SIGNALS;

/// The state of the export of all signals.
#[derive(Debug)]
pub(crate) struct ExportStatus {
    collector: String,
    signals: [SignalStatus; SIGNALS.len()],
}

/// The state of the export of one signal.
#[derive(Debug)]
pub(crate) struct SignalStatus {
    pub(crate) signal: Table,
    /// Rows that the collector accepted.
    pub(crate) rows: AtomicCounter,
    /// Requests that were sent, those that were sent again included.
    pub(crate) requests: AtomicCounter,
    /// Requests that were sent again.
    pub(crate) retries: AtomicCounter,
    /// Records that the collector rejected of requests that it accepted: all of a request if it did not say how many.
    pub(crate) rejected: AtomicCounter,
    /// Dead letters of what was refused or rejected.
    pub(crate) letters: AtomicCounter,
    /// When the oldest row arrived that is in hand, µs; 0 if none is.
    oldest: AtomicI64,
    trouble: Mutex<Option<ExportTrouble>>,
}

/// Why rows are not exported just now, or were not the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportTrouble {
    pub(crate) reason: String,
    /// Whether somebody has to change something.
    pub(crate) is_denied: bool,
    /// Since when nothing was exported.
    pub(crate) since: Timestamp,
}

impl ExportStatus {
    pub(super) fn new(collector: String) -> Self {
        let status = |(signal, _)| SignalStatus {
            signal,
            rows: AtomicCounter::default(),
            requests: AtomicCounter::default(),
            retries: AtomicCounter::default(),
            rejected: AtomicCounter::default(),
            letters: AtomicCounter::default(),
            oldest: AtomicI64::new(0),
            trouble: Mutex::default(),
        };
        Self {
            collector,
            signals: SIGNALS.map(status),
        }
    }

    /// The collector, as people may see it.
    pub(crate) fn collector(&self) -> &str {
        &self.collector
    }

    pub(crate) const fn signals(&self) -> &[SignalStatus] {
        &self.signals
    }

    pub(super) fn of(&self, signal: Table) -> Option<&SignalStatus> {
        self.signals.iter().find(|status| status.signal == signal)
    }

    /// Why something waits, signal by signal; and whether somebody has to change something.
    pub(crate) fn trouble(&self) -> Option<(String, bool)> {
        let waiting = self.signals.iter().filter(|status| status.oldest().is_some());
        let troubles = waiting.filter_map(|status| {
            let trouble = status.trouble()?;
            Some((
                format!("{} since {}: {}", status.signal, trouble.since, trouble.reason),
                trouble.is_denied,
            ))
        });
        let (texts, denied): (Vec<String>, Vec<bool>) = troubles.unzip();
        let is_denied = denied.contains(&true);
        (!texts.is_empty()).then(|| {
            let what = if is_denied {
                "refuses what it is sent, and does so until its settings or ours are changed"
            } else {
                "does not take what it is sent"
            };
            (
                format!("{} {what}; it waits in the log: {}", self.collector, texts.join("; ")),
                is_denied,
            )
        })
    }
}

impl SignalStatus {
    pub(crate) fn trouble(&self) -> Option<ExportTrouble> {
        self.trouble.lock().clone()
    }

    /// When the oldest row arrived that waits for its answer.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let micros = self.oldest.load(Ordering::Relaxed);
        (micros != 0).then_some(Timestamp::from_micros(micros))
    }

    /// Rows that arrived then are in hand; or none.
    pub(super) fn set_oldest(&self, arrived: Option<Timestamp>) {
        self.oldest
            .store(arrived.map_or(0, Timestamp::micros), Ordering::Relaxed);
    }

    /// Something went wrong. It is said once, and again when it becomes or ceases to be somebody's turn.
    pub(super) fn set_trouble(&self, reason: String, is_denied: bool, now: Timestamp) {
        let mut trouble = self.trouble.lock();
        let is_new = trouble.as_ref().is_none_or(|known| known.is_denied != is_denied);
        if is_new && is_denied {
            tracing::error!(
                signal = %self.signal,
                reason,
                "the collector refuses what it is sent: change its settings or observability.otlp; rows wait in the log"
            );
        } else if is_new {
            tracing::warn!(signal = %self.signal, reason, "telemetry cannot be exported now: it waits in the log");
        } else {
            tracing::debug!(signal = %self.signal, reason, "telemetry still cannot be exported");
        }
        let since = trouble.as_ref().map_or(now, |known| known.since);
        *trouble = Some(ExportTrouble {
            reason,
            is_denied,
            since,
        });
    }

    /// A request was settled.
    pub(super) fn clear_trouble(&self) {
        if self.trouble.lock().take().is_some() {
            tracing::info!(signal = %self.signal, "telemetry is exported again");
        }
    }
}
