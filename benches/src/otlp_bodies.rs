//! Rows as OTLP requests: one resource for each entity of a body, as a collector sends what it gathered.

use std::collections::BTreeMap;
use std::path::Path;

use harness::Failure;
use model::Table;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as PointValue;
use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use serde_json::{Map, Value};

use crate::lines::{Bodies, write_bodies};

/// Writes requests of [`LINES`](crate::lines::LINES) records each, whose rows happened in the last seconds; where each of them lies.
///
/// # Errors
/// If the file cannot be written.
pub fn write_requests(path: &Path, table: Table, rows: usize) -> Result<Bodies, Failure> {
    write_bodies(path, (table, rows), "OTLP", |rows| {
        let mut entities: BTreeMap<String, Vec<Map<String, Value>>> = BTreeMap::new();
        for (ts, mut row) in rows {
            row.insert("ts".to_owned(), (ts.micros() * 1_000).into());
            let entity = row["entity_name"].as_str().unwrap_or_default().to_owned();
            entities.entry(entity).or_default().push(row);
        }
        Ok(match table {
            Table::Metrics => metrics(entities).encode_to_vec(),
            _ => logs(entities).encode_to_vec(),
        })
    })
}

fn text(text: &str) -> Option<AnyValue> {
    Some(AnyValue {
        value: Some(AnyKind::StringValue(text.to_owned())),
    })
}

fn pair(key: &str, value: &Value) -> KeyValue {
    let kind = match value {
        Value::Bool(value) => AnyKind::BoolValue(*value),
        Value::Number(value) if value.is_i64() => AnyKind::IntValue(value.as_i64().unwrap_or_default()),
        Value::Number(value) => AnyKind::DoubleValue(value.as_f64().unwrap_or_default()),
        Value::String(text) => AnyKind::StringValue(text.clone()),
        other => AnyKind::StringValue(other.to_string()),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(kind) }),
        ..KeyValue::default()
    }
}

fn attributes(row: &Map<String, Value>, column: &str) -> Vec<KeyValue> {
    let fields = row[column].as_object().into_iter().flatten();
    fields.map(|(key, value)| pair(key, value)).collect()
}

fn resource(entity: &str) -> Option<Resource> {
    Some(Resource {
        attributes: vec![
            pair("host.name", &entity.into()),
            pair("service.name", &"bench".into()),
            pair("service.version", &"1.0.0".into()),
        ],
        ..Resource::default()
    })
}

fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "bench".to_owned(),
        ..InstrumentationScope::default()
    })
}

fn logs(entities: BTreeMap<String, Vec<Map<String, Value>>>) -> ExportLogsServiceRequest {
    let record = |row: &Map<String, Value>| {
        let level = row["level"].as_str().unwrap_or_default();
        let mut attributes = attributes(row, "attributes");
        if let Some(flux) = row.get("flux_id").filter(|id| id.is_string()) {
            attributes.push(pair("flux_id", flux));
        }
        LogRecord {
            time_unix_nano: row["ts"].as_u64().unwrap_or_default(),
            severity_number: match level {
                "debug" => 5,
                "warn" => 13,
                "error" => 17,
                _ => 9,
            },
            severity_text: level.to_uppercase(),
            body: text(row["message"].as_str().unwrap_or_default()),
            attributes,
            ..LogRecord::default()
        }
    };
    let resource_logs = entities.iter().map(|(entity, rows)| ResourceLogs {
        resource: resource(entity),
        scope_logs: vec![ScopeLogs {
            scope: scope(),
            log_records: rows.iter().map(record).collect(),
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    });
    ExportLogsServiceRequest {
        resource_logs: resource_logs.collect(),
    }
}

fn metrics(entities: BTreeMap<String, Vec<Map<String, Value>>>) -> ExportMetricsServiceRequest {
    let point = |row: &Map<String, Value>| NumberDataPoint {
        time_unix_nano: row["ts"].as_u64().unwrap_or_default(),
        value: Some(PointValue::AsDouble(row["value"].as_f64().unwrap_or_default())),
        attributes: attributes(row, "labels")
            .into_iter()
            .filter(|label| label.key != "otel.unit")
            .collect(),
        ..NumberDataPoint::default()
    };
    let metric = |(name, rows): (&str, Vec<&Map<String, Value>>)| {
        let data_points = rows.iter().map(|row| point(row)).collect();
        let first = rows.first();
        let unit = first
            .and_then(|row| row["labels"]["otel.unit"].as_str())
            .unwrap_or_default();
        let data = match first.and_then(|row| row["type"].as_str()) {
            Some("counter") => Data::Sum(Sum {
                data_points,
                aggregation_temporality: 2,
                is_monotonic: true,
            }),
            _ => Data::Gauge(Gauge { data_points }),
        };
        Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    };
    let resource_metrics = entities.iter().map(|(entity, rows)| {
        let mut names: BTreeMap<&str, Vec<&Map<String, Value>>> = BTreeMap::new();
        for row in rows {
            names
                .entry(row["name"].as_str().unwrap_or_default())
                .or_default()
                .push(row);
        }
        ResourceMetrics {
            resource: resource(entity),
            scope_metrics: vec![ScopeMetrics {
                scope: scope(),
                metrics: names.into_iter().map(metric).collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }
    });
    ExportMetricsServiceRequest {
        resource_metrics: resource_metrics.collect(),
    }
}
