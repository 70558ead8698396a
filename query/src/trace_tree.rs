//! One trace as a tree of its spans.
//!
//! Spans come from several Racks and may be lost: a span whose parent is not there is a root, and of spans that name each
//! other as parents (a circle no correct tracer makes) the earliest is taken as the root.
//!
//! The spans are a list of rows like any other, so an index says where they are; of more than one answer holds, the earliest are
//! shown. Their logs are looked for around the time of the spans.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::error::DataFusionError;
use model::filter::{LogFilter, MAX_LIMIT, SortOrder};
use model::{Table, Timestamp, TraceId};

use crate::Error;
use crate::cell_cut::cut_cells;
use crate::filter::{self, PageBounds};
use crate::keyset_pagination;
use crate::query_result::ListAnswer;
use crate::query_scan::QueryScan;
use crate::row_rendering::RowRendering;
use crate::scan::times_of;
use crate::time_range::TimeRange;

/// Log records of a trace in one answer, at most.
const MOST_LOGS: usize = 1_000;
/// How far the clocks of who logs and who traces may be apart.
const SKEW: Duration = Duration::from_secs(3_600);

/// The spans that `scan` finds in tree order, each with its depth, and beside them the logs of their trace; with longer cells than
/// these cut.
pub(crate) async fn tree(mut scan: QueryScan, id: TraceId, cells: Option<usize>) -> Result<ListAnswer, Error> {
    let most = MAX_LIMIT as usize;
    scan.order = SortOrder::Asc;
    let paging = PageBounds { limit: most, offset: 0 };
    let spans = keyset_pagination::list(&scan, paging, None, 0, RowRendering::default()).await?;
    // Until they are there in their order.
    let memory = scan.memory("spans");
    memory.try_grow(spans.rows().get_array_memory_size())?;
    let times = times_of(spans.rows());
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err(not_found(&scan, id.to_string()));
    };
    let logs = logs(&scan, id, around(*first, *last)).await?;
    memory.try_grow(logs.rows().get_array_memory_size())?;
    let (order, depths): (Vec<_>, Vec<_>) = in_tree_order(&links(spans.rows())?).into_iter().unzip();
    let about = serde_json::json!({
        "trace_id": id, "spans": order.len(), "truncated": spans.next_cursor.is_some(),
        "logs": logs.rows().num_rows(), "logs_truncated": logs.next_cursor.is_some(),
    });
    let stats = scan.stats(order.len()).add_cost(logs.stats.clone());
    let latest_last = UInt64Array::from_iter_values((0..logs.rows().num_rows() as u64).rev());
    let spans = spans.take(&UInt64Array::from(order))?;
    let spans = spans.with_column("depth", Arc::new(Int64Array::from(depths)))?;
    let logs = cut_cells(logs.take(&latest_last)?, cells, &memory).await?;
    let spans = cut_cells(spans, cells, &memory).await?;
    let mut spans = spans.about("trace", about).with_beside("logs", logs);
    (spans.next_cursor, spans.stats) = (None, stats);
    spans.reserve_memory(&scan.session())
}

/// That no span of a trace is stored.
pub(crate) fn not_found(scan: &QueryScan, id: String) -> Error {
    let place = "in the store: its spans have not arrived, were not sampled, or are past their retention";
    scan.not_found("trace", id, place.to_owned())
}

/// The time from the first to the last span and a little on both sides.
fn around(first: i64, last: i64) -> TimeRange {
    TimeRange {
        since: Timestamp::from_micros(first).minus(SKEW),
        until: Timestamp::from_micros(last).plus(SKEW),
    }
}

/// The newest logs of the trace.
async fn logs(scan: &QueryScan, id: TraceId, window: TimeRange) -> Result<ListAnswer, Error> {
    let filter = LogFilter {
        trace_id: Some(id),
        ..LogFilter::default()
    };
    let logs = scan.scan_table(Table::Logs, window, filter::logs(&filter))?;
    let paging = PageBounds {
        limit: MOST_LOGS,
        offset: 0,
    };
    keyset_pagination::list(&logs, paging, None, 0, RowRendering::default()).await
}

/// A span's place among others: its time, its id and its parent's.
type SpanParent<'a> = (i64, Option<&'a str>, Option<&'a str>);

/// The places of spans.
fn links(spans: &RecordBatch) -> Result<Vec<SpanParent<'_>>, Error> {
    let (ids, parents) = (texts(spans, "span_id")?, texts(spans, "parent_span_id")?);
    let ids = ids.iter().zip(parents);
    Ok(times_of(spans)
        .iter()
        .zip(ids)
        .map(|(ts, (id, parent))| (*ts, id, parent))
        .collect())
}

fn texts<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray, Error> {
    let column = rows.column_by_name(name).and_then(|column| column.as_string_opt());
    column.ok_or_else(|| DataFusionError::Internal(format!("{name} is not a text")).into())
}

/// The numbers of spans, a span directly before its children, siblings by their times and ids; with their depths.
fn in_tree_order(spans: &[SpanParent<'_>]) -> Vec<(u64, i64)> {
    let mut by_time: Vec<usize> = (0..spans.len()).collect();
    by_time.sort_by_key(|index| spans.get(*index).map(|(ts, id, _)| (*ts, *id)));
    let known: HashSet<&str> = spans.iter().filter_map(|(_, id, _)| *id).collect();
    let mut children: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for index in &by_time {
        match spans[*index].2.filter(|parent| known.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(*index),
            None => roots.push(*index),
        }
    }
    let mut order = Vec::with_capacity(spans.len());
    let mut placed = vec![false; spans.len()];
    // After the roots, every span: only those of a circle are still unplaced then.
    for start in roots.into_iter().chain(by_time) {
        let mut waiting = vec![(start, 0)];
        while let Some((index, depth)) = waiting.pop() {
            if std::mem::replace(&mut placed[index], true) {
                continue;
            }
            order.push((index as u64, depth));
            let below = spans[index].1.and_then(|id| children.get(id));
            waiting.extend(below.into_iter().flatten().rev().map(|child| (*child, depth + 1)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn order(spans: &[(&str, Option<&str>)]) -> Vec<(String, u64)> {
        let links = (0..).zip(spans).map(|(ts, (id, parent))| (ts, Some(*id), *parent));
        let rows = in_tree_order(&links.collect::<Vec<_>>()).into_iter();
        rows.map(|(index, depth)| {
            let (id, _) = spans[usize::try_from(index).unwrap()];
            (id.to_owned(), u64::try_from(depth).unwrap())
        })
        .collect()
    }

    fn places(places: &[(&str, u64)]) -> Vec<(String, u64)> {
        places.iter().map(|(id, depth)| ((*id).to_owned(), *depth)).collect()
    }

    #[test]
    fn spans_come_before_their_children_and_orphans_are_roots() {
        let spans = [
            ("a", None),
            ("lost", Some("gone")),
            ("b", Some("a")),
            ("c", Some("a")),
            ("d", Some("b")),
        ];
        let expected = [("a", 0), ("b", 1), ("d", 2), ("c", 1), ("lost", 0)];
        assert_eq!(order(&spans), places(&expected));
    }

    #[test]
    fn a_circle_a_span_that_is_its_own_parent_and_a_repeated_id_lose_no_span() {
        let circle = [("a", Some("b")), ("b", Some("a")), ("self", Some("self"))];
        assert_eq!(order(&circle), places(&[("a", 0), ("b", 1), ("self", 0)]));
        let repeated = [("a", None), ("a", None), ("b", Some("a"))];
        assert_eq!(order(&repeated).len(), 3);
    }

    #[test]
    fn a_chain_of_ten_thousand_spans_does_not_exhaust_the_stack() {
        let ids: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let chain = ids.iter().enumerate();
        let spans: Vec<_> = chain
            .map(|(n, id)| (id.as_str(), n.checked_sub(1).map(|n| ids[n].as_str())))
            .collect();
        assert_eq!(order(&spans).last().unwrap().1, 9_999);
    }
}
