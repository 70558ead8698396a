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
//! the one before it, or an `otel.start_time` after the point before it, is a restart: the increase is the value itself. Points with the label
//! `otel.temporality` = `delta` are increases themselves.
//!
//! The first point in the window has no neighbour. One of a counter or a histogram that began to count in the window
//! (`otel.start_time`) has grown from nothing since then; others tell nothing, but for what a histogram of increases observed. A
//! group of such points has no rate.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMicrosecondType};
use datafusion::logical_expr::{ident, lit};
use futures::StreamExt as _;
use model::{MetricType, Timestamp};

use crate::Error;
use crate::aggregation::metric_aggregation::{GroupKey, GroupKeyColumns, MAX_GROUPS, MetricAggregation, column};
use crate::bucket_histogram::BucketHistogram;
use crate::point_labels::PointLabels;
use crate::query_scan::QueryScan;
use crate::scalar_functions::{series_key, texts};
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
    let mut walk = RateAggregator {
        since: window.since.micros(),
        ..RateAggregator::default()
    };
    let memory = scan.memory("histograms");
    let mut rows = frame.execute_stream().await?;
    while let Some(batch) = rows.next().await {
        walk.batch(&batch?)?;
        memory.try_resize(walk.bytes)?;
    }
    walk.end_of_series();
    Ok(walk.groups)
}

/// A point of a series.
#[derive(Debug, Clone, Default)]
struct SeriesPoint {
    ts: i64,
    value: f64,
    /// Whether it is an increase itself.
    is_delta: bool,
    /// Since when it counts, if it says so.
    start: Option<i64>,
    histogram: BucketHistogram,
}

impl SeriesPoint {
    fn of(kind: &str, (ts, value): (i64, f64), labels: &str) -> Self {
        let labels = PointLabels::of(labels);
        let is_histogram = kind == MetricType::Histogram.as_str();
        Self {
            ts,
            value,
            is_delta: labels.is_delta(),
            start: labels.start().map(Timestamp::micros),
            histogram: if is_histogram {
                BucketHistogram::of(value, &labels)
            } else {
                BucketHistogram::default()
            },
        }
    }

    /// The point of nothing that it has grown from, if it began to count from `since` on.
    fn origin(&self, kind: &str, since: i64) -> Option<Self> {
        let began = |start: &i64| (since..self.ts).contains(start);
        let start = self.start.filter(began)?;
        (kind != MetricType::Gauge.as_str()).then(|| Self {
            ts: start,
            start: Some(start),
            ..Self::default()
        })
    }

    /// Whether it counts anew since another point; the values aside.
    ///
    /// Writers compute when they began and come to a slightly different time with each point: what began anew began after the last.
    fn began_anew(&self, before: &Self) -> bool {
        matches!((self.start, before.start), (Some(now), Some(then)) if now > then && now >= before.ts)
    }

    fn increase_since(&self, before: &Self, kind: &str) -> f64 {
        let falls = kind == MetricType::Gauge.as_str();
        let restarted = !falls && (self.value < before.value || self.began_anew(before));
        if self.is_delta || restarted {
            self.value
        } else {
            self.value - before.value
        }
    }

    fn observed_since(&self, before: &Self) -> BucketHistogram {
        if self.is_delta || self.began_anew(before) {
            return self.histogram.clone();
        }
        self.histogram.increase_since(&before.histogram)
    }
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
    /// When the window begins.
    since: i64,
    groups: BTreeMap<GroupKey, GroupRates>,
    /// Of the groups' histograms.
    bytes: usize,
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
            let point = SeriesPoint::of(&key.series.kind, (ts, value), labels);
            self.point(key, entities.value(row), names[row].unwrap_or_default(), point);
            let others = self.series.as_ref().map_or(0, |series| series.others.len());
            if self.groups.len().max(others) > MAX_GROUPS {
                return Err(Error::TooManyGroups(MAX_GROUPS));
            }
        }
        Ok(())
    }

    fn point(&mut self, key: GroupKey, entity: &[u8], labels: &str, point: SeriesPoint) {
        let same = |series: &SeriesAccumulator| {
            let (before, now) = (&series.key.series, &key.series);
            series.labels == labels && series.entity == entity && before.name == now.name && before.kind == now.kind
        };
        if !self.series.as_ref().is_some_and(same) {
            self.end_of_series();
            let origin = point.origin(&key.series.kind, self.since);
            let is_known = origin.is_some();
            if !is_known && point.is_delta {
                self.observe(&key, &point.histogram);
            }
            self.series = Some(SeriesAccumulator {
                entity: entity.to_vec(),
                labels: labels.to_owned(),
                before: origin.unwrap_or_else(|| point.clone()),
                key: key.clone(),
                share: SeriesIncrease::default(),
                others: BTreeMap::new(),
            });
            if !is_known {
                return;
            }
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
        let kind = series.key.series.kind.as_str();
        series.share.increase += point.increase_since(&series.before, kind);
        let is_histogram = kind == MetricType::Histogram.as_str();
        let observed = is_histogram.then(|| (series.key.clone(), point.observed_since(&series.before)));
        series.before = point;
        if let Some((key, observed)) = observed {
            self.observe(&key, &observed);
        }
    }

    /// Adds to what a group observed.
    fn observe(&mut self, key: &GroupKey, more: &BucketHistogram) {
        let observed = &mut self.groups.entry(key.clone()).or_default().observed;
        let before = observed.bytes();
        observed.add(more);
        self.bytes = (self.bytes + observed.bytes()).saturating_sub(before);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "tests of exact small numbers")]
    use super::*;

    #[test]
    fn a_counter_that_falls_or_begins_anew_has_restarted_and_a_gauge_has_fallen() {
        let point = |value: f64, labels: &str| SeriesPoint::of("counter", (0, value), labels);
        let since = |before: f64, value: f64| point(value, "{}").increase_since(&point(before, "{}"), "counter");
        assert_eq!(since(10.0, 15.0), 5.0);
        assert_eq!(since(10.0, 3.0), 3.0);
        assert_eq!(point(3.0, "{}").increase_since(&point(10.0, "{}"), "gauge"), -7.0);
        let delta = point(13.0, r#"{"otel.temporality":"delta"}"#);
        assert_eq!(delta.increase_since(&point(10.0, "{}"), "counter"), 13.0);
        let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap_or_default();
        let at = |second: i64, labels: &str, value: f64| {
            SeriesPoint::of("counter", (start.micros() + second * 1_000_000, value), labels)
        };
        let label = |second: i64| format!(r#"{{"otel.start_time":"2026-11-21T10:00:0{second}.000000000Z"}}"#);
        // Each was measured two seconds after it began.
        let began = |second: i64, value: f64| at(second + 2, &label(second), value);
        assert_eq!(began(1, 15.0).increase_since(&began(1, 10.0), "counter"), 5.0);
        assert_eq!(began(3, 15.0).increase_since(&began(1, 10.0), "counter"), 15.0);
        assert_eq!(began(4, 15.0).increase_since(&began(1, 10.0), "counter"), 15.0);
        assert_eq!(began(3, 15.0).increase_since(&point(10.0, "{}"), "counter"), 5.0);
        assert_eq!(began(3, 15.0).increase_since(&began(1, 10.0), "gauge"), 5.0);
        // Began before the last point: its writer's clock wavers.
        assert_eq!(began(2, 15.0).increase_since(&began(1, 10.0), "counter"), 5.0);
        assert_eq!(began(1, 15.0).increase_since(&began(2, 10.0), "counter"), 5.0);
    }

    #[test]
    fn a_point_has_grown_from_nothing_if_it_began_in_the_window_and_before_itself() {
        let start: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap_or_default();
        let at = |seconds: i64| start.micros() + seconds * 1_000_000;
        let point = SeriesPoint::of("counter", (at(5), 7.0), &format!(r#"{{"otel.start_time":"{start}"}}"#));
        let origin = |kind: &str, since: i64| point.origin(kind, since).map(|origin| (origin.ts, origin.value));
        assert_eq!(origin("counter", at(0)), Some((at(0), 0.0)));
        assert_eq!(origin("counter", at(1)), None);
        assert_eq!(origin("gauge", at(0)), None);
        let unknown = SeriesPoint { ts: at(0), ..point };
        assert!(unknown.origin("counter", at(0)).is_none());
    }
}
