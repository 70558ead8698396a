//! OTLP over HTTP and gRPC into a real spool.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod letters;

use std::io::Write;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use serde_json::{Map, Value, json};

use super::*;
use crate::gears::testing::{Bench, push};
use crate::runtime::GearRuntime;

/// A gear `door` with this configuration in its first or a later life beside its two addresses: HTTP and gRPC.
async fn start(bench: &Bench, config: &str, life: usize) -> (GearRuntime, SocketAddr, SocketAddr) {
    let gears = format!(
        "\n  - {{ name: door, type: otlp_in, deploy: rack-a, config: {{ listen: '127.0.0.1:0', listen_grpc: '127.0.0.1:0'{config} }} }}"
    );
    let mut runtime = bench.runtime();
    assert_eq!(runtime.apply(&push("h", &gears, "")).await.error, None);
    let (http, grpc) = (address(bench, "http", life).await, address(bench, "grpc", life).await);
    (runtime, http, grpc)
}

async fn address(bench: &Bench, scheme: &str, life: usize) -> SocketAddr {
    let said = format!("listening on {scheme}://");
    bench
        .wait("an address", |bench| {
            let logs = bench.logs("door");
            let at = logs.iter().filter_map(|log| log.strip_prefix(&said)).nth(life - 1)?;
            at.split('/').next()?.parse().ok()
        })
        .await
}

/// An answer: status, headers, body.
struct Answered {
    status: u16,
    headers: axum::http::HeaderMap,
    body: Vec<u8>,
}

async fn post(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answered {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(format!("http://{to}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body: Bytes = body.into();
    let request = request.body(Full::new(body)).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    Answered {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

const AS_JSON: (&str, &str) = ("content-type", "application/json");

fn logs(messages: &[&str]) -> String {
    let records: Vec<_> = messages
        .iter()
        .map(|message| json!({ "timeUnixNano": "1700000000000000000", "severityNumber": 13, "body": { "stringValue": message } }))
        .collect();
    let service = json!({ "key": "service.name", "value": { "stringValue": "shop" } });
    json!({ "resourceLogs": [{ "resource": { "attributes": [service] }, "scopeLogs": [{ "logRecords": records }] }] })
        .to_string()
}

/// A field of a protobuf message with its length before it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

/// The same records as protobuf, without a resource.
fn logs_protobuf(message: &str) -> Vec<u8> {
    let record = field(5, &field(1, message.as_bytes()));
    field(1, &field(2, &field(2, &record)))
}

/// The rows that came by OTLP.
fn stored(bench: &Bench, table: Table) -> Vec<Map<String, Value>> {
    let rows = bench.rows(table).into_iter();
    let own = if table == Table::Metrics {
        "labels"
    } else {
        "attributes"
    };
    rows.filter(|row| row[own].get("gear.id").is_none()).collect()
}

fn messages(bench: &Bench) -> Vec<String> {
    let rows = stored(bench, Table::Logs);
    rows.iter()
        .map(|row| row["message"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_durable_before_the_answer_and_the_racks_own() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let answer = post(http, "/v1/logs", &[AS_JSON], logs(&["one", "two"])).await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]));
    let rows = stored(&bench, Table::Logs);
    assert_eq!(messages(&bench), ["one", "two"]);
    assert_eq!(
        (&rows[0]["entity_name"], &rows[0]["level"]),
        (&"rack-a".into(), &"warn".into())
    );
    assert_eq!(rows[0]["attributes"]["resource.service.name"], "shop");
    // Nobody sends as somebody else.
    let other = logs(&["three"])
        .replace("service.name", "platform.entity_id")
        .replace("shop", "0193c3f2-7d1a-7000-8000-0123456789ab");
    assert_eq!(post(http, "/v1/logs", &[AS_JSON], other).await.status, 200);
    let rows = stored(&bench, Table::Logs);
    assert_eq!(rows[2]["entity_id"], rows[0]["entity_id"]);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_again_is_stored_once_also_by_the_next_life_of_the_gear() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(logs(&["one"]).as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    for _ in 0..3 {
        assert_eq!(post(http, "/v1/logs", &[AS_JSON], logs(&["one"])).await.status, 200);
    }
    let gzip = [AS_JSON, ("content-encoding", "gzip")];
    assert_eq!(post(http, "/v1/logs", &gzip, packed.clone()).await.status, 200);
    let zstd = [AS_JSON, ("content-encoding", "zstd")];
    let packed_otherwise = zstd::encode_all(logs(&["one"]).as_bytes(), 1).unwrap();
    assert_eq!(post(http, "/v1/logs", &zstd, packed_otherwise).await.status, 200);
    assert_eq!(messages(&bench), ["one"]);
    runtime.close().await;
    let (runtime, http, _) = start(&bench, "", 2).await;
    assert_eq!(post(http, "/v1/logs", &gzip, packed).await.status, 200);
    assert_eq!(post(http, "/v1/logs", &[AS_JSON], logs(&["two"])).await.status, 200);
    assert_eq!(messages(&bench), ["one", "two"]);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_first_metric_cannot_be_read_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let unread = json!({ "name": "n", "gauge": { "dataPoints": 5 } });
    let point = json!({ "timeUnixNano": "1700000000000000000", "asInt": "1" });
    let metrics = [unread, json!({ "name": "good", "gauge": { "dataPoints": [point] } })];
    let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": metrics }] }] }).to_string();
    for _ in 0..2 {
        let answer = post(http, "/v1/metrics", &[AS_JSON], body.clone()).await;
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(said["partialSuccess"]["rejectedDataPoints"], "1", "{said}");
    }
    let rows = stored(&bench, Table::Metrics);
    let good = rows.iter().filter(|row| row["name"] == "good");
    assert_eq!(good.count(), 1);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_events_without_a_time_are_two() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let with_time = logs(&["one"]);
    let without = with_time.replace("1700000000000000000", "0");
    assert_ne!(without, with_time);
    for body in [&without, &without, &with_time, &with_time] {
        assert_eq!(post(http, "/v1/logs", &[AS_JSON], body.clone()).await.status, 200);
    }
    assert_eq!(messages(&bench), ["one", "one", "one"]);
    // By the first record, as the Mixer has it.
    let (both, time) = (logs(&["a", "b"]), "1700000000000000000");
    let last = both.rfind(time).unwrap();
    let only_first = format!("{}0{}", &both[..last], &both[last + time.len()..]);
    for (body, times) in [(both.replacen(time, "0", 1), 2), (only_first, 1)] {
        let before = messages(&bench).len();
        for _ in 0..2 {
            assert_eq!(post(http, "/v1/logs", &[AS_JSON], body.clone()).await.status, 200);
        }
        assert_eq!(messages(&bench).len(), before + 2 * times, "{body}");
    }
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_is_answered_in_trailers_and_a_refusal_in_headers() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, _, grpc) = start(&bench, "", 1).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = |service: &str, message: Vec<u8>| {
        let framed = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
        let request = Request::post(format!("http://{grpc}{service}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        request.body(Full::<Bytes>::from(framed)).unwrap()
    };
    let service = SIGNALS.iter().find(|(table, ..)| *table == Table::Logs).unwrap().2;
    let answer = client
        .request(request(service, logs_protobuf("by gRPC")))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), Bytes::from_static(&[0; 5]));
    assert_eq!(messages(&bench), ["by gRPC"]);
    for (service, message, code) in [
        (service, vec![0x0a, 9], "3"),
        ("/no.such.Service/Export", Vec::new(), "12"),
    ] {
        let refused = client.request(request(service, message)).await.unwrap();
        assert_eq!(refused.headers()["grpc-status"], code, "{service}");
    }
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_records_are_counted_in_the_answer_and_good_ones_beside_them_stored() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let span = |trace: &str| {
        json!({ "traceId": trace, "spanId": "b7ad6b7169203331", "name": "order",
                "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001500000000" })
    };
    let good = "0af7651916cd43dd8448eb211c80319c";
    let spans = [span(good), span("00000000000000000000000000000000")];
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string();
    for _ in 0..2 {
        let answer = post(http, "/v1/traces", &[AS_JSON], body.clone()).await;
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (answer.status, &said["partialSuccess"]["rejectedSpans"]),
            (200, &"1".into())
        );
    }
    let rows = stored(&bench, Table::Traces);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["trace_id"], &rows[0]["duration_ms"]),
        (&good.into(), &1500.0.into())
    );
    bench.says("door", "messages are lost: record 1: trace_id").await;
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_taken_is_refused_with_the_reason_and_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, token) = (Bench::open(folder.path()), "0123456789abcdef0123456789abcdef");
    std::fs::write(folder.path().join("token"), token).unwrap();
    let auth = format!(", auth: {{ token_file: '{}' }}", folder.path().join("token").display());
    let (runtime, http, _) = start(&bench, &auth, 1).await;
    let bearer = format!("Bearer {token}");
    let known = ("authorization", bearer.as_str());
    for (path, headers, body, status) in [
        ("/v1/logs", &[AS_JSON][..], logs(&["x"]), 401),
        (
            "/v1/logs",
            &[AS_JSON, known, ("host", "evil.example")],
            logs(&["x"]),
            421,
        ),
        ("/v1/profiles", &[AS_JSON, known], logs(&["x"]), 404),
        ("/v1/logs", &[known], logs(&["x"]), 415),
        (
            "/v1/logs",
            &[AS_JSON, known, ("content-encoding", "br")],
            logs(&["x"]),
            415,
        ),
        ("/v1/logs", &[AS_JSON, known], "{".to_owned(), 400),
        (
            "/v1/logs",
            &[AS_JSON, known, ("content-encoding", "gzip")],
            logs(&["x"]),
            400,
        ),
    ] {
        let answer = post(http, path, headers, body).await;
        assert_eq!(answer.status, status, "{path} {headers:?}");
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(said["message"].as_str().is_some_and(|text| !text.is_empty()), "{said}");
    }
    let large = post(
        http,
        "/v1/logs",
        &[AS_JSON, known],
        vec![b' '; request_body::MAX_BODY + (8 << 20)],
    )
    .await;
    assert_eq!(
        (large.status, &large.headers["connection"]),
        (413, &HeaderValue::from_static("close"))
    );
    assert_eq!(messages(&bench), Vec::<String>::new());
    assert_eq!(
        post(http, "/v1/logs", &[AS_JSON, known], logs(&["good"])).await.status,
        200
    );
    assert_eq!(messages(&bench), ["good"]);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_as_json_is_bounded_by_its_bytes_and_by_what_one_record_becomes() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (runtime, http, _) = start(&bench, "", 1).await;
    let attributes = |count: usize| -> Vec<Value> {
        let one = |number: usize| json!({ "key": format!("k{number}"), "value": { "intValue": "1" } });
        (0..count).map(one).collect()
    };
    let record = |attributes: Vec<Value>| json!({ "timeUnixNano": "1700000000000000000", "attributes": attributes });
    let request =
        |records: Vec<Value>| json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": records }] }] }).to_string();
    let count = 3_000;
    let many = request(vec![record(attributes(40)); count]);
    assert!(many.len() > 4 << 20, "{}", many.len());
    assert_eq!(post(http, "/v1/logs", &[AS_JSON], many).await.status, 200);
    assert_eq!(stored(&bench, Table::Logs).len(), count);
    let one = request(vec![record(attributes(100_000))]);
    assert!(one.len() < 5 << 20, "{}", one.len());
    assert_eq!(post(http, "/v1/logs", &[AS_JSON], one).await.status, 413);
    assert_eq!(stored(&bench, Table::Logs).len(), count);
    runtime.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_records_nothing_does_not_take_what_it_would_lose() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open_with(folder.path(), false);
    let mut runtime = bench.runtime();
    let gear = "\n  - { name: door, type: otlp_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
    let error = runtime.apply(&push("h", gear, "")).await.error.unwrap();
    assert!(error.contains("observability.enabled"), "{error}");
    runtime.close().await;
    bench.close().await;
}
