//! Spans as Jaeger shows them.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::{Attributes, EntityId};
use serde_json::json;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn row(span: &Span) -> Map<String, Value> {
    serde_json::to_value(span).unwrap().as_object().unwrap().clone()
}

fn span(id: &str, parent: Option<&str>, micros: i64, attributes: Attributes) -> Span {
    Span {
        ts: Timestamp::from_micros(micros),
        trace_id: TRACE.parse().unwrap(),
        span_id: id.parse().unwrap(),
        parent_span_id: parent.map(|id| id.parse().unwrap()),
        flux_id: None,
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        span_name: "buy".to_owned(),
        duration_ms: 1.5,
        status: SpanStatus::Ok,
        attributes,
    }
}

fn shown(rows: Vec<Map<String, Value>>) -> Value {
    let page = JsonPage {
        rows,
        ..JsonPage::default()
    };
    serde_json::to_value(traces(page)).unwrap()
}

#[test]
fn a_span_is_shown_as_jaeger_shows_it() {
    let attributes = Attributes::new()
        .with(Span::SERVICE_NAME, "shop")
        .with("resource.host.name", "a")
        .with("n", 7)
        .with("large", 9_007_199_254_740_993_i64)
        .with("part", 0.5)
        .with("on", true)
        .with("list", json!([1, "b"]))
        .with(
            EVENTS,
            json!([
                { "time": "1970-01-01T00:00:02.000001Z", "name": "retry", "attributes": { "after": 3 } },
                { "time": "3000000000", "name": "end" },
                { "name": "lost" },
                "nothing",
            ]),
        )
        .with(
            LINKS,
            json!([{ "trace_id": TRACE, "span_id": "00000000000000b1" }, { "trace_id": "x", "span_id": "y" }]),
        );
    let failed = Span {
        status: SpanStatus::Error,
        ..span("00000000000000a2", Some("00000000000000a1"), 2_000_000, attributes)
    };
    let host = json!({ "key": "host.name", "type": "string", "value": "a" });
    let id = json!({ "key": "entity.id", "type": "string", "value": EntityId::for_name("rack-a") });
    let name = json!({ "key": "entity.name", "type": "string", "value": "rack-a" });
    let trace = shown(vec![row(&failed)]);
    let spans = &trace[0]["spans"];
    let tag = |key: &str| {
        let tags = spans[0]["tags"].as_array().unwrap();
        let tag = tags.iter().find(|tag| tag["key"] == key);
        tag.map(|tag| (tag["type"].clone(), tag["value"].clone()))
    };
    assert_eq!(tag("n"), Some((json!("int64"), json!(7))));
    assert_eq!(tag("large"), Some((json!("int64"), json!("9007199254740993"))));
    assert_eq!(tag("part"), Some((json!("float64"), json!(0.5))));
    assert_eq!(tag("on"), Some((json!("bool"), json!(true))));
    assert_eq!(tag("list"), Some((json!("string"), json!("[1,\"b\"]"))));
    assert_eq!(tag("error"), Some((json!("bool"), json!(true))));
    assert_eq!(tag("otel.status_code"), Some((json!("string"), json!("ERROR"))));
    for absent in [EVENTS, LINKS, Span::SERVICE_NAME, "resource.host.name", "flux_id"] {
        assert_eq!(tag(absent), None, "{absent}");
    }
    let mut without_tags = trace.clone();
    without_tags[0]["spans"][0]["tags"] = json!([]);
    assert_eq!(
        without_tags,
        json!([{
            "traceID": TRACE,
            "spans": [{
                "traceID": TRACE, "spanID": "00000000000000a2", "flags": 1, "operationName": "buy",
                "references": [
                    { "refType": "CHILD_OF", "traceID": TRACE, "spanID": "00000000000000a1" },
                    { "refType": "FOLLOWS_FROM", "traceID": TRACE, "spanID": "00000000000000b1" },
                ],
                "startTime": 2_000_000, "duration": 1_500, "tags": [],
                "logs": [
                    { "timestamp": 2_000_001, "fields": [
                        { "key": "event", "type": "string", "value": "retry" }, { "key": "after", "type": "int64", "value": 3 },
                    ] },
                    { "timestamp": 3_000_000, "fields": [{ "key": "event", "type": "string", "value": "end" }] },
                    { "timestamp": 2_000_000, "fields": [{ "key": "event", "type": "string", "value": "lost" }] },
                ],
                "processID": "p1", "warnings": null,
            }],
            "processes": { "p1": { "serviceName": "shop", "tags": [host, id, name] } },
            "warnings": null,
        }])
    );
}

#[test]
fn spans_of_one_process_share_it_and_come_by_their_times() {
    let of = |service: &str| Attributes::new().with(Span::SERVICE_NAME, service);
    let other = Span {
        trace_id: "0bf7651916cd43dd8448eb211c80319c".parse().unwrap(),
        ..span("00000000000000a9", None, 9, Attributes::new())
    };
    let rows = [
        span("00000000000000a3", None, 30, of("shop")),
        other,
        span("00000000000000a2", None, 20, of("pay")),
        span("00000000000000a1", None, 10, of("shop")),
    ];
    let found = shown(rows.iter().map(row).collect());
    let ids = |trace: &Value| -> Vec<(Value, Value)> {
        let spans = trace["spans"].as_array().unwrap().iter();
        spans
            .map(|span| (span["startTime"].clone(), span["processID"].clone()))
            .collect()
    };
    let placed = |of: &[(i64, &str)]| -> Vec<(Value, Value)> {
        of.iter().map(|(time, process)| (json!(time), json!(process))).collect()
    };
    assert_eq!(ids(&found[0]), placed(&[(10, "p1"), (20, "p2"), (30, "p1")]));
    assert_eq!(found[0]["processes"]["p2"]["serviceName"], "pay");
    assert_eq!(ids(&found[1]), placed(&[(9, "p1")]));
    assert_eq!(found[1]["processes"]["p1"]["serviceName"], "rack-a");
}

#[test]
fn what_is_odd_is_left_out_and_loses_no_span() {
    let odd = Attributes::new()
        .with(EVENTS, "[{\"time\": 5000, \"name\": \"as text\"}]")
        .with(LINKS, 7);
    let mut endless = row(&span("00000000000000a1", None, 10, odd));
    endless.insert("duration_ms".to_owned(), "inf".into());
    let page = JsonPage {
        rows: vec![endless],
        stats: query::QueryStats {
            partial: Some("a file is damaged".to_owned()),
            ..query::QueryStats::default()
        },
        ..JsonPage::default()
    };
    let found = serde_json::to_value(traces(page)).unwrap();
    let span = &found[0]["spans"][0];
    assert_eq!((&span["duration"], &span["references"]), (&json!(0), &json!([])));
    assert_eq!(span["logs"][0]["timestamp"], 5);
    assert_eq!(found[0]["warnings"], json!(["a file is damaged"]));
}
