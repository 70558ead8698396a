//! Requests into rows: built with the protocol's own types, read back, and compared field by field with what was sent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod examples;
mod hostile;
mod hostile_json;
mod hostile_sizes;
mod logs;
mod metrics;
mod parts;
mod resources;
mod spans;

use model::EntityId;
use model::batch::row_json;
use model::telemetry_codec::{BodyRecordReader, PublisherIdentity};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Kind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

/// A time of OTLP, and what is stored of it.
const AT: u64 = 1_795_255_200_123_456_789;
const AT_TEXT: &str = "2026-11-21T10:00:00.123456Z";
/// The same with its nanoseconds.
const AT_NANOS: &str = "2026-11-21T10:00:00.123456789Z";
/// The time of what has none.
const NOW_TEXT: &str = "2026-11-21T12:30:00.000000Z";
const SECOND: u64 = 1_000_000_000;
/// The name of the service of most requests here; it names their entity.
const SERVICE: &str = "shop";
const FLUX_ID: &str = "0198a8b0-2d5e-7c3a-8f6b-0123456789ab";
/// A part that holds any body of these tests.
const WHOLE: usize = 64 << 20;

fn settings() -> SenderSettings {
    SenderSettings {
        entity: ["host.name", "k8s.pod.name", "service.name"].map(str::to_owned).into(),
        fallback: PublisherIdentity {
            entity_id: EntityId::for_name("unknown"),
            entity_name: "unknown".to_owned(),
        },
        now: NOW_TEXT.parse().unwrap(),
    }
}

/// What became of a body.
#[derive(Debug, PartialEq)]
struct ReadRows {
    rows: Vec<Value>,
    /// Where each part's last row was, and the position behind it.
    ends: Vec<(u64, u64)>,
    /// The records that were refused: their position, why, and their bytes.
    refused: Vec<(u64, String, Vec<u8>)>,
    rejected: u64,
}

/// Begins to read a body.
fn reader(table: Table, encoding: OtlpEncoding, body: impl Into<Bytes>) -> Result<BodyRecordReader, OtlpError> {
    let opened = request(table, encoding, body.into(), settings())?;
    let records = BodyRecordReader::of_format(table, opened.records, opened.body, settings().fallback);
    Ok(records.keeping_refused())
}

/// Reads what is left of a body in parts of `size` bytes.
fn rest(mut records: BodyRecordReader, size: usize) -> ReadRows {
    let (mut rows, mut ends) = (Vec::new(), Vec::new());
    while let Some(part) = records.next_part(size).unwrap() {
        rows.extend((0..part.batch.num_rows()).map(|row| Value::Object(row_json(&part.batch, row))));
        ends.push((*part.positions.last().unwrap(), part.to));
    }
    let refused = records.refused().iter();
    ReadRows {
        rows,
        ends,
        refused: refused
            .map(|record| (record.row, record.reason.clone(), record.record.to_vec()))
            .collect(),
        rejected: records.rejected(),
    }
}

/// Reads a body as protobuf, whatever it is.
fn read_bytes(table: Table, body: impl Into<Bytes>) -> Result<ReadRows, OtlpError> {
    Ok(rest(reader(table, OtlpEncoding::Protobuf, body)?, WHOLE))
}

/// Reads a body as JSON, whatever it is.
fn read_json(table: Table, body: &str) -> Result<ReadRows, OtlpError> {
    Ok(rest(
        reader(table, OtlpEncoding::Json, Bytes::copy_from_slice(body.as_bytes()))?,
        WHOLE,
    ))
}

/// The rows of a request none of whose records is refused, as protobuf; only for what JSON cannot say.
fn rows_of_protobuf(table: Table, request: &impl Message) -> Vec<Value> {
    let read = read_bytes(table, request.encode_to_vec()).unwrap();
    assert_eq!((&read.refused, read.rejected), (&Vec::new(), 0));
    read.rows
}

/// The rows of a request none of whose records is refused: the same as protobuf and as JSON.
fn rows(table: Table, request: &(impl Message + Serialize)) -> Vec<Value> {
    let rows = rows_of_protobuf(table, request);
    let json = read_json(table, &serde_json::to_string(request).unwrap()).unwrap();
    assert_eq!((&json.rows, json.rejected), (&rows, 0), "the same as JSON");
    rows
}

/// The only row of a request.
fn row(table: Table, request: &(impl Message + Serialize)) -> Value {
    let mut rows = rows(table, request);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0)
}

/// Why the only record of a request is refused.
fn refusal(table: Table, request: &impl Message) -> String {
    let read = read_bytes(table, request.encode_to_vec()).unwrap();
    assert_eq!(
        (read.rows.len(), read.rejected, read.refused.len()),
        (0, 1, 1),
        "{read:?}"
    );
    read.refused[0].1.clone()
}

fn value(kind: Kind) -> AnyValue {
    AnyValue { value: Some(kind) }
}

fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

fn attribute(key: &str, kind: Kind) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value(kind)),
        ..KeyValue::default()
    }
}

fn list(kinds: Vec<Kind>) -> Kind {
    Kind::ArrayValue(ArrayValue {
        values: kinds.into_iter().map(value).collect(),
    })
}

fn map(pairs: Vec<KeyValue>) -> Kind {
    Kind::KvlistValue(KeyValueList { values: pairs })
}

/// A resource that has a service's name alone, and what is stored of it.
fn service() -> Resource {
    resource(vec![attribute("service.name", text(SERVICE))])
}

fn resource(attributes: Vec<KeyValue>) -> Resource {
    Resource {
        attributes,
        ..Resource::default()
    }
}

fn logs_of(resource: Resource, scope: Option<InstrumentationScope>, records: Vec<LogRecord>) -> ResourceLogs {
    ResourceLogs {
        resource: Some(resource),
        scope_logs: vec![ScopeLogs {
            scope,
            log_records: records,
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    }
}

/// A request with log records of the service.
fn logs(records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![logs_of(service(), None, records)],
    }
}

/// A request with spans of the service.
fn spans(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = ScopeSpans {
        spans,
        ..ScopeSpans::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(service()),
            scope_spans: vec![scope],
            ..ResourceSpans::default()
        }],
    }
}

/// A request with metrics of the service.
fn metrics(metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    let scope = ScopeMetrics {
        metrics,
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(service()),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// A log record that is right.
fn record(message: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: AT,
        severity_number: 9,
        body: Some(value(text(message))),
        ..LogRecord::default()
    }
}

/// A span that is right.
fn span(name: &str) -> Span {
    Span {
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
        name: name.to_owned(),
        start_time_unix_nano: AT,
        end_time_unix_nano: AT + 1_500_000,
        ..Span::default()
    }
}

/// What is stored beside the service's name.
fn with_service(mut attributes: Value) -> Value {
    attributes["resource.service.name"] = json!(SERVICE);
    attributes
}

/// A field that holds a message.
fn nested(number: u8, message: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(message.len() as u64, &mut field);
    field.extend_from_slice(message);
    field
}
