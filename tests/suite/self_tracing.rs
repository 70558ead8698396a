//! The Mixer's spans of its own work, found beside those of everybody else.

use std::time::Duration;

use harness::{Failure, TestMixer, eventually};
use model::Timestamp;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
const CALLER_SPAN: &str = "00f067aa0ba902b7";
const SCENARIO: &str = "
meta: { name: traced, version: '1' }
racks: [ { name: rack-a } ]
gears:
  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 10 } }
  - { name: sink, type: log_sink, deploy: rack-a }
wires:
  - { from: numbers.out, to: sink.in }
";

/// The `traceparent` of a caller's trace with this number.
fn traceparent(number: u8, flags: &str) -> String {
    format!("00-{}-{CALLER_SPAN}-{flags}", trace(number))
}

fn trace(number: u8) -> String {
    format!("{number:02x}").repeat(16)
}

/// The spans of a trace in the order of their tree; none if there are none.
fn spans(mixer: &TestMixer, number: u8) -> Option<Vec<Value>> {
    let path = format!("/api/v1/telemetry/traces/{}", trace(number));
    Some(mixer.api.get(&path).ok()?.json["data"].as_array()?.clone())
}

fn spans_of(mixer: &TestMixer, number: u8, names: &[&str]) -> Result<Vec<Value>, Failure> {
    let found = eventually(&format!("{names:?}"), SOON, || {
        spans(mixer, number).filter(|found| found.len() == names.len())
    })
    .map_err(|error| format!("{error}: {:?}", spans(mixer, number)))?;
    let found_names: Vec<_> = found.iter().filter_map(|span| span["span_name"].as_str()).collect();
    assert_eq!(found_names, names);
    assert_eq!(found[0]["parent_span_id"], CALLER_SPAN);
    for span in &found {
        assert_eq!(span["entity_name"], "mixer-01");
        assert_eq!(span["attributes"]["resource.service.name"], "platform-mixer");
    }
    Ok(found)
}

#[test]
fn requests_queries_and_activations_have_spans_in_their_callers_trace_and_ingest_has_none() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("observability.self_tracing", "true")], &[])?;
    let send = |path: &str, kind: &str, parent: &str, body: &str| {
        let headers = [("content-type", kind), ("traceparent", parent)];
        mixer.api.send(path, &headers, body.as_bytes())
    };
    let sql = |parent: &str| {
        send(
            "/api/v1/sql",
            "text/plain",
            parent,
            "SELECT count(*) FROM logs WHERE message = 'secret'",
        )
    };

    // None of these has a span; what comes after them has one, and is stored later.
    let ts = Timestamp::from(std::time::SystemTime::now()).to_string();
    let row = json!([{ "ts": ts, "level": "info", "message": "m" }]).to_string();
    let stored = send("/api/v1/ingest/logs", "application/json", &traceparent(1, "01"), &row)?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    assert_eq!(sql(&traceparent(2, "00"))?.status, 200);
    assert_eq!(send("/healthz", "text/plain", &traceparent(3, "01"), "")?.status, 405);

    let answer = sql(&traceparent(4, "01"))?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let found = spans_of(&mixer, 4, &["POST /api/v1/sql", "SELECT"])?;
    for (span, attribute, wanted) in [
        (0, "span.kind", json!("server")),
        (0, "http.request.method", json!("POST")),
        (0, "http.route", json!("/api/v1/sql")),
        (0, "url.path", json!("/api/v1/sql")),
        (0, "url.scheme", json!("http")),
        (0, "http.response.status_code", json!(200)),
        (0, "network.protocol.version", json!("1.1")),
        (0, "client.address", json!("127.0.0.1")),
        (1, "db.operation.name", json!("SELECT")),
        (1, "db.query.text", json!("SELECT count(*) FROM logs WHERE message = ?")),
    ] {
        assert_eq!(found[span]["attributes"][attribute], wanted, "{attribute}");
    }
    for number in 1..4 {
        assert_eq!(spans(&mixer, number), None, "{number}");
    }

    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, SCENARIO.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let path = "/api/v1/scenarios/traced:1/activate";
    let done = send(
        &format!("{path}?wait=10ms"),
        "application/json",
        &traceparent(5, "01"),
        "{}",
    )?;
    assert_eq!(done.status, 200, "{}", done.text);
    let names = [
        "POST /api/v1/scenarios/{reference}/activate",
        "activate scenario",
        "await convergence",
    ];
    let found = spans_of(&mixer, 5, &names)?;
    assert_eq!(found[0]["attributes"]["url.path"], path);
    assert_eq!(found[1]["attributes"]["scenario.reference"], "traced:1");
    assert_eq!(found[2]["attributes"]["scenario.converged"], false);

    // A request of no trace begins one, and a list within it is its part.
    assert_eq!(mixer.api.get("/api/v1/telemetry/metrics?limit=1")?.status, 200);
    let list = eventually("the span of the list", SOON, || {
        let found = mixer
            .api
            .rows("/api/v1/telemetry/traces?entity=mixer-01&limit=1000")
            .ok()?;
        found.into_iter().find(|span| span["span_name"] == "list metrics")
    })?;
    assert_eq!(list["attributes"]["db.collection.name"], "metrics");
    let path = format!("/api/v1/telemetry/traces/{}", list["trace_id"].as_str().unwrap());
    let root = mixer.api.get(&path)?.json["data"][0].clone();
    assert_eq!(root["span_name"], "GET /api/v1/telemetry/metrics");
    assert_eq!(
        (&root["span_id"], &root["parent_span_id"]),
        (&list["parent_span_id"], &Value::Null)
    );
    Ok(())
}

#[test]
fn a_mixer_that_shall_not_trace_itself_stores_no_span_whatever_its_callers_say() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let caller = traceparent(1, "01");
    let headers = [("content-type", "text/plain"), ("traceparent", caller.as_str())];
    let answer = mixer.api.send("/api/v1/sql", &headers, b"SELECT 1")?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = mixer.api.get("/metrics")?.text;
    for line in [
        "platform_self_tracing_stored_spans_total 0",
        "platform_self_tracing_dropped_spans_total 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    Ok(())
}
