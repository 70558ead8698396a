//! What the tokens of a text come to, before a parser recurses over them.
//!
//! | bound of | by | why |
//! |---|---|---|
//! | brackets within each other | [`DEEPEST_BRACKETS`] | each is some levels of recursion |
//! | operators and keywords | [`MOST_WORDS`] | each may be a level of a tree, which is taken down by recursion |
//! | `INTERVAL INTERVAL` | none | a parser recurses over them without a limit |
//!
//! How often it may begin anew: [`super::dialect`].

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Error;

const DEEPEST_BRACKETS: usize = 24;
const MOST_WORDS: usize = 4_096;

/// Refuses tokens that would exhaust a parser.
pub(super) fn survey(tokens: &[TokenWithSpan]) -> Result<(), Error> {
    let mut counts = Counts::default();
    for token in tokens {
        counts.add(&token.token);
    }
    let Counts {
        deepest_brackets,
        is_interval_of_intervals,
        words,
        explains,
        ..
    } = counts;
    if deepest_brackets > DEEPEST_BRACKETS {
        let reason = format!("brackets are {deepest_brackets} within each other, more than {DEEPEST_BRACKETS}");
        return Err(Error::statement(reason));
    }
    if is_interval_of_intervals {
        return Err(Error::statement(
            "INTERVAL INTERVAL is no value: write INTERVAL '1 hour'",
        ));
    }
    if words > MOST_WORDS {
        let reason =
            format!("there are {words} operators and keywords, more than {MOST_WORDS}; lists of values go into IN (…)");
        return Err(Error::statement(reason));
    }
    if explains > 1 {
        return Err(Error::statement(
            "EXPLAIN explains one statement that is not an EXPLAIN itself",
        ));
    }
    Ok(())
}

/// What tokens come to.
#[derive(Debug, Default)]
struct Counts {
    brackets: usize,
    /// Whether the token before was `INTERVAL`.
    is_interval: bool,
    is_interval_of_intervals: bool,
    deepest_brackets: usize,
    words: usize,
    explains: usize,
}

impl Counts {
    fn add(&mut self, token: &Token) {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                self.brackets += 1;
                self.deepest_brackets = self.deepest_brackets.max(self.brackets);
            }
            Token::RParen | Token::RBracket | Token::RBrace => self.brackets = self.brackets.saturating_sub(1),
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            Token::Word(word) => {
                self.words += 1;
                self.explains += usize::from(word.keyword == Keyword::EXPLAIN);
            }
            Token::Whitespace(_) | Token::Comma | Token::Number(..) | Token::SingleQuotedString(_) => {}
            _ => self.words += 1,
        }
        if !matches!(token, Token::Whitespace(_)) {
            let is_interval = matches!(token, Token::Word(word) if word.keyword == Keyword::INTERVAL);
            self.is_interval_of_intervals |= is_interval && self.is_interval;
            self.is_interval = is_interval;
        }
    }
}
