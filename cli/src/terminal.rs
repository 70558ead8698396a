//! The terminal at standard output: whether there is one, its size, and fitting text into it.
//!
//! # Not here
//!
//! What is drawn (`chart`, `waterfall`), colours and escapes (`output`).

use std::io::{self, IsTerminal};

use terminal_size::{Height, Width};
use unicode_width::UnicodeWidthChar;

/// The size taken where there is no terminal, or it does not say.
const USUAL: TerminalSize = TerminalSize { width: 80, height: 24 };
/// Drawings need some room, and no line of them gets longer than a reader's eye follows.
const WIDTHS: (usize, usize) = (40, 400);

/// A terminal's size in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl TerminalSize {
    /// The terminal at standard output, if there is one.
    pub(crate) fn of_stdout() -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        Some(size.map_or(USUAL, |(Width(width), Height(height))| Self {
            width: if width == 0 { USUAL.width } else { width.into() },
            height: if height == 0 { USUAL.height } else { height.into() },
        }))
    }

    /// How wide drawings on standard output are; a pipe has the usual width, so that what it gets does not depend on
    /// where it was started.
    pub(crate) fn drawing_width() -> usize {
        let (least, most) = WIDTHS;
        Self::of_stdout().unwrap_or(USUAL).width.clamp(least, most)
    }

    /// Whether a text needs more lines than there are, one being left for the prompt.
    pub(crate) fn overflows(self, text: &str) -> bool {
        let lines = text.lines().map(|line| text_width(line).div_ceil(self.width).max(1));
        lines.sum::<usize>() >= self.height
    }
}

/// The cells a text takes.
pub(crate) fn text_width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text in exactly so many cells: padded at its end, or cut with an ellipsis.
pub(crate) fn fit(text: &str, cells: usize) -> String {
    let width = text_width(text);
    if width <= cells {
        return format!("{text}{}", " ".repeat(cells - width));
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > cells {
            break;
        }
        cut.push(c);
        used += width;
    }
    if used < cells {
        cut.push('…');
        used += 1;
    }
    cut.push_str(&" ".repeat(cells.saturating_sub(used)));
    cut
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_and_says_so() {
        assert_eq!(fit("order", 8), "order   ");
        assert_eq!(fit("a long name", 6), "a lon…");
        assert_eq!(fit("温度計測", 5), "温度…");
        assert_eq!(fit("温度計測", 4), "温… ");
        assert_eq!(fit("x", 0), "");
    }

    #[test]
    fn wrapped_lines_count_as_often_as_they_are_wrapped() {
        let screen = TerminalSize { width: 10, height: 4 };
        assert!(!screen.overflows("a\nb\nc\n"));
        assert!(screen.overflows("a\nb\nc\nd\n"));
        assert!(screen.overflows(&"x".repeat(31)));
    }

    proptest! {
        #[test]
        fn a_fitted_text_takes_the_cells_it_was_given(text in crate::test_strings::text(), cells in 0usize..50) {
            prop_assert_eq!(text_width(&fit(&text, cells)), cells);
        }
    }
}
