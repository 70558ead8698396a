//! Requests become rows and the same requests again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use arrow_array::RecordBatch;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use model::{Attributes, EntityId, FluxId, Level, LogRecord as LogRow, Table, TelemetryRecord, Timestamp};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberValue;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use super::export_request;
use crate::SenderSettings;
use crate::otlp::{OtlpEncoding, request};

/// A time in whole microseconds, as rows have them.
const AT: u64 = 1_795_000_000_123_456_000;

/// What a request becomes here.
fn rows(table: Table, body: Vec<u8>) -> Vec<RecordBatch> {
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("nobody"),
        entity_name: "nobody".to_owned(),
    };
    let settings = SenderSettings {
        entity: Arc::from(vec!["host.name".to_owned()]),
        fallback: publisher.clone(),
        now: Timestamp::from_micros(7),
    };
    let request = request(table, OtlpEncoding::Protobuf, body.into(), settings).unwrap();
    let mut reader = BodyRecordReader::of_format(table, request.records, request.body, publisher);
    let mut batches = Vec::new();
    while let Some(part) = reader.next_part(1 << 20).unwrap() {
        batches.push(part.batch);
    }
    assert!(reader.named().is_empty(), "{:?}", reader.named());
    batches
}

/// A request's rows, exported again.
fn again<T: Message + Default>(table: Table, sent: &T) -> T {
    let stored = rows(table, sent.encode_to_vec());
    let exported = export_request(table, &stored).unwrap();
    assert_eq!(
        rows(table, exported.clone()),
        stored,
        "what is exported is stored as it was"
    );
    T::decode(exported.as_slice()).unwrap()
}

fn any(value: AnyKind) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn attribute(key: &str, value: AnyKind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any(value)),
        ..KeyValue::default()
    }
}

fn text(text: &str) -> AnyKind {
    AnyKind::StringValue(text.to_owned())
}

fn resource(host: &str) -> Resource {
    Resource {
        attributes: vec![
            attribute("host.name", text(host)),
            attribute("platform.entity_id", text(&EntityId::for_name(host).to_string())),
            attribute("service.ports", AnyKind::ArrayValue(ports())),
        ],
        dropped_attributes_count: 2,
        ..Resource::default()
    }
}

fn ports() -> ArrayValue {
    ArrayValue {
        values: vec![any(AnyKind::IntValue(80)), any(text("http"))],
    }
}

fn scope(name: &str) -> InstrumentationScope {
    InstrumentationScope {
        name: name.to_owned(),
        version: "1.2".to_owned(),
        attributes: vec![attribute("short", AnyKind::BoolValue(true))],
        dropped_attributes_count: 1,
    }
}

/// Attributes of every type that stays what it is.
fn attributes() -> Vec<KeyValue> {
    vec![
        attribute("a.text", text("é")),
        attribute("b.int", AnyKind::IntValue(-3)),
        attribute("c.double", AnyKind::DoubleValue(2.0)),
        attribute("d.bool", AnyKind::BoolValue(false)),
        attribute("e.list", AnyKind::ArrayValue(ports())),
        KeyValue {
            key: "f.none".to_owned(),
            value: Some(AnyValue::default()),
            ..KeyValue::default()
        },
    ]
}

fn log(body: Option<AnyKind>) -> LogRecord {
    LogRecord {
        time_unix_nano: AT,
        observed_time_unix_nano: AT,
        severity_number: 9,
        severity_text: "INFO".to_owned(),
        body: body.map(any),
        attributes: attributes(),
        ..LogRecord::default()
    }
}

fn logs(records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let (one, other) = records.split_at(records.len() / 2);
    let scope_logs = |name: &str, records: &[LogRecord]| ScopeLogs {
        scope: Some(scope(name)),
        log_records: records.to_vec(),
        schema_url: "https://scope".to_owned(),
    };
    ExportLogsServiceRequest {
        resource_logs: vec![
            ResourceLogs {
                resource: Some(resource("h1")),
                scope_logs: vec![scope_logs("s1", one), scope_logs("s2", other)],
                schema_url: "https://resource".to_owned(),
            },
            ResourceLogs {
                resource: Some(resource("h2")),
                scope_logs: vec![scope_logs("s1", one)],
                schema_url: String::new(),
            },
        ],
    }
}

#[test]
fn logs_of_every_kind_of_body_come_out_as_they_came_in() {
    let map = KeyValueList {
        values: vec![
            attribute("code", AnyKind::IntValue(7)),
            attribute("message", text("it broke")),
        ],
    };
    let event = LogRecord {
        event_name: "session.begin".to_owned(),
        ..log(None)
    };
    let full = LogRecord {
        severity_number: 18,
        severity_text: "ERROR2".to_owned(),
        trace_id: vec![7; 16],
        span_id: vec![8; 8],
        flags: 0x100,
        dropped_attributes_count: 4,
        ..log(Some(text("all of it")))
    };
    let sent = logs(vec![
        log(Some(text("a line"))),
        log(Some(AnyKind::IntValue(-7))),
        log(Some(AnyKind::BoolValue(true))),
        log(Some(AnyKind::DoubleValue(0.5))),
        log(Some(AnyKind::BytesValue(vec![0, 255]))),
        log(Some(AnyKind::ArrayValue(ports()))),
        log(Some(AnyKind::KvlistValue(map))),
        event,
        full,
    ]);
    assert_eq!(again(Table::Logs, &sent), sent);
}

#[test]
fn spans_come_out_as_they_came_in() {
    let span = Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        trace_state: "vendor=1".to_owned(),
        parent_span_id: vec![3; 8],
        flags: 0x301,
        name: "GET /".to_owned(),
        kind: 2,
        start_time_unix_nano: AT,
        end_time_unix_nano: AT + 1_500_000,
        attributes: attributes(),
        dropped_attributes_count: 1,
        events: vec![Event {
            time_unix_nano: AT + 7,
            name: "exception \"x\"".to_owned(),
            attributes: attributes(),
            dropped_attributes_count: 9,
        }],
        dropped_events_count: 2,
        links: vec![Link {
            trace_id: vec![4; 16],
            span_id: vec![5; 8],
            trace_state: "other=2".to_owned(),
            attributes: vec![attribute("why", text("retry"))],
            dropped_attributes_count: 3,
            flags: 0x201,
        }],
        dropped_links_count: 3,
        status: Some(Status {
            message: "no".to_owned(),
            code: 2,
        }),
    };
    let plain = Span {
        status: None,
        events: Vec::new(),
        links: Vec::new(),
        parent_span_id: Vec::new(),
        kind: 0,
        ..span.clone()
    };
    let fine = Span {
        status: Some(Status {
            message: String::new(),
            code: 1,
        }),
        kind: 77,
        ..span.clone()
    };
    let sent = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource("h")),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope("s")),
                spans: vec![span, plain, fine],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    };
    assert_eq!(again(Table::Traces, &sent), sent);
}

fn number(value: NumberValue) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: AT - 1,
        time_unix_nano: AT,
        value: Some(value),
        attributes: attributes(),
        exemplars: vec![Exemplar {
            filtered_attributes: vec![attribute("user", text("u"))],
            time_unix_nano: AT + 3,
            span_id: vec![2; 8],
            trace_id: vec![1; 16],
            value: Some(exemplar::Value::AsDouble(0.25)),
        }],
        flags: 0,
    }
}

fn metric(name: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: "ms".to_owned(),
        metadata: vec![attribute("origin", text("test"))],
        data: Some(data),
        ..Metric::default()
    }
}

#[test]
fn points_of_every_kind_come_out_as_they_came_in() {
    let doubles = vec![number(NumberValue::AsDouble(1.5)), number(NumberValue::AsInt(i64::MAX))];
    let sum = |aggregation_temporality, is_monotonic| Sum {
        data_points: doubles.clone(),
        aggregation_temporality,
        is_monotonic,
    };
    let histogram = HistogramDataPoint {
        attributes: attributes(),
        start_time_unix_nano: AT - 1,
        time_unix_nano: AT,
        count: 6,
        sum: Some(12.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        min: Some(0.1),
        max: Some(11.0),
        ..HistogramDataPoint::default()
    };
    let without_sum = HistogramDataPoint {
        sum: None,
        bucket_counts: Vec::new(),
        explicit_bounds: Vec::new(),
        ..histogram.clone()
    };
    let of_nothing = HistogramDataPoint {
        count: 0,
        sum: Some(0.0),
        bucket_counts: vec![0, 0, 0],
        min: None,
        max: None,
        ..histogram.clone()
    };
    let of_nothing_without_sum = HistogramDataPoint {
        count: 0,
        ..without_sum.clone()
    };
    let exponential = ExponentialHistogramDataPoint {
        attributes: attributes(),
        start_time_unix_nano: AT - 1,
        time_unix_nano: AT,
        count: 5,
        sum: Some(3.0),
        scale: -2,
        zero_count: 1,
        positive: Some(Buckets {
            offset: -3,
            bucket_counts: vec![1, 0, 2],
        }),
        negative: Some(Buckets {
            offset: 4,
            bucket_counts: vec![1],
        }),
        min: Some(-1.0),
        max: Some(2.0),
        zero_threshold: 0.001,
        ..ExponentialHistogramDataPoint::default()
    };
    let metrics = vec![
        metric(
            "gauge",
            Data::Gauge(Gauge {
                data_points: doubles.clone(),
            }),
        ),
        metric("requests", Data::Sum(sum(2, true))),
        metric("deltas", Data::Sum(sum(1, true))),
        metric("level", Data::Sum(sum(2, false))),
        metric(
            "took",
            Data::Histogram(Histogram {
                data_points: vec![histogram, without_sum, of_nothing, of_nothing_without_sum],
                aggregation_temporality: 1,
            }),
        ),
        metric(
            "exponential",
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points: vec![exponential],
                aggregation_temporality: 2,
            }),
        ),
    ];
    let sent = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource("h")),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope("s")),
                metrics,
                schema_url: "https://scope".to_owned(),
            }],
            schema_url: String::new(),
        }],
    };
    assert_eq!(again(Table::Metrics, &sent), sent);
}

#[test]
fn rows_of_a_rack_get_a_resource_of_their_entity_and_their_signal_as_an_attribute() {
    let flux = FluxId::at(Timestamp::from_micros(5), [3; 10]);
    let row = LogRow {
        ts: Timestamp::from_micros(1_795_000_000_123_456),
        entity_id: EntityId::for_name("another"),
        entity_name: "rack-a".into(),
        flux_id: Some(flux),
        level: Level::Warn,
        message: "hot".into(),
        attributes: Attributes::new().with("otel.flags", "none of ours").with("n", 1),
    };
    let batch = LogRow::to_batch(&[row]).unwrap();
    let exported = export_request(Table::Logs, std::slice::from_ref(&batch)).unwrap();
    let found = ExportLogsServiceRequest::decode(exported.as_slice()).unwrap();
    let of = &found.resource_logs[0];
    let id = EntityId::for_name("another").to_string();
    let wanted = [
        attribute("host.name", text("rack-a")),
        attribute("platform.entity_id", text(&id)),
    ];
    assert_eq!(of.resource.as_ref().unwrap().attributes, wanted);
    let record = &of.scope_logs[0].log_records[0];
    assert_eq!(of.scope_logs[0].scope, None);
    assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
    let wanted = [
        attribute("n", AnyKind::IntValue(1)),
        attribute("otel.flags", text("none of ours")),
        attribute("flux_id", text(&flux.to_string())),
    ];
    assert_eq!(record.attributes, wanted);
    let back = rows(Table::Logs, exported);
    for column in ["ts", "entity_id", "entity_name", "flux_id", "level", "message"] {
        assert_eq!(back[0].column_by_name(column), batch.column_by_name(column), "{column}");
    }
    assert!(export_request(Table::Messages, &[]).is_err());
    assert!(export_request(Table::Traces, &[batch]).is_err());
}
