//! The span of a gear over a message: one for each gear that made or handled it.
//!
//! | the gear | `span.kind` | attributes |
//! |---|---|---|
//! | made the message for a request (`http_in`) | `server` | `http.*`, `url.*`, `server.*`, `client.address` |
//! | makes a request of it (`http_out`) | `client` | `http.*`, `url.full`, `server.*` |
//! | got it over the bus, or from a broker | `consumer` | `messaging.*` |
//! | sent it over the bus, or to a broker | `producer` | `messaging.*` |
//! | did none of these | absent | |
//!
//! # Invariants
//!
//! - Sampling is decided where the trace begins and carried along.
//! - A span ends when nobody works on it any more: a task that a gear begins for a message holds it open.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use model::message::Message;
use model::{Attributes, SpanId, SpanStatus, subject};
use parking_lot::Mutex;

use super::GearContext;
use crate::telemetry::{SpanRow, TelemetryRecorder};

tokio::task_local! {
    static CURRENT: OpenSpan;
}

/// The attribute that says which part of an exchange a span is.
const SPAN_KIND: &str = "span.kind";
/// The attribute that says how an exchange failed.
const ERROR_TYPE: &str = "error.type";
/// The attribute that names the system a message went through.
const MESSAGING_SYSTEM: &str = "messaging.system";

impl GearContext {
    /// Begins this gear's span over a message that arrived, over the bus if it has a subject: the message's sender becomes the parent.
    pub(crate) fn arrive(&self, message: &mut Message, subject: Option<&str>) -> OpenSpan {
        self.meter.received();
        let parent = std::mem::replace(&mut message.span_id, self.new_span_id());
        let span = self.open_span(message, Some(parent), Instant::now());
        span.edit(|row| row.ts = self.parts.recorder.now());
        if let Some(subject) = subject {
            span.set_messaging("nats", "consumer", subject);
        }
        span
    }

    /// Begins this gear's span over a message that it made.
    pub(crate) fn open_span(&self, message: &Message, parent: Option<SpanId>, began: Instant) -> OpenSpan {
        let open = |row| UnfinishedSpan {
            recorder: self.parts.recorder.clone(),
            row: Mutex::new(Some(row)),
            began,
        };
        let row = message.sampled.then(|| SpanRow {
            ts: message.ts,
            trace_id: message.trace_id,
            span_id: message.span_id,
            parent_span_id: parent,
            flux_id: Some(message.flux_id),
            span_name: self.span_name.clone(),
            duration_ms: 0.0,
            status: SpanStatus::Error,
            attributes: Attributes::new().with("messaging.message.body.size", message.raw.len()),
        });
        OpenSpan(row.map(open).map(Arc::new))
    }

    /// Says of the current span that its message left the Rack by a port.
    pub(super) fn mark_published(&self, port: &str) {
        let span = OpenSpan::current();
        if span.0.is_none() {
            return;
        }
        if let (Some(rack), Ok(port)) = (self.rack(), port.parse()) {
            span.set_messaging("nats", "producer", &subject::message(&rack, &self.name, &port));
        }
    }
}

/// A span, unless its trace is not kept. It has failed unless it is said otherwise, so that a panic leaves its trace.
#[derive(Clone, Default)]
pub(crate) struct OpenSpan(Option<Arc<UnfinishedSpan>>);

struct UnfinishedSpan {
    recorder: TelemetryRecorder,
    row: Mutex<Option<SpanRow>>,
    began: Instant,
}

impl OpenSpan {
    /// That of the message that is being handled or sent.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Does work of the span.
    pub(crate) async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), work).await
    }

    /// Says whether it worked. An exchange of it that has failed meanwhile has failed.
    pub(crate) fn set_outcome<T, E>(&self, outcome: &Result<T, E>) {
        self.edit(|row| {
            row.status = match row.attributes.get(ERROR_TYPE) {
                None if outcome.is_ok() => SpanStatus::Ok,
                None | Some(_) => SpanStatus::Error,
            };
        });
    }

    /// Says which part of an exchange of HTTP it is.
    pub(crate) fn set_http(&self, kind: &str, facts: impl FnOnce() -> Attributes) {
        self.edit(|row| {
            row.attributes.set(SPAN_KIND, kind);
            for (key, value) in facts().as_map() {
                row.attributes.set(key, value.clone());
            }
        });
    }

    /// Says that an exchange of HTTP ended without an answer.
    pub(crate) fn set_no_answer(&self) {
        self.edit(|row| {
            row.status = SpanStatus::Error;
            row.attributes.set(ERROR_TYPE, "no_answer");
        });
    }

    /// Says how often a request of HTTP was sent again.
    pub(crate) fn set_resends(&self, count: u32) {
        self.edit(|row| row.attributes.set("http.request.resend_count", count));
    }

    /// Says what an exchange of HTTP ended with, and whether that means that it failed.
    pub(crate) fn set_answer(&self, code: u16, status: SpanStatus) {
        self.edit(|row| {
            row.status = status;
            row.attributes.set("http.response.status_code", code);
            if status == SpanStatus::Error {
                row.attributes.set(ERROR_TYPE, code.to_string());
            }
        });
    }

    /// Says where a message came from or went, unless that is known: who passes on what came over the bus is a consumer.
    pub(crate) fn set_messaging(&self, system: &str, kind: &str, destination: &str) {
        self.edit(|row| {
            if row.attributes.get(MESSAGING_SYSTEM).is_some() {
                return;
            }
            let operation = if kind == "consumer" { "process" } else { "send" };
            for (key, value) in [
                (MESSAGING_SYSTEM, system),
                ("messaging.operation.type", operation),
                ("messaging.destination.name", destination),
            ] {
                row.attributes.set(key, value);
            }
            if row.attributes.get(SPAN_KIND).is_none() {
                row.attributes.set(SPAN_KIND, kind);
            }
        });
    }

    fn edit(&self, change: impl FnOnce(&mut SpanRow)) {
        if let Some(span) = &self.0
            && let Some(row) = span.row.lock().as_mut()
        {
            change(row);
        }
    }
}

impl Drop for UnfinishedSpan {
    fn drop(&mut self) {
        if let Some(mut row) = self.row.get_mut().take() {
            row.duration_ms = self.began.elapsed().as_secs_f32() * 1_000.0;
            self.recorder.span(row);
        }
    }
}
