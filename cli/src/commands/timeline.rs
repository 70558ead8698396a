//! Timeline of a signal: a line for each message, span and log record, with its distance from the first.
//!
//! ```text
//!  +0.000 ms  message  rack-a/orders → rack-b/check  order outbound  {"order":7}
//!  +0.000 ms  span     rack-a/orders                 http_in orders  1.500 ms
//!  +3.250 ms  log      rack-b/check                  warn   no such article
//! ```
//!
//! A message leads to the gear that it is for, else to the gears whose spans follow its sender's span; these say of which Rack
//! they are.
//!
//! # Not here
//!
//! The order of the rows (the Mixer's), what programs get (`commands::flux`).

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use model::{HumanDuration, Timestamp};
use serde_json::Value;

use super::messages::body;
use crate::client::Row;
use crate::control_chars::escape_controls;
use crate::output::TextPainter;
use crate::span_tree::{duration_ms, start, text};
use crate::terminal::{fit, text_width};

/// The widest that the places may be, so that a long name does not push all else out of sight.
const WIDEST: usize = 48;
/// So much of a body or a text is shown where nothing else limits it.
const LONGEST: usize = 400;

/// How a part of a line is painted.
#[derive(Debug, Clone, Copy)]
enum TextTone {
    Plain,
    Dim,
    Bad,
    Level,
}

/// One line, before it is known how wide its columns are.
struct TimelineRow {
    offset: String,
    kind: &'static str,
    place: String,
    rest: Vec<(String, TextTone)>,
}

/// Lines for rows in the order of time; of at most so many cells (colours not counted) if a width is given.
pub(crate) fn draw(rows: &[Row], width: Option<usize>, paint: TextPainter) -> String {
    let first = rows.iter().filter_map(start).min();
    let receivers = receivers(rows);
    let lines: Vec<TimelineRow> = rows.iter().map(|row| line(row, first, &receivers)).collect();
    let widest = |of: fn(&TimelineRow) -> &str| lines.iter().map(|line| text_width(of(line))).max().unwrap_or(0);
    let offsets = widest(|line| &line.offset);
    let most = width.map_or(WIDEST, |width| (width / 3).min(WIDEST));
    let places = widest(|line| &line.place).min(most);
    let mut drawn = String::new();
    for line in &lines {
        let head = [
            (format!("{:>offsets$}  ", line.offset), TextTone::Dim),
            (format!("{:7}  ", line.kind), TextTone::Plain),
            (format!("{}  ", fit(&line.place, places)), TextTone::Plain),
        ];
        let parts = head.iter().chain(&line.rest);
        put(&mut drawn, parts, width, paint);
    }
    drawn
}

/// Writes the parts of a line as far as there is room.
fn put<'a>(
    drawn: &mut String,
    parts: impl Iterator<Item = &'a (String, TextTone)>,
    width: Option<usize>,
    paint: TextPainter,
) {
    let mut left = width.unwrap_or(usize::MAX);
    let parts: Vec<_> = parts.collect();
    let last = parts.iter().rposition(|(text, _)| !text.trim_end().is_empty());
    for (at, (text, tone)) in parts.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
        let text = if Some(at) == last { text.trim_end() } else { text };
        let wanted = text_width(text);
        let cut = (wanted > left).then(|| fit(text, left));
        let text = cut.as_deref().unwrap_or(text);
        let _ = match tone {
            TextTone::Plain => write!(drawn, "{text}"),
            TextTone::Dim => write!(drawn, "{}", paint.dim(text)),
            TextTone::Bad => write!(drawn, "{}", paint.bad(text)),
            TextTone::Level => write!(drawn, "{}", paint.word(text)),
        };
        if cut.is_some() {
            break;
        }
        left -= wanted;
    }
    drawn.push('\n');
}

/// The gears whose spans follow a span, by its id.
fn receivers(rows: &[Row]) -> HashMap<&str, BTreeSet<String>> {
    let mut receivers: HashMap<&str, BTreeSet<String>> = HashMap::new();
    for row in rows.iter().filter(|row| text(row, "kind") == "span") {
        let parent = text(row, "parent_span_id");
        if !parent.is_empty() {
            receivers.entry(parent).or_default().insert(place(row));
        }
    }
    receivers
}

/// The Rack and the gear of a row.
fn place(row: &Row) -> String {
    let of_attributes = || row.get("attributes")?.get("gear.id")?.as_str();
    let gear = match text(row, "src_gear_id") {
        "" => of_attributes().unwrap_or_default(),
        gear => gear,
    };
    match (escape_controls(text(row, "entity_name")), escape_controls(gear)) {
        (rack, gear) if gear.is_empty() => rack.into_owned(),
        (rack, gear) => format!("{rack}/{gear}"),
    }
}

fn line(row: &Row, first: Option<Timestamp>, receivers: &HashMap<&str, BTreeSet<String>>) -> TimelineRow {
    let offset = start(row)
        .zip(first)
        .map_or_else(String::new, |(at, first)| offset(at, first));
    let (kind, place, rest) = match text(row, "kind") {
        "message" => (
            "message",
            format!("{}{}", place(row), leads_to(row, receivers)),
            message(row),
        ),
        "span" => ("span", place(row), span(row)),
        "log" => ("log", place(row), log(row)),
        _ => ("?", place(row), Vec::new()),
    };
    TimelineRow {
        offset,
        kind,
        place,
        rest,
    }
}

/// The distance from the first row.
fn offset(at: Timestamp, first: Timestamp) -> String {
    let micros = u64::try_from(at.since(first).as_micros()).unwrap_or(u64::MAX);
    match micros {
        0..1_000_000 => format!("+{}.{:03} ms", micros / 1_000, micros % 1_000),
        1_000_000..60_000_000 => format!("+{}.{:03} s ", micros / 1_000_000, micros / 1_000 % 1_000),
        _ => format!("+{}", HumanDuration::from_millis(micros / 1_000)),
    }
}

fn leads_to(message: &Row, receivers: &HashMap<&str, BTreeSet<String>>) -> String {
    let sender = message
        .get("raw_msg")
        .and_then(|said| said.get("span_id"))
        .and_then(Value::as_str);
    let known = sender.and_then(|span| receivers.get(span)).into_iter().flatten();
    let named = escape_controls(text(message, "dst_gear_id"));
    let of_named = format!("/{named}");
    let places: Vec<&str> = known
        .map(String::as_str)
        .filter(|place| named.is_empty() || place.ends_with(&of_named))
        .collect();
    let to = match places.is_empty() {
        false => places.join(", "),
        true if named.is_empty() || text(message, "direction") != "internal" => named.into_owned(),
        true => format!("{}{of_named}", escape_controls(text(message, "entity_name"))),
    };
    if to.is_empty() { to } else { format!(" → {to}") }
}

fn message(row: &Row) -> Vec<(String, TextTone)> {
    let body = row
        .get("raw_msg")
        .and_then(Value::as_object)
        .map(body)
        .unwrap_or_default();
    vec![
        (format!("{} ", escape_controls(text(row, "msg_type"))), TextTone::Plain),
        (format!("{}  ", escape_controls(text(row, "direction"))), TextTone::Dim),
        outcome(row),
        (shortened(&body), TextTone::Plain),
    ]
}

fn span(row: &Row) -> Vec<(String, TextTone)> {
    let ms = duration_ms(row);
    let took = if ms < 1e9 {
        format!("{ms:.3} ms")
    } else {
        format!("{ms:.3e} ms")
    };
    vec![
        (
            format!("{}  ", escape_controls(text(row, "span_name"))),
            TextTone::Plain,
        ),
        (format!("{took}  "), TextTone::Dim),
        outcome(row),
    ]
}

fn log(row: &Row) -> Vec<(String, TextTone)> {
    vec![
        (format!("{:<5}  ", escape_controls(text(row, "level"))), TextTone::Level),
        (shortened(text(row, "message")), TextTone::Plain),
    ]
}

/// An error's word; what went well needs none.
fn outcome(row: &Row) -> (String, TextTone) {
    match text(row, "status") {
        "" | "ok" => (String::new(), TextTone::Plain),
        other => (format!("{}  ", escape_controls(other)), TextTone::Bad),
    }
}

fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(LONGEST).collect();
    let more = if letters.next().is_some() { "…" } else { "" };
    format!("{}{more}", escape_controls(&head))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::test_strings::{is_one_line_per_row, rows};

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(1_790_000_000_000_000 + micros)
    }

    fn order() -> Vec<Row> {
        let rows = [
            json!({ "kind": "message", "ts": at(0), "entity_name": "rack-a", "src_gear_id": "orders", "msg_type": "order",
                    "direction": "outbound", "status": "ok", "raw_msg": { "span_id": "a1", "body": { "order": 7 }, "body_is": "value" } }),
            json!({ "kind": "span", "ts": at(0), "entity_name": "rack-a", "span_id": "a1", "span_name": "http_in orders",
                    "duration_ms": 1.5, "status": "ok", "attributes": { "gear.id": "orders" } }),
            json!({ "kind": "span", "ts": at(3_250), "entity_name": "rack-b", "span_id": "b1", "parent_span_id": "a1",
                    "span_name": "filter check", "duration_ms": 0.25, "status": "error", "attributes": { "gear.id": "check" } }),
            json!({ "kind": "log", "ts": at(3_300), "entity_name": "rack-b", "level": "warn", "message": "no such article",
                    "attributes": { "gear.id": "check" } }),
            json!({ "kind": "message", "ts": at(2_500_000), "entity_name": "rack-b", "src_gear_id": "check", "dst_gear_id": "desk",
                    "msg_type": "refusal", "direction": "outbound", "status": "error", "raw_msg": { "error": "not a message" } }),
            json!({ "kind": "log", "ts": at(86_400_000_000), "entity_name": "rack-b", "level": "info", "message": "a day later" }),
        ];
        rows.iter().filter_map(Value::as_object).cloned().collect()
    }

    #[test]
    fn lines_say_when_where_and_what_and_messages_lead_to_the_gears_that_got_them() {
        insta::assert_snapshot!(draw(&order(), None, TextPainter::none()));
    }

    #[test]
    fn a_narrow_terminal_cuts_lines_at_its_edge() {
        let drawn = draw(&order(), Some(60), TextPainter::none());
        assert!(drawn.lines().all(|line| text_width(line) <= 60), "{drawn}");
        assert!(drawn.contains('…'), "{drawn}");
        assert_eq!(drawn.lines().count(), 6);
    }

    #[test]
    fn a_long_body_is_shortened_and_strange_rows_have_their_line() {
        let strange = [
            json!({}),
            json!({ "kind": "log", "ts": "soon", "message": "x".repeat(1_000) }),
            json!({ "kind": "message", "raw_msg": { "body": 7 } }),
            json!({ "kind": "span", "duration_ms": -1 }),
        ];
        let strange: Vec<Row> = strange.iter().filter_map(Value::as_object).cloned().collect();
        let drawn = draw(&strange, None, TextPainter::none());
        assert!(
            drawn.lines().count() == 4 && drawn.lines().all(|line| line.chars().count() < 500),
            "{drawn}"
        );
    }

    proptest! {
        #[test]
        fn a_row_is_one_line_whatever_is_stored(
            rows in rows(|a, b| json!({ "kind": "log", "ts": a, "entity_name": b, "level": a, "message": b, "attributes": { "gear.id": a } })),
            others in rows(|a, b| json!({ "kind": "message", "entity_name": a, "src_gear_id": b, "dst_gear_id": a, "msg_type": b,
                                          "direction": a, "status": b, "raw_msg": { "body": a } })),
            spans in rows(|a, b| json!({ "kind": "span", "entity_name": a, "span_name": b, "status": a, "parent_span_id": b })),
            width in prop::option::of(20usize..200),
        ) {
            for rows in [rows, others, spans] {
                let lines = draw(&rows, width, TextPainter::none());
                prop_assert!(is_one_line_per_row(&lines, &rows), "{lines:?}");
                prop_assert!(width.is_none_or(|width| lines.lines().all(|line| text_width(line) <= width)), "{lines:?}");
            }
        }
    }
}
