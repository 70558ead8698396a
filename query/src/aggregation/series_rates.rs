//! Aggregates that need the points of a series in order: rates, and increases of histograms.
//!
//! A series is a metric's name, type, entity and labels (without those that belong to one point). The plan
//! sorts by series and time, spilling if it must; this walks the sorted rows once.
//!
//! # Rates
//!
//! Two neighbouring points of a series tell an increase and a time. Both count for the bucket of the later point, and a
//! series' rate in a bucket is the sum of its increases over the sum of its times; a group's rate is the sum of its series'
//! rates. So a bucket that is only partly covered, like the current one, shows the same rate as a whole one. A value below
//! the one before it is a restart: the increase is the value itself. Points with the label `otel.temporality` = `delta` are
//! increases themselves. The first point in the window has no neighbour and tells nothing; a group of such points has no rate.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMicrosecondType};
use datafusion::logical_expr::{ident, lit};
use futures::StreamExt as _;
use model::MetricType;
use serde_json::Value;

use crate::Error;
use crate::aggregation::metric_aggregation::{GroupKey, GroupKeyColumns, MAX_GROUPS, MetricAggregation, column};
use crate::query_scan::QueryScan;
use crate::scalar_functions::{field_text, series_key, texts};
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;

/// What is asked of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesFunction {
    /// The rate, of points of any type.
    Rate,
    /// The rate of counters and what histograms observed.
    Cumulative,
    /// What histograms observed.
    Observed,
}

/// What the series of a group come to.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupRates {
    pub(crate) rate: Option<f64>,
    pub(crate) observed: BucketHistogram,
}

/// What histograms observed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BucketHistogram {
    pub(crate) count: f64,
    pub(crate) sum: f64,
    bounds: Vec<f64>,
    buckets: Vec<f64>,
    mixed: bool,
}

pub(crate) async fn changes(
    scan: &QueryScan,
    summary: &MetricAggregation,
    window: TimeRange,
    change: SeriesFunction,
) -> Result<BTreeMap<GroupKey, GroupRates>, Error> {
    let mut frame = scan.frame(window, RowOrder::Any)?;
    let kinds: &[MetricType] = match change {
        SeriesFunction::Cumulative => &[MetricType::Counter, MetricType::Histogram],
        SeriesFunction::Observed => &[MetricType::Histogram],
        SeriesFunction::Rate => MetricType::ALL,
    };
    if kinds != MetricType::ALL {
        let kinds = kinds.iter().map(|kind| lit(kind.as_str()));
        frame = frame.filter(ident("type").in_list(kinds.collect(), false))?;
    }
    let mut columns = summary.key_columns(scan.window);
    columns.extend(["entity_id", "ts", "value", "labels"].map(ident));
    columns.push(series_key(ident("labels")).alias("series"));
    // The last two make the order total, so that every answer to a query is the same.
    let order = ["name", "type", "entity_id", "series", "ts", "value", "labels"];
    let order = order.map(|name| ident(name).sort(true, false)).to_vec();
    let frame = frame.select(columns)?.sort(order)?;
    let mut walk = RateAggregator::default();
    let mut rows = frame.execute_stream().await?;
    while let Some(batch) = rows.next().await {
        walk.batch(&batch?)?;
    }
    walk.end_of_series();
    Ok(walk.groups)
}

/// A point of a series.
#[derive(Debug, Clone)]
struct SeriesPoint {
    ts: i64,
    value: f64,
    histogram: BucketHistogram,
}

/// The series that is being walked, and its shares of the bucket that is being filled.
struct SeriesAccumulator {
    entity: Vec<u8>,
    labels: String,
    before: SeriesPoint,
    key: GroupKey,
    /// Its share of the group that its last point is of.
    share: SeriesIncrease,
    /// Its shares of other groups of the bucket: an entity may have two names in turn.
    others: BTreeMap<GroupKey, SeriesIncrease>,
}

/// What a series has grown by, and in which time.
#[derive(Default)]
struct SeriesIncrease {
    increase: f64,
    seconds: f64,
}

#[derive(Default)]
struct RateAggregator {
    groups: BTreeMap<GroupKey, GroupRates>,
    series: Option<SeriesAccumulator>,
}

impl RateAggregator {
    fn batch(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let keys = GroupKeyColumns::of(batch)?;
        let times = column(batch, "ts")?.as_primitive::<TimestampMicrosecondType>();
        let values = column(batch, "value")?.as_primitive::<Float64Type>();
        let entities = column(batch, "entity_id")?.as_fixed_size_binary();
        let words = |name| Ok::<_, Error>(texts(column(batch, name)?)?.collect::<Vec<_>>());
        let (names, all_labels) = (words("series")?, words("labels")?);
        for row in 0..batch.num_rows() {
            let (ts, value, key) = (times.value(row), values.value(row), keys.get(row));
            let labels = all_labels[row].unwrap_or_default();
            let histogram = if key.series.kind == MetricType::Histogram.as_str() {
                BucketHistogram::of(value, labels)
            } else {
                BucketHistogram::default()
            };
            let point = SeriesPoint { ts, value, histogram };
            let delta = field_text(labels, "otel.temporality").as_deref() == Some("delta");
            self.point(key, entities.value(row), names[row].unwrap_or_default(), point, delta);
            let others = self.series.as_ref().map_or(0, |series| series.others.len());
            if self.groups.len().max(others) > MAX_GROUPS {
                return Err(Error::TooManyGroups(MAX_GROUPS));
            }
        }
        Ok(())
    }

    fn point(&mut self, key: GroupKey, entity: &[u8], labels: &str, point: SeriesPoint, delta: bool) {
        let same = |series: &SeriesAccumulator| {
            let (before, now) = (&series.key.series, &key.series);
            series.labels == labels && series.entity == entity && before.name == now.name && before.kind == now.kind
        };
        if !self.series.as_ref().is_some_and(same) {
            self.end_of_series();
            self.series = Some(SeriesAccumulator {
                entity: entity.to_vec(),
                labels: labels.to_owned(),
                before: point,
                key,
                share: SeriesIncrease::default(),
                others: BTreeMap::new(),
            });
            return;
        }
        let Some(series) = &mut self.series else { return };
        if series.key != key {
            let is_over = series.key.bucket != key.bucket;
            let left = std::mem::replace(&mut series.key, key);
            series.others.insert(left, std::mem::take(&mut series.share));
            if is_over {
                flush(&mut self.groups, std::mem::take(&mut series.others));
            }
            series.share = series.others.remove(&series.key).unwrap_or_default();
        }
        #[allow(clippy::cast_precision_loss, reason = "a time between points, in microseconds")]
        let seconds = point.ts.saturating_sub(series.before.ts) as f64 / 1e6;
        series.share.seconds += seconds;
        series.share.increase += increase(&series.key.series.kind, series.before.value, point.value, delta);
        if series.key.series.kind == MetricType::Histogram.as_str() {
            let grown = if delta {
                point.histogram.clone()
            } else {
                point.histogram.increase_since(&series.before.histogram)
            };
            self.groups.entry(series.key.clone()).or_default().observed.add(&grown);
        }
        series.before = point;
    }

    fn end_of_series(&mut self) {
        if let Some(mut series) = self.series.take() {
            series.others.insert(series.key, series.share);
            flush(&mut self.groups, series.others);
        }
    }
}

/// Adds a series' shares of a bucket to its groups.
fn flush(groups: &mut BTreeMap<GroupKey, GroupRates>, shares: BTreeMap<GroupKey, SeriesIncrease>) {
    for (key, share) in shares.into_iter().filter(|(_, share)| share.seconds > 0.0) {
        let rate = &mut groups.entry(key).or_default().rate;
        *rate = Some(rate.unwrap_or(0.0) + share.increase / share.seconds);
    }
}

fn increase(kind: &str, before: f64, value: f64, delta: bool) -> f64 {
    let falls = kind == MetricType::Gauge.as_str();
    if delta || (!falls && value < before) {
        value
    } else {
        value - before
    }
}

impl BucketHistogram {
    /// A histogram's point: its sum and its labels.
    fn of(sum: f64, labels: &str) -> Self {
        let field = |key| field_text(labels, key).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let numbers = |key| match field(key) {
            Some(Value::Array(numbers)) => numbers.iter().filter_map(Value::as_f64).collect(),
            _ => Vec::new(),
        };
        Self {
            count: field("otel.count").and_then(|count| count.as_f64()).unwrap_or(0.0),
            sum,
            bounds: numbers("otel.bounds"),
            buckets: numbers("otel.buckets"),
            mixed: false,
        }
    }

    /// What came since `before`; after a restart, all of it.
    fn increase_since(&self, before: &Self) -> Self {
        if self.count < before.count || self.bounds != before.bounds || self.buckets.len() != before.buckets.len() {
            return self.clone();
        }
        let buckets = self.buckets.iter().zip(&before.buckets);
        Self {
            count: self.count - before.count,
            sum: self.sum - before.sum,
            buckets: buckets.map(|(now, before)| (now - before).max(0.0)).collect(),
            ..self.clone()
        }
    }

    fn add(&mut self, more: &Self) {
        self.count += more.count;
        self.sum += more.sum;
        if self.buckets.is_empty() {
            self.bounds.clone_from(&more.bounds);
            self.buckets.clone_from(&more.buckets);
        } else if self.bounds == more.bounds && self.buckets.len() == more.buckets.len() {
            self.buckets
                .iter_mut()
                .zip(&more.buckets)
                .for_each(|(sum, more)| *sum += more);
        } else {
            self.mixed = true;
        }
    }

    /// The value below which `share` of the observations lie, straight between a bucket's bounds. Nothing if there are no
    /// observations or no common bounds.
    pub(crate) fn percentile(&self, share: f64) -> Option<f64> {
        let total: f64 = self.buckets.iter().sum();
        if self.mixed || total <= 0.0 || self.buckets.len() != self.bounds.len() + 1 {
            return None;
        }
        let rank = share * total;
        let mut below = 0.0;
        for (index, within) in self.buckets.iter().enumerate() {
            if *within > 0.0 && below + within >= rank {
                let Some(upper) = self.bounds.get(index) else { break };
                let lower = match index.checked_sub(1) {
                    Some(before) => self.bounds[before],
                    None => upper.min(0.0),
                };
                return Some(lower + (upper - lower) * (rank - below) / within);
            }
            below += within;
        }
        self.bounds.last().copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests of exact small numbers")]
    use super::*;

    #[test]
    fn a_counter_that_falls_has_restarted_and_a_gauge_has_fallen() {
        assert_eq!(increase("counter", 10.0, 15.0, false), 5.0);
        assert_eq!(increase("counter", 10.0, 3.0, false), 3.0);
        assert_eq!(increase("gauge", 10.0, 3.0, false), -7.0);
        assert_eq!(increase("counter", 10.0, 3.0, true), 3.0);
    }

    #[test]
    fn percentiles_lie_between_the_bounds_of_their_bucket() {
        let labels = r#"{"otel.count":10,"otel.bounds":[10,20],"otel.buckets":[5,4,1]}"#;
        let observed = BucketHistogram::of(100.0, labels);
        assert_eq!(observed.count, 10.0);
        assert_eq!(observed.percentile(0.5), Some(10.0));
        assert_eq!(observed.percentile(0.7), Some(15.0));
        assert_eq!(observed.percentile(0.99), Some(20.0));
        assert_eq!(BucketHistogram::default().percentile(0.5), None);
    }

    #[test]
    fn what_a_histogram_observed_is_the_difference_of_its_points_or_all_after_a_restart() {
        let point = |count: f64, sum: f64, buckets: &[f64]| BucketHistogram {
            count,
            sum,
            bounds: vec![1.0],
            buckets: buckets.to_vec(),
            mixed: false,
        };
        let (early, late) = (point(3.0, 4.0, &[2.0, 1.0]), point(5.0, 9.0, &[3.0, 2.0]));
        assert_eq!(late.increase_since(&early), point(2.0, 5.0, &[1.0, 1.0]));
        assert_eq!(early.increase_since(&late), early);
    }
}
