//! Texts as a hostile program may store them, for the property tests of whatever is printed.

use proptest::prelude::*;

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
