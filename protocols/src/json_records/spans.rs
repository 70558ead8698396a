//! Spans: those of Zipkin, and of whoever names their fields alike.

use std::str::FromStr;

use model::telemetry_codec::{RecordBatchBuilder, SpanFields};
use model::{FluxId, SpanId, SpanStatus, Timestamp, TraceId};
use serde_json::{Map, Value};

use super::points::number_of;
use super::{RowContext, hoist};
use crate::record_shape::{find, id_of, set_object, take, take_time, text_of, time_of};

const TRACE_IDS: [&str; 4] = ["trace_id", "traceId", "traceID", "trace.id"];
const SPAN_IDS: [&str; 5] = ["span_id", "spanId", "spanID", "span.id", "id"];
const PARENT_IDS: [&str; 6] = [
    "parent_span_id",
    "parentSpanId",
    "parent_id",
    "parentId",
    "parentID",
    "parent.id",
];
const NAMES: [&str; 6] = [
    "span_name",
    "name",
    "operationName",
    "operation_name",
    "operation",
    "span.name",
];
const STARTS: [&str; 5] = [
    "start_time",
    "startTime",
    "startTimeUnixNano",
    "start_timestamp",
    "start",
];
const ENDS: [&str; 5] = ["end_time", "endTime", "endTimeUnixNano", "end_timestamp", "end"];
/// How long it took, and how many milliseconds one of these is.
const DURATIONS: [(&str, f64); 6] = [
    ("duration_ms", 1.0),
    ("durationMs", 1.0),
    ("duration_us", 1e-3),
    ("duration_ns", 1e-6),
    ("duration_s", 1e3),
    // As Zipkin and Jaeger have it.
    ("duration", 1e-3),
];
const STATUSES: [&str; 4] = ["status", "status.code", "status_code", "otel.status_code"];
/// Objects of attributes.
const ATTRIBUTES: [&str; 2] = ["attributes", "tags"];
/// The digits of an id of 64 bits, which traces of Zipkin may have.
const SHORT_TRACE_ID: usize = 16;

pub(super) fn push_span(
    mut fields: Map<String, Value>,
    context: &mut RowContext<'_>,
    rows: &mut RecordBatchBuilder,
) -> Result<(), String> {
    let trace_id = take(&mut fields, &TRACE_IDS, trace_id_of).ok_or_else(|| lacking("trace", &TRACE_IDS))?;
    let span_id = take(&mut fields, &SPAN_IDS, id_of::<SpanId>).ok_or_else(|| lacking("span", &SPAN_IDS))?;
    let parent_span_id = take(&mut fields, &PARENT_IDS, id_of::<SpanId>);
    let start = take(&mut fields, &STARTS, time_of);
    let start = start.map_or_else(|| take_time(&mut fields), |start| Ok(Some(start)))?;
    let end = take(&mut fields, &ENDS, time_of);
    let duration_ms = take_duration(&mut fields, start.zip(end))?;
    let name = take(&mut fields, &NAMES, text_of).unwrap_or_default();
    let flux_id = take(&mut fields, &["flux_id"], id_of::<FluxId>);
    hoist(&mut fields, &ATTRIBUTES);
    let row = SpanFields {
        ts: start.or(end).unwrap_or(context.now),
        trace_id,
        span_id,
        parent_span_id,
        flux_id,
        entity: &context.entity,
        span_name: &name,
        duration_ms,
        status: take_status(&mut fields),
    };
    set_object(context.attributes, &mut String::new(), &fields, context.size)?;
    rows.push_span(row, context.attributes)
}

fn lacking(what: &str, names: &[&str]) -> String {
    format!(
        "the id of the {what} is missing or none: it may be {}",
        names.join(", ")
    )
}

fn trace_id_of(value: &Value) -> Option<TraceId> {
    let text = value.as_str()?;
    if text.len() == SHORT_TRACE_ID {
        return TraceId::from_str(&format!("{text:0>32}")).ok();
    }
    text.parse().ok()
}

/// How long a span took, in milliseconds; 0 without a duration or an end, and if it ends before it starts. A duration below 0, as a
/// clock that was set leaves it, says nothing and stays a field.
fn take_duration(fields: &mut Map<String, Value>, times: Option<(Timestamp, Timestamp)>) -> Result<f32, String> {
    let duration = |value: &Value| number_of(value).filter(|duration| *duration >= 0.0);
    let said = DURATIONS
        .iter()
        .find_map(|(name, unit)| Some(take(fields, &[*name], duration)? * unit));
    let between = times.map(|(start, end)| milliseconds(end.micros().saturating_sub(start.micros()).max(0)));
    #[allow(clippy::cast_possible_truncation, reason = "the column's precision")]
    let duration = said.or(between).unwrap_or_default() as f32;
    if duration.is_finite() {
        Ok(duration)
    } else {
        Err("the duration is not a finite number".to_owned())
    }
}

#[allow(clippy::cast_precision_loss, reason = "what is lost is below the column's precision")]
fn milliseconds(micros: i64) -> f64 {
    micros as f64 / 1e3
}

/// Whether it worked: its status, or that there is no error.
fn take_status(fields: &mut Map<String, Value>) -> SpanStatus {
    let said = take(fields, &STATUSES, status_of);
    let has_error = find(fields, "error").is_some_and(|error| match error {
        Value::Bool(is_error) => *is_error,
        Value::String(text) => !text.is_empty() && text != "false",
        Value::Number(number) => number.as_u64() != Some(0),
        Value::Null => false,
        Value::Array(_) | Value::Object(_) => true,
    });
    said.unwrap_or(if has_error { SpanStatus::Error } else { SpanStatus::Ok })
}

/// A word or number of OpenTelemetry's.
fn status_of(value: &Value) -> Option<SpanStatus> {
    match value {
        Value::Number(number) => match number.as_u64()? {
            0 | 1 => Some(SpanStatus::Ok),
            2 => Some(SpanStatus::Error),
            _ => None,
        },
        Value::String(text) => {
            let word = text.to_ascii_lowercase();
            match word.strip_prefix("status_code_").unwrap_or(&word) {
                "ok" | "unset" => Some(SpanStatus::Ok),
                "error" => Some(SpanStatus::Error),
                _ => None,
            }
        }
        _ => None,
    }
}
