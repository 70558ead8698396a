//! One trace as a tree of its spans.
//!
//! Spans come from several Racks and may be lost: a span whose parent is not there is a root, and of spans that name each
//! other as parents (a circle no correct tracer makes) the earliest is taken as the root.

use std::collections::{HashMap, HashSet};

use arrow_array::RecordBatch;
use datafusion::logical_expr::ident;
use model::TraceId;
use model::batch::row_json;
use model::filter::MAX_LIMIT;
use serde_json::{Map, Value};

use crate::Error;
use crate::answer::TraceTree;
use crate::exec::Scan;
use crate::table::Order;

pub(crate) async fn tree(scan: &Scan, id: TraceId) -> Result<TraceTree, Error> {
    let most = MAX_LIMIT as usize;
    let frame = scan.frame(scan.window, Order::Any)?;
    let earliest_first = vec![ident("ts").sort(true, false), ident("span_id").sort(true, false)];
    let batches = frame.sort(earliest_first)?.limit(0, Some(most + 1))?.collect().await?;
    let mut spans: Vec<_> = batches.iter().flat_map(rows).collect();
    if spans.is_empty() {
        return Err(Error::NotFound {
            what: "trace",
            id: id.to_string(),
            place: "in the store: its spans have not arrived, were not sampled, or are past their retention".to_owned(),
        });
    }
    let truncated = spans.len() > most;
    spans.truncate(most);
    let rows = in_tree_order(spans);
    Ok(TraceTree {
        trace_id: id,
        stats: scan.stats(rows.len()),
        rows,
        truncated,
    })
}

fn rows(batch: &RecordBatch) -> impl Iterator<Item = Map<String, Value>> {
    (0..batch.num_rows()).map(|row| row_json(batch, row))
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
