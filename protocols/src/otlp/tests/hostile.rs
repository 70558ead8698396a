//! Hostile requests as protobuf: cut, of wrong types, absurd, huge. Nothing panics; what is wrong with a record refuses that record.

use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, Histogram, HistogramDataPoint, NumberDataPoint, Sum, Summary, SummaryDataPoint, exemplar,
};
use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};

use super::*;

const NO_TEXT: &[u8] = &[b'a', 0xff, b'z'];

fn full_record() -> LogRecord {
    LogRecord {
        observed_time_unix_nano: AT,
        severity_text: "INFO".to_owned(),
        attributes: vec![
            attribute("map", map(vec![attribute("k", list(vec![Kind::IntValue(1)]))])),
            attribute("bytes", Kind::BytesValue(vec![1, 2])),
            attribute("double", Kind::DoubleValue(0.5)),
        ],
        flags: 1,
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
        event_name: "e".to_owned(),
        ..record("m")
    }
}

fn full_span() -> Span {
    Span {
        trace_state: "a=b".to_owned(),
        parent_span_id: vec![1; 8],
        kind: 3,
        attributes: vec![attribute("k", text("v"))],
        events: vec![Event {
            time_unix_nano: AT,
            name: "e".to_owned(),
            attributes: vec![attribute("k", Kind::BoolValue(true))],
            dropped_attributes_count: 1,
        }],
        links: vec![Link {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            ..Link::default()
        }],
        status: Some(Status {
            message: "m".to_owned(),
            code: 2,
        }),
        ..span("s")
    }
}

pub(super) fn full_metrics() -> Vec<Metric> {
    let number = NumberDataPoint {
        start_time_unix_nano: AT,
        time_unix_nano: AT,
        attributes: vec![attribute("k", text("v"))],
        exemplars: vec![Exemplar {
            value: Some(exemplar::Value::AsDouble(1.0)),
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            ..Exemplar::default()
        }],
        value: Some(Number::AsInt(1)),
        ..NumberDataPoint::default()
    };
    let histogram = HistogramDataPoint {
        time_unix_nano: AT,
        count: 3,
        sum: Some(1.0),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![1.0],
        ..HistogramDataPoint::default()
    };
    let quantile = ValueAtQuantile {
        quantile: 0.5,
        value: 1.0,
    };
    let summary = SummaryDataPoint {
        quantile_values: vec![quantile],
        ..SummaryDataPoint::default()
    };
    let sum = Sum {
        data_points: vec![number],
        aggregation_temporality: 1,
        is_monotonic: true,
    };
    let histogram = Histogram {
        data_points: vec![histogram],
        aggregation_temporality: 2,
    };
    let summary = Summary {
        data_points: vec![summary],
    };
    vec![
        metric("sum", "1", Data::Sum(sum)),
        metric("histogram", "s", Data::Histogram(histogram)),
        metric("summary", "", Data::Summary(summary)),
    ]
}

fn full_requests() -> [(Table, Vec<u8>, u64); 3] {
    [
        (Table::Logs, logs(vec![full_record(), record("n")]).encode_to_vec(), 2),
        (Table::Traces, spans(vec![full_span(), span("t")]).encode_to_vec(), 2),
        (Table::Metrics, metrics(full_metrics()).encode_to_vec(), 5),
    ]
}

/// The records of an answer, good and bad.
pub(super) fn all(read: &ReadRows) -> u64 {
    read.rows.len() as u64 + read.rejected
}

/// A request with records as their bytes.
fn request_of(records: &[&[u8]]) -> Vec<u8> {
    let scope: Vec<u8> = records.iter().flat_map(|record| nested(2, record)).collect();
    nested(1, &[nested(1, &service().encode_to_vec()), nested(2, &scope)].concat())
}

/// Reads a record beside a good one, which is stored whatever comes of the other: the reason if that is refused.
pub(super) fn beside_good(table: Table, bad: &[u8]) -> Option<String> {
    let good = match table {
        Table::Traces => span("good").encode_to_vec(),
        Table::Metrics => full_metrics()[1].encode_to_vec(),
        _ => record("good").encode_to_vec(),
    };
    let read = read_bytes(table, request_of(&[bad, &good])).unwrap();
    assert!(!read.rows.is_empty(), "{read:?}");
    assert!(all(&read) >= 1 && read.rejected <= 1, "{read:?}");
    let refused = read.refused.first();
    refused.map(|(row, reason, bytes)| {
        assert_eq!((*row, &bytes[..]), (0, bad), "a letter has the bytes that were sent");
        reason.clone()
    })
}

#[test]
fn a_request_that_is_cut_at_any_byte_is_refused_or_read() {
    for (table, body, records) in full_requests() {
        let whole = read_bytes(table, body.clone()).unwrap();
        assert_eq!((whole.rows.len() as u64, whole.rejected), (records, 0), "{whole:?}");
        let mut refused = 0;
        for cut in 0..body.len() {
            match read_bytes(table, body[..cut].to_vec()) {
                Ok(read) => assert!(all(&read) <= records, "{table} {cut}"),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(refused, body.len() - 1, "{table}: all but the empty one");
    }
}

#[test]
fn a_record_that_is_cut_at_any_byte_is_refused_alone_or_stored() {
    for (table, bytes) in [
        (Table::Logs, full_record().encode_to_vec()),
        (Table::Traces, full_span().encode_to_vec()),
    ] {
        let refused = (0..bytes.len())
            .filter(|cut| beside_good(table, &bytes[..*cut]).is_some())
            .count();
        assert!(refused > bytes.len() / 2, "{table}: {refused} of {}", bytes.len());
        assert_eq!(beside_good(table, &bytes), None);
    }
    // A metric is walked through: where its parts end must be right.
    for metric in full_metrics() {
        let bytes = metric.encode_to_vec();
        for cut in 0..bytes.len() {
            read_bytes(Table::Metrics, request_of(&[&bytes[..cut]])).ok();
        }
    }
}

#[test]
fn fields_of_every_number_and_wire_type_make_nothing_panic() {
    let key = |number: u32, wire_type: u32| {
        let mut key = Vec::new();
        prost::encoding::encode_varint(u64::from(number << 3 | wire_type), &mut key);
        key
    };
    let values: [(u32, &[u8]); 8] = [
        (0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        (1, &[0xff; 8]),
        (2, &[4, 0xff, 0xff, 0xff, 0xff]),
        (2, &[0]),
        (3, &[]),
        (4, &[]),
        (5, &[0xff; 4]),
        (7, &[0]),
    ];
    let mut outcomes = (0, 0, 0);
    for table in [Table::Logs, Table::Traces, Table::Metrics] {
        for number in (0..20).chain([1_000, (1 << 29) - 1]) {
            for (wire_type, value) in values {
                let field = [&key(number, wire_type)[..], value].concat();
                // At the top, in a resource, in a scope, in a record, in a point.
                let metric = [nested(1, b"n"), nested(5, &nested(1, &field))].concat();
                for body in [
                    field.clone(),
                    nested(1, &field),
                    nested(1, &nested(1, &field)),
                    nested(1, &nested(2, &field)),
                    request_of(&[&field]),
                    request_of(&[&metric]),
                ] {
                    match read_bytes(table, body) {
                        Ok(read) if read.rejected > 0 => outcomes.0 += 1,
                        Ok(_) => outcomes.1 += 1,
                        Err(_) => outcomes.2 += 1,
                    }
                }
            }
        }
    }
    let (rejected, read, refused) = outcomes;
    assert!(rejected > 100 && read > 100 && refused > 100, "{outcomes:?}");
}

#[test]
fn a_field_of_another_type_is_named() {
    let varint = |number: u8| vec![number << 3, 1];
    for (table, bad, reason) in [
        (Table::Logs, varint(1), "field 1 has another type than its schema says"),
        (Table::Logs, varint(9), "field 9 has another type than its schema says"),
        (
            Table::Logs,
            nested(2, b"9"),
            "field 2 has another type than its schema says",
        ),
        (Table::Logs, vec![0x0b], "field 1 has the wire type 3"),
        (Table::Logs, vec![0x0a, 0x7f], "the message ends within a field"),
        (Table::Logs, vec![0x00], "there is no valid number"),
        (
            Table::Traces,
            varint(5),
            "field 5 has another type than its schema says",
        ),
        (
            Table::Traces,
            nested(6, b"2"),
            "field 6 has another type than its schema says",
        ),
    ] {
        let refused = beside_good(table, &bad).unwrap();
        assert!(refused.contains(reason), "{refused}, not {reason}");
    }
}

#[test]
fn of_a_field_that_comes_twice_the_last_one_counts() {
    let twice = [record("first").encode_to_vec(), record("last").encode_to_vec()].concat();
    let read = read_bytes(Table::Logs, request_of(&[&twice])).unwrap();
    assert_eq!((read.rows.len(), &read.rows[0]["message"]), (1, &json!("last")));
}

#[test]
fn fields_that_are_new_are_passed_over_at_every_level() {
    let unknown = |message: Vec<u8>| {
        let mut with = nested(14, b"new");
        with.extend(message);
        // Field 1,000, of each wire type.
        with.extend([
            0xc0, 0x3e, 1, 0xc1, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8, 0xc2, 0x3e, 1, b'x', 0xc5, 0x3e, 1, 2, 3, 4,
        ]);
        with
    };
    let attribute = unknown(nested(1, b"k"));
    let value = nested(2, &unknown(nested(1, b"v")));
    let record = unknown([record("x").encode_to_vec(), nested(6, &[attribute, value].concat())].concat());
    let resource = nested(1, &unknown(service().encode_to_vec()));
    let scope = unknown(nested(2, &record));
    let body = unknown(nested(1, &unknown([resource, nested(2, &scope)].concat())));
    let read = read_bytes(Table::Logs, body).unwrap();
    assert_eq!(read.rejected, 0, "{read:?}");
    assert_eq!(read.rows[0]["attributes"], with_service(json!({ "k": "v" })));
}

#[test]
fn ids_of_zeros_and_of_another_length_are_refused_where_a_span_needs_them() {
    let zeros = Span {
        trace_id: vec![0; 16],
        ..span("s")
    };
    let no_trace = Span {
        trace_id: Vec::new(),
        ..span("s")
    };
    let short_trace = Span {
        trace_id: vec![1; 15],
        ..span("s")
    };
    let zero_span = Span {
        span_id: vec![0; 8],
        ..span("s")
    };
    let long_span = Span {
        span_id: vec![1; 16],
        ..span("s")
    };
    let short_parent = Span {
        parent_span_id: vec![1; 7],
        ..span("s")
    };
    let huge = Span {
        trace_id: vec![1; 1 << 20],
        ..span("s")
    };
    for (bad, name) in [
        (zeros, "trace_id: "),
        (no_trace, "trace_id: "),
        (short_trace, "trace_id: "),
        (zero_span, "span_id: "),
        (long_span, "span_id: "),
        (short_parent, "parent_span_id: "),
        (huge, "trace_id: "),
    ] {
        let refused = beside_good(Table::Traces, &bad.encode_to_vec()).unwrap();
        assert!(refused.starts_with(name), "{refused}");
        assert!(refused.chars().count() <= 300, "{}", refused.len());
    }
    for (key, length, bad) in [
        (
            "trace_id",
            15,
            LogRecord {
                trace_id: vec![1; 15],
                ..record("x")
            },
        ),
        (
            "span_id",
            9,
            LogRecord {
                span_id: vec![1; 9],
                ..record("x")
            },
        ),
    ] {
        let refused = beside_good(Table::Logs, &bad.encode_to_vec()).unwrap();
        assert!(
            refused.starts_with(&format!("{key} has {length} bytes, not ")),
            "{refused}"
        );
    }
}

#[test]
fn texts_that_are_not_utf8_refuse_their_record_alone() {
    let bad_key = nested(1, NO_TEXT);
    let bad_value = [nested(1, b"k"), nested(2, &nested(1, NO_TEXT))].concat();
    let in_list = [nested(1, b"k"), nested(2, &nested(5, &nested(1, &nested(1, NO_TEXT))))].concat();
    let in_map = [nested(1, b"k"), nested(2, &nested(6, &nested(1, &nested(1, NO_TEXT))))].concat();
    let with_attribute = |number: u8, attribute: &[u8], rest: Vec<u8>| [rest, nested(number, attribute)].concat();
    let log = || record("x").encode_to_vec();
    let good_span = || span("s").encode_to_vec();
    let mut cases = vec![
        (Table::Logs, [log(), nested(3, NO_TEXT)].concat()),
        (Table::Logs, [log(), nested(5, &nested(1, NO_TEXT))].concat()),
        (Table::Logs, [log(), nested(12, NO_TEXT)].concat()),
        (Table::Traces, [good_span(), nested(3, NO_TEXT)].concat()),
        (Table::Traces, [good_span(), nested(5, NO_TEXT)].concat()),
        (Table::Traces, [good_span(), nested(11, &nested(2, NO_TEXT))].concat()),
        (Table::Traces, [good_span(), nested(13, &nested(3, NO_TEXT))].concat()),
        (Table::Traces, [good_span(), nested(15, &nested(2, NO_TEXT))].concat()),
    ];
    for attribute in [&bad_key, &bad_value, &in_list, &in_map] {
        cases.push((Table::Logs, with_attribute(6, attribute, log())));
        cases.push((Table::Traces, with_attribute(9, attribute, good_span())));
        cases.push((Table::Traces, with_attribute(11, &nested(3, attribute), good_span())));
        cases.push((Table::Traces, with_attribute(13, &nested(4, attribute), good_span())));
    }
    for (table, bad) in cases {
        let refused = beside_good(table, &bad).unwrap();
        assert!(refused.contains("UTF-8"), "{refused}");
    }
    let point = |more: Vec<u8>| {
        nested(
            5,
            &nested(1, &[vec![3 << 3 | 1, 1, 0, 0, 0, 0, 0, 0, 0], more].concat()),
        )
    };
    let value = || vec![4 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0];
    for metric in [
        [nested(1, NO_TEXT), point(value())].concat(),
        [nested(1, b"n"), nested(3, NO_TEXT), point(value())].concat(),
        [nested(1, b"n"), nested(12, &bad_value), point(value())].concat(),
        [nested(1, b"n"), point([value(), nested(7, &bad_key)].concat())].concat(),
        [
            nested(1, b"n"),
            point([value(), nested(5, &nested(7, &bad_value))].concat()),
        ]
        .concat(),
    ] {
        let read = read_bytes(Table::Metrics, request_of(&[&metric])).unwrap();
        assert_eq!((read.rows.len(), read.rejected), (0, 1), "{read:?}");
        assert!(read.refused[0].1.contains("UTF-8"), "{read:?}");
    }
    let good = nested(2, &nested(2, &log()));
    for bad in [
        nested(1, &nested(1, &bad_key)),
        nested(1, &nested(1, &bad_value)),
        nested(3, NO_TEXT),
        nested(2, &[nested(1, &nested(1, NO_TEXT)), nested(2, &log())].concat()),
        nested(2, &[nested(1, &nested(3, &bad_value)), nested(2, &log())].concat()),
        nested(2, &[nested(3, NO_TEXT), nested(2, &log())].concat()),
    ] {
        let is_scope = bad.first() == Some(&(2 << 3 | 2));
        let body = nested(1, &[bad, good.clone()].concat());
        let read = read_bytes(Table::Logs, body).unwrap();
        let expected = if is_scope { (1, 1) } else { (0, 1) };
        assert_eq!((read.rows.len(), read.rejected), expected, "{read:?}");
        assert!(read.refused[0].1.contains("UTF-8"), "{read:?}");
    }
}

#[test]
fn nan_among_what_is_beside_a_value_is_left_out() {
    let sent = HistogramDataPoint {
        min: Some(f64::NAN),
        max: Some(f64::INFINITY),
        sum: Some(1.0),
        exemplars: vec![Exemplar {
            time_unix_nano: AT,
            value: Some(exemplar::Value::AsDouble(f64::NAN)),
            ..Exemplar::default()
        }],
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![sent],
        aggregation_temporality: 2,
    });
    let stored = rows_of_protobuf(Table::Metrics, &metrics(vec![metric("n", "", data)]));
    let exemplar = json!({ "time": AT_NANOS, "value": null });
    assert_eq!(
        stored[0]["labels"],
        with_service(json!({ "otel.exemplars": [exemplar] }))
    );
}
