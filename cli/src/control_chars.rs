//! Escapes control characters of stored text, so that no terminal obeys them.
//!
//! Not here: how JSON is made safe for a terminal (`output`), and how wide a text is (`terminal`).

use std::borrow::Cow;

/// The text with control characters (and the bidirectional ones that reorder a line) escaped.
pub(crate) fn escape_controls(text: &str) -> Cow<'_, str> {
    escape_where(text, is_control_or_bidi, escape_char)
}

/// Control characters, and the bidirectional ones that reorder a line.
pub(crate) fn is_control_or_bidi(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A character as Rust writes it in a text: `\u{1b}`, `\n`.
pub(crate) fn escape_char(c: char) -> String {
    c.escape_default().to_string()
}

/// The text with the `bad` characters escaped.
pub(crate) fn escape_where(text: &str, bad: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&bad) {
        return Cow::Borrowed(text);
    }
    let one = |c: char| if bad(c) { escape(c) } else { c.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}
