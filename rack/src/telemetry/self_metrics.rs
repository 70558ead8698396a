//! Self-metrics of the Rack's telemetry, and a log line when rows were dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::{Attributes, MetricType};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{TelemetryCounters, TelemetryRecorder};
use crate::spool::SpoolHandle;

/// How often the figures are recorded.
const INTERVAL: Duration = Duration::from_secs(15);

/// The task that records them.
pub(crate) struct SelfMetrics {
    pub(crate) recorder: TelemetryRecorder,
    pub(crate) spool: SpoolHandle,
    pub(crate) counters: Arc<TelemetryCounters>,
    pub(crate) cancel: CancellationToken,
}

impl SelfMetrics {
    /// Runs until cancelled.
    pub(crate) async fn run(self) {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = 0;
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => break,
                _ = tick.tick() => self.record(&mut told),
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "metric values are doubles")]
    fn record(&self, told: &mut u64) {
        let status = self.spool.status();
        let age = status
            .waiting_since
            .map_or(0.0, |since| self.recorder.now().since(since).as_secs_f64());
        let gauge = |name, value, unit| {
            self.recorder
                .metric(name, MetricType::Gauge, value, unit, Attributes::new())
        };
        gauge("rack.spool.size", status.bytes as f64, "By");
        gauge("rack.spool.waiting", status.waiting_bytes as f64, "By");
        gauge("rack.spool.age", age, "s");
        let memory = self.counters.dropped_in_memory.load(Relaxed);
        let dropped = [
            ("memory", memory),
            ("spool", status.dropped_rows),
            ("encoding", self.counters.unencodable.load(Relaxed)),
        ];
        for (place, rows) in dropped {
            let labels = Attributes::new().with("place", place);
            self.recorder.metric(
                "rack.telemetry.dropped",
                MetricType::Counter,
                rows as f64,
                "{row}",
                labels,
            );
        }
        for (name, unit, counter) in [
            ("rack.telemetry.rows", "{row}", &self.counters.rows),
            ("rack.telemetry.batches", "{batch}", &self.counters.batches),
            ("rack.telemetry.sent", "{batch}", &self.counters.sent),
            ("rack.telemetry.acked", "{batch}", &self.counters.acked),
            ("rack.telemetry.resends", "{resend}", &self.counters.resends),
            ("rack.telemetry.replaced", "{batch}", &self.counters.replaced),
            ("rack.rpc.rejected_replies", "{reply}", &self.counters.passed_over),
        ] {
            let value = counter.load(Relaxed) as f64;
            self.recorder
                .metric(name, MetricType::Counter, value, unit, Attributes::new());
        }
        self.recorder.report_suppressed();
        if memory > *told {
            tracing::warn!(
                rows = memory - *told,
                "telemetry came faster than it could be written: the oldest rows were dropped"
            );
            *told = memory;
        }
    }
}
