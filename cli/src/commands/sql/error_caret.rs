//! Error caret: marks the place of an error below the statement.

use crate::control_chars::escape_controls;
use crate::error::Error;
use crate::terminal::{TerminalSize, text_width};

/// The line of a statement that went wrong, and a mark, if the error names its place.
pub(super) fn error_caret(error: &Error, statement: &str) -> Option<String> {
    let Error::Refused {
        position: Some(position),
        ..
    } = error
    else {
        return None;
    };
    let width = TerminalSize::of_stdout().map_or(usize::MAX, |screen| screen.width);
    draw_caret(statement, *position, width)
}

/// The line and, below, a mark; a line too long begins where the mark is in its middle.
fn draw_caret(text: &str, (line, column): (usize, usize), width: usize) -> Option<String> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let before = column.checked_sub(1).filter(|before| *before <= line.chars().count())?;
    let cells = |from: usize, count: usize| -> String { line.chars().skip(from).take(count).map(shown).collect() };
    let from = if text_width(&cells(0, usize::MAX)) < width {
        0
    } else {
        before.saturating_sub(width / 2)
    };
    let head = cells(from, before - from);
    let mut shown = head.clone();
    for c in line.chars().skip(before).map(self::shown) {
        if text_width(&shown) + text_width(&c) >= width {
            break;
        }
        shown.push_str(&c);
    }
    Some(format!("{shown}\n{}^", " ".repeat(text_width(&head))))
}

/// A character of a line; a tab is a space.
fn shown(c: char) -> String {
    if c == '\t' {
        " ".to_owned()
    } else {
        escape_controls(c.encode_utf8(&mut [0; 4])).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control_chars::is_control_or_bidi;

    #[test]
    fn the_mark_stands_below_what_is_wrong() {
        assert_eq!(
            draw_caret("SELECT x", (1, 8), 80).as_deref(),
            Some("SELECT x\n       ^")
        );
        assert_eq!(
            draw_caret("SELECT\n\t'温', x", (2, 7), 80).as_deref(),
            Some(" '温', x\n       ^")
        );
        assert_eq!(draw_caret("SELECT", (1, 7), 80).as_deref(), Some("SELECT\n      ^"));
        assert_eq!(
            draw_caret("abcdefghijklmnopqrstuvwxyz", (1, 14), 10).as_deref(),
            Some("ijklmnopq\n     ^")
        );
        for nowhere in [(0, 1), (1, 0), (1, 9), (2, 1)] {
            assert_eq!(draw_caret("SELECT", nowhere, 80), None, "{nowhere:?}");
        }
    }

    proptest! {
        #[test]
        fn a_mark_needs_two_lines_that_a_terminal_only_shows(
            text in crate::test_strings::text(), line in 0usize..3, column in 0usize..20, width in 20usize..60,
        ) {
            if let Some(shown) = draw_caret(&text, (line, column), width) {
                prop_assert_eq!(shown.lines().count(), 2);
                prop_assert!(!shown.replace('\n', "").contains(is_control_or_bidi), "{:?}", shown);
            }
        }
    }
}
