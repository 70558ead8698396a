//! What a gear counts: messages in and out, dropped messages, errors; reported as cumulative counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::{Attributes, MetricType};

use crate::telemetry::TelemetryRecorder;

/// A gear's counters. They live as long as the gear is deployed, over its restarts.
#[derive(Debug, Default)]
pub(crate) struct GearCounters {
    received: AtomicU64,
    sent: AtomicU64,
    dropped: AtomicU64,
    errors: AtomicU64,
}

impl GearCounters {
    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Relaxed);
    }

    pub(crate) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.lost(1);
    }

    pub(crate) fn lost(&self, count: u64) {
        self.dropped.fetch_add(count, Relaxed);
    }

    pub(crate) fn error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Records every counter as it stands.
    #[allow(clippy::cast_precision_loss, reason = "counts beyond 2^53 are out of reach")]
    pub(crate) fn report(&self, recorder: &TelemetryRecorder) {
        for (name, unit, count) in [
            ("gear.messages.in", "{message}", &self.received),
            ("gear.messages.out", "{message}", &self.sent),
            ("gear.messages.dropped", "{message}", &self.dropped),
            ("gear.errors", "{error}", &self.errors),
        ] {
            let value = count.load(Relaxed) as f64;
            recorder.metric(name, MetricType::Counter, value, unit, Attributes::new());
        }
    }
}
