//! The text of a statement as it may be shown to who reads traces: without its literals.
//!
//! # Invariants
//!
//! - Where it is in doubt what is a literal (backslashes in one, dollar quotes, what does not end), the text ends.
//! - At most about [`MOST`] bytes are kept, and each byte of a statement is looked at once.

/// About the most bytes of a text.
const MOST: usize = 2048;
/// The first words of statements.
const OPERATIONS: [&str; 9] = [
    "SELECT", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "VALUES", "TABLE", "SET", "COPY",
];

/// What a statement does: its first word.
pub(super) fn operation(statement: &str) -> &'static str {
    let text = statement.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let word = text
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    let known = OPERATIONS.iter().find(|known| known.eq_ignore_ascii_case(word));
    known.copied().unwrap_or("_OTHER")
}

/// A statement with `?` for each literal, without its comments.
pub(super) fn sanitized(statement: &str) -> String {
    let (mut text, mut rest) = (String::new(), statement.trim());
    while !rest.is_empty() {
        let in_word = text.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        let piece = if text.len() < MOST { piece(rest, in_word) } else { None };
        let Some((shown, length)) = piece else {
            text.push('…');
            break;
        };
        if shown != " " || !text.ends_with(' ') {
            text.push_str(shown);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    text
}

/// The first piece of a text as it is shown, and its bytes; none if it is in doubt.
fn piece(rest: &str, in_word: bool) -> Option<(&str, usize)> {
    let first = rest.chars().next()?;
    let until = |is_part: fn(char) -> bool| rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
    match first {
        '\'' => Some(("?", literal_end(rest)?)),
        '"' => {
            let end = rest.get(1..)?.find('"')? + 2;
            (end <= MOST).then_some((rest.get(..end)?, end))
        }
        // What follows is a parameter's number, or a quote of another kind.
        '$' if !in_word && !rest.get(1..)?.starts_with(|c: char| c.is_ascii_digit()) => None,
        '0'..='9' if !in_word => Some(("?", until(|c| c.is_alphanumeric() || c == '.' || c == '_'))),
        '-' if rest.starts_with("--") => Some((" ", rest.find('\n').unwrap_or(rest.len()))),
        '/' if rest.starts_with("/*") => {
            let inner = rest.get(2..)?;
            let end = inner.find("*/")?;
            // Comments may be within comments.
            let is_plain = !inner.get(..end)?.contains("/*");
            is_plain.then_some((" ", end + 4))
        }
        _ if first.is_whitespace() => Some((" ", until(char::is_whitespace))),
        _ => Some((rest.get(..first.len_utf8())?, first.len_utf8())),
    }
}

/// Behind the literal that a text begins with.
fn literal_end(rest: &str) -> Option<usize> {
    let mut at = 1;
    loop {
        let part = rest.get(at..)?;
        let length = part.find('\'')?;
        if part.get(..length)?.contains('\\') {
            return None;
        }
        at += length + 1;
        if !rest.get(at..)?.starts_with('\'') {
            return Some(at);
        }
        at += 1;
    }
}
