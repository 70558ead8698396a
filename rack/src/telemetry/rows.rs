//! Records before they have an owner: what gears and the agent hand to the [`TelemetryRecorder`](super::TelemetryRecorder).
//!
//! # Invariants
//!
//! - A row lacks exactly the entity; everything else is final when it is recorded.

use model::{
    Attributes, FluxId, Level, LogRecord, MetricPoint, MetricType, Span, SpanId, SpanStatus, Timestamp, TraceId,
};

use crate::identity::RackIdentity;

/// A [`LogRecord`] without its entity.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRow {
    /// When it happened.
    pub ts: Timestamp,
    /// How grave it is.
    pub level: Level,
    /// The text.
    pub message: String,
    /// Structured fields; the recorder adds `gear.id` and `gear.type`.
    pub attributes: Attributes,
    /// The business signal it belongs to.
    pub flux_id: Option<FluxId>,
}

/// A [`Span`] without its entity.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRow {
    /// When it began.
    pub ts: Timestamp,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span that caused it; none at the root.
    pub parent_span_id: Option<SpanId>,
    /// The business signal it belongs to.
    pub flux_id: Option<FluxId>,
    /// The operation.
    pub span_name: String,
    /// How long it took, in milliseconds.
    pub duration_ms: f32,
    /// Whether it worked.
    pub status: SpanStatus,
    /// Structured fields; the recorder adds `gear.id` and `gear.type`.
    pub attributes: Attributes,
}

/// A [`MetricPoint`] without its entity.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow {
    /// When it was measured.
    pub ts: Timestamp,
    /// The metric's name, OpenTelemetry style.
    pub name: String,
    /// What the value means.
    pub metric_type: MetricType,
    /// The value.
    pub value: f64,
    /// Dimensions; `otel.unit` holds the unit. The recorder adds `gear.id` and `gear.type`.
    pub labels: Attributes,
}

/// A row of any table.
#[derive(Debug)]
pub(crate) enum TelemetryRow {
    Log(LogRow),
    Span(Box<SpanRow>),
    Metric(MetricRow),
}

impl TelemetryRow {
    /// About how many bytes it takes, in memory and in a batch.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Log(row) => row.size(),
            Self::Span(row) => row.size(),
            Self::Metric(row) => row.size(),
        }
    }
}

impl LogRow {
    /// About how many bytes it takes, in memory and in a batch.
    #[must_use]
    pub fn size(&self) -> usize {
        64 + self.message.len() + attributes_size(&self.attributes)
    }

    pub(crate) fn owned_by(self, owner: &RackIdentity) -> LogRecord {
        LogRecord {
            ts: self.ts,
            entity_id: owner.entity_id,
            entity_name: owner.name.as_str().to_owned(),
            flux_id: self.flux_id,
            level: self.level,
            message: self.message,
            attributes: self.attributes,
        }
    }
}

impl SpanRow {
    /// As of [`LogRow::size`].
    pub(crate) fn size(&self) -> usize {
        128 + self.span_name.len() + attributes_size(&self.attributes)
    }

    pub(crate) fn owned_by(self, owner: &RackIdentity) -> Span {
        Span {
            ts: self.ts,
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_span_id: self.parent_span_id,
            flux_id: self.flux_id,
            entity_id: owner.entity_id,
            entity_name: owner.name.as_str().to_owned(),
            span_name: self.span_name,
            duration_ms: self.duration_ms,
            status: self.status,
            attributes: self.attributes,
        }
    }
}

impl MetricRow {
    /// As of [`LogRow::size`].
    pub(crate) fn size(&self) -> usize {
        64 + self.name.len() + attributes_size(&self.labels)
    }

    pub(crate) fn owned_by(self, owner: &RackIdentity) -> MetricPoint {
        MetricPoint {
            ts: self.ts,
            name: self.name,
            entity_id: owner.entity_id,
            entity_name: owner.name.as_str().to_owned(),
            metric_type: self.metric_type,
            value: self.value,
            labels: self.labels,
        }
    }
}

fn attributes_size(attributes: &Attributes) -> usize {
    attributes
        .as_map()
        .iter()
        .map(|(key, value)| key.len() + 8 + value_size(value))
        .sum()
}

fn value_size(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::String(text) => text.len(),
        serde_json::Value::Array(values) => values.iter().map(|value| 4 + value_size(value)).sum(),
        serde_json::Value::Object(object) => object
            .iter()
            .map(|(key, value)| key.len() + 8 + value_size(value))
            .sum(),
        _ => 8,
    }
}
