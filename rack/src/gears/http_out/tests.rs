//! `http_out` against real servers in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod in_flight;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hyper::Method;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use tokio::sync::{Barrier, Notify};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::gears::testing::http_server::{Script, Server, answer, answers};
use crate::gears::testing::{Bench, held_port, push};
use crate::runtime::GearRuntime;

/// Lines that go to `door` are what `out` sends.
async fn start(bench: &Bench, config: &str) -> (GearRuntime, tokio::net::TcpStream) {
    start_with(bench, config, "", "").await
}

async fn start_with(bench: &Bench, config: &str, gears: &str, wires: &str) -> (GearRuntime, tokio::net::TcpStream) {
    let mut runtime = bench.runtime();
    let gears = format!(
        "
  - {{ name: door, type: tcp_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: out, type: http_out, deploy: rack-a, config: {{ {config} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}{gears}"
    );
    let wires = format!("{{ from: door.out, to: out.in }}, {{ from: out.reply, to: sink.in }}{wires}");
    assert_eq!(runtime.apply(&push("h", &gears, &wires)).await.error, None);
    let door = bench.address("door", "tcp").await;
    (runtime, tokio::net::TcpStream::connect(door).await.unwrap())
}

async fn send(door: &mut tokio::net::TcpStream, text: &str) {
    tokio::io::AsyncWriteExt::write_all(door, text.as_bytes())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_goes_out_in_its_trace_and_the_answer_goes_on_with_its_facts() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut server = Server::start(answers(vec![
        answer(201, &[("location", "/things/7"), ("content-type", "text/x")], "made"),
        answer(200, &[], "0123456789"),
        answer(200, &[], "plain"),
    ]))
    .await;
    let config = format!(
        "url: 'http://{}/in?a=b', method: PUT, max_answer: 8, headers: {{ authorization: 'Bearer ${{CARGO_PKG_NAME}}', x-color: blue }}",
        server.at
    );
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "one\ntwo\nthree\n").await;
    let records = bench.records("sink", 3).await;
    let seen = server.next().await;
    assert_eq!(
        (seen.method, seen.uri.as_str(), seen.body.as_slice()),
        (Method::PUT, "/in?a=b", &b"one"[..])
    );
    assert_eq!(seen.headers["authorization"], "Bearer platform-rack");
    assert_eq!(seen.headers["x-color"], "blue");
    let parent = TraceParent::parse(seen.headers["traceparent"].to_str().unwrap()).unwrap();
    let facts = &records[0]["attributes"];
    assert_eq!(
        (&facts["trace_id"], &records[0]["message"]),
        (&parent.trace_id.to_string().into(), &"made".into())
    );
    assert_eq!(seen.headers["flux-id"], records[0]["flux_id"].as_str().unwrap());
    assert_eq!(seen.headers["flux-parent"], seen.headers["idempotency-key"]);
    let baggage = format!("flux_id={}", records[0]["flux_id"].as_str().unwrap());
    assert_eq!(seen.headers["baggage"], baggage.as_str());
    assert!(!seen.headers.contains_key("tracestate"));
    assert_eq!(facts["http.response.status_code"], 201);
    assert_eq!(facts["http.response.header.location"], "/things/7");
    assert_eq!(facts["content_type"], "text/x");
    assert!(facts["tcp.connection"].is_string());
    assert_eq!(
        (&records[1]["message"], &records[1]["attributes"]["truncated"]),
        (&"01234567".into(), &true.into())
    );
    assert_eq!(records[2]["message"], "plain");
    // Connections are used again, except perhaps the one whose answer was cut.
    assert!(server.connections.load(Relaxed) < 3);
    runtime.close().await;
    let spans = bench.wait("the span", |bench| {
        let spans = bench.rows(model::Table::Traces);
        spans
            .into_iter()
            .find(|span| span["span_id"] == parent.span_id.to_string())
    });
    let span = spans.await;
    assert_eq!(span["span_name"], "http_out out");
    for (attribute, wanted) in [
        ("span.kind", json!("client")),
        ("http.request.method", json!("PUT")),
        ("http.response.status_code", json!(201)),
        ("url.full", json!(format!("http://{}/in", server.at))),
        ("server.address", json!("127.0.0.1")),
        ("server.port", json!(server.at.port())),
        ("http.request.resend_count", Value::Null),
        ("error.type", Value::Null),
    ] {
        assert_eq!(span["attributes"][attribute], wanted, "{attribute}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_pass_later_is_tried_again_in_order_and_retry_after_is_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut server = Server::start(answers(vec![
        answer(503, &[], ""),
        answer(429, &[("retry-after", "1")], ""),
        answer(200, &[], "one is done"),
        answer(404, &[], ""),
    ]))
    .await;
    let config = format!("url: 'http://{}', retry: {{ first: 20ms }}", server.at);
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "one\ntwo\nthree\n").await;
    let (mut all, mut keys) = (Vec::new(), Vec::new());
    for wanted in ["one", "one", "one", "two", "three"] {
        let seen = server.next().await;
        assert_eq!(seen.body, wanted.as_bytes());
        all.push(seen.at);
        keys.push(seen.headers["idempotency-key"].clone());
    }
    // A repetition can be told from another message.
    assert!(
        keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3] && keys[3] != keys[4],
        "{keys:?}"
    );
    assert!(all[1] - all[0] >= Duration::from_millis(20));
    assert!(all[2] - all[1] >= Duration::from_secs(1));
    bench
        .says("out", "a message was refused: the target answered 404 Not Found")
        .await;
    assert_eq!(bench.records("sink", 2).await.len(), 2);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_too_often_restarts_the_gear_and_the_next_one_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut server = Server::start(answers(vec![answer(500, &[], ""), answer(502, &[], "")])).await;
    let config = format!(
        "url: 'http://{}/in?key=hush', retry: {{ count: 1, first: 1ms }}",
        server.at
    );
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "bad\ngood\n").await;
    let shown = format!("http://{}/in: it answered 502 Bad Gateway, 2 times", server.at);
    bench
        .says(
            "out",
            &format!("the gear failed: cannot send a message to {shown}; it starts again"),
        )
        .await;
    for wanted in ["bad", "bad", "good"] {
        assert_eq!(server.next().await.body, wanted.as_bytes());
    }
    bench.records("sink", 1).await;
    runtime.close().await;
    // By a wire in memory it does not come again: that is counted.
    let dropped = bench.wait("the last counters", |bench| {
        let mut rows = bench.rows(model::Table::Metrics).into_iter();
        rows.rfind(|row| row["name"] == "gear.messages.dropped" && row["labels"]["gear.id"] == "out")
    });
    assert_eq!(dropped.await["value"], 1.0);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_circuit_breaker_counts_over_restarts_and_rejects_while_open() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (_socket, closed) = held_port();
    let config = format!(
        "url: 'http://{closed}', retry: {{ count: 0 }}, breaker: {{ failures: 2, open_for: 1h, when_open: reject }}"
    );
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "one\ntwo\nthree\n").await;
    bench.says("out", "Connection refused").await;
    bench
        .says("out", "failed 2 times in a row: nothing is sent to it for 1h")
        .await;
    bench.says("out", "a message was refused: http://127.0.0.1").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_while_the_breaker_is_open_and_one_attempt_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut server = Server::start(answers(vec![answer(500, &[], ""), answer(500, &[], "")])).await;
    let config = format!(
        "url: 'http://{}', retry: {{ count: 5, first: 1ms }}, breaker: {{ failures: 2, open_for: 300ms }}",
        server.at
    );
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "one\ntwo\n").await;
    let mut all = Vec::new();
    for wanted in ["one", "one", "one", "two"] {
        let seen = server.next().await;
        assert_eq!(seen.body, wanted.as_bytes());
        all.push(seen.at);
    }
    assert!(all[2] - all[1] >= Duration::from_millis(290));
    bench.says("out", "answers again").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_requests_are_under_way_as_in_flight_allows() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    // The others are not answered before three of them have come; one is rejected.
    let mut script = answers(vec![answer(200, &[], ""), answer(400, &[], "")]);
    script.barrier = Some(Barrier::new(3));
    let hold = Arc::new(Notify::new());
    script.hold = Some(Arc::clone(&hold));
    let mut server = Server::start(script).await;
    let config = format!("url: 'http://{}', in_flight: 3", server.at);
    let more = "\n  - { name: queued, type: log_sink, deploy: rack-a }";
    let (runtime, mut door) = start_with(&bench, &config, more, ", { from: door.out, to: queued.in }").await;
    send(&mut door, "0\n").await;
    assert_eq!(server.next().await.body, b"0");
    send(&mut door, "1\n2\n3\n4\n5\n6\n").await;
    bench.records("queued", 7).await;
    hold.notify_one();
    bench.records("sink", 6).await;
    bench
        .says("out", "a message was refused: the target answered 400")
        .await;
    let mut bodies = Vec::new();
    for _ in 0..6 {
        bodies.push(server.next().await.body);
    }
    bodies.sort();
    assert_eq!(bodies.concat(), b"123456");
    assert!(server.connections.load(Relaxed) <= 3);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_come_in_time_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let script = Script {
        barrier: Some(Barrier::new(2)),
        ..Script::default()
    };
    let server = Server::start(script).await;
    let config = format!("url: 'http://{}', timeout: 50ms, retry: {{ count: 0 }}", server.at);
    let (runtime, mut door) = start(&bench, &config).await;
    send(&mut door, "one\n").await;
    bench.says("out", "no answer within 50ms, 1 times").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_trusts_the_given_authorities_and_nobody_with_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let ca_file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gears/http_out/testdata/localhost.crt");
    let certificate = CertificateDer::from_pem_slice(include_bytes!("testdata/localhost.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/localhost.key")).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let script = Script {
        tls: Some(TlsAcceptor::from(Arc::new(tls))),
        ..Script::default()
    };
    let mut server = Server::start(script).await;
    let port = server.at.port();
    let (mut runtime, mut door) = start(
        &bench,
        &format!("url: 'https://localhost:{port}', ca_file: '{ca_file}'"),
    )
    .await;
    send(&mut door, "sealed\n").await;
    assert_eq!(server.next().await.body, b"sealed");
    let other = format!(
        "
  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 1000, count: 1 }} }}
  - {{ name: other, type: http_out, deploy: rack-a, config: {{ url: 'https://127.0.0.1:{port}', ca_file: '{ca_file}', retry: {{ count: 0 }} }} }}"
    );
    let applied = runtime
        .apply(&push("h2", &other, "{ from: numbers.out, to: other.in }"))
        .await;
    assert_eq!(applied.error, None);
    bench.says("other", "invalid peer certificate").await;
    runtime.close().await;
    bench.close().await;
}
