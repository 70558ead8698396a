//! Waterfall chart of a trace: a bar for each span, from its start on, as long as it took.
//!
//! ```text
//! order                   ████████████████████████████████████  12.500 ms
//!   check                    ██████▌                             2.000 ms
//!     ✗ stock (press-2)            ████                          1.000 ms  error
//! ```
//!
//! Spans are indented below their parents; an error has a cross and its word, so that it is seen without colours. An entity
//! is named where it differs from that of the span above.
//!
//! # Not here
//!
//! The order of the spans (`spans`), the tree without bars (`commands::traces`).

use std::fmt::Write;

use model::Timestamp;

use crate::chart;
use crate::client::Row;
use crate::control_chars::escape_controls;
use crate::output::TextPainter;
use crate::span_tree::{SpanPosition, duration_ms, start, text, tree_order};
use crate::terminal::{fit, text_width};

/// Deeper spans are not indented more.
const DEEPEST: usize = 12;
/// The share of the width that names may take, in percent.
const NAMES: usize = 45;

/// One line, before it is known how wide its columns are.
struct WaterfallRow {
    label: String,
    /// Microseconds from the trace's start.
    offset: f64,
    micros: f64,
    took: String,
    is_error: bool,
}

/// Draws the spans of one trace in lines of at most so many cells (colours not counted).
pub(crate) fn draw(spans: &[Row], width: usize, paint: TextPainter) -> String {
    let first = spans.iter().filter_map(start).min();
    let mut above: Vec<&str> = Vec::new();
    let lines: Vec<WaterfallRow> = tree_order(spans)
        .iter()
        .map(|place| line(spans, *place, first, &mut above))
        .collect();
    let total = lines.iter().map(|line| line.offset + line.micros).fold(0.0, f64::max);
    let took = lines.iter().map(|line| line.took.len()).max().unwrap_or(0);
    let label = lines.iter().map(|line| text_width(&line.label)).max().unwrap_or(0);
    let outcome = if lines.iter().any(|line| line.is_error) {
        "  error".len()
    } else {
        0
    };
    let beside = took + "    ".len() + outcome;
    let label = label.min(width * NAMES / 100).min(width.saturating_sub(beside + 1));
    let cells = width.saturating_sub(label + beside).max(1);
    let mut drawn = String::new();
    for line in &lines {
        let bar = fit(&bar(line, total, cells), cells);
        let (bar, outcome) = match line.is_error {
            true => (paint.bad(&bar), format!("  {}", paint.bad("error"))),
            false => (bar, String::new()),
        };
        let _ = writeln!(
            drawn,
            "{}  {bar}  {:>took$}{outcome}",
            fit(&line.label, label),
            line.took
        );
    }
    drawn
}

/// `above` holds the entity of each span on the way down to this one.
fn line<'a>(spans: &'a [Row], place: SpanPosition, first: Option<Timestamp>, above: &mut Vec<&'a str>) -> WaterfallRow {
    let span = &spans[place.at];
    let (entity, is_error) = (text(span, "entity_name"), text(span, "status") == "error");
    above.truncate(place.depth);
    let named = if above.last() == Some(&entity) || entity.is_empty() {
        String::new()
    } else {
        format!(" ({})", escape_controls(entity))
    };
    above.push(entity);
    let cross = if is_error { "✗ " } else { "" };
    let indent = "  ".repeat(place.depth.min(DEEPEST));
    let offset = start(span)
        .zip(first)
        .map_or(0, |(start, first)| start.since(first).as_micros());
    let ms = duration_ms(span);
    WaterfallRow {
        label: format!("{indent}{cross}{}{named}", escape_controls(text(span, "span_name"))),
        #[allow(clippy::cast_precision_loss, reason = "a share of a line's cells")]
        offset: offset as f64,
        micros: ms * 1_000.0,
        took: if ms < 1e9 {
            format!("{ms:.3} ms")
        } else {
            format!("{ms:.3e} ms")
        },
        is_error,
    }
}

/// A span's bar with what is left of it; at least an eighth of a cell, and within the line.
fn bar(line: &WaterfallRow, total: f64, cells: usize) -> String {
    let scale = |micros: f64| {
        if total > 0.0 {
            micros / total * chart::cells_of(cells)
        } else {
            0.0
        }
    };
    let left = chart::count(scale(line.offset).floor()).min(cells - 1);
    let room = chart::cells_of(cells - left);
    format!(
        "{}{}",
        " ".repeat(left),
        chart::bar(scale(line.micros).clamp(0.125, room))
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn span(id: &str, parent: Option<&str>, name: &str, entity: &str, at_us: i64, ms: f64, status: &str) -> Row {
        let ts = Timestamp::from_micros(1_790_000_000_000_000 + at_us);
        let span = json!({
            "ts": ts, "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": id, "parent_span_id": parent,
            "entity_name": entity, "span_name": name, "duration_ms": ms, "status": status,
        });
        span.as_object().cloned().unwrap()
    }

    fn order() -> Vec<Row> {
        vec![
            span("a1", None, "order", "press", 0, 12.5, "ok"),
            span("b1", Some("a1"), "check", "press", 1_000, 2.0, "ok"),
            span("c1", Some("b1"), "stock", "press-2", 1_500, 1.0, "error"),
            span("b2", Some("a1"), "ship", "press", 9_250, 3.25, "ok"),
            span("d1", Some("ff"), "parent lost", "oven", 12_490, 0.000_5, "ok"),
        ]
    }

    #[test]
    fn bars_show_when_spans_ran_and_errors_are_marked() {
        insta::assert_snapshot!(draw(&order(), 80, TextPainter::none()));
    }

    #[test]
    fn a_narrow_terminal_cuts_names_and_keeps_bars() {
        insta::assert_snapshot!(draw(&order(), 44, TextPainter::none()));
    }

    #[test]
    fn spans_without_times_or_durations_are_drawn_at_the_start() {
        let strange = [
            json!({}),
            json!({ "span_id": "x", "ts": "soon", "duration_ms": "NaN" }),
            json!({ "duration_ms": -3 }),
        ];
        let spans: Vec<Row> = strange.iter().filter_map(Value::as_object).cloned().collect();
        let drawn = draw(&spans, 60, TextPainter::none());
        assert_eq!(drawn.lines().count(), 3, "{drawn}");
        assert!(
            drawn
                .lines()
                .all(|line| line.contains("▏") && line.ends_with("0.000 ms")),
            "{drawn}"
        );
    }

    #[test]
    fn a_long_chain_is_drawn_within_the_line() {
        let chain: Vec<Row> = (0..5_000)
            .map(|at: i64| {
                span(
                    &at.to_string(),
                    Some(&(at - 1).to_string()),
                    "hop",
                    "press",
                    at,
                    5.0,
                    "ok",
                )
            })
            .collect();
        let drawn = draw(&chain, 100, TextPainter::none());
        assert!(drawn.lines().count() == 5_000 && drawn.lines().all(|line| text_width(line) <= 100));
    }

    proptest! {
        #[test]
        fn nothing_stored_moves_the_cursor_or_the_edge(
            spans in prop::collection::vec((crate::test_strings::text(), crate::test_strings::text(), any::<i32>(), 0.0f64..1e9, any::<bool>(), 0usize..8), 1..20),
            width in 44usize..200,
        ) {
            let spans: Vec<Row> = spans.iter().enumerate().map(|(id, (name, entity, at, ms, ok, parent))| {
                let status = if *ok { "ok" } else { "error" };
                span(&id.to_string(), Some(&parent.to_string()), name, entity, i64::from(*at), *ms, status)
            }).collect();
            let drawn = draw(&spans, width, TextPainter::none());
            prop_assert_eq!(drawn.lines().count(), spans.len());
            for line in drawn.lines() {
                prop_assert!(!line.contains(crate::control_chars::is_control_or_bidi), "{line:?}");
                prop_assert!(text_width(line) <= width, "{line:?}");
            }
        }
    }
}
