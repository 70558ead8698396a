//! Output columns of groups of metric points: a row for each bucket, empty ones included, or one for a series.
//!
//! Which columns there are depends on the question alone, so that pages have the same ones.
//!
//! A row of a series has its columns, `ts`, the start of its first bucket, `interval`, and from there on without a gap `values` and
//! `samples`. Without `fill` it goes from the first bucket with points to the last one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{Float64Builder, Int64Builder, ListBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema};
use model::{HumanDuration, MetricType, Table};
use serde_json::json;

use super::bucket_aggregator::{MetricGroups, PointTotals, SeriesBucket};
use super::gap_fill::{BucketMap, fill_gaps};
use crate::Error;
use crate::aggregation::metric_aggregation::{GroupKey, MAX_GROUPS, MetricAggregation, aggregate_value};
use crate::aggregation::series_rates::GroupRates;
use crate::bucket_histogram::BucketHistogram;
use crate::filter::PageBounds;

/// What histograms observed, beside the value; nothing in rows of other types.
pub(crate) const OBSERVED: [&str; 5] = ["count", "sum", "p50", "p90", "p99"];

/// Columns with their fields.
type NamedColumns = Vec<(Field, ArrayRef)>;

fn add(columns: &mut NamedColumns, name: &str, values: ArrayRef) {
    columns.push((Field::new(name, values.data_type().clone(), true), values));
}

fn together(columns: NamedColumns) -> Result<RecordBatch, Error> {
    let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// What names groups. Columns that points have too are theirs.
fn names(summary: &MetricAggregation, keys: &[GroupKey]) -> NamedColumns {
    let times = TimestampMicrosecondArray::from_iter_values(keys.iter().map(|key| key.bucket));
    let texts = |text: fn(&GroupKey) -> &str| Arc::new(StringArray::from_iter_values(keys.iter().map(text)));
    let mut named: Vec<(&str, ArrayRef)> = vec![
        ("ts", Arc::new(times.with_timezone("UTC"))),
        ("name", texts(|key| &key.series.name)),
        ("type", texts(|key| &key.series.kind)),
    ];
    let groups = keys.iter().map(|key| key.series.group.as_deref());
    match (summary.label(), summary.group_column()) {
        (Some(label), _) => {
            let labels = groups.map(|group| json!({ label: group }).to_string());
            named.push(("labels", Arc::new(StringArray::from_iter_values(labels))));
        }
        (None, Some(Some(column))) => named.push((column, Arc::new(StringArray::from_iter(groups)))),
        (None, _) => {}
    }
    let points = Table::Metrics.schema();
    let field = |name: &str, kind: &DataType| match points.field_with_name(name) {
        Ok(field) if field.data_type() == kind => field.clone(),
        // An id of a group is text.
        _ => Field::new(name, kind.clone(), true),
    };
    let columns = named.into_iter();
    columns
        .map(|(name, values)| (field(name, values.data_type()).with_nullable(true), values))
        .collect()
}

/// A row for each group.
pub(crate) fn group_rows(
    summary: &MetricAggregation,
    groups: &MetricGroups,
    shown: &[SeriesBucket],
    changes: &BTreeMap<GroupKey, GroupRates>,
) -> Result<RecordBatch, Error> {
    let keys: Vec<_> = shown.iter().map(|cell| groups.key(cell)).collect();
    let mut columns = names(summary, &keys);
    // Of no aggregate, a row has what histograms observed beside its value.
    if summary.agg.is_none() {
        let observed = keys.iter().map(|key| {
            let is_histogram = key.series.kind == MetricType::Histogram.as_str();
            is_histogram.then(|| {
                changes
                    .get(key)
                    .map(|changes| changes.observed.clone())
                    .unwrap_or_default()
            })
        });
        let observed: Vec<_> = observed.collect();
        for name in OBSERVED {
            let of = |observed: &Option<BucketHistogram>| of_observed(observed.as_ref()?, name);
            add(
                &mut columns,
                name,
                Arc::new(Float64Array::from_iter(observed.iter().map(of))),
            );
        }
    }
    let rows = shown.iter().zip(&keys);
    let values = rows.map(|(cell, key)| aggregate_value(summary, &key.series.kind, &cell.totals, changes.get(key)));
    add(&mut columns, "value", Arc::new(Float64Array::from_iter(values)));
    let samples = shown.iter().map(|cell| cell.totals.samples);
    add(&mut columns, "samples", Arc::new(Int64Array::from_iter_values(samples)));
    together(columns)
}

fn of_observed(observed: &BucketHistogram, name: &str) -> Option<f64> {
    match name {
        "count" => Some(observed.count),
        "sum" => observed.sum(),
        "p50" => observed.quantile(0.5),
        "p90" => observed.quantile(0.9),
        _ => observed.quantile(0.99),
    }
}

/// Adds the buckets without points.
pub(crate) fn fill_groups(groups: &mut MetricGroups, times: Range<i64>, width: i64) -> Result<(), Error> {
    let cells = std::mem::take(&mut groups.cells).into_iter();
    let mut buckets: BucketMap<usize, PointTotals> = cells
        .map(|cell| ((Reverse(cell.bucket), cell.series), cell.totals))
        .collect();
    fill_gaps(&mut buckets, times, width, MAX_GROUPS)?;
    let cells = buckets.into_iter().map(|((bucket, series), totals)| SeriesBucket {
        bucket: bucket.0,
        series,
        totals,
    });
    groups.cells = cells.collect();
    Ok(())
}

/// A row for each series after the one that was given last, and the key of the last if there are more.
pub(crate) fn series_rows(
    summary: &MetricAggregation,
    groups: &mut MetricGroups,
    changes: &BTreeMap<GroupKey, GroupRates>,
    width: i64,
    paging: PageBounds,
    after: Option<&GroupKey>,
) -> Result<(RecordBatch, Option<GroupKey>), Error> {
    groups.cells.sort_unstable_by_key(|cell| (cell.series, cell.bucket));
    let begin = after
        .map_or(0, |key| groups.next_series(key))
        .saturating_add(paging.offset);
    let end = begin.saturating_add(paging.limit);
    let (mut keys, mut total, mut last) = (Vec::new(), 0, None);
    let mut values = ListBuilder::new(Float64Builder::new());
    let mut samples = ListBuilder::new(Int64Builder::new());
    for cells in groups.cells.chunk_by(|a, b| a.series == b.series) {
        let (Some(first), Some(final_cell)) = (cells.first(), cells.last()) else {
            continue;
        };
        if !(begin..end).contains(&first.series) {
            continue;
        }
        let index = |bucket: i64| (i128::from(bucket) - i128::from(first.bucket)) / i128::from(width);
        total += index(final_cell.bucket) + 1;
        if total > MAX_GROUPS as i128 {
            return Err(Error::TooManyGroups(MAX_GROUPS));
        }
        let count = usize::try_from(index(final_cell.bucket)).unwrap_or(0) + 1;
        let mut key = groups.key(first);
        keys.push(key.clone());
        let mut slots = vec![
            (
                aggregate_value(summary, &key.series.kind, &PointTotals::default(), None),
                0
            );
            count
        ];
        for cell in cells {
            key.bucket = cell.bucket;
            let at = usize::try_from(index(cell.bucket)).unwrap_or(0);
            if let Some(slot) = slots.get_mut(at) {
                let shown = aggregate_value(summary, &key.series.kind, &cell.totals, changes.get(&key));
                *slot = (shown, cell.totals.samples);
            }
        }
        for (value, points) in slots {
            values.values().append_option(value);
            samples.values().append_value(points);
        }
        values.append(true);
        samples.append(true);
        last = Some(key);
    }
    let mut columns = names(summary, &keys);
    let interval = HumanDuration::from(Duration::from_micros(width.unsigned_abs())).to_string();
    add(
        &mut columns,
        "interval",
        Arc::new(StringArray::from_iter_values(keys.iter().map(|_| &interval))),
    );
    add(&mut columns, "values", Arc::new(values.finish()));
    add(&mut columns, "samples", Arc::new(samples.finish()));
    Ok((together(columns)?, last.filter(|_| end < groups.series.len())))
}
