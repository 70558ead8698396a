//! OTLP's metrics into rows of `metrics`: a row for each point, and of a summary one for each quantile, its count and its sum.
//!
//! | kind | `type` | `value` | labels beside the point's own |
//! |---|---|---|---|
//! | gauge | gauge | the value | |
//! | sum, monotonic | counter | the value | `otel.temporality` if it is delta |
//! | sum, other | gauge | the value | `otel.monotonic` false, `otel.temporality` if it is delta |
//! | histogram | histogram | the sum | `otel.count`, `.min`, `.max`, `.bounds`, `.buckets` |
//! | exponential histogram | histogram | the sum | `otel.count`, `.min`, `.max`, `.scale`, `.zero_count`, `.zero_threshold`, `.positive.offset`, `.positive.counts`, `.negative.…` |
//! | summary | gauge; counter | a quantile; `_count` and `_sum` | `quantile`; `otel.summary` true |
//!
//! # Invariants
//!
//! - A point that says that there is no value is passed over, and so is one of which it is NaN. An infinite one is refused.
//! - A histogram of which the sum is not finite is stored as one without a sum.

use std::ops::Range;

use model::MetricType;
use model::telemetry_codec::{AttributeBuffer, FoundRecord, PointFields, RecordBatchBuilder, RecordFormat};

use super::any_value::{key_value, set_attribute};
use super::context::{ScopeContext, nanos_text, set_count, time};
use super::distribution::{ExponentialBuckets, HistogramBuckets};
use super::exemplars::ExemplarList;
use super::metric_walker::{MOST_SHARED, MetricData, MetricWalker, QUANTILES, summary_rows, unread_text};
use crate::protobuf::FieldReader;
use crate::sender::SenderSettings;

/// The flag of a point without a value.
const NO_VALUE: u32 = 1;
const DELTA: i32 = 1;
/// Of the rows of a summary: its count, its sum, then its quantiles ([`QUANTILES`]).
const COUNT: u32 = 0;
const SUM: u32 = 1;
/// The part of what cannot be read.
const UNREAD_PART: u32 = u32::MAX;

/// The points of a request.
#[derive(Debug)]
pub(super) struct MetricPoints {
    walker: MetricWalker,
    context: ScopeContext,
    /// The present summary, and how many of its rows were found.
    summary: Option<(Range<usize>, u32, u32)>,
    exemplars: ExemplarList,
    name: String,
}

/// What points of every kind say.
#[derive(Debug, Default)]
struct PointHead {
    start: u64,
    at: u64,
    flags: u32,
    value: Option<f64>,
}

impl MetricPoints {
    pub(super) fn new(walker: MetricWalker, settings: SenderSettings) -> Self {
        Self {
            walker,
            context: ScopeContext::new(settings),
            summary: None,
            exemplars: ExemplarList::default(),
            name: String::new(),
        }
    }

    /// The metric's name, with what is behind it.
    fn set_name(&mut self, body: &[u8], suffix: &str) -> Result<(), String> {
        let shared = self.walker.head.bytes;
        if shared > MOST_SHARED {
            return Err(format!(
                "the metric's name, unit and metadata have {shared} bytes, more than {MOST_SHARED}"
            ));
        }
        let name = body.get(self.walker.head.name.clone()).unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| "the metric's name is not UTF-8".to_owned())?;
        if name.is_empty() {
            return Err("the metric has no name".to_owned());
        }
        self.name.clear();
        self.name.push_str(name);
        self.name.push_str(suffix);
        Ok(())
    }

    /// The labels that all points of a metric have.
    fn metric_labels(&mut self, body: &[u8]) -> Result<(), String> {
        let (head, labels) = (&self.walker.head, &mut self.context.attributes);
        let unit = body.get(head.unit.clone()).unwrap_or_default();
        if !unit.is_empty() {
            let unit = std::str::from_utf8(unit).map_err(|_| "the metric's unit is not UTF-8".to_owned())?;
            labels.set("", "otel.unit", unit);
        }
        if head.temporality == DELTA {
            labels.set("", "otel.temporality", "delta");
        }
        if head.data == MetricData::Sum && !head.monotonic {
            labels.set("", "otel.monotonic", &false);
        }
        for range in &head.metadata {
            let field = crate::protobuf::MessageField {
                number: 12,
                value: crate::protobuf::WireValue::Bytes(range.clone()),
            };
            let (key, value) = key_value(body, &field)?;
            set_attribute(labels, body, ("otel.metadata.", key), &value, range.len())?;
        }
        Ok(())
    }

    /// A gauge's or sum's point.
    fn number(&mut self, body: &[u8], range: &Range<usize>) -> Result<PointHead, String> {
        let (labels, size) = (&mut self.context.attributes, range.len());
        let (mut reader, mut point) = (FieldReader::new(body, range.clone()), PointHead::default());
        while let Some(field) = reader.next()? {
            labels.check(size)?;
            match field.number {
                2 => point.start = field.fixed64()?,
                3 => point.at = field.fixed64()?,
                4 => point.value = Some(field.double()?),
                5 => self.exemplars.add(body, field.range()?)?,
                6 => point.value = Some(whole(labels, field.fixed64()?.cast_signed())),
                7 => {
                    let (key, value) = key_value(body, &field)?;
                    set_attribute(labels, body, ("", key), &value, size)?;
                }
                8 => point.flags = small(field.varint()?),
                _ => {}
            }
        }
        Ok(point)
    }

    fn histogram(&mut self, body: &[u8], range: &Range<usize>) -> Result<PointHead, String> {
        let (labels, size) = (&mut self.context.attributes, range.len());
        let (mut reader, mut point) = (FieldReader::new(body, range.clone()), PointHead::default());
        let mut buckets = HistogramBuckets::default();
        while let Some(field) = reader.next()? {
            labels.check(size)?;
            match field.number {
                2 => point.start = field.fixed64()?,
                3 => point.at = field.fixed64()?,
                4 => set_count(labels, "otel.count", field.fixed64()?),
                5 => point.value = Some(field.double()?),
                6 => field.repeat_fixed64(body, &mut buckets.counts)?,
                7 => field.repeat_fixed64(body, &mut buckets.bounds)?,
                8 => self.exemplars.add(body, field.range()?)?,
                9 => {
                    let (key, value) = key_value(body, &field)?;
                    set_attribute(labels, body, ("", key), &value, size)?;
                }
                10 => point.flags = small(field.varint()?),
                11 => set_number(labels, "otel.min", field.double()?),
                12 => set_number(labels, "otel.max", field.double()?),
                _ => {}
            }
        }
        buckets.set_labels(labels)?;
        Ok(with_sum(point, labels))
    }

    fn exponential(&mut self, body: &[u8], range: &Range<usize>) -> Result<PointHead, String> {
        let (labels, size) = (&mut self.context.attributes, range.len());
        let (mut reader, mut point) = (FieldReader::new(body, range.clone()), PointHead::default());
        let mut scale = 0;
        while let Some(field) = reader.next()? {
            labels.check(size)?;
            match field.number {
                1 => {
                    let (key, value) = key_value(body, &field)?;
                    set_attribute(labels, body, ("", key), &value, size)?;
                }
                2 => point.start = field.fixed64()?,
                3 => point.at = field.fixed64()?,
                4 => set_count(labels, "otel.count", field.fixed64()?),
                5 => point.value = Some(field.double()?),
                6 => scale = field.zigzag()?,
                7 => set_count(labels, "otel.zero_count", field.fixed64()?),
                8 => ExponentialBuckets::read(body, field.range()?)?.set_labels(labels, "otel.positive"),
                9 => ExponentialBuckets::read(body, field.range()?)?.set_labels(labels, "otel.negative"),
                10 => point.flags = small(field.varint()?),
                11 => self.exemplars.add(body, field.range()?)?,
                12 => set_number(labels, "otel.min", field.double()?),
                13 => set_number(labels, "otel.max", field.double()?),
                14 if field.double()? != 0.0 => set_number(labels, "otel.zero_threshold", field.double()?),
                _ => {}
            }
        }
        labels.set("", "otel.scale", &scale);
        Ok(with_sum(point, labels))
    }

    /// The row of a summary with a number.
    fn summary(&mut self, body: &[u8], range: &Range<usize>, part: u32) -> Result<PointHead, String> {
        let (labels, size) = (&mut self.context.attributes, range.len());
        let (mut reader, mut point) = (FieldReader::new(body, range.clone()), PointHead::default());
        let mut quantile = QUANTILES;
        labels.set("", "otel.summary", &true);
        while let Some(field) = reader.next()? {
            labels.check(size)?;
            match field.number {
                2 => point.start = field.fixed64()?,
                3 => point.at = field.fixed64()?,
                4 if part == COUNT => point.value = Some(whole(labels, field.fixed64()?.cast_signed())),
                5 if part == SUM => point.value = Some(field.double()?),
                6 => {
                    if quantile == part {
                        point.value = quantile_value(labels, body, field.range()?)?;
                    }
                    quantile += 1;
                }
                7 => {
                    let (key, value) = key_value(body, &field)?;
                    set_attribute(labels, body, ("", key), &value, size)?;
                }
                8 => point.flags = small(field.varint()?),
                _ => {}
            }
        }
        if part < QUANTILES {
            point.value = point.value.or(Some(0.0));
        }
        Ok(point)
    }
}

impl RecordFormat for MetricPoints {
    fn find(&mut self, body: &[u8]) -> Option<FoundRecord> {
        if let Some((range, next, end)) = &mut self.summary {
            if *next < *end {
                let (range, part) = (range.clone(), *next);
                *next += 1;
                return Some(FoundRecord { range, part });
            }
            self.summary = None;
        }
        let range = self.walker.next(body).ok().flatten()?;
        if let Some(text) = unread_text(body, &range) {
            let metric = &self.walker.head.metric;
            return Some(FoundRecord {
                range: if text.is_empty() { metric.clone() } else { range },
                part: UNREAD_PART,
            });
        }
        if self.walker.head.data == MetricData::Summary {
            self.summary = Some((range.clone(), 1, summary_rows(body, &range)));
        }
        Some(FoundRecord { range, part: 0 })
    }

    fn push(&mut self, body: &[u8], record: &FoundRecord, rows: &mut RecordBatchBuilder) -> Result<bool, String> {
        self.context.start_row(body, &self.walker.scopes)?;
        self.exemplars.clear();
        let range = &record.range;
        let data = self.walker.head.data;
        let suffix = match (data, record.part) {
            (MetricData::Summary, COUNT) => "_count",
            (MetricData::Summary, SUM) => "_sum",
            _ => "",
        };
        self.set_name(body, suffix)?;
        if record.part == UNREAD_PART {
            return Err(unread(&self.name));
        }
        self.metric_labels(body)?;
        let point = match data {
            MetricData::Gauge | MetricData::Sum => self.number(body, range)?,
            MetricData::Histogram => self.histogram(body, range)?,
            MetricData::Exponential => self.exponential(body, range)?,
            MetricData::Summary => self.summary(body, range, record.part)?,
        };
        if point.flags & NO_VALUE != 0 || point.value.is_some_and(f64::is_nan) {
            return Ok(false);
        }
        let labels = &mut self.context.attributes;
        if point.start > 0 {
            labels.set("", "otel.start_time", nanos_text(point.start).as_str());
        }
        self.exemplars.set_label(labels);
        let row = PointFields {
            ts: time(point.at).unwrap_or(self.context.settings.now),
            name: &self.name,
            entity: &self.context.entity,
            metric_type: match data {
                MetricData::Histogram | MetricData::Exponential => MetricType::Histogram,
                MetricData::Sum if self.walker.head.monotonic => MetricType::Counter,
                MetricData::Summary if record.part < QUANTILES => MetricType::Counter,
                _ => MetricType::Gauge,
            },
            value: point.value.ok_or("the point has no value that is a number")?,
        };
        rows.push_point(row, labels)?;
        Ok(true)
    }
}

/// Why what cannot be read is refused.
fn unread(metric: &str) -> String {
    let metric: String = metric.chars().take(80).collect();
    format!(
        "data of the metric {metric:?} cannot be read: it stands under gauge, sum, histogram, exponentialHistogram or summary, with \
         names and types of fields as OTLP's JSON has them, enumerations as numbers"
    )
}

/// A distribution that has no sum that is a number says so.
fn with_sum(mut point: PointHead, labels: &mut AttributeBuffer) -> PointHead {
    if point.value.is_none_or(|sum| !sum.is_finite()) {
        labels.set("", "otel.no_sum", &true);
        point.value = Some(0.0);
    }
    point
}

/// A whole number as the column has it; one that it cannot hold exactly is a label, too.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what is lost is kept"
)]
fn whole(labels: &mut AttributeBuffer, value: i64) -> f64 {
    if (value as f64) as i64 != value || value == i64::MAX {
        labels.set("", "otel.int", &value);
    }
    value as f64
}

fn set_number(labels: &mut AttributeBuffer, key: &str, value: f64) {
    if value.is_finite() {
        labels.set("", key, &value);
    }
}

fn small(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

fn quantile_value(labels: &mut AttributeBuffer, body: &[u8], range: Range<usize>) -> Result<Option<f64>, String> {
    let (mut reader, mut quantile, mut value) = (FieldReader::new(body, range), 0.0, 0.0);
    while let Some(field) = reader.next()? {
        match field.number {
            1 => quantile = field.double()?,
            2 => value = field.double()?,
            _ => {}
        }
    }
    labels.set("", "quantile", quantile.to_string().as_str());
    Ok(Some(value))
}
