//! Lexer of statements for their readers beside the planner: tokens without white space and comments, with their places in bytes.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::LONGEST;

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword or a plain name, in lower case.
    Word(String),
    /// A name in double quotes, as it is.
    Name(String),
    /// A text in single quotes, with its escapes carried out.
    Text(String),
    /// A number, a sign, or anything else, as it is written.
    Sign(String),
}

/// A token and the bytes of the text that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementToken {
    /// What it is.
    pub kind: TokenKind,
    /// Where it begins.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
}

impl StatementToken {
    /// The word or sign that it is; of what is quoted nothing.
    #[must_use]
    pub fn plain(&self) -> &str {
        match &self.kind {
            TokenKind::Word(text) | TokenKind::Sign(text) => text,
            TokenKind::Name(_) | TokenKind::Text(_) => "",
        }
    }

    /// The name that it is, quoted or not.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(name) | TokenKind::Name(name) => Some(name),
            TokenKind::Text(_) | TokenKind::Sign(_) => None,
        }
    }
}

/// The tokens of a text; `None` if it is too long or cannot be told apart.
#[must_use]
pub fn statement_tokens(text: &str) -> Option<Vec<StatementToken>> {
    if text.len() > LONGEST {
        return None;
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text)
        .tokenize_with_location()
        .ok()?;
    let places = places(text, &tokens)?;
    let ends = places.iter().skip(1).copied().chain([text.len()]);
    let found = tokens.into_iter().zip(places.iter().copied().zip(ends));
    let found = found.filter_map(|(token, (begin, end))| {
        let kind = match token.token {
            Token::Whitespace(_) | Token::EOF => return None,
            Token::Word(word) if word.quote_style.is_some() => TokenKind::Name(word.value),
            Token::Word(word) => TokenKind::Word(word.value.to_lowercase()),
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => TokenKind::Text(text),
            other => TokenKind::Sign(other.to_string()),
        };
        Some(StatementToken { kind, begin, end })
    });
    Some(found.collect())
}

/// Where tokens, which are in their order, begin in bytes.
fn places(text: &str, tokens: &[TokenWithSpan]) -> Option<Vec<usize>> {
    let mut letters = text.char_indices();
    let (mut line, mut column, mut at) = (1_u64, 1_u64, 0);
    let mut found = Vec::with_capacity(tokens.len());
    for token in tokens {
        let start = token.span.start;
        while (line, column) < (start.line, start.column) {
            let (place, letter) = letters.next()?;
            at = place + letter.len_utf8();
            (line, column) = if letter == '\n' {
                (line + 1, 1)
            } else {
                (line, column + 1)
            };
        }
        found.push(at);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn tokens_know_their_bytes_beside_comments_and_letters_of_several_bytes() {
        let text = "COPY (\n SELECT 'ä)' -- )\n, \"B\" ) TO /* ( */ STDOUT";
        let tokens = statement_tokens(text).unwrap();
        let kinds: Vec<_> = tokens.iter().map(|token| token.kind.clone()).collect();
        let word = |word: &str| TokenKind::Word(word.to_owned());
        let sign = |sign: &str| TokenKind::Sign(sign.to_owned());
        assert_eq!(
            kinds,
            [
                word("copy"),
                sign("("),
                word("select"),
                TokenKind::Text("ä)".to_owned()),
                sign(","),
                TokenKind::Name("B".to_owned()),
                sign(")"),
                word("to"),
                word("stdout"),
            ]
        );
        let written: Vec<_> = tokens.iter().map(|token| &text[token.begin..token.end]).collect();
        assert_eq!(
            written,
            ["COPY", "(", "SELECT", "'ä)'", ",", "\"B\"", ")", "TO", "STDOUT"]
        );
        assert_eq!(statement_tokens("SELECT 'open"), None);
    }
}
