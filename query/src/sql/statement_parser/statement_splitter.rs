//! The statements of a text that has several.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::LONGEST;

/// The statements of a text, each with the place in bytes where it begins; empty ones are left out. A text that cannot be told
/// apart is one statement: who reads it says what is wrong.
#[must_use]
pub fn split_statements(text: &str) -> Vec<(usize, &str)> {
    let all = || vec![(0, text)];
    if text.len() > LONGEST || !text.contains(';') {
        return if text.trim().is_empty() { Vec::new() } else { all() };
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location() else {
        return all();
    };
    let lines: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut found = Vec::new();
    let (mut begin, mut has_words) = (0, false);
    for token in &tokens {
        match &token.token {
            Token::SemiColon => {
                let Some(end) = place(text, &lines, token.span.start.line, token.span.start.column) else {
                    return all();
                };
                if has_words {
                    found.extend(text.get(begin..end).map(|statement| (begin, statement)));
                }
                (begin, has_words) = (end + 1, false);
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => has_words = true,
        }
    }
    if has_words {
        found.extend(text.get(begin..).map(|statement| (begin, statement)));
    }
    found
}

/// Where a line and a column, both from 1, are in bytes.
fn place(text: &str, lines: &[usize], line: u64, column: u64) -> Option<usize> {
    let start = *lines.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let before = usize::try_from(column).ok()?.checked_sub(1)?;
    let line = text.get(start..)?;
    let within = line.char_indices().nth(before).map_or(line.len(), |(at, _)| at);
    (text.as_bytes().get(start + within) == Some(&b';')).then_some(start + within)
}
