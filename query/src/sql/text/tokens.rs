//! What the tokens of a text come to, before a parser recurses over them.
//!
//! | bound of | by | why |
//! |---|---|---|
//! | brackets within each other | [`DEEPEST_BRACKETS`] | each is some levels of recursion |
//! | calls of functions within each other | [`DEEPEST_CALLS`] | arguments are read twice, and so what is within |
//! | operators and keywords | [`MOST_WORDS`] | each may be a level of a tree, which is taken down by recursion |

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Error;

const DEEPEST_BRACKETS: usize = 24;
const DEEPEST_CALLS: usize = 12;
const MOST_WORDS: usize = 4_096;

/// Refuses tokens that would exhaust a parser.
pub(super) fn survey(tokens: &[TokenWithSpan]) -> Result<(), Error> {
    let mut counts = Counts::default();
    for token in tokens {
        counts.add(&token.token);
    }
    let Counts {
        deepest_brackets,
        deepest_calls,
        words,
        explains,
        ..
    } = counts;
    if deepest_brackets > DEEPEST_BRACKETS {
        let reason = format!("brackets are {deepest_brackets} within each other, more than {DEEPEST_BRACKETS}");
        return Err(Error::statement(reason));
    }
    if deepest_calls > DEEPEST_CALLS {
        let reason = format!(
            "calls of functions are {deepest_calls} within each other, more than {DEEPEST_CALLS}: take inner ones into a WITH"
        );
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
struct Counts {
    /// The open brackets, and of each whether it is that of a call.
    open: Vec<bool>,
    calls: usize,
    /// Whether a bracket that comes now would be that of a call.
    after_name: bool,
    deepest_brackets: usize,
    deepest_calls: usize,
    words: usize,
    explains: usize,
}

impl Counts {
    fn add(&mut self, token: &Token) {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                self.open.push(self.after_name);
                self.calls += usize::from(self.after_name);
                self.deepest_brackets = self.deepest_brackets.max(self.open.len());
                self.deepest_calls = self.deepest_calls.max(self.calls);
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                self.calls -= usize::from(self.open.pop().unwrap_or_default());
            }
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            Token::Word(word) => {
                self.words += 1;
                self.explains += usize::from(word.keyword == Keyword::EXPLAIN);
            }
            Token::Whitespace(_) | Token::Comma | Token::Number(..) | Token::SingleQuotedString(_) => {}
            _ => self.words += 1,
        }
        if !matches!(token, Token::Whitespace(_)) {
            self.after_name = matches!(token, Token::Word(word) if !BEFORE_BRACKETS.contains(&word.keyword));
        }
    }
}

/// Keywords behind which a bracket is not that of a call; some functions are keywords too.
const BEFORE_BRACKETS: [Keyword; 24] = [
    Keyword::ALL,
    Keyword::AND,
    Keyword::AS,
    Keyword::BY,
    Keyword::CASE,
    Keyword::ELSE,
    Keyword::EXCEPT,
    Keyword::EXISTS,
    Keyword::FILTER,
    Keyword::FROM,
    Keyword::HAVING,
    Keyword::IN,
    Keyword::INTERSECT,
    Keyword::JOIN,
    Keyword::NOT,
    Keyword::ON,
    Keyword::OR,
    Keyword::OVER,
    Keyword::SELECT,
    Keyword::THEN,
    Keyword::UNION,
    Keyword::VALUES,
    Keyword::WHEN,
    Keyword::WHERE,
];
