//! What the tokens of a text come to, before a parser recurses over them.
//!
//! | bound of | by | why |
//! |---|---|---|
//! | brackets within each other | [`DEEPEST_BRACKETS`] | each is some levels of recursion |
//! | calls of functions, `CASE` and `SELECT (` within each other | [`MOST_READINGS`] | a parser that meets an error reads what is within again |
//! | operators and keywords | [`MOST_WORDS`] | each may be a level of a tree, which is taken down by recursion |

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Error;

const DEEPEST_BRACKETS: usize = 24;
/// How often a parser may read what is innermost, where that is wrong: twelve calls are within each other.
const MOST_READINGS: u64 = 3_u64.pow(12);
/// How often it reads what is within a call, or a `CASE`: as one, as the other thing that it could be, and as the name of a column.
const OF_A_CALL: u64 = 3;
/// `POSITION (a IN b)` is tried twice, and each time what is before `IN` is.
const OF_POSITION: u64 = 5;
/// A subquery, or a function of that name.
const OF_SELECT: u64 = 2;
const MOST_WORDS: usize = 4_096;

/// Refuses tokens that would exhaust a parser.
pub(super) fn survey(tokens: &[TokenWithSpan]) -> Result<(), Error> {
    let mut counts = Counts::default();
    for token in tokens {
        counts.add(&token.token);
    }
    let Counts {
        deepest_brackets,
        most_readings,
        words,
        explains,
        ..
    } = counts;
    if deepest_brackets > DEEPEST_BRACKETS {
        let reason = format!("brackets are {deepest_brackets} within each other, more than {DEEPEST_BRACKETS}");
        return Err(Error::statement(reason));
    }
    if most_readings > MOST_READINGS {
        return Err(Error::statement(
            "calls of functions, CASE and SELECT ( are too deep within each other, 12 are allowed: take inner ones into a WITH",
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

/// Something that was begun, and how often what is around it may be read.
#[derive(Debug)]
enum Begun {
    Bracket(u64),
    Case(u64),
}

/// What tokens come to.
#[derive(Debug)]
struct Counts {
    begun: Vec<Begun>,
    brackets: usize,
    /// How often a parser may read what comes now.
    readings: u64,
    /// How often what is within a bracket that comes now.
    of_bracket: u64,
    /// Whether an expression may end here, and not only begin.
    may_end: bool,
    deepest_brackets: usize,
    most_readings: u64,
    words: usize,
    explains: usize,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            begun: Vec::new(),
            brackets: 0,
            readings: 1,
            of_bracket: 1,
            may_end: false,
            deepest_brackets: 0,
            most_readings: 1,
            words: 0,
            explains: 0,
        }
    }
}

impl Counts {
    fn add(&mut self, token: &Token) {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                self.begun.push(Begun::Bracket(self.readings));
                self.brackets += 1;
                self.deepest_brackets = self.deepest_brackets.max(self.brackets);
                self.read(self.of_bracket);
            }
            Token::RParen | Token::RBracket | Token::RBrace => self.close_bracket(),
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            Token::Word(word) => {
                self.words += 1;
                match word.keyword {
                    Keyword::EXPLAIN => self.explains += 1,
                    Keyword::CASE => {
                        self.begun.push(Begun::Case(self.readings));
                        self.read(OF_A_CALL);
                    }
                    Keyword::END if self.may_end => self.close_case(),
                    _ => {}
                }
            }
            Token::Whitespace(_) | Token::Comma | Token::Number(..) | Token::SingleQuotedString(_) => {}
            _ => self.words += 1,
        }
        if !matches!(token, Token::Whitespace(_)) {
            self.of_bracket = of_bracket(token);
            self.may_end = may_end(token);
        }
    }

    const fn read(&mut self, times: u64) {
        self.readings = self.readings.saturating_mul(times);
        if self.most_readings < self.readings {
            self.most_readings = self.readings;
        }
    }

    /// A `CASE` without an end within it ends too.
    fn close_bracket(&mut self) {
        while let Some(begun) = self.begun.pop() {
            let (Begun::Bracket(around) | Begun::Case(around)) = begun;
            self.readings = around;
            if matches!(begun, Begun::Bracket(_)) {
                self.brackets -= 1;
                return;
            }
        }
    }

    fn close_case(&mut self) {
        if let Some(Begun::Case(around)) = self.begun.last() {
            self.readings = *around;
            self.begun.pop();
        }
    }
}

/// How often what is within a bracket behind a token may be read.
fn of_bracket(token: &Token) -> u64 {
    match token {
        Token::Word(word) => match word.keyword {
            Keyword::SELECT => OF_SELECT,
            Keyword::POSITION => OF_POSITION,
            keyword if BEFORE_BRACKETS.contains(&keyword) => 1,
            _ => OF_A_CALL,
        },
        _ => 1,
    }
}

/// Whether an expression may end with a token: behind others `end` is the name of a column.
fn may_end(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword == Keyword::END || !BEFORE_OPERANDS.contains(&word.keyword),
        Token::RParen | Token::RBracket | Token::RBrace => true,
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::DollarQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::Placeholder(_) => true,
        _ => false,
    }
}

/// Keywords that something must follow.
const BEFORE_OPERANDS: [Keyword; 17] = [
    Keyword::AND,
    Keyword::AS,
    Keyword::BETWEEN,
    Keyword::CASE,
    Keyword::COLLATE,
    Keyword::ELSE,
    Keyword::ESCAPE,
    Keyword::FROM,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::NOT,
    Keyword::OR,
    Keyword::THEN,
    Keyword::TO,
    Keyword::WHEN,
];

/// Keywords behind which a bracket is not that of a call; some functions are keywords too.
const BEFORE_BRACKETS: [Keyword; 23] = [
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
    Keyword::THEN,
    Keyword::UNION,
    Keyword::VALUES,
    Keyword::WHEN,
    Keyword::WHERE,
];
