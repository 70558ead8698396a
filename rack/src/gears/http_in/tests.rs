//! Request and reply of `http_in`, over real sockets in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::net::SocketAddr;

use gear_spec::http_headers::FLUX_ID;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::*;
use crate::gears::tcp_listener::WRITE_TIMEOUT;
use crate::gears::testing::{Bench, push};
use crate::runtime::GearRuntime;

/// An answer: status, content type, signal, body.
struct Answered {
    status: u16,
    content_type: String,
    flux_id: String,
    body: String,
}

async fn post(to: SocketAddr, body: &str) -> Answered {
    post_with(to, None, body).await
}

/// The same with an `Idempotency-Key`.
async fn post_with(to: SocketAddr, key: Option<&str>, body: &str) -> Answered {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(format!("http://{to}/"));
    if let Some(key) = key {
        request = request.header(idempotency::HEADER, key);
    }
    let request = request.body(Full::<Bytes>::from(body.to_owned()));
    let answer = client.request(request.unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let text = |name: &str| {
        let value = head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    Answered {
        status: head.status.as_u16(),
        content_type: text("content-type"),
        flux_id: text(FLUX_ID),
        body: String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
    }
}

/// A gear `door` with this configuration beside its address, and what else there is.
async fn start(bench: &Bench, config: &str, gears: &str, wires: &str) -> (GearRuntime, SocketAddr) {
    let door =
        format!("\n  - {{ name: door, type: http_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0'{config} }} }}");
    let mut runtime = bench.runtime();
    let applied = runtime.apply(&push("h", &format!("{door}{gears}"), wires)).await;
    assert_eq!(applied.error, None);
    let to = bench.address("door", "http").await;
    (runtime, to)
}

const DESK: &str = r#"
  - { name: read, type: codec_json, deploy: rack-a, config: { direction: decode } }
  - name: desk
    type: map
    deploy: rack-a
    config:
      data: "{'order': data.order, 'total': data.price * data.count}"
      meta: { http.response.status_code: "data.count > 9 ? 409 : null" }
  - { name: sink, type: log_sink, deploy: rack-a }"#;
const DESK_WIRES: &str = "{ from: door.out, to: read.in }, { from: read.out, to: desk.in }, { from: desk.out, to: door.reply }, \
                          { from: desk.out, to: sink.in }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_a_request_is_the_reply_that_names_it_also_among_many() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, to) = start(&bench, ", reply_within: 20s", DESK, DESK_WIRES).await;
    let order = |number: u64| format!(r#"{{"order":{number},"price":{number},"count":3}}"#);
    let bodies: Vec<String> = (0..50).map(order).collect();
    let all = futures::future::join_all(bodies.iter().map(|body| post(to, body))).await;
    for (number, answer) in (0u64..).zip(&all) {
        assert_eq!((answer.status, answer.content_type.as_str()), (200, "application/json"));
        let wanted = json!({ "order": number, "total": number * 3 });
        assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), wanted);
    }
    // The signal that the answer names is that of the message.
    let records = bench.records("sink", 50).await;
    let of_seven = records
        .iter()
        .find(|row| row["flux_id"] == all[7].flux_id.as_str())
        .unwrap();
    assert!(
        of_seven["message"].as_str().unwrap().contains("\"order\":7"),
        "{of_seven:?}"
    );
    // The reply says the status, too.
    let refused = post(to, r#"{"order":1,"price":2,"count":10}"#).await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (409, r#"{"order":1,"total":20}"#)
    );
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_back_as_what_they_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let gears = "\n  - { name: write, type: codec_csv, deploy: rack-a, config: { direction: encode, header: [b, a] } }
  - { name: make, type: map, deploy: rack-a, config: { data: \"{'a': 1, 'b': text}\" } }";
    let wires =
        "{ from: door.out, to: make.in }, { from: make.out, to: write.in }, { from: write.out, to: door.reply }";
    let (runtime, to) = start(&bench, ", reply_within: 20s", gears, wires).await;
    let answer = post(to, "hello").await;
    assert_eq!((answer.status, answer.content_type.as_str()), (200, "text/csv"));
    assert_eq!(answer.body.trim_end(), "hello,1");
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_reply_is_told_so_in_time_and_its_late_reply_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    // The second reply comes ten seconds after the first one, when its request was given up.
    let slow = "\n  - { name: slow, type: throttle, deploy: rack-a, config: { rate: 0.1 } }";
    let wires = "{ from: door.out, to: slow.in }, { from: slow.out, to: door.reply }";
    let (runtime, to) = start(&bench, ", reply_within: 3s", slow, wires).await;
    assert_eq!(post(to, "first").await.status, 200);
    let late = post(to, "second").await;
    assert_eq!(
        (late.status, late.content_type.as_str()),
        (504, "application/problem+json")
    );
    let problem: Value = serde_json::from_str(&late.body).unwrap();
    assert_eq!(problem["code"], "no_reply");
    assert!(problem["detail"].as_str().unwrap().contains("within 3s"), "{problem}");
    assert!(!late.flux_id.is_empty());
    bench.says("door", "nobody waits for a reply to request").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_reply_is_rejected_with_the_reason() {
    for (config, gear, reason) in [
        (
            ", reply_within: 1s",
            "",
            "a reply names no request: http.request must be in its meta",
        ),
        ("", "", "nobody waits for replies: set reply_within"),
        (
            ", reply_within: 1s",
            r#"{ http.request: "'x-1'", http.response.status_code: "99" }"#,
            "http.response.status_code of a reply is 99; it must be a number from 200 to 599",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::open(folder.path());
        let meta = if gear.is_empty() { "{}" } else { gear };
        let gears = format!(
            "\n  - {{ name: numbers, type: generator, deploy: rack-a, config: {{ rate: 1000, count: 1 }} }}
  - {{ name: facts, type: map, deploy: rack-a, config: {{ data: \"1\", meta: {meta} }} }}"
        );
        let wires = "{ from: numbers.out, to: facts.in }, { from: facts.out, to: door.reply }";
        let (runtime, _) = start(&bench, config, &gears, wires).await;
        bench.says("door", reason).await;
        runtime.close().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_read_its_answers_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, to) = start(&bench, ", reply_within: 60s", "", "{ from: door.out, to: door.reply }").await;
    let mut peer = TcpStream::connect(to).await.unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{}",
        "x".repeat(1_000_000)
    );
    let cut_off = async {
        while tokio::io::AsyncWriteExt::write_all(&mut peer, request.as_bytes())
            .await
            .is_ok()
        {}
    };
    tokio::time::timeout(WRITE_TIMEOUT * 3, cut_off).await.unwrap();
    runtime.close().await;
    bench.close().await;
}

/// A request with these headers: the status, the problem's code, and the signal that the answer names.
async fn named(to: SocketAddr, headers: &[(&str, &str)]) -> (u16, Value, String) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(format!("http://{to}/"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client
        .request(request.body(Full::<Bytes>::from("x")).unwrap())
        .await
        .unwrap();
    let (head, body) = answer.into_parts();
    let said: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    let id = head.headers.get(FLUX_ID).map(|id| id.to_str().unwrap().to_owned());
    (head.status.as_u16(), said["code"].clone(), id.unwrap_or_default())
}

const SIGNAL: &str = "0193c3f2-7d1a-7000-8000-0123456789ab";
const NOT_OURS: &str = "0193c3f2-7d1a-4000-8000-0123456789ab";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_belongs_to_the_signal_that_a_trusted_sender_names_and_a_bad_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
    let (runtime, to) = start(&bench, "", sink, "{ from: door.out, to: sink.in }").await;
    let good = [(FLUX_ID, SIGNAL), ("flux-parent", SIGNAL)];
    assert_eq!(named(to, &good).await, (202, Value::Null, SIGNAL.to_owned()));
    assert_eq!(bench.records("sink", 1).await[0]["flux_id"], SIGNAL);
    for bad in ["", "one", NOT_OURS] {
        for name in [FLUX_ID, "flux-parent"] {
            assert_eq!(
                named(to, &[(name, bad)]).await,
                (400, "bad_flux_id".into(), String::new()),
                "{name} {bad}"
            );
        }
    }
    assert_eq!(named(to, &[(FLUX_ID, SIGNAL), (FLUX_ID, SIGNAL)]).await.0, 400);
    // Who names none begins one.
    let (status, _, id) = named(to, &[]).await;
    assert!(status == 202 && id != SIGNAL && !id.is_empty());
    // Nothing that was refused went on.
    runtime.close().await;
    assert_eq!(bench.records("sink", 2).await.len(), 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_trusted_names_no_signal_good_or_bad_and_that_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
    let wire = "{ from: door.out, to: sink.in }";
    let (runtime, to) = start(&bench, ", trust_flux_id: false", sink, wire).await;
    for name in [SIGNAL, "one", NOT_OURS] {
        let (status, _, id) = named(to, &[(FLUX_ID, name), ("flux-parent", name)]).await;
        assert!(status == 202 && id != name && !id.is_empty(), "{name}");
    }
    bench.says("door", "set trust_flux_id to true").await;
    runtime.close().await;
    let said = bench.logs("door");
    assert_eq!(
        said.iter().filter(|log| log.contains("trust_flux_id")).count(),
        1,
        "{said:?}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_repeated_under_its_key_makes_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
    let (runtime, to) = start(&bench, "", sink, "{ from: door.out, to: sink.in }").await;
    let repeated = futures::future::join_all((0..8).map(|_| post_with(to, Some("k-1"), "one"))).await;
    let again = post_with(to, Some("k-1"), "one").await;
    assert!(
        repeated
            .iter()
            .all(|answer| answer.status == 202 && answer.flux_id == again.flux_id)
    );
    let other_body = post_with(to, Some("k-1"), "two").await;
    let other_key = post_with(to, Some("k-2"), "one").await;
    let without = post(to, "one").await;
    let signals: std::collections::BTreeSet<_> = [again, other_body, other_key, without]
        .into_iter()
        .map(|answer| answer.flux_id)
        .collect();
    assert_eq!(signals.len(), 4);
    let long = post_with(to, Some(&"k".repeat(256)), "one").await;
    assert_eq!(
        (long.status, long.body.contains("bad_key")),
        (400, true),
        "{}",
        long.body
    );
    runtime.close().await;
    assert_eq!(bench.records("sink", 4).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_browser_sends_for_a_page_of_another_site_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
    let config = ", allowed_hosts: [rack.example]";
    let (runtime, to) = start(&bench, config, sink, "{ from: door.out, to: sink.in }").await;
    for (headers, status) in [
        (&[("host", "localhost")][..], 202),
        (&[("host", "rack.example:81")], 202),
        (&[("host", "evil.example")], 421),
        (&[("host", "localhost"), ("origin", "http://localhost")], 202),
        (&[("host", "localhost"), ("origin", "http://evil.example")], 403),
        (&[("host", "localhost"), ("origin", "null")], 403),
        (&[("host", "localhost"), ("sec-fetch-site", "same-origin")], 202),
        (&[("host", "localhost"), ("sec-fetch-site", "same-site")], 403),
        (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], 403),
    ] {
        let mut request = Request::post(format!("http://{to}/"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::<Bytes>::from("order"));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request.unwrap()).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{headers:?}");
        // Its body was not read: the client must not send its next request into this connection.
        let ends = answer.headers().get("connection").is_some_and(|value| value == "close");
        assert_eq!(ends, status != 202, "{headers:?}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers()["cross-origin-resource-policy"], "same-origin");
    }
    assert_eq!(bench.records("sink", 4).await.len(), 4);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_the_token_is_401_and_makes_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, token) = (Bench::open(folder.path()), "0123456789abcdef0123456789abcdef");
    std::fs::write(folder.path().join("token"), token).unwrap();
    let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
    let config = format!(", auth: {{ token_file: '{}' }}", folder.path().join("token").display());
    let (runtime, to) = start(&bench, &config, sink, "{ from: door.out, to: sink.in }").await;
    let refused = (401, "unauthenticated".into(), String::new());
    assert_eq!(named(to, &[]).await, refused);
    assert_eq!(named(to, &[("authorization", "Bearer guess")]).await, refused);
    assert_eq!(named(to, &[("host", "evil.example")]).await.0, 421);
    let (status, ..) = named(to, &[("authorization", &format!("Bearer {token}"))]).await;
    assert_eq!(status, 202);
    assert_eq!(bench.records("sink", 1).await.len(), 1);
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let answer = client.get(format!("http://{to}/").parse().unwrap()).await.unwrap();
    assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    runtime.close().await;
    bench.close().await;
}
