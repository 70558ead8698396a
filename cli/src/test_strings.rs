//! Hostile texts for property tests of whatever is printed.

use proptest::prelude::*;

use crate::client::Row;
use crate::control_chars::is_control_or_bidi;

/// Letters of any script, controls of both sets, marks that reorder a line, and what terminals obey.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let controls = [
        '\0'..=' ',
        '\u{7f}'..='\u{9f}',
        '\u{200e}'..='\u{202e}',
        '\u{2066}'..='\u{2069}',
    ];
    let control = proptest::char::ranges(controls.to_vec().into());
    let piece = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        4 => control.prop_map(String::from),
        1 => prop::sample::select(vec!["\u{1b}[2J", "\u{1b}]0;owned\u{7}", "\r\n", "a", "é", "温度"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Rows made of hostile texts, a pair for each.
pub(crate) fn rows(row: fn(&str, &str) -> serde_json::Value) -> impl Strategy<Value = Vec<Row>> {
    let row = move |(a, b): (String, String)| row(&a, &b).as_object().cloned().unwrap_or_default();
    prop::collection::vec((text(), text()).prop_map(row), 1..6)
}

/// What is printed for rows has a line for each, and nothing that a terminal obeys.
pub(crate) fn is_one_line_per_row(printed: &str, rows: &[Row]) -> bool {
    printed.matches('\n').count() == rows.len() && !printed.replace('\n', "").contains(is_control_or_bidi)
}
