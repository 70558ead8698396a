//! Tracing layer: records the Rack's own log lines as log records.
//!
//! # Invariants
//!
//! - Events of the telemetry way itself are left out, or a failing bus would feed itself; so are lines that a gear recorded
//!   already.
//! - Recording an event emits none.

use std::fmt::Write as _;
use std::sync::Arc;

use model::{Attributes, Level, Timestamp};
use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::{LogRow, TelemetryRecorder};

/// Whose events become records.
const OURS: [&str; 3] = ["rack", "chassis", "platform"];
/// Whose do not, although they begin like one of [`OURS`].
const NOT: [&str; 2] = ["rack::telemetry", "chassis::bus"];

/// A tracing layer that hands events to the recorder that is attached to it, if one is.
#[derive(Debug, Clone, Default)]
pub struct TelemetryLayer(Arc<RwLock<Option<TelemetryRecorder>>>);

impl TelemetryLayer {
    /// From now on events become records of this recorder.
    pub(crate) fn attach(&self, recorder: TelemetryRecorder) {
        *self.0.write() = Some(recorder);
    }

    /// From now on they do not.
    pub(crate) fn detach(&self) {
        *self.0.write() = None;
    }
}

impl<S: Subscriber> Layer<S> for TelemetryLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !is_ours(event.metadata().target()) {
            return;
        }
        let Some(recorder) = self.0.read().clone() else { return };
        let row = row(event, recorder.now());
        recorder.log_data(row);
    }
}

fn is_ours(target: &str) -> bool {
    let within = |room: &&str| {
        target
            .strip_prefix(*room)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    OURS.iter().any(within) && !NOT.iter().any(within)
}

fn row(event: &Event<'_>, ts: Timestamp) -> LogRow {
    let mut fields = EventFieldVisitor::default();
    event.record(&mut fields);
    let level = match *event.metadata().level() {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        _ => Level::Debug,
    };
    LogRow {
        ts,
        level,
        message: fields.message,
        attributes: fields.attributes.with("otel.scope.name", event.metadata().target()),
        flux_id: None,
    }
}

#[derive(Default)]
struct EventFieldVisitor {
    message: String,
    attributes: Attributes,
}

impl Visit for EventFieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.attributes.set(field.name(), format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.attributes.set(field.name(), value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.set(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.set(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.attributes.set(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.attributes.set(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_our_own_events_become_records_and_not_those_of_the_telemetry_way() {
        for ours in ["rack", "rack::agent", "rack::spool::log", "chassis::config", "platform"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "rack::telemetry::sender",
            "chassis::bus",
            "async_nats",
            "gear",
            "racket",
            "tokio",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
