//! The span of a gear over a message: one for each gear that made or handled it.
//!
//! # Invariants
//!
//! - Sampling is decided where the trace begins and carried along.

use std::time::Instant;

use model::message::Message;
use model::{Attributes, SpanId, SpanStatus};

use super::GearContext;
use crate::telemetry::SpanRow;

impl GearContext {
    /// Begins this gear's span over a message that arrived: the message's sender becomes the parent.
    pub(crate) fn arrive(&self, message: &mut Message) -> OpenSpan<'_> {
        self.meter.received();
        let parent = std::mem::replace(&mut message.span_id, self.new_span_id());
        let mut span = OpenSpan::of(self, message, Some(parent), Instant::now());
        if let Some(row) = &mut span.row {
            row.ts = self.parts.recorder.now();
        }
        span
    }
}

/// A span that ends when it is dropped: with an error, unless `ok` was set, so that a panic leaves its trace.
pub(crate) struct OpenSpan<'a> {
    cx: &'a GearContext,
    row: Option<SpanRow>,
    began: Instant,
    pub(crate) ok: bool,
}

impl<'a> OpenSpan<'a> {
    pub(super) fn of(cx: &'a GearContext, message: &Message, parent: Option<SpanId>, began: Instant) -> Self {
        let row = message.sampled.then(|| SpanRow {
            ts: message.ts,
            trace_id: message.trace_id,
            span_id: message.span_id,
            parent_span_id: parent,
            flux_id: Some(message.flux_id),
            span_name: cx.span_name.clone(),
            duration_ms: 0.0,
            status: SpanStatus::Ok,
            attributes: Attributes::new().with("messaging.message.body.size", message.raw.len()),
        });
        Self {
            cx,
            row,
            began,
            ok: false,
        }
    }
}

impl Drop for OpenSpan<'_> {
    fn drop(&mut self) {
        if let Some(mut row) = self.row.take() {
            row.duration_ms = self.began.elapsed().as_secs_f32() * 1_000.0;
            row.status = if self.ok { SpanStatus::Ok } else { SpanStatus::Error };
            self.cx.parts.recorder.span(row);
        }
    }
}
