//! Finds the level that a log line names.
//!
//! A word counts where programs write levels: in capitals anywhere near the beginning (`2026-11-21 ERROR …`), in brackets
//! (`[warn]`), behind a key (`level=info`, `"severity":"error"`), or as the first word before a colon (`error: …`).
//! The same word in prose (`no error found`) does not.

use model::Level;

/// How many bytes of a line are looked at.
const HEAD: usize = 160;

/// The level of a line, if it names one.
pub(super) fn level_of(line: &str) -> Option<Level> {
    let head = line.as_bytes();
    let head = &head[..head.len().min(HEAD)];
    let mut start = 0;
    while start < head.len() {
        if !head[start].is_ascii_alphabetic() {
            start += 1;
            continue;
        }
        let end = start
            + head[start..]
                .iter()
                .take_while(|byte| byte.is_ascii_alphabetic())
                .count();
        let alone = !joined(start.checked_sub(1).and_then(|at| head.get(at))) && !joined(head.get(end));
        if alone
            && let Some(level) = named(&head[start..end])
            && is_marked(head, start, end)
        {
            return Some(level);
        }
        start = end;
    }
    None
}

/// Whether a neighbouring byte makes the word part of a longer name.
fn joined(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_digit() || *byte == b'_' || *byte >= 0x80)
}

fn named(word: &[u8]) -> Option<Level> {
    let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    match word.first().map(u8::to_ascii_lowercase) {
        Some(b't') if is(&["trace"]) => Some(Level::Debug),
        Some(b'd') if is(&["debug"]) => Some(Level::Debug),
        Some(b'i') if is(&["info", "information"]) => Some(Level::Info),
        Some(b'n') if is(&["notice"]) => Some(Level::Info),
        Some(b'w') if is(&["warn", "warning"]) => Some(Level::Warn),
        Some(b'e') if is(&["error", "err", "emerg", "emergency"]) => Some(Level::Error),
        Some(b'f') if is(&["fatal"]) => Some(Level::Error),
        Some(b'c') if is(&["critical", "crit"]) => Some(Level::Error),
        Some(b'a') if is(&["alert"]) => Some(Level::Error),
        Some(b'p') if is(&["panic"]) => Some(Level::Error),
        Some(b's') if is(&["severe"]) => Some(Level::Error),
        _ => None,
    }
}

fn is_marked(head: &[u8], start: usize, end: usize) -> bool {
    let word = &head[start..end];
    let before = start.checked_sub(1).map(|at| head[at]);
    let after = head.get(end).copied();
    let bracketed = matches!(
        (before, after),
        (Some(b'['), Some(b']')) | (Some(b'<'), Some(b'>')) | (Some(b'('), Some(b')'))
    );
    let first = before.is_none() && after == Some(b':');
    word.iter().all(u8::is_ascii_uppercase) || bracketed || first || has_key(&head[..start])
}

/// Whether the text ends with a key for levels and its separator.
fn has_key(before: &[u8]) -> bool {
    let separators = before
        .iter()
        .rev()
        .take_while(|byte| matches!(byte, b'"' | b'\'' | b':' | b'=' | b' '))
        .count();
    let (text, separators) = before.split_at(before.len() - separators);
    if !separators.iter().any(|byte| matches!(byte, b':' | b'=')) {
        return false;
    }
    let length = text
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_')
        .count();
    let key = &text[text.len() - length..];
    ["level", "lvl", "severity", "loglevel", "log_level", "levelname"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_found_where_programs_write_it() {
        for (line, level) in [
            ("ERROR disk full", Level::Error),
            ("2026-11-21T10:00:00Z WARN  slow", Level::Warn),
            ("[error] 12#0: upstream", Level::Error),
            ("Nov 21 10:00:00 host app[12]: <notice> up", Level::Info),
            ("ts=1 level=debug msg=x", Level::Debug),
            (r#"{"severity": "Warning", "m": 1}"#, Level::Warn),
            ("error: cannot open", Level::Error),
            ("TRACE: x", Level::Debug),
            ("12:00 FATAL x", Level::Error),
            ("ERR! code", Level::Error),
        ] {
            assert_eq!(level_of(line), Some(level), "{line}");
        }
    }

    #[test]
    fn prose_and_longer_names_are_not_levels() {
        let late = format!("{} ERROR", "x".repeat(HEAD));
        for line in [
            "",
            "no error found",
            "Info desk opened",
            "INFORMATIONAL",
            "ERROR_CODE=5",
            "E_ERROR2",
            "WARNINGS: 3",
            "message=error handling done",
            late.as_str(),
        ] {
            assert_eq!(level_of(line), None, "{line}");
        }
    }
}
