//! A piece of the Mixer's work while it is under way.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use model::{Span, SpanId, SpanStatus, TraceId};
use serde_json::Value;

use super::{RecorderCore, query_text};

tokio::task_local! {
    static CURRENT: ParentSpan;
}

/// Work whose parts are spans of their own.
#[derive(Clone)]
struct ParentSpan {
    core: Arc<RecorderCore>,
    trace_id: TraceId,
    span_id: SpanId,
    has_parts: Arc<AtomicBool>,
}

/// Work that is under way, unless its trace is not kept. It becomes a span at its [end](Self::end).
#[derive(Debug, Default)]
pub(crate) struct WorkSpan(Option<Box<OpenWork>>);

#[derive(Debug)]
struct OpenWork {
    core: Arc<RecorderCore>,
    span: Span,
    began: Instant,
    has_parts: Arc<AtomicBool>,
}

impl WorkSpan {
    pub(super) fn new(core: Arc<RecorderCore>, span: Span, began: Instant) -> Self {
        Self(Some(Box::new(OpenWork {
            core,
            span,
            began,
            has_parts: Arc::default(),
        })))
    }

    /// A part of the work that is under way.
    pub(crate) fn child(name: &str) -> Self {
        let parent = CURRENT.try_with(Clone::clone);
        parent.map_or_else(
            |_| Self::default(),
            |parent| {
                parent.has_parts.store(true, Relaxed);
                parent
                    .core
                    .open((parent.trace_id, Some(parent.span_id)), name.to_owned())
            },
        )
    }

    /// The same, for a statement of SQL.
    pub(crate) fn of_statement(statement: &str) -> Self {
        let operation = query_text::operation(statement);
        let mut span = Self::child(operation);
        if span.0.is_some() {
            span.set_query(operation);
            span.set("db.query.text", query_text::sanitized(statement));
        }
        span
    }

    /// The same, for a list of rows.
    pub(crate) fn of_list(collection: &str) -> Self {
        let mut span = Self::child(&format!("list {collection}"));
        span.set_query("list");
        span.set("db.collection.name", collection);
        span
    }

    fn set_query(&mut self, operation: &str) {
        self.set("db.system.name", "platform");
        self.set("db.operation.name", operation);
    }

    /// Sets an attribute.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.attributes.set(key, value);
        }
    }

    /// Does the work; what is begun meanwhile is a part of it.
    pub(crate) async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(OpenWork {
            core, span, has_parts, ..
        }) = self.0.as_deref()
        else {
            return work.await;
        };
        let parent = ParentSpan {
            core: Arc::clone(core),
            trace_id: span.trace_id,
            span_id: span.span_id,
            has_parts: Arc::clone(has_parts),
        };
        CURRENT.scope(parent, work).await
    }

    /// Whether a part of it was begun, which points at it.
    pub(crate) fn has_parts(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.has_parts.load(Relaxed))
    }

    /// The end of the work.
    pub(crate) fn end(self, status: SpanStatus) {
        let Some(open) = self.0 else { return };
        let OpenWork {
            core, mut span, began, ..
        } = *open;
        span.status = status;
        span.duration_ms = began.elapsed().as_secs_f32() * 1_000.0;
        core.push(span);
    }

    /// The same, after this outcome.
    pub(crate) fn end_with<T, E>(self, outcome: &Result<T, E>) {
        self.end(if outcome.is_ok() {
            SpanStatus::Ok
        } else {
            SpanStatus::Error
        });
    }
}
