//! Spans: kinds, status, parents, events, links, flags.

use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};

use super::*;

fn span_row(attributes: Value) -> Value {
    json!({
        "ts": AT_TEXT,
        "trace_id": "ab".repeat(16),
        "span_id": "cd".repeat(8),
        "parent_span_id": null,
        "flux_id": null,
        "entity_id": EntityId::for_name(SERVICE).to_string(),
        "entity_name": SERVICE,
        "span_name": "GET /",
        "duration_ms": 1.5,
        "status": "ok",
        "attributes": with_service(attributes),
    })
}

#[test]
fn a_span_is_stored_field_by_field() {
    let sent = Span {
        trace_state: "vendor=1".to_owned(),
        parent_span_id: vec![0xef; 8],
        flags: 0x301,
        kind: 2,
        attributes: vec![
            attribute("http.route", text("/")),
            attribute("http.status", Kind::IntValue(500)),
        ],
        dropped_attributes_count: 1,
        events: vec![
            Event {
                time_unix_nano: AT,
                name: "exception \"x\"".to_owned(),
                attributes: vec![
                    attribute("exception.type", text("Timeout")),
                    attribute("frame", map(vec![attribute("line", Kind::IntValue(7))])),
                ],
                dropped_attributes_count: 2,
            },
            Event::default(),
        ],
        dropped_events_count: 4,
        links: vec![
            Link {
                trace_id: vec![0x11; 16],
                span_id: vec![0x22; 8],
                trace_state: "other=2".to_owned(),
                attributes: vec![attribute("why", text("batch"))],
                dropped_attributes_count: 5,
                flags: 0x300,
            },
            Link {
                trace_id: vec![0x33; 16],
                span_id: vec![0x44; 8],
                flags: 0x101,
                ..Link::default()
            },
        ],
        dropped_links_count: 6,
        status: Some(Status {
            message: "no answer".to_owned(),
            code: 2,
        }),
        ..span("GET /")
    };
    let mut expected = span_row(json!({
        "http.route": "/",
        "http.status": 500,
        "otel.dropped_attributes_count": 1,
        "otel.dropped_events_count": 4,
        "otel.dropped_links_count": 6,
        "otel.events": [
            {
                "time": AT_NANOS,
                "name": "exception \"x\"",
                "attributes": { "exception.type": "Timeout", "frame.line": 7 },
                "dropped_attributes_count": 2,
            },
            { "time": "1970-01-01T00:00:00.000000000Z", "name": "" },
        ],
        "otel.flags": 0x301,
        "otel.links": [
            {
                "trace_id": "11".repeat(16),
                "span_id": "22".repeat(8),
                "trace_state": "other=2",
                "flags": 0x300,
                "attributes": { "why": "batch" },
                "dropped_attributes_count": 5,
            },
            { "trace_id": "33".repeat(16), "span_id": "44".repeat(8) },
        ],
        "otel.status_description": "no answer",
        "otel.trace_state": "vendor=1",
        "span.kind": "server",
    }));
    expected["parent_span_id"] = json!("ef".repeat(8));
    expected["status"] = json!("error");
    assert_eq!(row(Table::Traces, &spans(vec![sent])), expected);
}

#[test]
fn kinds_have_names_and_one_that_is_new_has_its_number() {
    for (kind, attributes) in [
        (0, json!({})),
        (1, json!({ "span.kind": "internal" })),
        (2, json!({ "span.kind": "server" })),
        (3, json!({ "span.kind": "client" })),
        (4, json!({ "span.kind": "producer" })),
        (5, json!({ "span.kind": "consumer" })),
        (6, json!({ "span.kind": 6 })),
        (-1, json!({ "span.kind": -1 })),
    ] {
        let sent = Span { kind, ..span("GET /") };
        assert_eq!(row(Table::Traces, &spans(vec![sent])), span_row(attributes), "{kind}");
    }
}

#[test]
fn a_status_of_ok_is_told_from_none() {
    for (code, message, status, attributes) in [
        (0, "", "ok", json!({})),
        (1, "", "ok", json!({ "otel.status_code": "OK" })),
        (2, "", "error", json!({})),
        (2, "why", "error", json!({ "otel.status_description": "why" })),
        (3, "", "ok", json!({})),
    ] {
        let status_sent = Status {
            message: message.to_owned(),
            code,
        };
        let sent = Span {
            status: Some(status_sent),
            ..span("GET /")
        };
        let mut expected = span_row(attributes);
        expected["status"] = json!(status);
        assert_eq!(row(Table::Traces, &spans(vec![sent])), expected, "{code} {message}");
    }
}

#[test]
fn a_root_has_no_parent_whether_its_id_is_missing_or_zeros() {
    for parent_span_id in [vec![], vec![0; 8]] {
        let sent = Span {
            parent_span_id,
            ..span("GET /")
        };
        assert_eq!(row(Table::Traces, &spans(vec![sent])), span_row(json!({})));
    }
}

#[test]
fn times_of_spans_that_are_missing_or_in_disorder_make_no_span_bad() {
    for (start, end, ts, duration) in [
        (AT, AT, AT_TEXT, 0.0),
        (AT, AT - SECOND, AT_TEXT, 0.0),
        (AT, 0, AT_TEXT, 0.0),
        (0, 0, NOW_TEXT, 0.0),
        (AT, AT + 1, AT_TEXT, 0.000_001),
        (AT, AT + 3_600 * SECOND, AT_TEXT, 3_600_000.0),
    ] {
        let sent = Span {
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            ..span("GET /")
        };
        let stored = row(Table::Traces, &spans(vec![sent]));
        assert_eq!(
            (&stored["ts"], &stored["duration_ms"]),
            (&json!(ts), &json!(duration)),
            "{start} {end}"
        );
    }
}

#[test]
fn a_span_that_has_an_end_alone_lasted_no_time() {
    let sent = Span {
        start_time_unix_nano: 0,
        ..span("GET /")
    };
    let stored = row(Table::Traces, &spans(vec![sent]));
    assert_eq!(
        (&stored["ts"], &stored["duration_ms"]),
        (&json!("2026-11-21T10:00:00.124956Z"), &json!(0.0))
    );
}
