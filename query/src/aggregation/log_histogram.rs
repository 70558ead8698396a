//! Histogram of log records: counts bucket by bucket. Buckets are aligned to the epoch and come newest first.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{ident, lit};
use model::filter::{HistogramFilter, HistogramGrouping, LogFilter, MAX_LIMIT};
use model::{HumanDuration, Timestamp};
use serde_json::{Map, Value};

use super::gap_fill::{BucketMap, fill_gaps};
use super::rollup_query::rollup_query;
use crate::Error;
use crate::aggregation::metric_aggregation::{column, width_of};
use crate::query_result::LogHistogram;
use crate::query_scan::QueryScan;
use crate::scalar_functions::{bucket, bucket_start, texts};
use crate::scan::RollupQuery;
use crate::time_range::TimeRange;
use crate::view_table::RowOrder;

/// More buckets and groups than this are refused: the answer has no pages.
const MOST: usize = MAX_LIMIT as usize;
/// How many buckets a window has at most where no width is given.
const SOME: i64 = 60;
/// The widths, in seconds, that are taken where none is given.
const WIDTHS: [i64; 16] = [
    1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000, 31_536_000,
];

/// What is counted.
#[derive(Debug, Clone)]
pub(crate) struct HistogramQuery {
    width: i64,
    by: HistogramGrouping,
    /// The times whose buckets are all given.
    fill: Option<(i64, i64)>,
    /// The same to counts of segments, if they can answer it.
    question: Option<RollupQuery>,
}

impl HistogramQuery {
    pub(crate) fn new(
        filter: &LogFilter,
        shape: &HistogramFilter,
        window: TimeRange,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let times = window.known(now);
        let width = match shape.interval {
            Some(interval) => width_of(interval)?,
            None => fair_width(&times),
        };
        let by = shape.by.unwrap_or_default();
        Ok(Self {
            width,
            by,
            question: rollup_query(filter, window, (by, Some(width)), MOST),
            fill: (shape.fill == Some(true)).then_some((times.start, times.end)),
        })
    }

    const fn column(&self) -> Option<&'static str> {
        match self.by {
            HistogramGrouping::None => None,
            HistogramGrouping::Level => Some("level"),
            HistogramGrouping::EntityName => Some("entity_name"),
        }
    }
}

/// The least of the usual widths that makes few buckets of a stretch of time.
fn fair_width(times: &Range<i64>) -> i64 {
    let least = times.end.saturating_sub(times.start).max(0) / SOME;
    let usual = WIDTHS.iter().map(|seconds| seconds * 1_000_000);
    usual.into_iter().find(|width| *width >= least).unwrap_or(least)
}

pub(crate) async fn log_histogram(scan: QueryScan, plan: HistogramQuery) -> Result<LogHistogram, Error> {
    let mut counts = BucketMap::new();
    let counted = match &plan.question {
        Some(question) => scan.count_from_rollup(question).await?,
        None => None,
    };
    let rows = match counted {
        Some((counted, rows)) => {
            for (level, entity, buckets) in counted.groups() {
                // One of them at the most tells rows apart.
                let group = level + &entity;
                counts.extend(
                    buckets
                        .into_iter()
                        .map(|(start, count)| ((Reverse(start), group.clone()), count)),
                );
            }
            rows
        }
        None => Some(scan.frame(scan.window, RowOrder::Any)?),
    };
    if let Some(rows) = rows {
        count_rows(rows, &plan, &mut counts).await?;
    }
    if counts.len() > MOST {
        return Err(Error::TooManyGroups(MOST));
    }
    if let Some((start, end)) = plan.fill {
        if plan.by == HistogramGrouping::None && start < end {
            let first = Reverse(bucket_start(start, plan.width));
            counts.entry((first, String::new())).or_default();
        }
        fill_gaps(&mut counts, start..end, plan.width, MOST)?;
    }
    let rows = counts
        .into_iter()
        .map(|((start, group), count)| row(&plan, start.0, group, count));
    let width = Duration::from_micros(u64::try_from(plan.width).unwrap_or(1));
    Ok(LogHistogram {
        interval: HumanDuration::from(width),
        page: scan.last_page(rows.collect()),
    })
}

/// Adds rows to their buckets, up to one bucket and group more than may come out.
async fn count_rows(rows: DataFrame, plan: &HistogramQuery, counts: &mut BucketMap<String, i64>) -> Result<(), Error> {
    let group = plan.column().map_or_else(|| lit(""), ident);
    let columns = vec![bucket(ident("ts"), plan.width).alias("bucket"), group.alias("grp")];
    let frame = rows.select(columns)?;
    let keys = ["bucket", "grp"].map(ident).to_vec();
    let frame = frame.aggregate(keys, vec![count(lit(1)).alias("count")])?;
    for batch in frame.limit(0, Some(MOST + 1))?.collect().await? {
        let number = |name| Ok::<_, Error>(column(&batch, name)?.as_primitive::<Int64Type>().values());
        let groups = texts(column(&batch, "grp")?)?;
        for ((start, count), group) in number("bucket")?.iter().zip(number("count")?).zip(groups) {
            let key = (Reverse(*start), group.unwrap_or_default().to_owned());
            *counts.entry(key).or_default() += *count;
        }
    }
    Ok(())
}

fn row(plan: &HistogramQuery, bucket: i64, group: String, count: i64) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("ts".to_owned(), Timestamp::from_micros(bucket).to_string().into());
    if let Some(column) = plan.column() {
        row.insert(column.to_owned(), group.into());
    }
    row.insert("count".to_owned(), count.into());
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_few_buckets_of_a_usual_width_where_none_is_given() {
        let hours = |hours: i64| fair_width(&(0..hours * 3_600_000_000)) / 1_000_000;
        assert_eq!((hours(0), hours(1), hours(24), hours(48)), (1, 60, 1_800, 3_600));
        assert!(fair_width(&(i64::MIN..i64::MAX)) > 31_536_000_000_000);
    }
}
