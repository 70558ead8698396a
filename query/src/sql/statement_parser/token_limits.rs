//! Limits on the tokens of a text, before a parser recurses over them.
//!
//! | bound of | by | why |
//! |---|---|---|
//! | brackets within each other | [`DEEPEST_BRACKETS`] | each is some levels of recursion |
//! | operators and keywords | [`MOST_WORDS`] | each may be a level of a tree, which is taken down by recursion |
//! | brackets within each other, and tokens | [`MOST_TOKENS`] | of `FROM (((` what is within is read three times |
//! | `INTERVAL` before no text, `][`, `ARRAY<` | [`MOST_CHAINED`] | they are taken and written by recursion, or as deep as they are many |
//!
//! How often it may begin anew: [`super::bounded_dialect`].

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Error;

const DEEPEST_BRACKETS: usize = 24;
const MOST_WORDS: usize = 4_096;
const MOST_TOKENS: usize = 20_000_000;
const MOST_CHAINED: usize = 64;

/// Refuses tokens that would exhaust a parser.
pub(super) fn check_token_limits(tokens: &[TokenWithSpan]) -> Result<(), Error> {
    let mut counts = TokenCounts::default();
    for token in tokens {
        counts.add(&token.token);
    }
    let TokenCounts {
        deepest_brackets,
        chained,
        words,
        explains,
        ..
    } = counts;
    if deepest_brackets > DEEPEST_BRACKETS {
        let reason = format!("brackets are {deepest_brackets} within each other, more than {DEEPEST_BRACKETS}");
        return Err(Error::statement(reason));
    }
    let readings = 3_usize.saturating_pow(u32::try_from(deepest_brackets / 3).unwrap_or(u32::MAX));
    if tokens.len().saturating_mul(readings) > MOST_TOKENS {
        let reason = format!("brackets are {deepest_brackets} within each other, too deep for so long a text");
        return Err(Error::statement(reason));
    }
    if chained > MOST_CHAINED {
        let reason = format!("INTERVAL without a text, [] and ARRAY<> are more than {MOST_CHAINED}");
        return Err(Error::statement(reason));
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
struct TokenCounts {
    brackets: usize,
    before: PreviousToken,
    chained: usize,
    deepest_brackets: usize,
    words: usize,
    explains: usize,
}

impl TokenCounts {
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
            self.chained += usize::from(match self.before {
                PreviousToken::Interval => !matches!(token, Token::SingleQuotedString(_)),
                PreviousToken::Bracket => *token == Token::LBracket,
                PreviousToken::Array => *token == Token::Lt,
                PreviousToken::Other => false,
            });
            self.before = PreviousToken::of(token);
        }
    }
}

/// The token before, where what follows it makes a chain.
#[derive(Debug, Default)]
enum PreviousToken {
    Interval,
    Bracket,
    Array,
    #[default]
    Other,
}

impl PreviousToken {
    fn of(token: &Token) -> Self {
        match token {
            Token::Word(word) if word.keyword == Keyword::INTERVAL => Self::Interval,
            Token::Word(word) if word.keyword == Keyword::ARRAY => Self::Array,
            Token::RBracket => Self::Bracket,
            _ => Self::Other,
        }
    }
}
