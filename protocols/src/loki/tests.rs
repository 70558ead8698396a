//! Push requests into rows.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::Table;
use serde_json::{Value, json};

use super::fuzz::SAMPLE;
use super::*;
use crate::sender::tests::{read, settings};

const ENTITY: [&str; 5] = ["host", "hostname", "instance", "service_name", "job"];

#[allow(clippy::type_complexity, reason = "tests")]
fn rows(encoding: LokiEncoding, body: &[u8]) -> Result<(Vec<Value>, Vec<(u64, String)>), LokiError> {
    let opened = request(encoding, Bytes::copy_from_slice(body), settings(&ENTITY))?;
    Ok(read(Table::Logs, opened))
}

/// A field of a message with its length before it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128, "one byte of length");
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn both_encodings_become_the_same_rows() {
    let expected = [
        json!({
            "ts": "2026-11-21T12:00:00.123456Z", "entity_name": "press-1", "level": "warn", "message": "one",
            "attributes": { "host": "press-1", "job": "app", "level": "warn" },
        }),
        json!({
            "ts": "2026-11-21T12:00:00.123456Z", "entity_name": "press-1", "level": "warn", "message": "two",
            "attributes": {
                "host": "press-1", "job": "app", "level": "warn", "trace_id": "0123456789abcdef0123456789abcdef", "user": "7",
            },
        }),
        json!({
            "ts": "2026-11-21T12:00:01.000000Z", "entity_name": "shop", "level": "error", "message": "level=error three",
            "attributes": { "service_name": "shop" },
        }),
    ];
    let (as_json, refused) = rows(LokiEncoding::Json, SAMPLE.as_bytes()).unwrap();
    assert_eq!((as_json.as_slice(), refused), (&expected[..], vec![]));
    let protobuf = json::to_protobuf(SAMPLE.as_bytes()).unwrap();
    let (as_protobuf, refused) = rows(LokiEncoding::Protobuf, &protobuf).unwrap();
    assert_eq!((as_protobuf.as_slice(), refused), (&expected[..], vec![]));
}

#[test]
fn what_the_python_handler_of_loki_sends_is_a_row() {
    let sent = r#"{"streams": [{"stream": {"application": "my-app", "severity": "error", "logger": "my-logger", "service": "my-service"}, "values": [["1795984041242897152", "Something happened"]]}]}"#;
    let (rows, refused) = rows(LokiEncoding::Json, sent.as_bytes()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(
        rows,
        [json!({
            "ts": "2026-11-29T20:27:21.242897Z", "entity_name": "http", "level": "error", "message": "Something happened",
            "attributes": { "application": "my-app", "logger": "my-logger", "service": "my-service", "severity": "error" },
        })]
    );
}

#[test]
fn metadata_goes_before_labels_and_a_line_says_its_level_last() {
    let flux = "0198a8b0-2d5e-7c3a-8f6b-0123456789ab";
    let sent = json!({ "streams": [{
        "stream": { "level": "info", "job": "app", "x": "label" },
        "values": [
            ["1795262400000000000", "level=debug a\r\n", { "level": "ERROR", "x": "own", "traceID": "0123456789ABCDEF0123456789ABCDEF" }],
            ["1795262400000000000", "level=debug b", { "host": "press-2", "flux_id": flux, "spanId": "zz" }],
            ["1795262400000000000", "c"],
        ],
    }, { "values": [["1795262400000000000", "{\"lvl\":\"warning\"}"], ["1795262400000000000", ""]] }] });
    let (rows, refused) = rows(LokiEncoding::Json, sent.to_string().as_bytes()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let told: Vec<_> = rows
        .iter()
        .map(|row| (&row["level"], &row["entity_name"], &row["message"], &row["attributes"]))
        .collect();
    let shared = json!({ "job": "app", "level": "info", "x": "label" });
    assert_eq!(
        told,
        [
            (
                &json!("error"),
                &json!("app"),
                &json!("level=debug a"),
                &json!({ "job": "app", "level": "ERROR", "x": "own", "trace_id": "0123456789abcdef0123456789abcdef" })
            ),
            (
                &json!("info"),
                &json!("press-2"),
                &json!("level=debug b"),
                &json!({ "host": "press-2", "job": "app", "level": "info", "x": "label", "spanId": "zz" })
            ),
            (&json!("info"), &json!("app"), &json!("c"), &shared),
            (
                &json!("warn"),
                &json!("http"),
                &json!("{\"lvl\":\"warning\"}"),
                &json!({})
            ),
            (&json!("info"), &json!("http"), &json!(""), &json!({})),
        ]
    );
    assert_eq!(rows[1]["flux_id"], flux);
}

#[test]
fn labels_may_follow_the_entries_and_unknown_fields_are_passed_over() {
    let time = field(1, &[&[1u8 << 3][..], &[0xc0, 0x8f, 0x86, 0xd8, 0x06]].concat());
    let entry = [time, field(2, b"line"), field(9, b"new")].concat();
    let stream = [field(2, &entry), vec![3 << 3, 7], field(1, b"{job=\"late\"}")].concat();
    let body = [field(1, &stream), field(5, b"new")].concat();
    let (rows, refused) = rows(LokiEncoding::Protobuf, &body).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["entity_name"], &rows[0]["message"]),
        (&json!("late"), &json!("line"))
    );
}

#[test]
fn bad_labels_refuse_their_stream_and_a_bad_entry_itself_alone() {
    let seconds = |bytes: &[u8]| field(1, &[&[1u8 << 3][..], bytes].concat());
    let good = [seconds(&[0xc0, 0x8f, 0x86, 0xd8, 0x06]), field(2, b"good")].concat();
    let no_time = field(2, b"no time");
    let no_text = field(2, b"\xff");
    let far = [
        seconds(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        field(2, b"far"),
    ]
    .concat();
    let nanos = [field(1, &[2 << 3, 0xff, 0xff, 0xff, 0xff, 0x0f]), field(2, b"nanos")].concat();
    let stream = |labels: &[u8], entries: &[&[u8]]| {
        let entries = entries.iter().map(|entry| field(2, entry));
        let fields: Vec<u8> = std::iter::once(field(1, labels)).chain(entries).flatten().collect();
        field(1, &fields)
    };
    let body = [
        stream(b"{job=}", &[&good]),
        stream(b"{job=\"\xff\"}", &[&good]),
        stream(b"{job=\"app\"}", &[&no_text, &good, &far, &nanos, &no_time]),
    ]
    .concat();
    let (rows, refused) = rows(LokiEncoding::Protobuf, &body).unwrap();
    let lines: Vec<_> = rows.iter().map(|row| (&row["message"], &row["ts"])).collect();
    assert_eq!(
        lines,
        [
            (&json!("good"), &json!("2026-11-21T12:00:00.000000Z")),
            (&json!("no time"), &json!("2026-11-21T12:30:00.000000Z"))
        ]
    );
    let reasons: Vec<_> = refused.iter().map(|(row, reason)| (*row, reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (0, "labels: a text in quotes belongs at byte 5, not \"}\""),
            (1, "the labels are not UTF-8"),
            (2, "field 2 is not UTF-8"),
            (
                4,
                "the timestamp of 9223372036854775807 seconds and 0 nanoseconds is none"
            ),
            (5, "the timestamp of 0 seconds and -1 nanoseconds is none"),
        ]
    );
}

#[test]
fn what_is_no_request_is_refused_as_a_whole() {
    let good = json::to_protobuf(SAMPLE.as_bytes()).unwrap();
    let mut refused = 0;
    for length in 0..good.len() {
        refused += u32::from(rows(LokiEncoding::Protobuf, &good[..length]).is_err());
    }
    assert_eq!(
        refused as usize,
        good.len() - 2,
        "but for nothing and the first stream alone"
    );
    for (body, reason) in [
        ("", "EOF"),
        ("[1]", "invalid type: integer"),
        ("{\"streams\":{}}", "invalid type: map"),
        ("{\"streams\":[{\"values\":[[\"1\"]]}]}", "invalid length 1"),
        ("{\"streams\":[{\"values\":[[1,\"a\"]]}]}", "invalid type: integer"),
        (
            "{\"streams\":[{\"values\":[[\"x\",\"a\"]]}]}",
            "\"x\" are no nanoseconds",
        ),
        ("{\"streams\":[{\"stream\":{\"a\":1}}]}", "invalid type: integer"),
        (
            "{\"streams\":[{\"values\":[[\"1\",\"a\",{\"b\":{}}]]}]}",
            "invalid type: map",
        ),
        ("{\"streams\":[]} x", "trailing"),
    ] {
        let error = rows(LokiEncoding::Json, body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{body}: {error}");
    }
    assert!(rows(LokiEncoding::Json, b"{\"later\":1}").unwrap().0.is_empty());
}

#[test]
fn a_request_of_json_takes_no_more_memory_than_was_said() {
    let entries = ["[\"1\",\"\"]"; 10_000].join(",");
    let body = format!("{{\"streams\":[{{\"values\":[{entries}]}}]}}");
    assert!(json_bytes(body.as_bytes()) > 10_000 * (size_of::<String>() as u64 * 3 + 16));
}

#[test]
fn fuzz_targets_take_their_samples() {
    for target in fuzz::fuzz_targets() {
        let tally = target.check(7, 300).unwrap();
        assert_eq!(tally.accepted + tally.refused, 300, "{}", target.name());
    }
}
