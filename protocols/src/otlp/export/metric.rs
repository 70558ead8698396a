//! Rows of `metrics` into metrics with their points.
//!
//! | row | metric |
//! |---|---|
//! | counter | monotonic sum |
//! | gauge with `otel.monotonic` false | sum |
//! | histogram with `otel.scale` | exponential histogram |
//! | histogram with `otel.count`, `otel.buckets` or `otel.no_sum` | histogram: one that counted nothing has no count |
//! | any other, those of a summary too | gauge; those of a counter's type a sum |

use std::collections::HashMap;

use arrow_array::RecordBatch;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberValue;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, Sum, exemplar,
};
use serde_json::Value;

use super::row_attributes::{OwnAttributes, RowAttributes, id_bytes, nanos, nested_attributes};
use super::{EntityColumns, OtlpError, RecordGroups, RowColumns, nanos_of};

const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// Metrics by resource and scope; in a scope, points of one metric are together.
#[derive(Debug, Default)]
pub(super) struct MetricGroups {
    groups: RecordGroups<Metric>,
    /// Where a metric is: of a resource and scope, by what it says of itself.
    metrics: HashMap<(usize, usize, MetricKey), usize>,
}

/// What makes two points those of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MetricKey {
    name: String,
    unit: String,
    kind: PointKind,
    temporality: i32,
    /// As text.
    metadata: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PointKind {
    Gauge,
    Sum { is_monotonic: bool },
    Histogram,
    Exponential,
}

/// What points of every kind have.
struct PointHead {
    start: u64,
    at: u64,
    value: f64,
}

impl MetricGroups {
    /// Adds the rows of a batch.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<(), OtlpError> {
        let columns = RowColumns(batch);
        let entities = EntityColumns::of(&columns)?;
        let (times, values) = (columns.times()?, columns.doubles("value")?);
        let (names, types) = (columns.texts("name")?, columns.texts("type")?);
        let labels = columns.texts("labels")?;
        for row in 0..batch.num_rows() {
            let mut found = RowAttributes::read(labels.value(row));
            let mut own = std::mem::take(&mut found.own);
            let place = self.groups.place(entities.at(row), found);
            let kind = point_kind(&mut own, types.value(row));
            let temporality = match kind {
                PointKind::Gauge => 0,
                _ => temporality(&mut own),
            };
            let metadata = own.below("otel.metadata.");
            let key = MetricKey {
                name: names.value(row).to_owned(),
                unit: own.text("otel.unit").unwrap_or_default(),
                kind,
                temporality,
                metadata: metadata_text(&metadata),
            };
            let head = PointHead {
                start: own.nanos("otel.start_time").unwrap_or_default(),
                at: nanos_of(times.value(row)),
                value: values.value(row),
            };
            if let Some(data) = self.metric(place, key, metadata) {
                push_point(data, own, &head);
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> RecordGroups<Metric> {
        self.groups
    }

    /// The metric's points.
    fn metric(&mut self, place: (usize, usize), key: MetricKey, metadata: Vec<KeyValue>) -> Option<&mut Data> {
        let records = self.groups.records(place)?;
        let known = self.metrics.entry((place.0, place.1, key.clone()));
        let at = *known.or_insert(records.len());
        if at == records.len() {
            records.push(Metric {
                data: Some(empty_data(&key)),
                name: key.name,
                unit: key.unit,
                metadata,
                ..Metric::default()
            });
        }
        records.get_mut(at)?.data.as_mut()
    }
}

fn temporality(own: &mut OwnAttributes) -> i32 {
    let delta = own.take("otel.temporality", |text| (text.as_str()? == "delta").then_some(DELTA));
    delta.unwrap_or(CUMULATIVE)
}

fn metadata_text(metadata: &[KeyValue]) -> String {
    if metadata.is_empty() {
        String::new()
    } else {
        format!("{metadata:?}")
    }
}

fn point_kind(own: &mut OwnAttributes, of_type: &str) -> PointKind {
    let has = |own: &OwnAttributes, key: &str| own.0.get(key).is_some_and(Value::is_number);
    match of_type {
        "counter" => PointKind::Sum { is_monotonic: true },
        "histogram" if has(own, "otel.scale") => PointKind::Exponential,
        "histogram"
            if has(own, "otel.count") || own.0.contains_key("otel.buckets") || own.0.contains_key("otel.no_sum") =>
        {
            PointKind::Histogram
        }
        _ => match own.take("otel.monotonic", |is_monotonic| {
            (!is_monotonic.as_bool()?).then_some(())
        }) {
            Some(()) => PointKind::Sum { is_monotonic: false },
            None => PointKind::Gauge,
        },
    }
}

fn empty_data(key: &MetricKey) -> Data {
    match key.kind {
        PointKind::Gauge => Data::Gauge(Gauge::default()),
        PointKind::Sum { is_monotonic } => Data::Sum(Sum {
            aggregation_temporality: key.temporality,
            is_monotonic,
            ..Sum::default()
        }),
        PointKind::Histogram => Data::Histogram(Histogram {
            aggregation_temporality: key.temporality,
            ..Histogram::default()
        }),
        PointKind::Exponential => Data::ExponentialHistogram(ExponentialHistogram {
            aggregation_temporality: key.temporality,
            ..ExponentialHistogram::default()
        }),
    }
}

fn push_point(data: &mut Data, own: OwnAttributes, head: &PointHead) {
    match data {
        Data::Gauge(gauge) => gauge.data_points.push(number(own, head)),
        Data::Sum(sum) => sum.data_points.push(number(own, head)),
        Data::Histogram(histogram) => histogram.data_points.push(buckets(own, head)),
        Data::ExponentialHistogram(histogram) => histogram.data_points.push(exponential(own, head)),
        // A summary is exported as the gauges and counters that it became.
        Data::Summary(_) => {}
    }
}

fn number(mut own: OwnAttributes, head: &PointHead) -> NumberDataPoint {
    let whole = own.take("otel.int", Value::as_i64);
    NumberDataPoint {
        start_time_unix_nano: head.start,
        time_unix_nano: head.at,
        value: Some(whole.map_or(NumberValue::AsDouble(head.value), NumberValue::AsInt)),
        exemplars: own.list("otel.exemplars", exemplar),
        attributes: own.rest(None),
        flags: 0,
    }
}

/// The sum, unless there was none.
fn sum(own: &mut OwnAttributes, head: &PointHead) -> Option<f64> {
    (own.is_set("otel.no_sum") != Some(true)).then_some(head.value)
}

fn buckets(mut own: OwnAttributes, head: &PointHead) -> HistogramDataPoint {
    let (mut bucket_counts, mut explicit_bounds) = (Vec::new(), Vec::new());
    let lengths = |own: &OwnAttributes, key: &str| own.0.get(key)?.as_array().map(Vec::len);
    let fit = lengths(&own, "otel.buckets").zip(lengths(&own, "otel.bounds"));
    if fit.is_some_and(|(counts, bounds)| counts == bounds + 1) {
        bucket_counts = own.list("otel.buckets", Value::as_u64);
        explicit_bounds = own.list("otel.bounds", Value::as_f64);
    }
    HistogramDataPoint {
        start_time_unix_nano: head.start,
        time_unix_nano: head.at,
        count: own.count("otel.count").unwrap_or_default(),
        sum: sum(&mut own, head),
        bucket_counts,
        explicit_bounds,
        min: own.double("otel.min"),
        max: own.double("otel.max"),
        exemplars: own.list("otel.exemplars", exemplar),
        attributes: own.rest(None),
        flags: 0,
    }
}

fn exponential(mut own: OwnAttributes, head: &PointHead) -> ExponentialHistogramDataPoint {
    ExponentialHistogramDataPoint {
        start_time_unix_nano: head.start,
        time_unix_nano: head.at,
        count: own.count("otel.count").unwrap_or_default(),
        sum: sum(&mut own, head),
        scale: own.number("otel.scale").unwrap_or_default(),
        zero_count: own.count("otel.zero_count").unwrap_or_default(),
        zero_threshold: own.double("otel.zero_threshold").unwrap_or_default(),
        positive: exponential_buckets(&mut own, "otel.positive"),
        negative: exponential_buckets(&mut own, "otel.negative"),
        min: own.double("otel.min"),
        max: own.double("otel.max"),
        exemplars: own.list("otel.exemplars", exemplar),
        attributes: own.rest(None),
        flags: 0,
    }
}

fn exponential_buckets(own: &mut OwnAttributes, half: &str) -> Option<Buckets> {
    let bucket_counts = own.list(&format!("{half}.counts"), Value::as_u64);
    let offset = own.number(&format!("{half}.offset"));
    (!bucket_counts.is_empty()).then(|| Buckets {
        offset: offset.unwrap_or_default(),
        bucket_counts,
    })
}

fn exemplar(of: &Value) -> Option<Exemplar> {
    let value = match of.get("value")? {
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => exemplar::Value::AsInt(whole),
            None => exemplar::Value::AsDouble(number.as_f64()?),
        }),
        // One that is not finite.
        Value::Null => None,
        _ => return None,
    };
    let id = |key: &str, length| of.get(key).and_then(|id| id_bytes(id.as_str()?, length));
    Some(Exemplar {
        filtered_attributes: nested_attributes(of),
        time_unix_nano: nanos(of.get("time")?.as_str()?)?,
        span_id: id("span_id", 8).unwrap_or_default(),
        trace_id: id("trace_id", 16).unwrap_or_default(),
        value,
    })
}
