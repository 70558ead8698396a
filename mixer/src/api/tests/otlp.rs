//! OTLP over real listeners: the answers of its table for both encodings over HTTP and for gRPC, and what is stored then.

mod client;
mod refusals;
mod samples;

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode, header};

use self::client::{ExportAnswer, ExportWay, OtlpApi, QUOTAS, SIGNALS, ask_at, with_token};
use self::samples::{SERVICE, body};
use super::access::GuardedApi;
use super::*;
use crate::access::{AccessRole, AccessScope, ApiToken};
use crate::quotas::CallerQuotas;

/// What an answer says of refused records: how many, and why.
fn partial(way: ExportWay, table: Table, message: &[u8]) -> Option<(u64, String)> {
    if way == ExportWay::Json {
        let answer: Value = serde_json::from_slice(message).unwrap();
        let partial = answer.get("partialSuccess")?;
        let rejected = match table {
            Table::Traces => "rejectedSpans",
            Table::Metrics => "rejectedDataPoints",
            _ => "rejectedLogRecords",
        };
        let rejected = partial[rejected].as_str().unwrap_or_else(|| panic!("{answer}"));
        let reason = partial["errorMessage"].as_str().unwrap().to_owned();
        return Some((rejected.parse().unwrap(), reason));
    }
    if message.is_empty() {
        return None;
    }
    // A message in field 1: a number in its field 1, a text in its field 2, all of them short here.
    let [0x0a, length, 0x08, rejected, 0x12, reason @ ..] = message else {
        panic!("{message:?}");
    };
    let (said, reason) = reason.split_first().unwrap();
    assert_eq!(
        (usize::from(*length), usize::from(*said)),
        (message.len() - 2, reason.len())
    );
    Some(((*rejected).into(), String::from_utf8(reason.to_vec()).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_signal_is_stored_in_every_way_and_a_repetition_once() {
    let api = OtlpApi::new().await;
    for (table, ..) in SIGNALS {
        for (number, way) in (1..).zip(ExportWay::ALL) {
            let sent = body(table, way, &[(10 * number, true), (10 * number + 1, true)]);
            for _ in 0..3 {
                let answer = api.export(way, table, &sent).await;
                assert_eq!(partial(way, table, answer.message(way)), None, "{table} {way:?}");
            }
        }
        assert_eq!(api.count(table).await, 6, "{table}");
    }
    let rows = api.select("SELECT DISTINCT entity_name FROM traces").await;
    assert_eq!(rows, json!([{ "entity_name": SERVICE }]));
    let rows = api.select("SELECT message FROM logs ORDER BY message").await;
    let messages: Vec<String> = [10, 11, 20, 21, 30, 31].map(|n| format!("line {n}")).into();
    let found: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["message"]).collect();
    assert_eq!(found, messages.iter().collect::<Vec<_>>());
    assert_eq!(api.count(Table::DeadLetters).await, 0);
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_records_are_told_and_kept_once_and_the_others_are_stored_once() {
    let api = OtlpApi::new().await;
    for (table, ..) in SIGNALS {
        let before = api.count(Table::DeadLetters).await;
        for (number, way) in (1..).zip(ExportWay::ALL) {
            let sent = body(
                table,
                way,
                &[(10 * number, true), (10 * number + 1, false), (10 * number + 2, true)],
            );
            for _ in 0..2 {
                let answer = api.export(way, table, &sent).await;
                let (rejected, reason) = partial(way, table, answer.message(way)).unwrap();
                assert_eq!(rejected, 1, "{table} {way:?}");
                assert!(reason.starts_with("record 1: "), "{reason}");
                assert!(reason.contains(samples::reason(table)), "{reason}");
            }
        }
        assert_eq!(api.count(table).await, 6, "{table}");
        assert_eq!(
            api.count(Table::DeadLetters).await - before,
            3,
            "{table}: one letter of each way"
        );
    }
    let letters = api.letters().await;
    for (table, ..) in SIGNALS {
        let subject = format!("otlp/{table}");
        let kept = letters.iter().filter(|letter| letter["subject"] == subject.as_str());
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept.len(), 3, "{letters:?}");
        for letter in kept {
            assert_eq!(letter["content_type"], "application/x-protobuf");
            assert_eq!(letter["headers"], json!({ "record": 1 }));
            let reason = letter["reason"].as_str().unwrap();
            assert!(reason.contains(samples::reason(table)), "{letter}");
        }
    }
    // The record as it was sent.
    let bad = model::hex::encode(&samples::log_record(11, false));
    assert!(
        letters.iter().any(|letter| letter["payload"] == bad.as_str()),
        "{letters:?}"
    );
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_which_every_record_is_refused_is_answered_so_each_time() {
    let api = OtlpApi::new().await;
    for (number, way) in (1..).zip(ExportWay::ALL) {
        let sent = body(Table::Logs, way, &[(10 * number, false)]);
        for _ in 0..2 {
            let answer = api.export(way, Table::Logs, &sent).await;
            assert_eq!(partial(way, Table::Logs, answer.message(way)).unwrap().0, 1);
        }
    }
    let counts = (api.count(Table::Logs).await, api.count(Table::DeadLetters).await);
    assert_eq!(counts, (0, 3));
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_first_metric_cannot_be_read_is_stored_once() {
    let (api, way) = (OtlpApi::new().await, ExportWay::Json);
    let mut sent: Value = serde_json::from_slice(&body(Table::Metrics, way, &[(10, true)])).unwrap();
    let unread = json!({ "name": "n", "gauge": { "dataPoints": 5 } });
    let metrics = &mut sent["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    metrics.as_array_mut().unwrap().insert(0, unread);
    for _ in 0..2 {
        let answer = api.export(way, Table::Metrics, sent.to_string().as_bytes()).await;
        let (rejected, reason) = partial(way, Table::Metrics, answer.message(way)).unwrap();
        assert_eq!(rejected, 1);
        assert!(reason.contains("data of the metric \"n\" cannot be read"), "{reason}");
    }
    let counts = (api.count(Table::Metrics).await, api.count(Table::DeadLetters).await);
    assert_eq!(counts, (1, 1));
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_messages_are_the_messages() {
    let api = OtlpApi::new().await;
    for (number, way) in (1..).zip(ExportWay::ALL) {
        let sent = body(Table::Logs, way, &[(10 * number, true)]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&sent).unwrap();
        for (name, packed) in [
            ("gzip", gzip.finish().unwrap()),
            ("zstd", zstd::encode_all(&sent[..], 1).unwrap()),
        ] {
            let request = api.request(way, Table::Logs).header(way.encoding_header(), name);
            let answer = api.ask(way, request, way.framed(true, &packed)).await;
            assert_eq!(partial(way, Table::Logs, answer.message(way)), None, "{name}");
        }
        // gRPC's messages may be plain though an encoding is named.
        if way == ExportWay::Grpc {
            let request = api.request(way, Table::Logs).header(way.encoding_header(), "gzip");
            api.ask(way, request, way.framed(false, &sent)).await.message(way);
        }
    }
    assert_eq!(
        api.count(Table::Logs).await,
        3,
        "however it is packed, it is the same request"
    );
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_request_is_good() {
    let api = OtlpApi::new().await;
    for (table, ..) in SIGNALS {
        for way in ExportWay::ALL {
            let empty: &[u8] = if way == ExportWay::Json { b"{}" } else { b"" };
            let answer = api.export(way, table, empty).await;
            assert_eq!(answer.message(way), empty, "{table} {way:?}");
        }
        assert_eq!(api.count(table).await, 0);
    }
    api.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_takes_otlp_at_its_own_port_and_the_ports_of_otlp_take_nothing_else() {
    let api = OtlpApi::new().await;
    let way = ExportWay::Protobuf;
    let main = api.server.addr();
    let request = with_token(Request::post("/v1/logs"), &api.sender)
        .header(header::HOST, main.to_string())
        .header(header::CONTENT_TYPE, "application/x-protobuf; charset=utf-8");
    let sent = body(Table::Logs, way, &[(1, true)]);
    ask_at(main, way, request, sent.into()).await.message(way);
    assert_eq!(api.count(Table::Logs).await, 1);
    let ask = |way: ExportWay| {
        let request = with_token(api.bare_request(way, "/api/v1/whoami"), &api.sender).method(Method::GET);
        let address = api.address(way);
        async move { ask_at(address, way, request, Bytes::new()).await }
    };
    assert_eq!(ask(ExportWay::Json).await.status, StatusCode::NOT_FOUND);
    let answer = ask(ExportWay::Grpc).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::OK, 12), "UNIMPLEMENTED");
    api.close().await;
}
