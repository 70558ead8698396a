//! What a program writes to standard error, as log records: a bounded number of lines, the rest counted.
//!
//! # Invariants
//!
//! - The lines have a rate limit of their own, for all runs of the gear: they take nothing from what the gear may say of itself, such as
//!   how a run ended.
//! - A line that is left out is counted, and the count is told: with the next line that is not, or when the gear stops.

use std::time::Instant;

use chassis::config::LogThrottleConfig;
use chassis::log_rate_limiter::{AdmissionDecision, LogRateLimiter};
use model::{Attributes, Level};

use super::super::level_detection::level_of;
use super::line_splitter::OutputLine;
use crate::telemetry::{LogRow, TelemetryRecorder};

/// Lines at once.
const BURST: u32 = 1000;
/// Lines a second beyond.
const RATE: f64 = 100.0;
/// The longest line, in bytes; the rest of a longer one is left out.
pub(super) const MAX_LINE: usize = 8 << 10;
/// The only name in the throttle.
const STREAM: &str = "stderr";

/// The standard error of all runs.
pub(super) struct ErrorLog<'a> {
    recorder: &'a TelemetryRecorder,
    throttle: LogRateLimiter,
}

impl<'a> ErrorLog<'a> {
    pub(super) fn new(recorder: &'a TelemetryRecorder) -> Self {
        let rules = LogThrottleConfig {
            enabled: true,
            rate: RATE,
            burst: BURST,
        };
        Self {
            recorder,
            throttle: LogRateLimiter::new(rules),
        }
    }

    pub(super) fn write(&self, line: &OutputLine) {
        match self.throttle.admit(STREAM, Instant::now()) {
            AdmissionDecision::Yes => {}
            AdmissionDecision::YesAfter { suppressed } => self.tell(suppressed),
            AdmissionDecision::No => return,
        }
        let text = String::from_utf8_lossy(&line.bytes).into_owned();
        let mut attributes = Attributes::new();
        if line.is_truncated {
            attributes.set("truncated", true);
        }
        self.record(level_of(&text).unwrap_or(Level::Warn), text, attributes);
    }

    /// No run follows.
    pub(super) fn end(self) {
        match self.throttle.forget(STREAM) {
            0 => {}
            suppressed => self.tell(suppressed),
        }
    }

    fn tell(&self, suppressed: u64) {
        let attributes = Attributes::new().with("log.suppressed", suppressed);
        let text = format!("{suppressed} lines of standard error were left out: more than {RATE} a second");
        self.record(Level::Warn, text, attributes);
    }

    fn record(&self, level: Level, message: String, attributes: Attributes) {
        self.recorder.log_data(LogRow {
            ts: self.recorder.now(),
            level,
            message,
            attributes: attributes.with("log.iostream", STREAM),
            flux_id: None,
        });
    }
}
