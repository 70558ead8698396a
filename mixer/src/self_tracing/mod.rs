//! Self-tracing: spans of the Mixer's own work, stored beside those of everybody else.
//!
//! ```text
//! request ─▶ SpanRecorder::begin ─▶ WorkSpan ─┬─ of_statement, of_list, child ─┐
//!                                             └───────── end ──────────────────┴─▶ queue ─▶ SpanWriter, once a second ─▶ Engine
//! ```
//!
//! | span | `span.kind` | begun by |
//! |---|---|---|
//! | `GET /api/v1/telemetry/logs`: method and route | `server` | `api` |
//! | `SELECT`, `list logs` | absent | `api`, within one of a request |
//! | `activate scenario`, `roll back scenario`, `await convergence` | absent | the same |
//!
//! # Invariants
//!
//! - Nothing waits for a span: where [`QUEUE`] wait, more are dropped and counted. So at most as many are stored in a second.
//! - A trace is kept as its caller says (`traceparent`), else by its id and `observability.sampling_rate`; a part of work is kept as the whole.
//! - What stores rows makes no span, or each would make another.
//! - A statement is recorded without its literals.
//! - Work that is given up, because its caller has left, makes no span.
//!
//! # Not here
//!
//! Which requests have a span (`api`); what they have cost (`/metrics`).

mod query_text;
mod span_writer;
#[cfg(test)]
mod tests;
mod work_span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use model::trace_context::{RemoteContext, is_sampled, sampling_threshold};
use model::{Attributes, Clock, EntityId, Entropy, Span, SpanId, SpanStatus, Token, TraceId};
use tokio::sync::mpsc;

pub(crate) use span_writer::SpanWriter;
pub(crate) use work_span::WorkSpan;

/// The most spans that wait to be stored.
const QUEUE: usize = 1024;
/// What the Mixer is called as a service.
const SERVICE: &str = "platform-mixer";

/// Makes spans of what the Mixer does; none, unless it was [made](Self::new) to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanRecorder(Option<Arc<RecorderCore>>);

#[derive(Debug)]
struct RecorderCore {
    entity_id: EntityId,
    entity_name: String,
    clock: Clock,
    entropy: Entropy,
    /// The threshold of new traces.
    sample_below: u64,
    queue: mpsc::Sender<Span>,
    stored: AtomicU64,
    dropped: AtomicU64,
}

impl SpanRecorder {
    /// A recorder of this Mixer that keeps so large a share of new traces, and what comes of it.
    pub(crate) fn new(name: &Token, (clock, entropy): (Clock, Entropy), rate: f64) -> (Self, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let core = RecorderCore {
            entity_id: EntityId::for_name(name.as_str()),
            entity_name: name.to_string(),
            clock,
            entropy,
            sample_below: sampling_threshold(rate),
            queue,
            stored: AtomicU64::default(),
            dropped: AtomicU64::default(),
        };
        (Self(Some(Arc::new(core))), spans)
    }

    /// Begins work of a caller's trace or of a new one; none if the trace is not kept.
    pub(crate) fn begin(&self, caller: Option<&RemoteContext>, name: String) -> Option<WorkSpan> {
        let core = self.0.as_ref()?;
        let (trace_id, is_kept) = caller.map_or_else(
            || {
                let trace_id = TraceId::from_entropy(core.entropy.bytes());
                (trace_id, is_sampled(&trace_id, core.sample_below))
            },
            |caller| (caller.parent.trace_id, caller.parent.sampled),
        );
        let parent = caller.map(|caller| caller.parent.span_id);
        is_kept.then(|| core.open((trace_id, parent), name))
    }

    /// How many spans were stored, and how many were not.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let core = self.0.as_ref();
        core.map_or((0, 0), |core| (core.stored.load(Relaxed), core.dropped.load(Relaxed)))
    }
}

impl RecorderCore {
    fn open(self: &Arc<Self>, (trace_id, parent_span_id): (TraceId, Option<SpanId>), span_name: String) -> WorkSpan {
        let span = Span {
            ts: self.clock.now(),
            trace_id,
            span_id: SpanId::from_entropy(self.entropy.bytes()),
            parent_span_id,
            flux_id: None,
            entity_id: self.entity_id,
            entity_name: self.entity_name.clone(),
            span_name,
            duration_ms: 0.0,
            status: SpanStatus::Ok,
            attributes: Attributes::new().with("resource.service.name", SERVICE),
        };
        WorkSpan::new(Arc::clone(self), span, Instant::now())
    }

    /// Hands a span to who stores it, or counts it.
    fn push(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}
