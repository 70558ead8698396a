//! A trace of programs that are no Racks: W3C's headers go in by `http_in`, over the bus, and out by `http_out`, so that all of them see one
//! trace and one signal.

use harness::{Failure, TestMixer, TestRack, eventually};
use serde_json::{Value, json};

use super::{CALLER, SOON, Server, door, gear, word};
use crate::first_light::mixer_with;

const STATE: &str = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
/// The caller's signal.
const SIGNAL: &str = "0193c3f2-7d1a-7000-8000-0123456789ab";
/// The span of the server behind.
const SERVER_SPAN: &str = "53995c3f42cd8ad8";

fn scenario(url: &str) -> String {
    format!(
        "
meta: {{ name: foreign-trace, version: '1' }}
racks: [ {{ name: rack-a }}, {{ name: rack-b }} ]
gears:
  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0', path: /orders, trust_flux_id: true }} }}
  - {{ name: stamp, type: map, deploy: rack-a, config: {{ data: \"{{'said': text}}\" }} }}
  - {{ name: post, type: http_out, deploy: rack-b, config: {{ url: {url:?} }} }}
wires:
  - {{ from: door.out, to: stamp.in }}
  - {{ from: stamp.out, to: post.in }}
"
    )
}

/// A program that is no Rack sends a span of its own.
fn foreign_span(mixer: &TestMixer, name: &str, span_id: &str, parent: Option<&str>, ts: &str) -> Result<(), Failure> {
    let span = json!([{
        "ts": ts, "trace_id": CALLER.0, "span_id": span_id, "parent_span_id": parent, "span_name": name,
        "duration_ms": 1.0, "status": "ok",
    }]);
    let headers = [("content-type", "application/json"), ("Flux-Entity-Name", name)];
    let stored = mixer
        .api
        .send("/api/v1/ingest/traces", &headers, span.to_string().as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    Ok(())
}

#[test]
fn a_trace_of_strangers_goes_through_two_racks_to_the_next_stranger_as_one_tree() -> Result<(), Failure> {
    let server = Server::start()?;
    let (mixer, _scenario) = mixer_with(&scenario(&server.url))?;
    let mut a = TestRack::new("rack-a", &mixer.bus_url, "")?;
    let mut b = TestRack::new("rack-b", &mixer.bus_url, "")?;
    a.start()?;
    b.start()?;
    let mut door = door(&mixer, "door")?;
    door.base = door.base.trim_end_matches("/orders").to_owned();
    let (trace, span) = CALLER;
    let caller = format!("00-{trace}-{span}-01");
    let baggage = format!("user=x%20y,flux_id={SIGNAL};kept");
    let headers = [
        ("traceparent", caller.as_str()),
        ("tracestate", STATE),
        ("baggage", baggage.as_str()),
    ];
    let answer = door.send("/orders", &headers, b"seven")?;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(answer.json, json!({ "flux_id": SIGNAL, "trace_id": trace }));
    let seen = server.seen.recv_timeout(SOON)?;
    assert_eq!(
        (&*seen["tracestate"], &*seen["baggage"]),
        (STATE, &*format!("flux_id={SIGNAL}"))
    );

    let path = format!("/api/v1/telemetry/traces/{trace}");
    let tree = || Some(mixer.api.get(&path).ok()?.json["data"].as_array()?.clone());
    let rows = eventually("the spans of the gears", SOON, || tree().filter(|rows| rows.len() == 3))?;
    let of = |name: &str| rows.iter().find(|row| row["attributes"]["gear.id"] == name).unwrap();
    let sent = format!("00-{trace}-{}-01", of("post")["span_id"].as_str().unwrap());
    assert_eq!(seen["traceparent"], sent);
    let (first, last) = (of("door")["ts"].as_str().unwrap(), of("post")["ts"].as_str().unwrap());
    foreign_span(&mixer, "shop", span, None, first)?;
    foreign_span(&mixer, "stock", SERVER_SPAN, of("post")["span_id"].as_str(), last)?;
    let rows = eventually("the whole trace", SOON, || tree().filter(|rows| rows.len() == 5))?;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row["entity_name"].as_str().unwrap(), row["depth"].as_i64().unwrap()))
        .collect();
    let wanted = [("shop", 0), ("rack-a", 1), ("rack-a", 2), ("rack-b", 3), ("stock", 4)];
    assert_eq!(shown, wanted);
    roles(&rows, &server.url);
    Ok(())
}

/// What each gear's span says of its part.
fn roles(rows: &[Value], url: &str) {
    let rows: Vec<_> = rows.iter().filter_map(Value::as_object).collect();
    for (name, attribute, wanted) in [
        ("door", "span.kind", json!("server")),
        ("door", "http.route", json!("/orders")),
        ("door", "http.response.status_code", json!(202)),
        ("stamp", "span.kind", json!("producer")),
        ("stamp", "messaging.system", json!("nats")),
        ("stamp", "messaging.operation.type", json!("send")),
        (
            "stamp",
            "messaging.destination.name",
            json!("flux.msg.rack-a.stamp.out"),
        ),
        ("post", "span.kind", json!("client")),
        ("post", "messaging.operation.type", json!("process")),
        ("post", "messaging.destination.name", json!("flux.msg.rack-a.stamp.out")),
        ("post", "http.request.method", json!("POST")),
        ("post", "http.response.status_code", json!(200)),
        ("post", "url.full", json!(url)),
    ] {
        let mut of_gear = rows
            .iter()
            .filter(|row| row.get("attributes").is_some_and(|it| it["gear.id"] == name));
        let row = of_gear.next().unwrap();
        assert_eq!(row["attributes"][attribute], wanted, "{name} {attribute}");
        assert_eq!((word(row, "flux_id"), gear(row)), (SIGNAL, name));
    }
}
