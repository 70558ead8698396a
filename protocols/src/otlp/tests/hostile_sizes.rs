//! Requests that are deep, large, or more work than their bytes say.

use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, NumberDataPoint, Summary, SummaryDataPoint,
};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};

use super::hostile::{all, beside_good, full_metrics};
use super::*;

/// A value that is so many maps, or lists, deep.
fn deep(depth: usize, is_map: bool) -> Vec<u8> {
    let innermost = nested(1, b"x");
    (0..depth).fold(innermost, |value, _| {
        if is_map {
            let pair = [nested(1, b"a"), nested(2, &value)].concat();
            nested(6, &nested(1, &pair))
        } else {
            nested(5, &nested(1, &value))
        }
    })
}

#[test]
fn values_are_nested_as_deep_as_may_be_and_no_deeper() {
    for is_map in [true, false] {
        for depth in [1, 64, 65, 2_000] {
            let pair = [nested(1, b"k"), nested(2, &deep(depth, is_map))].concat();
            let sent = [record("x").encode_to_vec(), nested(6, &pair)].concat();
            let refused = beside_good(Table::Logs, &sent);
            if depth > 64 {
                assert_eq!(
                    refused.as_deref(),
                    Some("values are nested more than 64 deep"),
                    "{depth}"
                );
            } else {
                assert_eq!(refused, None, "{depth} {is_map}");
            }
        }
    }
    // A body of a log record is a value, too.
    let sent = [record("x").encode_to_vec(), nested(5, &deep(2_000, true))].concat();
    assert!(beside_good(Table::Logs, &sent).is_some());
}

#[test]
fn a_large_attribute_is_stored_whole_and_a_larger_record_is_refused_alone() {
    let large = "x".repeat(2 << 20);
    let sent = LogRecord {
        attributes: vec![attribute("large", text(&large))],
        ..record("x")
    };
    let stored = row(Table::Logs, &logs(vec![sent]));
    assert_eq!(stored["attributes"]["large"].as_str(), Some(large.as_str()));
    let sent = record(&"x".repeat(8 << 20));
    let refused = beside_good(Table::Logs, &sent.encode_to_vec());
    // Of a record that large no letter is kept.
    assert_eq!(refused, None);
    let read = read_bytes(Table::Logs, logs(vec![sent, record("good")]).encode_to_vec()).unwrap();
    assert_eq!((read.rows.len(), read.rejected), (1, 1));
}

#[test]
fn lists_of_very_many_values_are_refused() {
    for (values, is_stored) in [(65_535, true), (65_536, false)] {
        let sent = LogRecord {
            attributes: vec![attribute("list", list(vec![Kind::BoolValue(true); values]))],
            ..record("x")
        };
        let refused = beside_good(Table::Logs, &sent.encode_to_vec());
        assert_eq!(refused.is_none(), is_stored, "{values} {refused:?}");
    }
    let counts = 65_537;
    let bounds: Vec<f64> = (1..counts).map(f64::from).collect();
    let sent = HistogramDataPoint {
        bucket_counts: vec![1; bounds.len() + 1],
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![sent],
        aggregation_temporality: 2,
    });
    let refused = refusal(Table::Metrics, &metrics(vec![metric("n", "", data)]));
    assert_eq!(refused, "field 6 has more than 65536 numbers");
}

#[test]
fn long_keys_over_many_small_values_do_not_multiply() {
    let small = |number: i64| attribute(&number.to_string(), Kind::IntValue(number));
    let sent = LogRecord {
        attributes: vec![attribute(&"k".repeat(10 << 10), map((0..2_000).map(small).collect()))],
        ..record("x")
    };
    let refused = beside_good(Table::Logs, &sent.encode_to_vec()).unwrap();
    assert!(refused.starts_with("attributes become more than"), "{refused}");
}

#[test]
fn events_and_links_of_two_bytes_do_not_multiply() {
    for (events, links, is_stored) in [
        (1_000, 1_000, true),
        (10_000, 0, false),
        (0, 10_000, false),
        (5_000, 5_000, false),
    ] {
        let sent = Span {
            events: vec![Event::default(); events],
            links: vec![Link::default(); links],
            ..span("s")
        };
        let refused = beside_good(Table::Traces, &sent.encode_to_vec());
        let is_told = |reason: &String| reason.starts_with("the events and links become more than");
        assert_eq!(refused.is_none(), is_stored, "{events} {links} {refused:?}");
        assert!(refused.iter().all(is_told), "{refused:?}");
    }
}

/// Log records whose resource has an attribute of so many bytes.
fn with_large_resource(bytes: usize, records: usize) -> Vec<u8> {
    let large = resource(vec![attribute("large", text(&"x".repeat(bytes)))]);
    ExportLogsServiceRequest {
        resource_logs: vec![logs_of(large, None, vec![record("x"); records])],
    }
    .encode_to_vec()
}

#[test]
fn rows_become_64_times_their_body_and_no_more() {
    let body = with_large_resource(100 << 10, 150);
    let most = 64 * body.len() + (4 << 20);
    let read = rest(
        reader(Table::Logs, OtlpEncoding::Protobuf, body.clone()).unwrap(),
        1 << 20,
    );
    let stored = read.rows.len();
    let row = 100 << 10;
    assert!(
        stored * row <= most && (stored + 2) * (row + 300) > most,
        "{stored} rows"
    );
    assert_eq!(all(&read), 150);
    assert!(
        read.refused[0].1.contains("more than 64 times its bytes"),
        "{}",
        read.refused[0].1
    );
    // As large parts, the same ones.
    let whole = read_bytes(Table::Logs, body).unwrap();
    assert_eq!((whole.rows.len(), whole.rejected), (stored, read.rejected));
}

#[test]
fn a_request_that_is_more_work_than_its_bytes_may_be_is_refused_at_once() {
    let scopes: Vec<u8> = (0..2_000).flat_map(|_| nested(2, &nested(2, b""))).collect();
    let large = resource(vec![attribute("large", text(&"x".repeat(100 << 10)))]).encode_to_vec();
    let metadata = |size: usize| {
        let metric = Metric {
            metadata: vec![attribute("m", text(&"x".repeat(size)))],
            data: Some(Data::Gauge(Gauge {
                data_points: vec![NumberDataPoint::default(); 4_000],
            })),
            ..metric("n", "", Data::Gauge(Gauge::default()))
        };
        metrics(vec![metric]).encode_to_vec()
    };
    let summary = SummaryDataPoint {
        quantile_values: vec![ValueAtQuantile::default(); 20_000],
        ..SummaryDataPoint::default()
    };
    let summary = Data::Summary(Summary {
        data_points: vec![summary],
    });
    for (table, body) in [
        (Table::Logs, with_large_resource(100 << 10, 1_000)),
        (Table::Logs, nested(1, &[nested(1, &large), scopes].concat())),
        (Table::Metrics, metrics(vec![metric("n", "", summary)]).encode_to_vec()),
        (Table::Metrics, metadata(64 << 10)),
    ] {
        let sent = body.len();
        let error = read_bytes(table, body).unwrap_err();
        assert!(
            matches!(error, OtlpError::Expanded(_) if error.to_string().contains(&format!("the {sent} sent"))),
            "{error}"
        );
        assert!(error.to_string().contains("more than 256 times the"), "{error}");
    }
    // What is shared is refused where it is too large itself, however few records there are.
    let read = read_bytes(Table::Logs, with_large_resource(5 << 20, 2)).unwrap();
    assert_eq!((read.rows.len(), read.rejected), (0, 2));
    assert!(
        read.refused[0].1.starts_with("the resource and the scope have 5242"),
        "{}",
        read.refused[0].1
    );
    let read = read_bytes(Table::Metrics, metadata(17 << 10)).unwrap_err();
    assert!(matches!(read, OtlpError::Expanded(_)), "{read}");
    let few = Metric {
        metadata: vec![attribute("m", text(&"x".repeat(17 << 10)))],
        ..metric("n", "", full_metrics().remove(0).data.unwrap())
    };
    let refused = refusal(Table::Metrics, &metrics(vec![few]));
    assert!(
        refused.starts_with("the metric's name, unit and metadata have 17"),
        "{refused}"
    );
}
