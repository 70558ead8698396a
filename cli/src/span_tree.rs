//! The spans of one trace as a tree of parents and children.
//!
//! # Invariants
//!
//! - Every span appears exactly once, whatever is stored: one whose parent is not there is a root, and so is one of a circle.
//! - Nothing here recurses: a long chain must not exhaust the stack.

use std::collections::HashMap;

use model::Timestamp;
use serde_json::Value;

use crate::client::Row;

/// A span's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanPosition {
    /// Its position in the list of spans.
    pub(crate) at: usize,
    /// How many spans are above it.
    pub(crate) depth: usize,
}

/// The spans of an answer, flat, earliest first.
pub(crate) fn collect(answer: &Value) -> Vec<Row> {
    let data = answer.get("data").unwrap_or(answer);
    let list = data.as_array().or_else(|| data.get("spans").and_then(Value::as_array));
    let mut spans: Vec<Row> = list
        .into_iter()
        .flatten()
        .filter_map(|span| span.as_object().cloned())
        .collect();
    spans.sort_by(|a, b| text(a, "ts").cmp(text(b, "ts")));
    spans
}

/// A text of a row; empty if there is none.
pub(crate) fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A span's duration in milliseconds; zero if it has none that makes sense.
pub(crate) fn duration_ms(span: &Row) -> f64 {
    let ms = span.get("duration_ms").and_then(Value::as_f64).unwrap_or(0.0);
    if ms.is_finite() { ms.max(0.0) } else { 0.0 }
}

/// When a span started.
pub(crate) fn start(span: &Row) -> Option<Timestamp> {
    text(span, "ts").parse().ok()
}

/// Depth first, children in the order of the list.
pub(crate) fn tree_order(spans: &[Row]) -> Vec<SpanPosition> {
    let known: HashMap<&str, usize> = spans
        .iter()
        .enumerate()
        .map(|(at, span)| (text(span, "span_id"), at))
        .collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        match known.get(text(span, "parent_span_id")) {
            Some(parent) if *parent != at => children.entry(*parent).or_default().push(at),
            _ => roots.push(at),
        }
    }
    let mut places = Vec::with_capacity(spans.len());
    let mut seen = vec![false; spans.len()];
    // After the roots and all below them, what is left are circles: each is entered at its earliest span.
    for root in roots.into_iter().chain(0..spans.len()) {
        let mut open = vec![SpanPosition { at: root, depth: 0 }];
        while let Some(place) = open.pop() {
            if std::mem::replace(&mut seen[place.at], true) {
                continue;
            }
            places.push(place);
            let below = children.get(&place.at).into_iter().flatten().rev();
            open.extend(below.map(|at| SpanPosition {
                at: *at,
                depth: place.depth + 1,
            }));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spans(parents: &[(usize, Option<usize>)]) -> Vec<Row> {
        let span = |(id, parent): &(usize, Option<usize>)| {
            let parent = parent.map(|parent| parent.to_string());
            json!({ "span_id": id.to_string(), "parent_span_id": parent })
                .as_object()
                .cloned()
        };
        parents.iter().filter_map(span).collect()
    }

    fn shape(parents: &[(usize, Option<usize>)]) -> Vec<(usize, usize)> {
        tree_order(&spans(parents))
            .iter()
            .map(|place| (place.at, place.depth))
            .collect()
    }

    #[test]
    fn children_come_below_their_parents_and_lost_ones_are_roots() {
        let tree = [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(1)), (5, Some(99))];
        assert_eq!(shape(&tree), [(0, 0), (1, 1), (2, 2), (3, 1), (4, 0)]);
    }

    #[test]
    fn a_circle_is_entered_at_its_earliest_span() {
        assert_eq!(
            shape(&[(1, Some(3)), (2, Some(1)), (3, Some(2)), (4, Some(4))]),
            [(3, 0), (0, 0), (1, 1), (2, 2)]
        );
    }

    proptest! {
        #[test]
        fn every_span_appears_once(parents in prop::collection::vec((0usize..20, prop::option::of(0usize..20)), 0..40)) {
            let mut seen: Vec<usize> = shape(&parents).into_iter().map(|(at, _)| at).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..parents.len()).collect::<Vec<_>>());
        }
    }
}
