//! How groups of metric points are shown beside a row each: with the buckets that lack points, and as one row for a series.
//!
//! A row of a series has its columns, `ts`, the start of its first bucket, `interval`, and from there on without a gap `values` and
//! `samples`. Without `fill` it goes from the first bucket with points to the last one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use model::HumanDuration;
use serde_json::{Map, Value};

use super::fill::{Buckets, fill};
use super::tally::{Cell, Groups, Totals};
use crate::Error;
use crate::filter::Paging;
use crate::metrics::{Key, MAX_GROUPS, Summary, number, value};
use crate::series::Changes;

/// A row of an answer.
type Row = Map<String, Value>;

/// Adds the buckets without points.
pub(crate) fn filled(groups: &mut Groups, times: Range<i64>, width: i64) -> Result<(), Error> {
    let cells = std::mem::take(&mut groups.cells).into_iter();
    let mut buckets: Buckets<usize, Totals> = cells
        .map(|cell| ((Reverse(cell.bucket), cell.series), cell.totals))
        .collect();
    fill(&mut buckets, times, width, MAX_GROUPS)?;
    let cells = buckets.into_iter().map(|((bucket, series), totals)| Cell {
        bucket: bucket.0,
        series,
        totals,
    });
    groups.cells = cells.collect();
    Ok(())
}

/// A row for each series after the one that was given last, and the key of the last if there are more.
pub(crate) fn lines(
    summary: &Summary,
    groups: &mut Groups,
    changes: &BTreeMap<Key, Changes>,
    width: i64,
    paging: Paging,
    after: Option<&Key>,
) -> Result<(Vec<Row>, Option<Key>), Error> {
    groups.cells.sort_unstable_by_key(|cell| (cell.series, cell.bucket));
    let begin = after
        .map_or(0, |key| groups.next_series(key))
        .saturating_add(paging.offset);
    let end = begin.saturating_add(paging.limit);
    let (mut rows, mut slots, mut last) = (Vec::new(), 0, None);
    for cells in groups.cells.chunk_by(|a, b| a.series == b.series) {
        let (Some(first), Some(final_cell)) = (cells.first(), cells.last()) else {
            continue;
        };
        if !(begin..end).contains(&first.series) {
            continue;
        }
        let index = |bucket: i64| (i128::from(bucket) - i128::from(first.bucket)) / i128::from(width);
        slots += index(final_cell.bucket) + 1;
        if slots > MAX_GROUPS as i128 {
            return Err(Error::TooManyGroups(MAX_GROUPS));
        }
        let count = usize::try_from(index(final_cell.bucket)).unwrap_or(0) + 1;
        let mut key = groups.key(first);
        let mut row = summary.columns(&key);
        let mut values = vec![number(value(summary, &key.kind, &Totals::default(), None)); count];
        let mut samples = vec![Value::from(0); count];
        for cell in cells {
            key.bucket = cell.bucket;
            let at = usize::try_from(index(cell.bucket)).unwrap_or(0);
            if let (Some(shown), Some(points)) = (values.get_mut(at), samples.get_mut(at)) {
                *shown = number(value(summary, &key.kind, &cell.totals, changes.get(&key)));
                *points = cell.totals.samples.into();
            }
        }
        let interval = HumanDuration::from(Duration::from_micros(width.unsigned_abs()));
        row.insert("interval".to_owned(), interval.to_string().into());
        row.insert("values".to_owned(), values.into());
        row.insert("samples".to_owned(), samples.into());
        rows.push(row);
        last = Some(key);
    }
    Ok((rows, last.filter(|_| end < groups.series.len())))
}
