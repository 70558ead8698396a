//! Requests of both versions into points.

#![allow(clippy::unwrap_used, reason = "tests")]

mod native_histogram;
mod symbol_table;

use model::Table;
use model::telemetry_codec::BodyRecordReader;
use serde_json::{Value, json};

use super::fuzz::{NOON, bytes, deltas, double, histogram, labels, sample, span, varint, version_1, version_2, zigzag};
use super::*;
use crate::sender::tests::{read, settings};

/// What a test of a request says: its rows, what is wrong with which record, and what records are.
type ReadRequest = (Vec<Value>, Vec<(u64, String)>, Vec<RecordKind>);

fn points(version: WriteVersion, body: &[u8]) -> Result<ReadRequest, WriteError> {
    let write = WriteSettings {
        version,
        kinds: Arc::default(),
    };
    let kinds = Arc::clone(&write.kinds);
    let opened = request(Bytes::copy_from_slice(body), write, settings(&["instance", "job"]))?;
    let (rows, refused) = read(Table::Metrics, opened);
    Ok((rows, refused, kinds.get().unwrap().clone()))
}

/// A series of version 1.0 with a name.
fn series(name: &str, records: &[Vec<u8>]) -> Vec<u8> {
    bytes(1, &[labels(&[("__name__", name)]), records.concat()].concat())
}

#[test]
fn records_of_every_kind_of_version_1_are_points() {
    let (rows, refused, kinds) = points(WriteVersion::V1, &version_1()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let noon = "2026-11-21T12:00:00.000000Z";
    let exemplars = json!([{
        "time": "2026-11-21T12:00:00.000000000Z", "value": 0.5, "trace_id": "0123456789abcdef0123456789abcdef", "attributes": { "user": "7" },
    }]);
    assert_eq!(
        rows,
        [
            json!({ "ts": noon, "name": "requests_total", "entity_name": "api", "type": "counter", "value": 7.0, "labels": { "job": "api" } }),
            json!({ "ts": noon, "name": "latency_bucket", "entity_name": "http", "type": "counter", "value": 3.0, "labels": { "le": "+Inf" } }),
            json!({
                "ts": noon, "name": "latency_bucket_exemplar", "entity_name": "http", "type": "gauge", "value": 0.5,
                "labels": { "le": "+Inf", "otel.exemplars": exemplars },
            }),
            json!({
                "ts": noon, "name": "latency", "entity_name": "press-1", "type": "histogram", "value": 2.5,
                "labels": {
                    "instance": "press-1", "otel.count": 13, "otel.scale": 3, "otel.zero_count": 1, "otel.zero_threshold": 0.001,
                    "otel.positive.offset": 1, "otel.positive.counts": [1, 3, 2, 0, 6],
                },
            }),
            json!({ "ts": noon, "name": "odd_name", "entity_name": "http", "type": "counter", "value": 1.0, "labels": {} }),
        ]
    );
    use RecordKind::{Exemplar, Histogram, Sample};
    assert_eq!(kinds, [Sample, Sample, Exemplar, Histogram, Sample]);
}

#[test]
fn version_2_names_texts_by_their_numbers_and_says_metadata_with_each_series() {
    let (rows, refused, kinds) = points(WriteVersion::V2, &version_2()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let noon = "2026-11-21T12:00:00.000000Z";
    let labels = |more: Value| {
        let mut all =
            json!({ "instance": "press-1", "otel.unit": "Cel", "otel.start_time": "2026-11-21T11:59:59.000000000Z" });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let exemplars = json!([{ "time": "2026-11-21T12:00:00.000000000Z", "value": 0.5, "trace_id": "0123456789abcdef0123456789abcdef" }]);
    assert_eq!(
        rows,
        [
            json!({
                "ts": noon, "name": "temperature", "entity_name": "press-1", "type": "gauge", "value": 21.5,
                // A sample's own beginning goes before that of its series.
                "labels": labels(json!({ "otel.start_time": "2026-11-21T11:59:58.000000000Z" })),
            }),
            json!({
                "ts": noon, "name": "temperature", "entity_name": "press-1", "type": "histogram", "value": 2.5,
                "labels": labels(json!({
                    "otel.count": 13, "otel.scale": 3, "otel.zero_count": 1, "otel.zero_threshold": 0.001,
                    "otel.positive.offset": 1, "otel.positive.counts": [1, 3, 2, 0, 6],
                })),
            }),
            json!({
                "ts": noon, "name": "temperature_exemplar", "entity_name": "press-1", "type": "gauge", "value": 0.5,
                "labels": labels(json!({ "otel.exemplars": exemplars })),
            }),
        ]
    );
    assert_eq!(kinds, [RecordKind::Sample, RecordKind::Histogram, RecordKind::Exemplar]);
}

#[test]
fn a_request_of_prometheus_2_42_is_read() {
    let captured = model::hex::decode(include_str!("prometheus_2_42.hex").trim()).unwrap();
    let (rows, refused, _) = points(WriteVersion::V1, &captured).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["type"].as_str().unwrap(),
                row["entity_name"].as_str().unwrap(),
            )
        })
        .collect();
    let entity = "127.0.0.1:18098";
    assert_eq!(
        told,
        [
            ("go_gc_duration_seconds", "gauge", entity),
            ("prometheus_build_info", "gauge", entity),
            ("prometheus_http_requests_total", "counter", entity),
            ("prometheus_http_request_duration_seconds_bucket", "counter", entity),
            ("up", "gauge", entity),
        ]
    );
    assert_eq!(
        rows[0]["labels"],
        json!({ "instance": entity, "job": "self", "quantile": "0.0" })
    );
    assert_eq!(rows[0]["ts"], "2026-11-29T20:27:37.747000Z");
    assert_eq!(rows[4]["value"], 1.0);
}

#[test]
fn values_that_are_not_finite_are_passed_over_and_what_is_malformed_is_refused() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let quantile = bytes(
        1,
        &[
            labels(&[("__name__", "q"), ("quantile", "0.5")]),
            bytes(2, &sample(f64::NAN, NOON)),
        ]
        .concat(),
    );
    let stale_histogram = bytes(4, &[double(3, stale), varint(15, NOON)].concat());
    let body = [
        series("stale", &[bytes(2, &sample(stale, NOON)), stale_histogram]),
        quantile,
        series("nan", &[bytes(2, &sample(f64::NAN, NOON))]),
        series("inf", &[bytes(2, &sample(f64::NEG_INFINITY, NOON))]),
        series("late", &[bytes(2, &sample(1.0, i64::MAX))]),
        series("good", &[bytes(2, &sample(1.0, NOON))]),
        bytes(1, &bytes(2, &sample(1.0, NOON))),
        bytes(
            1,
            &[labels(&[("__name__", "x"), ("", "y")]), bytes(2, &sample(1.0, NOON))].concat(),
        ),
        series("\u{fffd}", &[bytes(2, &sample(1.0, 0))]),
    ]
    .concat();
    let (rows, refused, kinds) = points(WriteVersion::V1, &body).unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["ts"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            ("good", "2026-11-21T12:00:00.000000Z"),
            ("\u{fffd}", "1970-01-01T00:00:00.000000Z")
        ]
    );
    let refused: Vec<_> = refused.iter().map(|(row, reason)| (*row, reason.as_str())).collect();
    assert_eq!(
        refused,
        [
            (
                5,
                "late of http: the timestamp of 9223372036854775807 milliseconds is none"
            ),
            (7, "the series has no label __name__"),
            (8, "a label has no name"),
        ]
    );
    assert_eq!(kinds.len(), 10);
}

#[test]
fn rows_that_the_log_refuses_are_marked_and_what_is_no_row_between_them_is_not() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let samples = [1.0, stale, 2.0, stale, stale, 3.0].map(|value| bytes(2, &sample(value, NOON)));
    let write = WriteSettings {
        version: WriteVersion::V1,
        kinds: Arc::default(),
    };
    let opened = request(series("n", &samples).into(), write, settings(&[])).unwrap();
    let records = BodyRecordReader::of_format(Table::Metrics, opened.records, opened.body, settings(&[]).fallback);
    let mut records = records.marking_refused();
    let part = records.next_part(1 << 20).unwrap().unwrap();
    assert_eq!(part.positions, [0, 2, 5]);
    records.reject_rows(&part.positions, "the log refuses them");
    assert_eq!((records.rejected(), records.take_marks()), (3, vec![0b10_0101]));
}

#[test]
fn what_is_no_request_is_refused_as_a_whole() {
    for (version, whole) in [(WriteVersion::V1, version_1()), (WriteVersion::V2, version_2())] {
        let cuts = (1..whole.len())
            .filter(|length| points(version, &whole[..*length]).is_ok())
            .count();
        // Only between the fields of the request.
        let fields = match version {
            WriteVersion::V1 => 4,
            WriteVersion::V2 => 8,
        };
        assert_eq!(cuts, fields, "{version:?}");
        assert!(points(version, &[0x0b]).is_err() && points(version, &[0xff; 20]).is_err());
        assert!(points(version, b"").unwrap().0.is_empty());
    }
    // The other version's fields are unknown ones.
    assert!(points(WriteVersion::V2, &version_1()).unwrap().0.is_empty());
}

#[test]
fn what_is_known_of_a_family_goes_before_the_name() {
    use metric_family::metric_type;
    use model::MetricType::{Counter, Gauge};
    for (name, family, has_le, wanted) in [
        ("a_total", None, false, Counter),
        ("a_total", Some(0), false, Counter),
        ("a_total", Some(2), false, Gauge),
        ("a", Some(1), false, Counter),
        ("a_bucket", None, true, Counter),
        ("a_bucket", None, false, Gauge),
        ("a_count", None, false, Gauge),
        ("a_count", Some(3), false, Counter),
        ("a_sum", Some(5), false, Counter),
        ("a", Some(5), false, Gauge),
        ("a_bucket", Some(4), true, Gauge),
        ("a_info", Some(6), false, Gauge),
        ("a_state", Some(7), false, Gauge),
    ] {
        assert_eq!(metric_type(name, family, has_le), wanted, "{name} {family:?}");
    }
}

/// A request of version 2.0: its symbols, then its series.
fn version_2_of(symbols: &[&str], series: &[Vec<u8>]) -> Vec<u8> {
    let symbols = symbols.iter().flat_map(|symbol| bytes(4, symbol.as_bytes()));
    symbols
        .chain(series.iter().flat_map(|series| bytes(5, series)))
        .collect()
}

#[test]
fn a_publisher_is_a_few_senders_by_the_entity_of_the_first_series() {
    let sender_by = |publisher: &str, version: WriteVersion, body: &[u8]| {
        let write = WriteSettings {
            version,
            kinds: Arc::default(),
        };
        let mut settings = settings(&["instance", "job"]);
        settings.fallback.entity_id = EntityId::for_name(publisher);
        let opened = request(Bytes::copy_from_slice(body), write, settings);
        opened.unwrap().sender.unwrap()
    };
    let sender = |version: WriteVersion, body: &[u8]| sender_by("http", version, body);
    let of = |pairs: &[(&str, &str)]| bytes(1, &[labels(pairs), bytes(2, &sample(1.0, NOON))].concat());
    let version_1 = |pairs: &[(&str, &str)]| sender(WriteVersion::V1, &of(pairs));
    let first = version_1(&[("__name__", "n"), ("instance", "a:1"), ("job", "j")]);
    let same = [("__name__", "other"), ("instance", "a:1")];
    assert_eq!(version_1(&same), first);
    assert_eq!(
        version_1(&[("job", "j"), ("instance", "a:1"), ("__name__", "n")]),
        first
    );
    assert_ne!(sender_by("other", WriteVersion::V1, &of(&same)), first);
    let targets = (0..1_000).map(|target| version_1(&[("instance", format!("{target}:1").as_str())]));
    let targets: std::collections::BTreeSet<_> = targets.collect();
    assert!(targets.len() == 16 && targets.contains(&first), "{targets:?}");
    let other = (0..).map(|target| format!("{target}:1"));
    let other = other
        .map(|name| of(&[("instance", name.as_str())]))
        .find(|series| sender(WriteVersion::V1, series) != first);
    let two = [
        bytes(1, &labels(&[("instance", "no record")])),
        of(&[("instance", "a:1")]),
        other.unwrap(),
    ];
    assert_eq!(sender(WriteVersion::V1, &two.concat()), first);
    let series = [bytes(1, &[1, 2]), bytes(2, &sample(1.0, NOON))].concat();
    let of_2 = |value: &str| {
        let body = version_2_of(&["", "instance", value], std::slice::from_ref(&series));
        sender(WriteVersion::V2, &body)
    };
    assert_eq!(of_2("a:1"), first);
    // Those of the publisher: nothing says it, or what does cannot be.
    let publisher = version_1(&[("__name__", "n")]);
    assert_eq!(
        publisher,
        sender_of(EntityId::for_name("http"), EntityId::for_name("http"))
    );
    assert_eq!(of_2(&"x".repeat(300)), publisher);
    assert_eq!(of_2(&"x".repeat(2 << 20)), publisher);
}

#[test]
fn what_is_held_is_no_more_than_was_said() {
    for (version, body) in [
        (WriteVersion::V1, bytes(3, b"").repeat(10_000)),
        (WriteVersion::V1, bytes(1, &bytes(2, b"").repeat(10_000))),
        (WriteVersion::V2, bytes(4, b"").repeat(10_000)),
    ] {
        let write = WriteSettings {
            version,
            kinds: Arc::default(),
        };
        let said = opening_bytes(&body);
        let opened = request(body.into(), write, settings(&[])).unwrap();
        assert!(opened.held <= said, "{version:?}: {} {said}", opened.held);
    }
}

#[test]
fn fuzz_targets_take_their_samples() {
    for target in fuzz::fuzz_targets() {
        let tally = target.check(7, 300).unwrap();
        assert_eq!(tally.accepted + tally.refused, 300, "{}", target.name());
    }
}
