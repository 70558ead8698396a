//! Metrics of every kind: temporalities, distributions, exemplars, points without a value.

use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    NumberDataPoint, Sum, Summary, SummaryDataPoint, exemplar,
};

use super::*;

/// A point has no value.
const NO_VALUE: u32 = 1;
/// The start of what was counted, and what is stored of it.
const START: u64 = AT - 60 * SECOND;
const START_NANOS: &str = "2026-11-21T09:59:00.123456789Z";

fn point(value: Number) -> NumberDataPoint {
    NumberDataPoint {
        time_unix_nano: AT,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

fn gauge(value: Number) -> Data {
    Data::Gauge(Gauge {
        data_points: vec![point(value)],
    })
}

fn point_row(name: &str, (kind, value): (&str, f64), labels: Value) -> Value {
    json!({
        "ts": AT_TEXT,
        "name": name,
        "entity_id": EntityId::for_name(SERVICE).to_string(),
        "entity_name": SERVICE,
        "type": kind,
        "value": value,
        "labels": with_service(labels),
    })
}

#[test]
fn a_gauge_keeps_its_value_unit_and_attributes() {
    let sent = NumberDataPoint {
        start_time_unix_nano: START,
        attributes: vec![
            attribute("state", text("used")),
            attribute("cpu", Kind::IntValue(3)),
            attribute("where", map(vec![attribute("zone", text("a"))])),
        ],
        ..point(Number::AsDouble(42.5))
    };
    let data = Data::Gauge(Gauge {
        data_points: vec![sent],
    });
    let labels = json!({
        "cpu": 3,
        "otel.start_time": START_NANOS,
        "otel.unit": "By",
        "state": "used",
        "where.zone": "a",
    });
    assert_eq!(
        row(Table::Metrics, &metrics(vec![metric("memory", "By", data)])),
        point_row("memory", ("gauge", 42.5), labels)
    );
}

#[test]
fn whole_numbers_that_a_double_cannot_hold_are_labels_too() {
    for (value, stored, labels) in [
        (0, 0.0, json!({})),
        (-5, -5.0, json!({})),
        (1 << 53, 9_007_199_254_740_992.0, json!({})),
        (
            (1 << 53) + 1,
            9_007_199_254_740_992.0,
            json!({ "otel.int": 9_007_199_254_740_993_i64 }),
        ),
        (i64::MAX, 9_223_372_036_854_775_807.0, json!({ "otel.int": i64::MAX })),
        (i64::MIN, -9_223_372_036_854_775_808.0, json!({})),
    ] {
        let sent = metrics(vec![metric("n", "", gauge(Number::AsInt(value)))]);
        assert_eq!(
            row(Table::Metrics, &sent),
            point_row("n", ("gauge", stored), labels),
            "{value}"
        );
    }
}

#[test]
fn sums_of_both_temporalities_that_only_grow_and_that_do_not() {
    for (temporality, is_monotonic, kind, labels) in [
        (2, true, "counter", json!({})),
        (1, true, "counter", json!({ "otel.temporality": "delta" })),
        (2, false, "gauge", json!({ "otel.monotonic": false })),
        (
            1,
            false,
            "gauge",
            json!({ "otel.monotonic": false, "otel.temporality": "delta" }),
        ),
        (0, true, "counter", json!({})),
    ] {
        let data = Data::Sum(Sum {
            data_points: vec![point(Number::AsInt(7))],
            aggregation_temporality: temporality,
            is_monotonic,
        });
        assert_eq!(
            row(Table::Metrics, &metrics(vec![metric("requests", "", data)])),
            point_row("requests", (kind, 7.0), labels),
            "{temporality} {is_monotonic}"
        );
    }
}

#[test]
fn what_a_sum_says_of_itself_behind_its_points_counts_for_them() {
    let data = Sum {
        data_points: vec![point(Number::AsInt(7))],
        aggregation_temporality: 1,
        is_monotonic: true,
    };
    // As protobuf, the fields of a message may come in any order: here the points come first, and the name last.
    let points = Gauge {
        data_points: data.data_points.clone(),
    };
    let rest = Sum {
        data_points: Vec::new(),
        ..data
    };
    let sum = [points.encode_to_vec(), rest.encode_to_vec()].concat();
    let head = Metric {
        name: "requests".to_owned(),
        unit: "1".to_owned(),
        ..Metric::default()
    };
    let metric = [nested(7, &sum), head.encode_to_vec()].concat();
    let scope = nested(2, &metric);
    let resource = [nested(2, &scope), nested(1, &service().encode_to_vec())].concat();
    let read = read_bytes(Table::Metrics, nested(1, &resource)).unwrap();
    let labels = json!({ "otel.temporality": "delta", "otel.unit": "1" });
    assert_eq!(read.rows, [point_row("requests", ("counter", 7.0), labels)]);
}

#[test]
fn a_histogram_is_one_row_with_its_buckets() {
    let sent = HistogramDataPoint {
        start_time_unix_nano: START,
        time_unix_nano: AT,
        count: 6,
        sum: Some(21.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        min: Some(0.25),
        max: Some(12.0),
        attributes: vec![attribute("route", text("/"))],
        exemplars: vec![Exemplar {
            time_unix_nano: AT,
            value: Some(exemplar::Value::AsDouble(12.0)),
            trace_id: vec![0xab; 16],
            span_id: vec![0xcd; 8],
            filtered_attributes: vec![attribute("user", text("ann"))],
        }],
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![sent],
        aggregation_temporality: 1,
    });
    let exemplar = json!({
        "time": AT_NANOS,
        "value": 12.0,
        "trace_id": "ab".repeat(16),
        "span_id": "cd".repeat(8),
        "attributes": { "user": "ann" },
    });
    let labels = json!({
        "otel.bounds": [0.5, 10.0],
        "otel.buckets": [1, 2, 3],
        "otel.count": 6,
        "otel.exemplars": [exemplar],
        "otel.max": 12.0,
        "otel.min": 0.25,
        "otel.start_time": START_NANOS,
        "otel.temporality": "delta",
        "otel.unit": "s",
        "route": "/",
    });
    assert_eq!(
        row(Table::Metrics, &metrics(vec![metric("latency", "s", data)])),
        point_row("latency", ("histogram", 21.5), labels)
    );
}

#[test]
fn a_histogram_without_sum_extremes_or_buckets_says_so() {
    let sent = HistogramDataPoint {
        time_unix_nano: AT,
        count: 6,
        ..HistogramDataPoint::default()
    };
    let data = Data::Histogram(Histogram {
        data_points: vec![sent],
        aggregation_temporality: 2,
    });
    assert_eq!(
        row(Table::Metrics, &metrics(vec![metric("latency", "", data)])),
        point_row(
            "latency",
            ("histogram", 0.0),
            json!({ "otel.count": 6, "otel.no_sum": true })
        )
    );
}

fn exponential(point: ExponentialHistogramDataPoint) -> ExportMetricsServiceRequest {
    let data = Data::ExponentialHistogram(ExponentialHistogram {
        data_points: vec![point],
        aggregation_temporality: 2,
    });
    metrics(vec![metric("latency", "", data)])
}

#[test]
fn an_exponential_histogram_is_one_row_with_scale_offsets_and_both_halves() {
    let sent = ExponentialHistogramDataPoint {
        time_unix_nano: AT,
        count: 12,
        sum: Some(-3.5),
        scale: -2,
        zero_count: 3,
        zero_threshold: 0.001,
        positive: Some(Buckets {
            offset: -4,
            bucket_counts: vec![1, 0, 300],
        }),
        negative: Some(Buckets {
            offset: 7,
            bucket_counts: vec![u64::MAX],
        }),
        min: Some(-9.0),
        max: Some(4.0),
        ..ExponentialHistogramDataPoint::default()
    };
    let labels = json!({
        "otel.count": 12,
        "otel.max": 4.0,
        "otel.min": -9.0,
        "otel.negative.counts": [u64::MAX],
        "otel.negative.offset": 7,
        "otel.positive.counts": [1, 0, 300],
        "otel.positive.offset": -4,
        "otel.scale": -2,
        "otel.zero_count": 3,
        "otel.zero_threshold": 0.001,
    });
    assert_eq!(
        row(Table::Metrics, &exponential(sent)),
        point_row("latency", ("histogram", -3.5), labels)
    );
    // What is zero is not sent, but for the scale it means itself.
    let sent = ExponentialHistogramDataPoint {
        time_unix_nano: AT,
        ..ExponentialHistogramDataPoint::default()
    };
    assert_eq!(
        row(Table::Metrics, &exponential(sent)),
        point_row(
            "latency",
            ("histogram", 0.0),
            json!({ "otel.no_sum": true, "otel.scale": 0 })
        )
    );
}

fn summary(quantiles: &[(f64, f64)]) -> SummaryDataPoint {
    SummaryDataPoint {
        time_unix_nano: AT,
        count: 5,
        sum: 12.5,
        quantile_values: quantiles
            .iter()
            .map(|(quantile, value)| ValueAtQuantile {
                quantile: *quantile,
                value: *value,
            })
            .collect(),
        attributes: vec![attribute("route", text("/"))],
        ..SummaryDataPoint::default()
    }
}

fn summaries(points: Vec<SummaryDataPoint>) -> ExportMetricsServiceRequest {
    let data = Data::Summary(Summary { data_points: points });
    metrics(vec![metric("latency", "", data)])
}

#[test]
fn a_summary_is_a_row_for_its_count_its_sum_and_each_quantile() {
    let other = SummaryDataPoint {
        time_unix_nano: AT,
        ..SummaryDataPoint::default()
    };
    let labels = |more: Value| {
        let mut labels = json!({ "otel.summary": true, "route": "/" });
        if let Some(quantile) = more.as_str() {
            labels["quantile"] = json!(quantile);
        }
        labels
    };
    let empty = json!({ "otel.summary": true });
    assert_eq!(
        rows(
            Table::Metrics,
            &summaries(vec![summary(&[(0.5, 2.0), (0.99, 7.5)]), other])
        ),
        [
            point_row("latency_count", ("counter", 5.0), labels(Value::Null)),
            point_row("latency_sum", ("counter", 12.5), labels(Value::Null)),
            point_row("latency", ("gauge", 2.0), labels(json!("0.5"))),
            point_row("latency", ("gauge", 7.5), labels(json!("0.99"))),
            point_row("latency_count", ("counter", 0.0), empty.clone()),
            point_row("latency_sum", ("counter", 0.0), empty),
        ]
    );
}

#[test]
fn a_quantile_that_is_not_known_is_passed_over_and_its_position_counts() {
    let read = read_bytes(
        Table::Metrics,
        summaries(vec![summary(&[(0.5, f64::NAN), (0.99, 7.5)])]).encode_to_vec(),
    )
    .unwrap();
    let values: Vec<&Value> = read.rows.iter().map(|row| &row["value"]).collect();
    assert_eq!(values, [&json!(5.0), &json!(12.5), &json!(7.5)]);
    assert_eq!((read.rejected, read.ends), (0, vec![(3, 4)]));
}

#[test]
fn a_point_that_says_that_it_has_no_value_is_neither_stored_nor_refused() {
    let stale = NumberDataPoint {
        flags: NO_VALUE,
        value: None,
        ..point(Number::AsInt(0))
    };
    let data = Data::Gauge(Gauge {
        data_points: vec![stale, point(Number::AsInt(1))],
    });
    let histogram = Data::Histogram(Histogram {
        data_points: vec![HistogramDataPoint {
            flags: NO_VALUE,
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: 2,
    });
    let summary = Data::Summary(Summary {
        data_points: vec![SummaryDataPoint {
            flags: NO_VALUE,
            ..summary(&[(0.5, 1.0)])
        }],
    });
    let sent = metrics(vec![
        metric("gauge", "", data),
        metric("histogram", "", histogram),
        metric("summary", "", summary),
    ]);
    assert_eq!(
        rows(Table::Metrics, &sent),
        [point_row("gauge", ("gauge", 1.0), json!({}))]
    );
}

#[test]
fn eight_exemplars_of_a_point_are_kept() {
    let exemplars = (0..10).map(|number| Exemplar {
        time_unix_nano: AT,
        value: Some(exemplar::Value::AsInt(number)),
        ..Exemplar::default()
    });
    let sent = NumberDataPoint {
        exemplars: exemplars.collect(),
        ..point(Number::AsInt(1))
    };
    let data = Data::Gauge(Gauge {
        data_points: vec![sent],
    });
    let kept: Vec<Value> = (0..8)
        .map(|number| json!({ "time": AT_NANOS, "value": number }))
        .collect();
    assert_eq!(
        row(Table::Metrics, &metrics(vec![metric("n", "", data)])),
        point_row("n", ("gauge", 1.0), json!({ "otel.exemplars": kept }))
    );
}

#[test]
fn metadata_is_kept_and_the_description_is_not() {
    let sent = Metric {
        description: "how much is used".to_owned(),
        metadata: vec![attribute("prometheus.type", text("gauge"))],
        ..metric("memory", "By", gauge(Number::AsInt(1)))
    };
    let labels = json!({ "otel.metadata.prometheus.type": "gauge", "otel.unit": "By" });
    assert_eq!(
        row(Table::Metrics, &metrics(vec![sent])),
        point_row("memory", ("gauge", 1.0), labels)
    );
}

#[test]
fn a_point_without_a_time_has_the_time_when_it_came() {
    let data = Data::Gauge(Gauge {
        data_points: vec![NumberDataPoint {
            time_unix_nano: 0,
            ..point(Number::AsInt(1))
        }],
    });
    assert_eq!(
        row(Table::Metrics, &metrics(vec![metric("n", "", data)]))["ts"],
        NOW_TEXT
    );
}

#[test]
fn points_that_cannot_be_stored_are_refused_with_the_reason() {
    let histogram = |point: HistogramDataPoint| {
        Data::Histogram(Histogram {
            data_points: vec![point],
            aggregation_temporality: 2,
        })
    };
    let bounds = |bucket_counts: Vec<u64>, explicit_bounds: Vec<f64>| {
        histogram(HistogramDataPoint {
            bucket_counts,
            explicit_bounds,
            ..HistogramDataPoint::default()
        })
    };
    for (name, data, reason) in [
        ("", gauge(Number::AsInt(1)), "the metric has no name"),
        (
            "n",
            gauge(Number::AsDouble(f64::INFINITY)),
            "inf is not a finite number",
        ),
        (
            "n",
            Data::Gauge(Gauge {
                data_points: vec![NumberDataPoint::default()],
            }),
            "the point has no value that is a number",
        ),
        ("n", bounds(vec![1, 2], vec![]), "2 buckets do not have 0 bounds"),
        ("n", bounds(vec![1], vec![1.0]), "1 buckets do not have 1 bounds"),
        ("n", bounds(vec![1, 2, 3], vec![2.0, 1.0]), "ascending order"),
        ("n", bounds(vec![1, 2, 3], vec![1.0, 1.0]), "ascending order"),
        ("n", bounds(vec![1, 2], vec![f64::INFINITY]), "finite numbers"),
    ] {
        let refused = refusal(Table::Metrics, &metrics(vec![metric(name, "", data)]));
        assert!(refused.contains(reason), "{refused}, not {reason}");
    }
    // One bucket without a bound holds everything.
    let stored = row(Table::Metrics, &metrics(vec![metric("n", "", bounds(vec![3], vec![]))]));
    assert_eq!(stored["labels"]["otel.buckets"], json!([3]));
}

#[test]
fn values_that_are_no_numbers_are_no_points_and_sums_of_histograms_that_are_not_finite_are_none() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let quantiles = vec![ValueAtQuantile { quantile: 0.5, value }];
        let summary = SummaryDataPoint {
            sum: value,
            quantile_values: quantiles,
            ..SummaryDataPoint::default()
        };
        let histogram = HistogramDataPoint {
            sum: Some(value),
            count: 3,
            ..HistogramDataPoint::default()
        };
        let exponential = ExponentialHistogramDataPoint {
            sum: Some(value),
            count: 3,
            ..ExponentialHistogramDataPoint::default()
        };
        let sent = [
            ("gauge", gauge(Number::AsDouble(value))),
            (
                "summary",
                Data::Summary(Summary {
                    data_points: vec![summary],
                }),
            ),
            (
                "histogram",
                Data::Histogram(Histogram {
                    data_points: vec![histogram],
                    aggregation_temporality: 2,
                }),
            ),
            (
                "exponential",
                Data::ExponentialHistogram(ExponentialHistogram {
                    data_points: vec![exponential],
                    aggregation_temporality: 2,
                }),
            ),
            ("control", gauge(Number::AsDouble(1.5))),
        ];
        // What is infinite is refused.
        let sent = sent
            .into_iter()
            .filter(|(name, _)| value.is_nan() || !["gauge", "summary"].contains(name));
        let sent: Vec<_> = sent.map(|(name, data)| metric(name, "", data)).collect();
        let stored = rows_of_protobuf(Table::Metrics, &metrics(sent));
        let told = |row: &Value| json!([row["name"], row["value"], row["labels"]["otel.no_sum"]]);
        let expected = [
            json!(["summary_count", 0.0, null]),
            json!(["histogram", 0.0, true]),
            json!(["exponential", 0.0, true]),
            json!(["control", 1.5, null]),
        ];
        let expected = &expected[usize::from(value.is_infinite())..];
        assert_eq!(stored.iter().map(told).collect::<Vec<_>>(), expected, "{value}");
    }
}
