//! Push requests of Loki's clients.

use super::*;

const PUSH: &str = "/loki/api/v1/push";
const AS_JSON: (&str, &str) = ("content-type", "application/json");
const AS_PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

/// A request of one stream as protobuf.
fn stream(labels: &str, entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.iter().map(|entry| field(2, entry));
    let fields: Vec<u8> = std::iter::once(field(1, labels.as_bytes()))
        .chain(entries)
        .flatten()
        .collect();
    field(1, &fields)
}

/// An entry at noon of 2026-11-21.
fn entry(line: &[u8]) -> Vec<u8> {
    let noon = field(1, &[1 << 3, 0xc0, 0x8f, 0x86, 0xd8, 0x06]);
    [noon, field(2, line)].concat()
}

fn as_json(line: &str) -> String {
    let values = json!([["1795262400000000000", line]]);
    json!({ "streams": [{ "stream": { "host": "press-1", "level": "warn" }, "values": values }] }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_every_encoding_are_stored_once_and_answered_without_content() {
    let bench = SenderBench::new().await;
    let protobuf = snappy(&stream("{host=\"press-1\",level=\"warn\"}", &[entry(b"protobuf")]));
    for _ in 0..2 {
        for (headers, body) in [
            (&[AS_JSON][..], as_json("json").into_bytes()),
            (
                &[AS_JSON, ("content-encoding", "gzip")],
                gzip(as_json("gzip").as_bytes()),
            ),
            (&[AS_PROTOBUF], protobuf.clone()),
            (&[AS_PROTOBUF, ("content-encoding", "snappy")], protobuf.clone()),
            (&[], protobuf.clone()),
        ] {
            let said = bench.send(Method::POST, PUSH, headers, body).await;
            assert_eq!((said.0, said.2.as_str()), (StatusCode::NO_CONTENT, ""), "{headers:?}");
        }
    }
    let rows = bench
        .rows("SELECT message, level, entity_name FROM logs ORDER BY message")
        .await;
    let row = |line: &str| json!({ "message": line, "level": "warn", "entity_name": "press-1" });
    assert_eq!(rows, json!([row("gzip"), row("json"), row("protobuf")]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_entries_are_named_and_kept_as_dead_letters_and_the_others_are_stored() {
    let bench = SenderBench::new().await;
    let body = snappy(&stream(
        "{job=\"app\"}",
        &[entry(b"good"), entry(b"\xff"), entry(b"also good")],
    ));
    for _ in 0..2 {
        let said = bench.send(Method::POST, PUSH, &[AS_PROTOBUF], body.clone()).await;
        assert_eq!(said.0, StatusCode::BAD_REQUEST);
        assert_eq!(
            detail(&said),
            "2 records are stored and 1 refused: record 1: field 2 is not UTF-8"
        );
    }
    let rows = bench.rows("SELECT count(*) AS n FROM logs").await;
    assert_eq!(rows, json!([{ "n": 2 }]));
    let letter = ["loki/logs", "field 2 is not UTF-8", "application/x-protobuf"];
    assert_eq!(bench.letters().await, [letter]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_push_request_is_refused_with_what_is_wrong() {
    let bench = SenderBench::new().await;
    let whole = snappy(&stream("{job=\"app\"}", &[entry(b"good")]));
    // It says that it becomes a GiB, or 60 MiB.
    let huge = [&[0x80u8, 0x80, 0x80, 0x80, 0x04][..], &[0; 100]].concat();
    let bomb = [&[0x80u8, 0x80, 0x80, 0x1e][..], &[0; 100]].concat();
    let short = [&[whole[0] + 1][..], &whole[1..]].concat();
    for (headers, body, status, reason) in [
        (&[AS_PROTOBUF][..], b"garbage!".to_vec(), 400, "no block of snappy"),
        (&[AS_PROTOBUF], Vec::new(), 400, "no block of snappy"),
        (&[AS_PROTOBUF], huge, 413, "larger than"),
        (&[AS_PROTOBUF], bomb, 400, "cannot become"),
        (&[AS_PROTOBUF], short, 400, "no block of snappy"),
        (
            &[AS_PROTOBUF],
            whole[..whole.len() - 1].to_vec(),
            400,
            "no block of snappy",
        ),
        (
            &[AS_PROTOBUF],
            snappy(&[0x0a, 5, 1]),
            400,
            "no push request of Loki as protobuf",
        ),
        (
            &[AS_PROTOBUF, ("content-encoding", "gzip")],
            gzip(&whole),
            415,
            "send protobuf as a block of snappy",
        ),
        (&[AS_JSON], b"{".to_vec(), 400, "no push request of Loki as JSON"),
        (
            &[AS_JSON, ("content-encoding", "deflate")],
            b"{}".to_vec(),
            415,
            "Content-Encoding",
        ),
        (&[("content-type", "text/plain")], b"{}".to_vec(), 415, "none of Loki's"),
    ] {
        let said = bench.send(Method::POST, PUSH, headers, body).await;
        assert_eq!(said.0.as_u16(), status, "{reason}: {}", said.2);
        assert!(detail(&said).contains(reason), "{reason}: {}", said.2);
    }
    let said = bench.send(Method::GET, PUSH, &[], "").await;
    assert_eq!(said.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(bench.rows("SELECT count(*) AS n FROM logs").await, json!([{ "n": 0 }]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_quota_is_a_reason_to_send_again_later() {
    let quotas = CallerQuotas {
        queries: 100,
        ingest: ByteSize::bytes(100),
        ..CallerQuotas::default()
    };
    let bench = SenderBench::with(quotas).await;
    let line = "long ".repeat(1_000);
    let push = async || bench.send(Method::POST, PUSH, &[AS_JSON], as_json(&line)).await;
    assert_eq!(push().await.0, StatusCode::NO_CONTENT);
    let said = push().await;
    assert_eq!(said.0, StatusCode::SERVICE_UNAVAILABLE, "{}", said.2);
    assert!(detail(&said).contains("quotas.ingest_mb"), "{}", said.2);
    let wait: u64 = said.1[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
    let (_, _, metrics) = bench.send(Method::GET, "/metrics", &[], "").await;
    let counted = "http_route=\"/loki/api/v1/push\",http_response_status_code=\"429\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(!metrics.contains("http_response_status_code=\"5"), "{metrics}");
    bench.api.clock.forward(Duration::from_secs(wait));
    assert_eq!(push().await.0, StatusCode::NO_CONTENT);
    bench.close().await;
}
