//! OTLP on the real programs: where it is received, and whose rows it makes. Real senders are elsewhere (`senders`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use harness::{Api, Failure, TestMixer};
use serde_json::{Value, json};

/// A request with one log record of a resource.
fn log(message: &str, resource: &[(&str, &str)]) -> Value {
    let attributes: Vec<Value> = resource
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }))
        .collect();
    json!({ "resourceLogs": [{
        "resource": { "attributes": attributes },
        "scopeLogs": [{ "logRecords": [{ "body": { "stringValue": message } }] }],
    }] })
}

/// The rows of a statement.
pub(crate) fn select(mixer: &TestMixer, statement: &str) -> Result<Vec<Value>, Failure> {
    let asked = json!({ "query": statement, "limit": 10_000 });
    let answer = mixer.api.post("/api/v1/sql", &asked)?;
    let rows = answer.json["data"].as_array().cloned();
    rows.ok_or_else(|| answer.text.into())
}

fn ip(address: Option<SocketAddr>) -> Option<String> {
    address.map(|address| address.ip().to_string())
}

#[test]
fn it_listens_where_the_keys_say_and_nowhere_without_them() -> Result<(), Failure> {
    let silent = TestMixer::with(&[], &[])?;
    assert_eq!((silent.otlp_http, silent.otlp_grpc), (None, None));
    assert_eq!(silent.api.post("/v1/logs", &log("at the API", &[]))?.status, 200);

    let host = ("otlp.host", "\"127.0.0.9\"");
    let enabled = ("otlp.enabled", "true");
    let mixer = TestMixer::with(&[enabled, host, ("otlp.http_port", "0"), ("otlp.grpc_port", "0")], &[])?;
    assert_eq!(ip(mixer.otlp_http).as_deref(), Some("127.0.0.9"));
    assert_eq!(ip(mixer.otlp_grpc).as_deref(), Some("127.0.0.9"));
    let (http, grpc) = mixer.otlp_http.zip(mixer.otlp_grpc).ok_or("no ports")?;

    let client = Api::new(&format!("http://{http}"));
    assert_eq!(client.post("/v1/logs", &log("at its own port", &[]))?.status, 200);
    assert_eq!(client.get("/api/v1/racks")?.status, 404, "nothing else is there");
    let rows = select(
        &mixer,
        "SELECT message, entity_name FROM logs WHERE message = 'at its own port'",
    )?;
    assert_eq!(rows, [json!({ "message": "at its own port", "entity_name": "http" })]);

    // HTTP/2 begins with a preface and a frame of settings on both sides.
    let mut stream = TcpStream::connect(grpc)?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
    let mut frame = [0; 9];
    stream.read_exact(&mut frame)?;
    assert_eq!(frame[3], 4, "settings: {frame:?}");

    for (taken, other) in [
        ("otlp.http_port", "otlp.grpc_port"),
        ("otlp.grpc_port", "otlp.http_port"),
    ] {
        let port = http.port().to_string();
        let second = TestMixer::with(&[enabled, host, (taken, &port), (other, "0")], &[]);
        let error = second.err().ok_or("two listen at one place")?.to_string();
        assert!(error.contains(taken) && error.contains(&port), "{error}");
    }
    Ok(())
}

#[test]
fn entities_are_named_by_the_attributes_that_the_key_lists() -> Result<(), Failure> {
    let resource = [("service.name", "shop"), ("host.name", "web-1"), ("team", "red")];
    let usual: &[(&str, &str)] = &[];
    for (keys, name) in [
        (usual, "web-1"),
        (&[("otlp.entity", "[\"service.name\", \"host.name\"]")], "shop"),
        (&[("otlp.entity", "[\"nothing\", \"team\"]")], "red"),
        (&[("otlp.entity", "[\"nothing\"]")], "http"),
    ] {
        let mixer = TestMixer::with(keys, &[])?;
        assert_eq!(mixer.api.post("/v1/logs", &log("whose", &resource))?.status, 200);
        let rows = select(&mixer, "SELECT entity_name FROM logs WHERE message = 'whose'")?;
        assert_eq!(rows, [json!({ "entity_name": name })]);
    }
    Ok(())
}
