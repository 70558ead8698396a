//! One trace as a tree of its spans.
//!
//! Spans come from several Racks and may be lost: a span whose parent is not there is a root, and of spans that name each
//! other as parents (a circle no correct tracer makes) the earliest is taken as the root.
//!
//! The spans are a list of rows like any other, so an index says where they are; of more than one answer holds, the earliest are
//! shown. Their logs are looked for around the time of the spans.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use model::filter::{LogFilter, MAX_LIMIT, SortOrder};
use model::{Table, Timestamp, TraceId};
use serde_json::{Map, Value};

use crate::Error;
use crate::answer::{Page, TraceTree};
use crate::exec::Scan;
use crate::filter::{self, Paging};
use crate::rows;
use crate::window::Window;

/// Log records of a trace in one answer, at most.
const MOST_LOGS: usize = 1_000;
/// How far the clocks of who logs and who traces may be apart.
const SKEW: Duration = Duration::from_secs(3_600);

/// The spans that `scan` finds, and the logs of their trace.
pub(crate) async fn tree(mut scan: Scan, id: TraceId) -> Result<TraceTree, Error> {
    let most = MAX_LIMIT as usize;
    scan.order = SortOrder::Asc;
    let paging = Paging { limit: most, offset: 0 };
    let Page {
        rows: mut spans,
        next_cursor: more,
        ..
    } = rows::page(&scan, paging, None, 0).await?;
    // Spans of one time come by their ids.
    for spans in spans.chunk_by_mut(|a, b| text(a, "ts") == text(b, "ts")) {
        spans.sort_by(|a, b| text(a, "span_id").cmp(&text(b, "span_id")));
    }
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
        let place = "in the store: its spans have not arrived, were not sampled, or are past their retention";
        return Err(scan.not_found("trace", id.to_string(), place.to_owned()));
    };
    let logs = logs(&scan, id, around(first, last)).await?;
    let rows = in_tree_order(spans);
    Ok(TraceTree {
        trace_id: id,
        stats: scan.stats(rows.len()).and(logs.stats),
        rows,
        truncated: more.is_some(),
        logs: logs.rows.into_iter().rev().collect(),
        logs_truncated: logs.next_cursor.is_some(),
    })
}

/// The time from the first to the last span and a little on both sides.
fn around(first: &Map<String, Value>, last: &Map<String, Value>) -> Window {
    let moment = |span| text(span, "ts").and_then(|ts| ts.parse::<Timestamp>().ok());
    Window {
        since: moment(first).map_or(Window::ALL.since, |ts| ts.minus(SKEW)),
        until: moment(last).map_or(Window::ALL.until, |ts| ts.plus(SKEW)),
    }
}

/// The newest logs of the trace.
async fn logs(scan: &Scan, id: TraceId, window: Window) -> Result<Page, Error> {
    let filter = LogFilter {
        trace_id: Some(id),
        ..LogFilter::default()
    };
    let logs = scan.beside(Table::Logs, window, filter::logs(&filter));
    let paging = Paging {
        limit: MOST_LOGS,
        offset: 0,
    };
    rows::page(&logs, paging, None, 0).await
}

fn text<'a>(span: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    span.get(key).and_then(Value::as_str)
}

/// A span directly before its children, siblings as they come; adds `depth`.
fn in_tree_order(spans: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let known: HashSet<&str> = spans.iter().filter_map(|span| text(span, "span_id")).collect();
    let mut children: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        match text(span, "parent_span_id").filter(|parent| known.contains(parent)) {
            Some(parent) => children.entry(parent).or_default().push(index),
            None => roots.push(index),
        }
    }
    let mut order: Vec<(usize, usize)> = Vec::with_capacity(spans.len());
    let mut placed = vec![false; spans.len()];
    // After the roots, every span: only those of a circle are still unplaced then.
    for start in roots.into_iter().chain(0..spans.len()) {
        let mut waiting = vec![(start, 0)];
        while let Some((index, depth)) = waiting.pop() {
            if std::mem::replace(&mut placed[index], true) {
                continue;
            }
            order.push((index, depth));
            let below = text(&spans[index], "span_id").and_then(|id| children.get(id));
            waiting.extend(below.into_iter().flatten().rev().map(|child| (*child, depth + 1)));
        }
    }
    let mut spans: Vec<_> = spans.into_iter().map(Some).collect();
    let take = |(index, depth): (usize, usize)| {
        let mut span = spans[index].take()?;
        span.insert("depth".to_owned(), depth.into());
        Some(span)
    };
    order.into_iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn span(id: &str, parent: Option<&str>) -> Map<String, Value> {
        let mut span = Map::new();
        span.insert("span_id".to_owned(), id.into());
        span.insert("parent_span_id".to_owned(), parent.map_or(Value::Null, Value::from));
        span
    }

    fn order(spans: &[(&str, Option<&str>)]) -> Vec<(String, u64)> {
        let spans = spans.iter().map(|(id, parent)| span(id, *parent)).collect();
        let rows = in_tree_order(spans);
        let place =
            |row: &Map<String, Value>| (text(row, "span_id").unwrap().to_owned(), row["depth"].as_u64().unwrap());
        rows.iter().map(place).collect()
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
        let spans = chain
            .map(|(n, id)| span(id, n.checked_sub(1).map(|n| ids[n].as_str())))
            .collect();
        assert_eq!(in_tree_order(spans).last().unwrap()["depth"], 9_999);
    }
}
