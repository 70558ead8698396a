//! A trace as Jaeger's clients read it: spans with references, tags and logs, and beside them the processes that they ran in.
//!
//! | Jaeger | stored span |
//! |---|---|
//! | process | its service, attributes `resource.*` without that beginning, and its entity |
//! | tags | its other attributes; `error` and `otel.status_code` of one that failed; `flux_id` |
//! | logs | `otel.events`, the name as the field `event` |
//! | references | its parent (`CHILD_OF`), `otel.links` (`FOLLOWS_FROM`) |
//!
//! # Invariants
//!
//! - Times and durations are whole microseconds. Whole numbers that JavaScript cannot have are texts, as Jaeger writes them.
//! - What an event or a link should have and has not is left out or, of a time, the span's.

use std::collections::{BTreeMap, HashMap};

use model::{Span, SpanId, SpanStatus, Timestamp, TraceId};
use query::JsonPage;
use serde::Serialize;
use serde_json::{Map, Value};

/// The attribute with a span's events: a list of `time`, `name` and `attributes`.
const EVENTS: &str = "otel.events";
/// The attribute with its links: a list of `trace_id`, `span_id` and `attributes`.
const LINKS: &str = "otel.links";
/// What attributes of a resource begin with.
const RESOURCE: &str = "resource.";
/// The greatest whole number that JavaScript has.
const GREATEST: u64 = (1 << 53) - 1;

/// One trace.
#[derive(Debug, Serialize)]
pub(super) struct TraceView {
    #[serde(rename = "traceID")]
    trace_id: TraceId,
    spans: Vec<SpanView>,
    processes: BTreeMap<String, ProcessView>,
    warnings: Option<Vec<String>>,
    /// The names of processes, by what they are.
    #[serde(skip)]
    known: HashMap<String, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanView {
    #[serde(rename = "traceID")]
    trace_id: TraceId,
    #[serde(rename = "spanID")]
    span_id: SpanId,
    flags: u32,
    operation_name: String,
    references: Vec<SpanReference>,
    start_time: i64,
    duration: u64,
    tags: Vec<TagView>,
    logs: Vec<EventView>,
    #[serde(rename = "processID")]
    process_id: String,
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanReference {
    ref_type: &'static str,
    #[serde(rename = "traceID")]
    trace_id: TraceId,
    #[serde(rename = "spanID")]
    span_id: SpanId,
}

#[derive(Debug, Serialize)]
struct TagView {
    key: String,
    r#type: &'static str,
    value: Value,
}

#[derive(Debug, Serialize)]
struct EventView {
    timestamp: i64,
    fields: Vec<TagView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessView {
    service_name: String,
    tags: Vec<TagView>,
}

/// The traces of spans, in the order of their first spans; the spans of each by their times.
pub(super) fn traces(page: JsonPage) -> Vec<TraceView> {
    let warnings = page.stats.partial.map(|reason| vec![reason]);
    let mut traces: Vec<TraceView> = Vec::new();
    let mut places: HashMap<TraceId, usize> = HashMap::new();
    for span in page.rows.into_iter().filter_map(stored_span) {
        let place = *places.entry(span.trace_id).or_insert(traces.len());
        if place == traces.len() {
            traces.push(TraceView::new(span.trace_id, warnings.clone()));
        }
        traces[place].add(&span);
    }
    for trace in &mut traces {
        trace.spans.sort_by_key(|span| span.start_time);
    }
    traces
}

fn stored_span(mut row: Map<String, Value>) -> Option<Span> {
    // JSON has no numbers for some durations.
    if !row.get("duration_ms").is_some_and(Value::is_number) {
        row.insert("duration_ms".to_owned(), 0.into());
    }
    serde_json::from_value(row.into()).ok()
}

impl TraceView {
    fn new(trace_id: TraceId, warnings: Option<Vec<String>>) -> Self {
        Self {
            trace_id,
            spans: Vec::new(),
            processes: BTreeMap::new(),
            warnings,
            known: HashMap::new(),
        }
    }

    fn add(&mut self, span: &Span) {
        let (of_process, tags) = tags(span);
        let process_id = self.process(ProcessView {
            service_name: span.service(),
            tags: of_process,
        });
        self.spans.push(SpanView {
            trace_id: span.trace_id,
            span_id: span.span_id,
            flags: 1,
            operation_name: span.span_name.clone(),
            references: references(span),
            start_time: span.ts.micros(),
            duration: micros(span.duration_ms),
            tags,
            logs: events(span),
            process_id,
            warnings: None,
        });
    }

    /// The name of a process in this trace.
    fn process(&mut self, process: ProcessView) -> String {
        let what = serde_json::to_string(&process).unwrap_or_default();
        if let Some(name) = self.known.get(&what) {
            return name.clone();
        }
        let name = format!("p{}", self.known.len() + 1);
        self.known.insert(what, name.clone());
        self.processes.insert(name.clone(), process);
        name
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is in bounds where it is cast"
)]
fn micros(ms: f32) -> u64 {
    (f64::from(ms) * 1e3).round().max(0.0) as u64
}

/// The tags of a span's process, and its own.
fn tags(span: &Span) -> (Vec<TagView>, Vec<TagView>) {
    let (mut of_process, mut own) = (Vec::new(), Vec::new());
    for (key, value) in span.attributes.as_map() {
        match (key.as_str(), key.strip_prefix(RESOURCE)) {
            (EVENTS | LINKS | Span::SERVICE_NAME, _) => {}
            (_, Some(key)) => of_process.push(tag(key, value)),
            (key, None) => own.push(tag(key, value)),
        }
    }
    of_process.push(tag("entity.id", &span.entity_id.to_string().into()));
    of_process.push(tag("entity.name", &span.entity_name.as_str().into()));
    if let Some(flux) = span.flux_id {
        own.push(tag("flux_id", &flux.to_string().into()));
    }
    if span.status == SpanStatus::Error {
        own.retain(|tag| tag.key != "error" && tag.key != "otel.status_code");
        own.push(tag("error", &true.into()));
        own.push(tag("otel.status_code", &"ERROR".into()));
    }
    (of_process, own)
}

fn tag(key: &str, value: &Value) -> TagView {
    let (r#type, value) = match value {
        Value::Bool(_) => ("bool", value.clone()),
        Value::Number(number) if number.is_f64() => ("float64", value.clone()),
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
            let is_exact = size.is_some_and(|size| size <= GREATEST);
            let number = number.to_string();
            ("int64", if is_exact { value.clone() } else { number.into() })
        }
        Value::String(_) => ("string", value.clone()),
        other => ("string", other.to_string().into()),
    };
    TagView {
        key: key.to_owned(),
        r#type,
        value,
    }
}

fn references(span: &Span) -> Vec<SpanReference> {
    let parent = span.parent_span_id.map(|span_id| SpanReference {
        ref_type: "CHILD_OF",
        trace_id: span.trace_id,
        span_id,
    });
    let links = objects(span, LINKS).into_iter().filter_map(|link| {
        let text = |name: &str| link.get(name)?.as_str();
        Some(SpanReference {
            ref_type: "FOLLOWS_FROM",
            trace_id: text("trace_id")?.parse().ok()?,
            span_id: text("span_id")?.parse().ok()?,
        })
    });
    parent.into_iter().chain(links).collect()
}

fn events(span: &Span) -> Vec<EventView> {
    let events = objects(span, EVENTS).into_iter();
    let logs = events.map(|event| {
        let time = event.get("time").and_then(moment).unwrap_or(span.ts);
        let name = event.get("name").map(|name| tag("event", name));
        let attributes = event.get("attributes").and_then(Value::as_object);
        let attributes = attributes.into_iter().flatten().map(|(key, value)| tag(key, value));
        EventView {
            timestamp: time.micros(),
            fields: name.into_iter().chain(attributes).collect(),
        }
    });
    logs.collect()
}

/// The objects of an attribute that is a list of them, as JSON or as its text.
fn objects(span: &Span, name: &str) -> Vec<Map<String, Value>> {
    let list = match span.attributes.get(name) {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(list) => list.clone(),
        None => Value::Null,
    };
    let Value::Array(items) = list else {
        return Vec::new();
    };
    let objects = items.into_iter().filter_map(|item| match item {
        Value::Object(object) => Some(object),
        _ => None,
    });
    objects.collect()
}

/// A time in RFC 3339, or in nanoseconds since 1970.
fn moment(time: &Value) -> Option<Timestamp> {
    let nanos = |nanos: i64| Timestamp::from_micros(nanos.div_euclid(1_000));
    match time {
        Value::String(text) => text.parse().map(nanos).ok().or_else(|| text.parse().ok()),
        other => other.as_i64().map(nanos),
    }
}

#[cfg(test)]
mod tests;
