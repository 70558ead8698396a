//! Remote write requests of Prometheus.

use super::*;

const WRITE: &str = "/api/v1/write";
const V1: [(&str, &str); 2] = [
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
];
const V2: [(&str, &str); 2] = [
    (
        "content-type",
        "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    ),
    ("content-encoding", "snappy"),
];

/// What Prometheus 2.42 sent of itself, as it came.
const CAPTURED: &[u8] = include_bytes!("prometheus_2_42.snappy");

/// A sample at noon of 2026-11-21.
fn sample(value: f64) -> Vec<u8> {
    let noon = [0x10, 0x80, 0x8c, 0xe9, 0xef, 0x9f, 0x34];
    [&[0x09][..], &value.to_le_bytes(), &noon].concat()
}

/// A series of version 1.0.
fn series(name: &str, records: &[Vec<u8>]) -> Vec<u8> {
    let label = [field(1, b"__name__"), field(2, name.as_bytes())].concat();
    field(1, &[field(1, &label), records.concat()].concat())
}

/// How many samples, histograms and exemplars an answer says were written.
fn written((_, headers, _): &Said) -> [&str; 3] {
    ["samples", "histograms", "exemplars"].map(|kind| {
        let name = format!("x-prometheus-remote-write-{kind}-written");
        headers
            .get(name.as_str())
            .map_or("none", |count| count.to_str().unwrap())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_prometheus_sends_is_stored_once() {
    let bench = SenderBench::new().await;
    for _ in 0..2 {
        let said = bench.send(Method::POST, WRITE, &V1, CAPTURED).await;
        assert_eq!((said.0, said.2.as_str()), (StatusCode::NO_CONTENT, ""));
        assert_eq!(written(&said), ["107", "0", "0"]);
    }
    let rows = bench
        .rows("SELECT count(*) AS n, count(DISTINCT entity_name) AS entities FROM metrics")
        .await;
    assert_eq!(rows, json!([{ "n": 107, "entities": 1 }]));
    let up = bench
        .rows("SELECT name, entity_name, type, value, labels FROM metrics WHERE name = 'up'")
        .await;
    assert_eq!(up[0]["entity_name"], "127.0.0.1:18098");
    assert_eq!((&up[0]["type"], &up[0]["value"]), (&json!("gauge"), &json!(1.0)));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_tell_how_much_of_each_kind_was_written() {
    let bench = SenderBench::new().await;
    let histogram = [
        &[0x08, 1, 0x19][..],
        &2.5f64.to_le_bytes(),
        &[0x78, 0x80, 0x8c, 0xe9, 0xef, 0x9f, 0x34],
    ]
    .concat();
    let exemplar = [
        &[0x11][..],
        &0.5f64.to_le_bytes(),
        &[0x18, 0x80, 0x8c, 0xe9, 0xef, 0x9f, 0x34],
    ]
    .concat();
    let records = [
        field(2, &sample(1.0)),
        field(2, &sample(2.0)),
        field(3, &exemplar),
        field(4, &histogram),
    ];
    let said = bench
        .send(Method::POST, WRITE, &V1, snappy(&series("one", &records)))
        .await;
    assert_eq!(
        (said.0, written(&said)),
        (StatusCode::NO_CONTENT, ["2", "1", "1"]),
        "{}",
        said.2
    );
    // Series of 2.0 have references instead of labels, and histograms before exemplars.
    let symbols = ["", "__name__", "two"]
        .map(|symbol| field(4, symbol.as_bytes()))
        .concat();
    let records = [
        field(1, &[1, 2]),
        field(2, &sample(3.0)),
        field(3, &histogram),
        field(4, &exemplar),
    ];
    let body = [symbols, field(5, &records.concat())].concat();
    let said = bench.send(Method::POST, WRITE, &V2, snappy(&body)).await;
    assert_eq!(
        (said.0, written(&said)),
        (StatusCode::NO_CONTENT, ["1", "1", "1"]),
        "{}",
        said.2
    );
    let rows = bench
        .rows("SELECT name, type, value FROM metrics ORDER BY name, value, type")
        .await;
    let row = |name: &str, kind: &str, value: f64| json!({ "name": name, "type": kind, "value": value });
    assert_eq!(
        rows,
        json!([
            row("one", "gauge", 1.0),
            row("one", "gauge", 2.0),
            row("one", "histogram", 2.5),
            row("one_exemplar", "gauge", 0.5),
            row("two", "histogram", 2.5),
            row("two", "gauge", 3.0),
            row("two_exemplar", "gauge", 0.5),
        ])
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_samples_are_400_with_the_good_ones_stored_and_what_is_not_finite_is_none() {
    let bench = SenderBench::new().await;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let none = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, stale].map(|value| field(2, &sample(value)));
    let said = bench
        .send(Method::POST, WRITE, &V1, snappy(&series("some", &none)))
        .await;
    assert_eq!(said.0, StatusCode::NO_CONTENT, "{}", said.2);
    assert_eq!(written(&said), ["4", "0", "0"]);
    let late = [&[0x10][..], &[0xff; 8], &[0x7f]].concat();
    let samples = [sample(1.0), late, sample(f64::NAN), sample(4.0)].map(|sample| field(2, &sample));
    let said = bench
        .send(Method::POST, WRITE, &V1, snappy(&series("some", &samples)))
        .await;
    assert_eq!(said.0, StatusCode::BAD_REQUEST, "{}", said.2);
    assert_eq!(written(&said), ["3", "0", "0"]);
    let reason = format!("some of http: the timestamp of {} milliseconds is none", i64::MAX);
    assert_eq!(
        detail(&said),
        format!("2 records are stored and 1 refused: record 1: {reason}")
    );
    let rows = bench.rows("SELECT value FROM metrics ORDER BY value").await;
    assert_eq!(rows, json!([{ "value": 1.0 }, { "value": 4.0 }]));
    let letters = bench.letters().await;
    let [[subject, letter, _]] = &letters[..] else {
        panic!("{letters:?}");
    };
    assert_eq!((subject, letter), (&"prometheus/metrics".to_owned(), &reason));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_messages_and_encodings_are_refused() {
    let bench = SenderBench::new().await;
    let good = snappy(&series("good", &[field(2, &sample(1.0))]));
    let proto = |message: &str| format!("application/x-protobuf; proto=\"{message}\"");
    for (kind, encoding, body, status, reason) in [
        (proto("prometheus.WriteRequest"), "snappy", good.clone(), 204, ""),
        (
            proto("io.prometheus.write.v3.Request"),
            "snappy",
            good.clone(),
            415,
            "none of remote write",
        ),
        (
            "application/json".to_owned(),
            "snappy",
            good.clone(),
            415,
            "none of remote write",
        ),
        (
            proto("prometheus.WriteRequest"),
            "zstd",
            good.clone(),
            415,
            "send protobuf as a block of snappy",
        ),
        (
            proto("prometheus.WriteRequest"),
            "snappy",
            good[..20].to_vec(),
            400,
            "no block of snappy",
        ),
        (
            proto("prometheus.WriteRequest"),
            "snappy",
            snappy(&[0x0a, 9, 1]),
            400,
            "no remote write request",
        ),
    ] {
        let headers = [("content-type", kind.as_str()), ("content-encoding", encoding)];
        let said = bench.send(Method::POST, WRITE, &headers, body).await;
        assert_eq!(said.0.as_u16(), status, "{kind} {encoding}: {}", said.2);
        assert!(detail(&said).contains(reason), "{reason}: {}", said.2);
    }
    let said = bench.send(Method::POST, WRITE, &[], good).await;
    assert_eq!(said.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        bench.rows("SELECT count(*) AS n FROM metrics").await,
        json!([{ "n": 1 }])
    );
    bench.close().await;
}
