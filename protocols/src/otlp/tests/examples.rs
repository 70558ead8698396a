//! The official examples (`fixtures/opentelemetry-proto`), field by field, and as they are exported again.

use serde::de::DeserializeOwned;

use super::*;

const LOGS: &str = include_str!("../../../fixtures/opentelemetry-proto/logs.json");
const EVENTS: &str = include_str!("../../../fixtures/opentelemetry-proto/events.json");
const SPANS: &str = include_str!("../../../fixtures/opentelemetry-proto/trace.json");
const METRICS: &str = include_str!("../../../fixtures/opentelemetry-proto/metrics.json");

const TIME: &str = "2018-12-13T14:51:00.300000Z";
const TIME_NANOS: &str = "2018-12-13T14:51:00.300000000Z";

fn example(table: Table, body: &str) -> Vec<Value> {
    let read = read_json(table, body).unwrap();
    assert_eq!(read.rejected, 0, "{read:?}");
    read.rows
}

/// What all examples have of their resource and scope.
fn with_library(mut attributes: Value) -> Value {
    attributes["resource.service.name"] = json!("my.service");
    attributes["otel.scope.name"] = json!("my.library");
    attributes["otel.scope.version"] = json!("1.0.0");
    attributes["otel.scope.my.scope.attribute"] = json!("some scope attribute");
    attributes
}

fn entity_id() -> String {
    EntityId::for_name("my.service").to_string()
}

#[test]
fn the_log_record() {
    let expected = json!({
        "ts": TIME,
        "entity_id": entity_id(),
        "entity_name": "my.service",
        "flux_id": null,
        "level": "info",
        "message": "Example log record",
        "attributes": with_library(json!({
            "array.attribute": ["many", "values"],
            "boolean.attribute": true,
            "double.attribute": 637.704,
            "int.attribute": 10,
            "map.attribute.some.map.key": "some value",
            "otel.severity_number": 10,
            "otel.severity_text": "Information",
            "span_id": "eee19b7ec3c1b174",
            "string.attribute": "some string",
            "trace_id": "5b8efff798038103d269b633813fc60c",
        })),
    });
    assert_eq!(example(Table::Logs, LOGS), [expected]);
}

#[test]
fn the_event() {
    let expected = json!({
        "ts": TIME,
        "entity_id": entity_id(),
        "entity_name": "my.service",
        "flux_id": null,
        "level": "info",
        "message": "browser.page_view",
        "attributes": with_library(json!({
            "body.referrer": "https://wwww.google.com",
            "body.title": "Free Online GUID Generator",
            "body.type": 0,
            "body.url": "https://www.guidgenerator.com/online-guid-generator.aspx",
            "event.attribute": "some event attribute",
            "otel.body.type": "map",
            "otel.event.name": "browser.page_view",
            "otel.severity_text": "test severity text",
        })),
    });
    assert_eq!(example(Table::Logs, EVENTS), [expected]);
}

#[test]
fn the_span() {
    let expected = json!({
        "ts": "2018-12-13T14:51:00.000000Z",
        "trace_id": "5b8efff798038103d269b633813fc60c",
        "span_id": "eee19b7ec3c1b174",
        "parent_span_id": "eee19b7ec3c1b173",
        "flux_id": null,
        "entity_id": entity_id(),
        "entity_name": "my.service",
        "span_name": "I'm a server span",
        "duration_ms": 1_000.0,
        "status": "ok",
        "attributes": with_library(json!({ "my.span.attr": "some value", "span.kind": "server" })),
    });
    assert_eq!(example(Table::Traces, SPANS), [expected]);
}

#[test]
fn the_metrics() {
    let point = |name: &str, (kind, value): (&str, f64), mut labels: Value| {
        labels[format!("{name}.attr")] = json!("some value");
        labels["otel.unit"] = json!("1");
        json!({
            "ts": TIME,
            "name": name,
            "entity_id": entity_id(),
            "entity_name": "my.service",
            "type": kind,
            "value": value,
            "labels": with_library(labels),
        })
    };
    let counter = json!({ "otel.start_time": TIME_NANOS, "otel.temporality": "delta" });
    let histogram = json!({
        "otel.bounds": [1.0],
        "otel.buckets": [1, 1],
        "otel.count": 2,
        "otel.max": 2.0,
        "otel.min": 0.0,
        "otel.start_time": TIME_NANOS,
        "otel.temporality": "delta",
    });
    let exponential = json!({
        "otel.count": 3,
        "otel.max": 5.0,
        "otel.min": 0.0,
        "otel.positive.counts": [0, 2],
        "otel.positive.offset": 1,
        "otel.scale": 0,
        "otel.start_time": TIME_NANOS,
        "otel.temporality": "delta",
        "otel.zero_count": 1,
    });
    assert_eq!(
        example(Table::Metrics, METRICS),
        [
            point("my.counter", ("counter", 5.0), counter),
            point("my.gauge", ("gauge", 10.0), json!({})),
            point("my.histogram", ("histogram", 2.0), histogram),
            point("my.exponential.histogram", ("histogram", 10.0), exponential),
        ]
    );
}

/// An example as it was sent, and as it is exported of its rows.
fn round_trip<T: Message + Default + DeserializeOwned>(table: Table, body: &str) -> [T; 2] {
    let mut records = reader(table, OtlpEncoding::Json, body.to_owned()).unwrap();
    let mut rows = Vec::new();
    while let Some(part) = records.next_part(WHOLE).unwrap() {
        rows.push(part.batch);
    }
    let exported = export_request(table, &rows).unwrap();
    [
        serde_json::from_str(body).unwrap(),
        T::decode(exported.as_slice()).unwrap(),
    ]
}

/// In the order of their keys, without what an export adds to resources.
fn settle(attributes: &mut Vec<KeyValue>) {
    attributes.retain(|pair| !["host.name", "platform.entity_id"].contains(&pair.key.as_str()));
    attributes.sort_by(|one, other| one.key.cmp(&other.key));
}

#[test]
fn the_log_records_are_exported_as_they_were_sent_but_for_maps_which_are_dotted_keys() {
    for body in [LOGS, EVENTS] {
        let mut both: [ExportLogsServiceRequest; 2] = round_trip(Table::Logs, body);
        for request in &mut both {
            let of = &mut request.resource_logs[0];
            settle(&mut of.resource.as_mut().unwrap().attributes);
            let record = &mut of.scope_logs[0].log_records[0];
            settle(&mut record.attributes);
            if let Some(Kind::KvlistValue(map)) = record.body.as_mut().and_then(|body| body.value.as_mut()) {
                settle(&mut map.values);
            }
            let map = record.attributes.iter_mut().find(|pair| pair.key == "map.attribute");
            if let Some(map) = map {
                *map = attribute("map.attribute.some.map.key", text("some value"));
            }
        }
        let [sent, found] = both;
        assert_eq!(found, sent);
    }
}

#[test]
fn the_span_is_exported_as_it_was_sent() {
    let mut both: [ExportTraceServiceRequest; 2] = round_trip(Table::Traces, SPANS);
    for request in &mut both {
        settle(&mut request.resource_spans[0].resource.as_mut().unwrap().attributes);
    }
    let [sent, found] = both;
    assert_eq!(found, sent);
}

#[test]
fn the_metrics_are_exported_as_they_were_sent_but_for_their_descriptions() {
    let mut both: [ExportMetricsServiceRequest; 2] = round_trip(Table::Metrics, METRICS);
    for request in &mut both {
        settle(&mut request.resource_metrics[0].resource.as_mut().unwrap().attributes);
    }
    let [mut sent, found] = both;
    for metric in &mut sent.resource_metrics[0].scope_metrics[0].metrics {
        metric.description.clear();
    }
    assert_eq!(found, sent);
}
