//! Points of metrics: one value a record.

use model::MetricType;
use model::telemetry_codec::{PointFields, RecordBatchBuilder};
use serde_json::{Map, Value};

use super::{RowContext, hoist};
use crate::record_shape::{set_object, take, take_time, text_of};

const NAMES: [&str; 5] = ["name", "metric", "metric_name", "metricName", "__name__"];
/// Where the value is, and what that says of it.
const VALUES: [(&str, MetricType); 4] = [
    ("value", MetricType::Gauge),
    ("val", MetricType::Gauge),
    ("gauge.value", MetricType::Gauge),
    ("counter.value", MetricType::Counter),
];
const TYPES: [&str; 4] = ["type", "metric_type", "metricType", "kind"];
/// Objects of labels.
const LABELS: [&str; 4] = ["labels", "tags", "dimensions", "attributes"];

pub(super) fn push_point(
    mut fields: Map<String, Value>,
    context: &mut RowContext<'_>,
    rows: &mut RecordBatchBuilder,
) -> Result<(), String> {
    let ts = take_time(&mut fields)?.unwrap_or(context.now);
    let name = take(&mut fields, &NAMES, text_of).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("the name of the metric is missing: it may be {}", NAMES.join(", ")))?;
    let value = VALUES
        .iter()
        .find_map(|(path, kind)| Some((take(&mut fields, &[*path], number_of)?, *kind)));
    let (value, kind) = value.ok_or("there is no number under value, gauge.value or counter.value")?;
    let metric_type = take(&mut fields, &TYPES, type_of).unwrap_or(kind);
    if let Some(unit) = take(&mut fields, &["unit"], text_of) {
        context.attributes.set("", "otel.unit", unit.as_str());
    }
    hoist(&mut fields, &LABELS);
    set_object(context.attributes, &mut String::new(), &fields, context.size)?;
    let row = PointFields {
        ts,
        name: &name,
        entity: &context.entity,
        metric_type,
        value,
    };
    rows.push_point(row, context.attributes)
}

/// A number, or a text that is one.
pub(super) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn type_of(value: &Value) -> Option<MetricType> {
    match value.as_str()?.to_ascii_lowercase().as_str() {
        "sum" | "count" => Some(MetricType::Counter),
        word => word.parse().ok(),
    }
}
