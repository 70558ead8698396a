//! `otlp_out` against real servers in a real runtime, `otlp_in` among them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Read;

use model::Table;
use protocols::otlp::{OtlpEncoding, PROTOBUF, export_response};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::gears::testing::http_server::{Server, answer, answers};
use crate::gears::testing::{Bench, push};
use crate::runtime::GearRuntime;

/// Lines that go to `door` are what `out` sends.
async fn start(bench: &Bench, config: &str) -> (GearRuntime, TcpStream) {
    let gears = format!(
        "
  - {{ name: door, type: tcp_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0' }} }}
  - {{ name: out, type: otlp_out, deploy: rack-a, config: {{ {config} }} }}"
    );
    let mut runtime = bench.runtime();
    let applied = runtime
        .apply(&push("h", &gears, "{ from: door.out, to: out.in }"))
        .await;
    assert_eq!(applied.error, None);
    let door = bench.address("door", "tcp").await;
    (runtime, TcpStream::connect(door).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_arrives_at_another_racks_otlp_as_a_record_of_its_trace() {
    for gzip in [true, false] {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [sender, receiver] = folders.each_ref().map(|folder| Bench::open(folder.path()));
        let mut collecting = receiver.runtime();
        let gear = "\n  - { name: collector, type: otlp_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
        assert_eq!(collecting.apply(&push("h", gear, "")).await.error, None);
        let at = receiver.address("collector", "http").await;
        let config =
            format!("url: 'http://{at}/v1/logs', gzip: {gzip}, level: warn, resource: {{ service.name: shop }}");
        let (runtime, mut door) = start(&sender, &config).await;
        door.write_all(b"hello\n").await.unwrap();
        let row = receiver
            .wait("the record", |bench| {
                let mut rows = bench.rows(Table::Logs).into_iter();
                rows.find(|row| row["message"] == "hello")
            })
            .await;
        assert_eq!((&row["level"], &row["entity_name"]), (&"warn".into(), &"rack-a".into()));
        let attributes = row["attributes"].as_object().unwrap();
        assert_eq!(attributes["resource.service.name"], "shop");
        assert_eq!(attributes["otel.scope.name"], "out");
        assert!(attributes["tcp.connection"].is_string() && attributes["trace_id"].is_string());
        assert!(row["flux_id"].is_string());
        drop(door);
        runtime.close().await;
        collecting.close().await;
        sender.close().await;
        receiver.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_otlp_calls_retriable_is_tried_again_with_the_same_bytes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let refused = export_response(OtlpEncoding::Protobuf, Table::Logs, 1, "too old");
    let refused = String::from_utf8(refused).unwrap();
    let mut server = Server::start(answers(vec![
        answer(503, &[], ""),
        answer(429, &[], ""),
        answer(200, &[("content-type", PROTOBUF)], ""),
        answer(500, &[], ""),
        answer(200, &[("content-type", PROTOBUF)], &refused),
    ]))
    .await;
    let config = format!(
        "url: 'http://{}/v1/logs', headers: {{ api-key: '${{CARGO_PKG_NAME}}' }}, retry: {{ first: 10ms }}",
        server.at
    );
    let (runtime, mut door) = start(&bench, &config).await;
    door.write_all(b"one\ntwo\nthree\nfour\n").await.unwrap();
    let mut bodies = Vec::new();
    for _ in 0..6 {
        let seen = server.next().await;
        assert_eq!(seen.uri, "/v1/logs");
        assert_eq!(
            (
                &seen.headers["content-type"],
                &seen.headers["content-encoding"],
                &seen.headers["api-key"]
            ),
            (
                &PROTOBUF.parse().unwrap(),
                &"gzip".parse().unwrap(),
                &"platform-rack".parse().unwrap()
            )
        );
        let mut body = Vec::new();
        flate2::read::GzDecoder::new(&seen.body[..])
            .read_to_end(&mut body)
            .unwrap();
        bodies.push(body);
    }
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
    let has = |body: &[u8], text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    for (body, text) in bodies.iter().skip(2).zip(["one", "two", "three", "four"]) {
        assert!(has(body, text), "{text}");
    }
    bench
        .says(
            "out",
            "a message was refused: the target answered 500 Internal Server Error",
        )
        .await;
    runtime.close().await;
    let rejected = bench.wait("the last counters", |bench| {
        let mut rows = bench.rows(Table::Metrics).into_iter();
        rows.rfind(|row| row["name"] == "gear.messages.dropped" && row["labels"]["gear.id"] == "out")
            .filter(|row| row["value"] == 2.0)
    });
    rejected.await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_fails_opens_the_breaker_also_where_no_attempt_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut server = Server::start(answers(vec![answer(500, &[], ""), answer(500, &[], "")])).await;
    let config = format!(
        "url: 'http://{}/v1/logs', breaker: {{ failures: 2, open_for: 1h, when_open: reject }}",
        server.at
    );
    let (runtime, mut door) = start(&bench, &config).await;
    door.write_all(b"one\ntwo\n").await.unwrap();
    for _ in 0..2 {
        server.next().await;
    }
    bench
        .says("out", "failed 2 times in a row: nothing is sent to it")
        .await;
    runtime.close().await;
    bench.close().await;
}
