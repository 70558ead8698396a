//! Rows as OTLP requests: one resource for each entity of a body, as a collector sends what it gathered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use harness::Failure;
use model::batch::row_json;
use model::{Table, Timestamp};
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

use crate::data::{ROWS_PER_SECOND, START, Source};
use crate::lines::{Bodies, LINES};

/// Writes requests of [`LINES`] records each, whose rows happened in the last seconds; where each of them lies.
///
/// # Errors
/// If the file cannot be written.
#[allow(clippy::cast_precision_loss, reason = "counts of a bench")]
pub fn write_requests(path: &Path, table: Table, rows: usize) -> Result<Bodies, Failure> {
    let mut source = Source::new(7);
    let now = Timestamp::from(SystemTime::now());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut bodies, mut bytes) = (Vec::new(), 0);
    for _ in 0..rows / LINES {
        let batch = source.batch(table, LINES)?;
        let mut entities: BTreeMap<String, Vec<Map<String, Value>>> = BTreeMap::new();
        for row in 0..LINES {
            let mut row = row_json(&batch, row);
            let ts: Timestamp = row["ts"].as_str().unwrap_or_default().parse()?;
            let ts = now.micros() - rows as i64 * 1_000_000 / ROWS_PER_SECOND + ts.micros() - START.micros();
            row.insert("ts".to_owned(), (ts.min(now.micros()) * 1_000).into());
            let entity = row["entity_name"].as_str().unwrap_or_default().to_owned();
            entities.entry(entity).or_default().push(row);
        }
        let request = match table {
            Table::Metrics => metrics(entities).encode_to_vec(),
            _ => logs(entities).encode_to_vec(),
        };
        bodies.push((bytes, request.len()));
        bytes += request.len() as u64;
        out.write_all(&request)?;
    }
    out.into_inner()?.sync_all()?;
    println!(
        "data: {rows} rows of {table}, {:.0} bytes per row as OTLP",
        bytes as f64 / rows as f64
    );
    Ok(bodies)
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
