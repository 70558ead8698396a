//! Aggregates metric points by time bucket and group.
//!
//! # What a row is
//!
//! A group is a bucket (aligned to the epoch; without `interval` the whole window), a metric's name and type, and the value
//! of `group_by`. Metrics of different names are never mixed. A row has the group's columns (`labels` holds the label it was
//! grouped by), `value`, and `samples`, the number of points.
//!
//! | `agg` | `value` |
//! |---|---|
//! | none, gauge | the average |
//! | none, counter | the per-second rate |
//! | none, histogram | the mean of what was observed; `count`, `sum`, `p50`, `p90`, `p99` beside it, where they are known |
//! | `avg`, `sum`, `min`, `max`, `count` | that of the points' values |
//! | `last` | the value of the latest point |
//! | `rate` | the per-second rate ([`crate::aggregation::series_rates`]) |
//! | `p50` to `p9999` | the quantile 0.50 to 0.9999 of what histograms observed ([`crate::bucket_histogram`]); nothing for other types |
//!
//! With `fill=true` each group has a row for every bucket of the window, up to now where that is open: those without points have
//! 0 `samples`, and no `value` (a `count` of 0).
//!
//! With `shape=series` a row is a group with a list of values, see [`crate::aggregation::group_output`]; those come by name, type and group.
//!
//! Points are summed up by a walk over the series where that can be ([`crate::aggregation::series_walk`]), else by a plan.
//!
//! Rows come newest bucket first, then by name, type and group. A cursor names the last group given, so paging is as stable as
//! the buckets are.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use datafusion::functions_aggregate::expr_fn::{count, last_value, max, min, sum};
use datafusion::logical_expr::{Expr, ident, lit};
use model::filter::{BucketShape, MetricAggregate, MetricFilter};
use model::{HumanDuration, MetricType, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::aggregation::bucket_aggregator::{BucketAggregator, MetricGroups, PointTotals, SeriesIdentity};
use crate::aggregation::group_output::{OBSERVED, fill_groups, group_rows, series_rows};
use crate::aggregation::series_rates::{self, SeriesFunction};
use crate::aggregation::series_walk as walk;
use crate::cursor::PageCursor;
use crate::filter::PageBounds;
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::scalar_functions::{bucket, bucket_start, json_text, texts};
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;

/// More groups than this in one answer, paged or not, are refused.
pub(crate) const MAX_GROUPS: usize = 100_000;

/// How points are brought together.
#[derive(Debug, Clone)]
pub(crate) struct MetricAggregation {
    /// The width of a bucket; without one, the window is one.
    pub(crate) width: Option<i64>,
    by: Option<GroupBy>,
    pub(crate) agg: Option<MetricAggregate>,
    fill: bool,
    /// Whether a row is a series.
    lines: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GroupBy {
    EntityName,
    EntityId,
    /// Name and type are part of every group.
    Own,
    Label(String),
}

impl MetricAggregation {
    /// What a filter asks for; `None` for the points themselves.
    pub(crate) fn of(filter: &MetricFilter) -> Result<Option<Self>, Error> {
        if filter.fill == Some(true) && filter.interval.is_none() {
            return Err(Error::parameter(
                "fill",
                "there are no buckets to fill: give an interval",
            ));
        }
        if filter.shape == Some(BucketShape::Series) && filter.interval.is_none() {
            return Err(Error::parameter(
                "shape",
                "a series is one of buckets: give an interval",
            ));
        }
        if filter.interval.is_none() && filter.group_by.is_none() && filter.agg.is_none() {
            return Ok(None);
        }
        let width = filter.interval.map(width_of);
        let by = filter.group_by.as_deref().map(|by| match by {
            "" => Err(Error::parameter(
                "group_by",
                "give entity_name, entity_id, name, type or a label key",
            )),
            "entity_name" => Ok(GroupBy::EntityName),
            "entity_id" => Ok(GroupBy::EntityId),
            "name" | "type" => Ok(GroupBy::Own),
            label => Ok(GroupBy::Label(label.to_owned())),
        });
        Ok(Some(Self {
            width: width.transpose()?,
            by: by.transpose()?,
            agg: filter.agg,
            fill: filter.fill == Some(true),
            lines: filter.shape == Some(BucketShape::Series),
        }))
    }

    /// The group of a row as columns `bucket` and `grp`, beside `name` and `type`.
    pub(crate) fn key_columns(&self, window: TimeRange) -> Vec<Expr> {
        let start = match self.width {
            Some(width) => bucket(ident("ts"), width),
            None => lit(window.since.micros()),
        };
        let group = match &self.by {
            None | Some(GroupBy::Own) => lit(""),
            Some(GroupBy::EntityName) => ident("entity_name"),
            Some(GroupBy::EntityId) => ident("entity_id"),
            Some(GroupBy::Label(key)) => json_text(ident("labels"), lit(key.as_str())),
        };
        vec![start.alias("bucket"), ident("name"), ident("type"), group.alias("grp")]
    }

    /// The column whose values are groups, if there is one; `None` where groups are no column's values.
    pub(crate) fn group_column(&self) -> Option<Option<&'static str>> {
        match &self.by {
            None | Some(GroupBy::Own) => Some(None),
            Some(GroupBy::EntityName) => Some(Some("entity_name")),
            Some(GroupBy::EntityId) => Some(Some("entity_id")),
            Some(GroupBy::Label(_)) => None,
        }
    }

    /// The label that groups are of, if they are of one.
    pub(crate) fn label(&self) -> Option<&str> {
        match &self.by {
            Some(GroupBy::Label(key)) => Some(key),
            _ => None,
        }
    }
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct GroupKey {
    #[serde(rename = "b")]
    pub(crate) bucket: i64,
    #[serde(flatten)]
    pub(crate) series: SeriesIdentity,
}

/// The width of a bucket in microseconds.
pub(crate) fn width_of(interval: HumanDuration) -> Result<i64, Error> {
    let micros = i64::try_from(interval.get().as_micros()).unwrap_or(i64::MAX);
    if micros > 0 {
        return Ok(micros);
    }
    Err(Error::parameter(
        "interval",
        format!("{interval} is not a bucket width: give at least 1us"),
    ))
}

/// A page of groups, after the group `after` if given.
pub(crate) async fn aggregate_page(
    scan: &QueryScan,
    summary: &MetricAggregation,
    paging: PageBounds,
    after: Option<GroupKey>,
    fingerprint: u64,
    now: Timestamp,
) -> Result<ListAnswer, Error> {
    let window = match (&after, summary.width) {
        // Every page has the groups of the whole window where they are filled, and the whole of its series.
        (Some(key), Some(width)) if !summary.fill && !summary.lines => {
            let end = bucket_start(key.bucket, width).saturating_add(width);
            scan.window.before(Timestamp::from_micros(end))
        }
        _ => scan.window,
    };
    let mut groups = match walk::groups(scan, summary, window).await? {
        Some(groups) => groups,
        None => aggregate_by_plan(scan, summary, window).await?,
    };
    let has = |kind: MetricType| groups.series.iter().any(|series| series.kind == kind.as_str());
    let change = match summary.agg {
        Some(MetricAggregate::Rate) => Some(SeriesFunction::Rate),
        Some(MetricAggregate::Percentile(_)) => Some(SeriesFunction::Observed),
        None if has(MetricType::Counter) || has(MetricType::Histogram) => Some(SeriesFunction::Cumulative),
        _ => None,
    };
    let changes = match change {
        Some(change) => series_rates::changes(scan, summary, window, change).await?,
        None => BTreeMap::new(),
    };
    if let Some(width) = summary.width.filter(|_| summary.fill) {
        fill_groups(&mut groups, scan.window.known(now), width)?;
    }
    let cursor = |key: Option<GroupKey>| key.map(|key| PageCursor::new(fingerprint, scan.window, key).token());
    if let Some(width) = summary.width.filter(|_| summary.lines) {
        let (rows, next) = series_rows(summary, &mut groups, &changes, width, paging, after.as_ref())?;
        return ListAnswer::new(&rows, cursor(next), scan.stats(rows.num_rows()));
    }
    if let Some(after) = &after {
        groups.skip_through(after);
    }
    let more = groups.keep_first(paging.offset.saturating_add(paging.limit));
    let shown = groups.cells.get(paging.offset..).unwrap_or_default();
    let next = shown.last().filter(|_| more).map(|cell| groups.key(cell));
    let rows = group_rows(summary, &groups, shown, &changes)?;
    Ok(ListAnswer::new(&rows, cursor(next), scan.stats(rows.num_rows()))?.with_sparse(OBSERVED.to_vec()))
}

/// What the points of a group come to.
pub(crate) fn aggregate_value(
    summary: &MetricAggregation,
    kind: &str,
    totals: &PointTotals,
    changes: Option<&series_rates::GroupRates>,
) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "counts of points are far below 2^53")]
    let samples = totals.samples as f64;
    let any = |value: f64| (totals.samples > 0).then_some(value);
    let rate = || changes.and_then(|changes| changes.rate);
    let observed = || changes.map(|changes| &changes.observed);
    match summary.agg {
        Some(MetricAggregate::Avg) => any(totals.sum / samples),
        Some(MetricAggregate::Sum) => any(totals.sum),
        Some(MetricAggregate::Min) => any(totals.min),
        Some(MetricAggregate::Max) => any(totals.max),
        Some(MetricAggregate::Count) => Some(samples),
        Some(MetricAggregate::Last) => totals.last.map(|(_, value)| value),
        Some(MetricAggregate::Rate) => rate(),
        Some(MetricAggregate::Percentile(share)) => observed()?.quantile(f64::from(share) / 10_000.0),
        None if kind == MetricType::Counter.as_str() => rate(),
        None if kind == MetricType::Histogram.as_str() => observed()?.mean(),
        None => any(totals.sum / samples),
    }
}

/// What a plan sums up.
pub(crate) async fn aggregate_by_plan(
    scan: &QueryScan,
    summary: &MetricAggregation,
    window: TimeRange,
) -> Result<MetricGroups, Error> {
    let mut columns = summary.key_columns(scan.window);
    columns.extend(["ts", "value"].map(ident));
    let value = || ident("value");
    let frame = scan.frame(window, RowOrder::Any)?.select(columns)?;
    let keys = ["bucket", "name", "type", "grp"].map(ident).to_vec();
    let mut sums = vec![
        count(value()).alias("samples"),
        sum(value()).alias("sum"),
        min(value()).alias("min"),
        max(value()).alias("max"),
    ];
    let is_last = matches!(summary.agg, Some(MetricAggregate::Last));
    if is_last {
        // Of one time the greatest value, as a walk has it.
        let order = ["ts", "value"].map(|name| ident(name).sort(true, false)).to_vec();
        sums.push(last_value(value(), order).alias("last"));
    }
    let frame = frame.aggregate(keys, sums)?.limit(0, Some(MAX_GROUPS + 1))?;
    let mut tally = BucketAggregator::new(MAX_GROUPS);
    for batch in frame.collect().await? {
        let keys = GroupKeyColumns::of(&batch)?;
        let float = |name| Ok::<_, Error>(column(&batch, name)?.as_primitive::<Float64Type>());
        let samples = column(&batch, "samples")?.as_primitive::<Int64Type>();
        let (sums, mins, maxs) = (float("sum")?, float("min")?, float("max")?);
        let lasts = is_last.then(|| float("last")).transpose()?;
        for row in 0..batch.num_rows() {
            let key = keys.get(row);
            let totals = PointTotals {
                samples: samples.value(row),
                sum: sums.value(row),
                min: mins.value(row),
                max: maxs.value(row),
                last: lasts.map(|lasts| (key.bucket, lasts.value(row))),
            };
            let SeriesIdentity { name, kind, group } = &key.series;
            let series = tally.series(name, kind, group.as_deref());
            tally.put(series, key.bucket, totals)?;
        }
    }
    tally.groups()
}

pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a arrow_array::ArrayRef, Error> {
    let missing = || arrow_schema::ArrowError::SchemaError(format!("the plan has no column {name}"));
    Ok(batch.column_by_name(name).ok_or_else(missing)?)
}

/// The groups of a batch's rows.
pub(crate) struct GroupKeyColumns<'a> {
    buckets: &'a [i64],
    names: Vec<Option<&'a str>>,
    kinds: Vec<Option<&'a str>>,
    groups: Vec<Option<String>>,
}

impl<'a> GroupKeyColumns<'a> {
    pub(crate) fn of(batch: &'a RecordBatch) -> Result<Self, Error> {
        let words = |name| Ok::<_, Error>(texts(column(batch, name)?)?.collect::<Vec<_>>());
        let groups = column(batch, "grp")?;
        let groups = match groups.as_fixed_size_binary_opt() {
            Some(ids) => ids
                .iter()
                .map(|id| Some(uuid::Uuid::from_slice(id?).ok()?.to_string()))
                .collect(),
            None => texts(groups)?.map(|text| text.map(str::to_owned)).collect(),
        };
        Ok(Self {
            buckets: column(batch, "bucket")?.as_primitive::<Int64Type>().values(),
            names: words("name")?,
            kinds: words("type")?,
            groups,
        })
    }

    pub(crate) fn get(&self, row: usize) -> GroupKey {
        GroupKey {
            bucket: self.buckets[row],
            series: SeriesIdentity {
                name: self.names[row].unwrap_or_default().to_owned(),
                kind: self.kinds[row].unwrap_or_default().to_owned(),
                group: self.groups[row].clone(),
            },
        }
    }
}
