//! Splits a text into statements at each `;` outside of quotes and comments.
//!
//! # Not here
//!
//! What statements mean, and whether they are right: the Mixer says so.

/// What the beginning of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SqlTokenKind {
    /// White space or a comment.
    Blank,
    /// A `;`.
    End,
    /// A name, a keyword or a number.
    Word,
    /// Any other sign, or a text in quotes.
    Other,
    /// A quote or a comment that goes on behind the text's end.
    Open,
}

/// Statements, and what follows the last `;`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatementSplit<'a> {
    /// Without their `;`, and none that is empty.
    pub(super) statements: Vec<&'a str>,
    /// Empty, unless something is left besides white space and comments.
    pub(super) rest: &'a str,
}

/// Takes a text apart.
pub(super) fn split(text: &str) -> StatementSplit<'_> {
    let mut statements = Vec::new();
    let (mut begin, mut at, mut is_blank) = (0, 0, true);
    while let Some((length, kind)) = piece(&text[at..]) {
        if kind == SqlTokenKind::End {
            if !is_blank {
                statements.push(text[begin..at].trim());
            }
            (begin, is_blank) = (at + length, true);
        } else {
            is_blank &= kind == SqlTokenKind::Blank;
        }
        at += length;
    }
    StatementSplit {
        statements,
        rest: if is_blank { "" } else { text[begin..].trim() },
    }
}

/// The words of a text, in order; those in quotes and comments are none.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|(word, kind)| (kind == SqlTokenKind::Word).then_some(word))
}

/// Whether a parameter stands in a statement.
pub(super) fn has_parameter(statement: &str, name: &str) -> bool {
    let mut pieces = pieces(statement).peekable();
    while let Some((piece, _)) = pieces.next() {
        if piece == "$" && pieces.peek().is_some_and(|(word, _)| *word == name) {
            return true;
        }
    }
    false
}

/// Whether a text ends within a quote or a comment.
pub(super) fn is_unterminated(text: &str) -> bool {
    let last = pieces(text).last();
    last.is_some_and(|(piece, kind)| kind == SqlTokenKind::Open || (piece.starts_with("--") && !piece.ends_with('\n')))
}

fn pieces(text: &str) -> impl Iterator<Item = (&str, SqlTokenKind)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (length, kind) = piece(rest)?;
        let (head, tail) = rest.split_at(length);
        rest = tail;
        Some((head, kind))
    })
}

/// The length and the kind of a text's first piece.
fn piece(text: &str) -> Option<(usize, SqlTokenKind)> {
    let first = text.chars().next()?;
    let length = first.len_utf8();
    let to = |end: Option<usize>| end.map_or((text.len(), SqlTokenKind::Open), |end| (end, SqlTokenKind::Other));
    let is_blank = |c: char| c.is_whitespace();
    Some(match first {
        ';' => (length, SqlTokenKind::End),
        '\'' => to(quoted(text, false)),
        '"' => to(text[1..].find('"').map(|at| at + 2)),
        'e' | 'E' if text[1..].starts_with('\'') => to(quoted(&text[1..], true).map(|end| end + 1)),
        '-' if text.starts_with("--") => (text.find('\n').map_or(text.len(), |at| at + 1), SqlTokenKind::Blank),
        '/' if text.starts_with("/*") => {
            comment(text).map_or((text.len(), SqlTokenKind::Open), |end| (end, SqlTokenKind::Blank))
        }
        '$' => tag(text).map_or((length, SqlTokenKind::Other), |tag| {
            let end = text[tag.len()..].find(tag);
            to(end.map(|at| at + 2 * tag.len()))
        }),
        c if is_blank(c) => (run(text, is_blank), SqlTokenKind::Blank),
        c if is_word(c) => (run(text, |c| is_word(c) || c == '$'), SqlTokenKind::Word),
        _ => (length, SqlTokenKind::Other),
    })
}

/// Whether names and numbers are made of it.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How far a text is made of such characters.
fn run(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}

/// Where a text in quotes ends. A doubled quote is an end and a new beginning, which comes to the same.
fn quoted(text: &str, has_escapes: bool) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = has_escapes,
            // What follows is a new quote, and in it backslashes escape as well.
            '\'' if has_escapes && text[at + 1..].starts_with('\'') => is_escaped = true,
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where a comment ends; comments stand in comments.
fn comment(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['*', '/']) {
        at += found;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

/// `$name$` or `$$` at the beginning; `$1` and `$name` are parameters.
fn tag(text: &str) -> Option<&str> {
    let name = run(&text[1..], is_word);
    let ends = text[1 + name..].starts_with('$') && !text[1..].starts_with(|c: char| c.is_ascii_digit());
    ends.then(|| &text[..name + 2])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statements_end_at_a_semicolon_outside_of_quotes_and_comments() {
        for (text, statements, rest) in [
            ("SELECT 1;", vec!["SELECT 1"], ""),
            ("SELECT 1; SELECT 2 ;; -- done;", vec!["SELECT 1", "SELECT 2"], ""),
            ("SELECT 1; SELECT", vec!["SELECT 1"], "SELECT"),
            (
                "SELECT ';', \";\", 'it''s;' /* ; /* ; */ ; */ ;",
                vec!["SELECT ';', \";\", 'it''s;' /* ; /* ; */ ; */"],
                "",
            ),
            ("SELECT E'\\';' || e'a'';' ; x", vec!["SELECT E'\\';' || e'a'';'"], "x"),
            ("SELECT '\\'; x", vec!["SELECT '\\'"], "x"),
            (
                "SELECT $$;$$, $a$;$$;$a$, $1, $n; 1",
                vec!["SELECT $$;$$, $a$;$$;$a$, $1, $n"],
                "1",
            ),
            ("SELECT a$b$ ; $b$", vec!["SELECT a$b$"], "$b$"),
            ("SELECT 'a;", vec![], "SELECT 'a;"),
            ("/* ;", vec![], "/* ;"),
            ("-- ;\n", vec![], ""),
            ("-- why\nSELECT 1 -- ;\n;", vec!["-- why\nSELECT 1 -- ;"], ""),
        ] {
            assert_eq!(split(text), StatementSplit { statements, rest }, "{text}");
        }
    }

    #[test]
    fn words_stand_outside_of_quotes_and_comments() {
        let found: Vec<_> = words("SELECT l.ts FROM logs l -- not this\nWHERE \"x\" = 'that' AND n > 10").collect();
        assert_eq!(
            found,
            ["SELECT", "l", "ts", "FROM", "logs", "l", "WHERE", "AND", "n", "10"]
        );
        for (text, open) in [
            ("a 'b", true),
            ("a 'b'", false),
            ("a -- b", true),
            ("a -- b\n", false),
            ("/* ", true),
        ] {
            assert_eq!(is_unterminated(text), open, "{text}");
        }
    }

    #[test]
    fn parameters_stand_outside_of_quotes() {
        assert!(has_parameter("SELECT $n + 1", "n") && has_parameter("SELECT $1", "1"));
        assert!(!has_parameter("SELECT '$n', $no, n", "n"));
    }

    proptest! {
        #[test]
        fn any_text_comes_apart_and_nothing_of_it_is_lost(
            text in prop_oneof![crate::test_strings::text(), "[a$e'\";/*\\\\ \n-]{0,30}"],
        ) {
            prop_assert_eq!(pieces(&text).map(|(piece, _)| piece).collect::<String>(), text.as_str());
            prop_assert!(pieces(&text).all(|(piece, _)| !piece.is_empty()));
            let _ = (split(&text), is_unterminated(&text));
        }
    }
}
