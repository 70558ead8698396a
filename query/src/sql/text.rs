//! From a text to one statement that only reads and is small enough to plan.
//!
//! # Bounds
//!
//! | of | by | why |
//! |---|---|---|
//! | the text | [`LONGEST`] bytes | it is kept, copied and searched |
//! | brackets within each other | [`DEEPEST_BRACKETS`] | the parser recurses |
//! | calls of functions within each other | [`DEEPEST_CALLS`] | the parser reads each argument twice, and so what is within |
//! | operators and keywords | [`MOST_WORDS`] | each may be a level of a tree |
//! | levels of an expression | [`DEEPEST`] | planning recurses |
//! | tables, with those behind names of `WITH` | [`MOST_TABLES`] | a name may stand for many, and they for more |
//!
//! # Invariants
//!
//! - What is not known to read only is refused.
//! - Parameters take their places in the parsed statement as literals: no text is ever put into a text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, ObjectName, OrderByKind, Query, Select, SetExpr, Statement as Ast, Value, ValueWithSpan, Visit,
    VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::Parameters;
use super::failure::of_statement;
use crate::Error;

/// The longest text of a statement, in bytes.
const LONGEST: usize = 64 << 10;
const DEEPEST_BRACKETS: usize = 24;
const DEEPEST_CALLS: usize = 12;
const MOST_WORDS: usize = 4_096;
const DEEPEST: usize = 200;
const MOST_TABLES: usize = 64;
/// Levels of statements and queries within each other, for the parser.
const LEVELS: usize = 64;

/// A statement that may be planned.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) statement: Parsed,
    /// Whether rows come out of it, and not a plan or a description.
    pub(super) is_query: bool,
    /// Whether it asks for rows of one table, newest first.
    pub(super) newest_first: bool,
}

pub(super) fn read(text: &str, parameters: &Parameters) -> Result<Asked, Error> {
    if text.len() > LONGEST {
        let reason = format!("the text has {} bytes, more than {LONGEST}", text.len());
        return Err(Error::statement(reason));
    }
    let mut statement = parse(text)?;
    let (ast, explained) = reading(&mut statement)?;
    weigh(ast)?;
    fill(ast, parameters)?;
    let is_query = matches!(ast, Ast::Query(_));
    let newest_first = matches!(ast, Ast::Query(query) if is_newest_first(query));
    Ok(Asked {
        statement,
        is_query: is_query && !explained,
        newest_first,
    })
}

fn parse(text: &str) -> Result<Parsed, Error> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize_with_location()
        .map_err(|error| of_statement(ParserError::from(error).into()))?;
    survey(&tokens)?;
    let parser = DFParserBuilder::new(tokens)
        .with_dialect(&dialect)
        .with_recursion_limit(LEVELS)
        .build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    let mut statements = statements.map_err(of_statement)?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (Some(_), more) => Err(Error::statement(format!(
            "there are {} statements: send them one at a time",
            more + 1
        ))),
        (None, _) => Err(Error::statement(
            "there is no statement: write one, such as SELECT count(*) FROM logs",
        )),
    }
}

/// Looks at the tokens before a parser does, which recurses.
fn survey(tokens: &[TokenWithSpan]) -> Result<(), Error> {
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

/// The statement itself, and whether it is only to be explained.
fn reading(statement: &mut Parsed) -> Result<(&mut Ast, bool), Error> {
    let name = opening(&statement.to_string());
    let refused = |name: String| Err(Error::ReadOnly { what: name });
    match statement {
        Parsed::Statement(ast) => match ast.as_ref() {
            Ast::Query(_)
            | Ast::ShowTables { .. }
            | Ast::ShowColumns { .. }
            | Ast::ShowFunctions { .. }
            | Ast::ExplainTable { .. } => Ok((ast, false)),
            _ => refused(name),
        },
        Parsed::Explain(explain) => {
            let name = opening(&explain.statement.to_string());
            match explain.statement.as_mut() {
                Parsed::Statement(ast) if matches!(**ast, Ast::Query(_)) => Ok((ast, true)),
                _ => refused(name),
            }
        }
        Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) | Parsed::Reset(_) => refused(name),
    }
}

/// The word with which a statement begins.
fn opening(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_uppercase()
}

fn weigh(ast: &Ast) -> Result<(), Error> {
    let mut weight = Weight::default();
    match Visit::visit(ast, &mut weight) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(TooMuch::Levels) => Err(Error::statement(format!(
            "an expression has more than {DEEPEST} levels; lists of values go into IN (…)"
        ))),
        ControlFlow::Break(TooMuch::Tables) => Err(Error::statement(format!(
            "it reads more than {MOST_TABLES} tables, counted again wherever a name of WITH stands for them"
        ))),
        ControlFlow::Break(TooMuch::Changes) => Err(Error::ReadOnly {
            what: "a change within a query".to_owned(),
        }),
    }
}

#[derive(Debug)]
enum TooMuch {
    Levels,
    Tables,
    Changes,
}

/// How much a statement is when names are replaced by what they stand for.
#[derive(Debug, Default)]
struct Weight {
    levels: usize,
    /// Tables of the queries that are being visited, the innermost last.
    open: Vec<usize>,
    /// Queries that have a name, by their address, which is theirs alone while the statement is borrowed.
    named: HashMap<usize, String>,
    /// The tables behind a name; where two queries have one, the more of both.
    tables: HashMap<String, usize>,
}

impl Weight {
    fn count(&mut self, tables: usize) -> ControlFlow<TooMuch> {
        if self.open.is_empty() {
            self.open.push(0);
        }
        if let Some(count) = self.open.last_mut() {
            *count = count.saturating_add(tables);
            if *count > MOST_TABLES {
                return ControlFlow::Break(TooMuch::Tables);
            }
        }
        ControlFlow::Continue(())
    }
}

fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl Visitor for Weight {
    type Break = TooMuch;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<TooMuch> {
        self.open.push(0);
        if self.open.len() > LEVELS {
            return ControlFlow::Break(TooMuch::Levels);
        }
        if changes(&query.body) {
            return ControlFlow::Break(TooMuch::Changes);
        }
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.named
                .insert(address(&cte.query), cte.alias.name.value.to_lowercase());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<TooMuch> {
        let tables = self.open.pop().unwrap_or_default();
        if let Some(name) = self.named.get(&address(query)) {
            let known = self.tables.entry(name.clone()).or_default();
            *known = tables.max(*known);
            return ControlFlow::Continue(());
        }
        self.count(tables)
    }

    fn pre_visit_select(&mut self, _: &Select) -> ControlFlow<TooMuch> {
        self.count(1)
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<TooMuch> {
        let name = name.to_string().to_lowercase();
        let tables = self.tables.get(name.trim_matches('"')).copied();
        self.count(tables.unwrap_or(1))
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<TooMuch> {
        self.levels += 1;
        if self.levels > DEEPEST {
            return ControlFlow::Break(TooMuch::Levels);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<TooMuch> {
        self.levels -= 1;
        ControlFlow::Continue(())
    }
}

/// Whether a body is, or has, a statement that changes something.
fn changes(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select.into.is_some(),
        SetExpr::SetOperation { left, right, .. } => changes(left) || changes(right),
        SetExpr::Query(_) | SetExpr::Values(_) | SetExpr::Table(_) => false,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => true,
    }
}

/// Whether rows of one table are asked for, newest first.
fn is_newest_first(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let one_table = matches!(select.from.as_slice(), [table] if table.joins.is_empty());
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_ref().map(|order| &order.kind) else {
        return false;
    };
    let Some(first) = order.first() else {
        return false;
    };
    let by_ts = match &first.expr {
        Expr::Identifier(name) => name.value == "ts",
        Expr::CompoundIdentifier(path) => path.last().is_some_and(|name| name.value == "ts"),
        _ => false,
    };
    one_table && !grouped && select.distinct.is_none() && by_ts && first.options.asc == Some(false)
}

/// Puts the parameters into their places.
fn fill(ast: &mut Ast, parameters: &Parameters) -> Result<(), Error> {
    let given = parameters.by_place();
    let mut places = Places {
        given: &given,
        used: BTreeSet::new(),
    };
    if let ControlFlow::Break(error) = VisitMut::visit(ast, &mut places) {
        return Err(*error);
    }
    match given.keys().find(|name| !places.used.contains(*name)) {
        Some(name) => Err(Error::statement(format!(
            "the parameter {name} is given and stands nowhere in the text"
        ))),
        None => Ok(()),
    }
}

struct Places<'a> {
    given: &'a BTreeMap<String, serde_json::Value>,
    used: BTreeSet<String>,
}

impl VisitorMut for Places<'_> {
    type Break = Box<Error>;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        let Value::Placeholder(name) = &value.value else {
            return ControlFlow::Continue(());
        };
        let Some(given) = self.given.get(name) else {
            let at = value.span.start;
            return ControlFlow::Break(Box::new(Error::Statement {
                reason: format!(
                    "the parameter {name} is not given: parameters are a list for $1, $2, … or an object for $name"
                ),
                at: Some((at.line, at.column)),
            }));
        };
        let literal = match given {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Boolean(*value),
            serde_json::Value::Number(number) => Value::Number(number.to_string(), false),
            serde_json::Value::String(text) => Value::SingleQuotedString(text.clone()),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                let reason =
                    format!("the parameter {name} is a list or an object: give a text, a number, true, false or null");
                return ControlFlow::Break(Box::new(Error::statement(reason)));
            }
        };
        self.used.insert(name.clone());
        value.value = literal;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::Kind;

    fn none() -> Parameters {
        Parameters::default()
    }

    fn refused(text: &str) -> Error {
        read(text, &none()).unwrap_err()
    }

    #[test]
    fn only_statements_that_read_pass() {
        for text in [
            "SELECT 1",
            "with a as (select 1) select * from a;",
            "VALUES (1), (2)",
            "SHOW TABLES",
            "describe logs",
            "EXPLAIN ANALYZE SELECT * FROM logs",
        ] {
            assert!(read(text, &none()).is_ok(), "{text}");
        }
        for text in [
            "INSERT INTO logs VALUES (1)",
            "UPDATE logs SET level = 'x'",
            "DELETE FROM logs",
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT 1",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
            "CREATE FUNCTION f() RETURNS int RETURN 1",
            "DROP TABLE logs",
            "COPY logs TO '/a.csv'",
            "COPY (SELECT 1) TO '/a.csv' STORED AS CSV",
            "SET a = 1",
            "SET TIME ZONE 'UTC'",
            "RESET a",
            "BEGIN",
            "PREPARE p AS SELECT 1",
            "EXPLAIN INSERT INTO logs VALUES (1)",
            "EXPLAIN CREATE TABLE t AS SELECT 1",
            "SELECT 1 INTO t",
            "SELECT 1 UNION SELECT 2 INTO t",
            "WITH a AS (INSERT INTO logs VALUES (1) RETURNING *) SELECT * FROM a",
        ] {
            let error = refused(text);
            assert!(
                matches!(error.kind(), Kind::ReadOnly | Kind::Statement),
                "{text}: {error}"
            );
        }
        assert_eq!(refused("DROP TABLE logs").kind(), Kind::ReadOnly);
        assert_eq!(refused("SELECT 1; SELECT 2").kind(), Kind::Statement);
        assert_eq!(refused("  -- nothing\n;").kind(), Kind::Statement);
    }

    /// On a stack as query threads have.
    fn on_a_query_thread(work: fn()) {
        let thread = std::thread::Builder::new().stack_size(crate::querier::STACK);
        thread.spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn what_would_exhaust_a_planner_is_refused_at_once() {
        on_a_query_thread(refuse_what_would_exhaust);
    }

    fn refuse_what_would_exhaust() {
        let many = |text: &str, times| text.repeat(times);
        let chain = |n| {
            let links: String = (1..=n)
                .map(|n| format!(", t{n} AS (SELECT a.* FROM t{0} a, t{0} b)", n - 1))
                .collect();
            format!("WITH t0 AS (SELECT 1){links} SELECT * FROM t{n}")
        };
        for text in [
            format!("SELECT {}1{}", many("(", 40), many(")", 40)),
            format!("SELECT {}1{}", many("(", 30_000), many(")", 30_000)),
            format!("SELECT 1{}", many("+1", 300)),
            format!("SELECT 1{}", many("+1", 32_000)),
            format!("SELECT {} 1", many("NOT ", 8_000)),
            format!("SELECT {}1{}", many("lower (", 13), many(")", 13)),
            format!("SELECT {}1{}", many("cast(upper(", 7), many("))", 7)),
            format!("SELECT 1 FROM logs{}", many(",logs", 12_000)),
            format!("SELECT 1{}", many(" UNION ALL SELECT 1", 3_000)),
            format!("SELECT 1{}", many("::int", 3_000)),
            format!("{} SELECT 1", many("EXPLAIN ", 8_000)),
            format!("SELECT '{}'", many("x", LONGEST)),
            chain(8),
            chain(40),
        ] {
            let error = refused(&text);
            assert_eq!(error.kind(), Kind::Statement, "{} …: {error}", &text[..40]);
        }
        let list: Vec<_> = (0..9_000).map(|n| n.to_string()).collect();
        assert!(read(&format!("SELECT 1 WHERE 1 IN ({})", list.join(",")), &none()).is_ok());
        assert!(read(&chain(3), &none()).is_ok());
        let nested = format!(
            "SELECT 1 WHERE 1 IN {}SELECT lower('A'){}",
            many("(", 20),
            many(")", 20)
        );
        assert!(read(&nested, &none()).is_ok());
    }

    #[test]
    fn parameters_become_literals_and_each_has_its_place() {
        let given = |parameters| serde_json::from_value::<Parameters>(parameters).unwrap();
        let asked = read(
            "SELECT $1, $2, $3 FROM logs LIMIT $4",
            &given(json!(["a'; DROP TABLE logs; --", -2.5, null, 3])),
        );
        let text = asked.unwrap().statement.to_string();
        assert_eq!(text, "SELECT 'a''; DROP TABLE logs; --', -2.5, NULL FROM logs LIMIT 3");
        assert!(read("SELECT $level, $level", &given(json!({"level": "warn"}))).is_ok());
        for (text, parameters) in [
            ("SELECT $2", json!(["a"])),
            ("SELECT $1", json!(["a", "b"])),
            ("SELECT $1", json!([["a"]])),
            ("SELECT $a", json!({"b": 1})),
            ("SELECT 1", json!({"b": 1})),
        ] {
            assert!(read(text, &given(parameters)).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_newest_first_are_told_from_the_rest() {
        for (text, newest) in [
            ("SELECT * FROM logs ORDER BY ts DESC LIMIT 5", true),
            (
                "SELECT l.message FROM logs l WHERE level = 'x' ORDER BY l.ts DESC",
                true,
            ),
            ("SELECT * FROM logs ORDER BY ts", false),
            ("SELECT ts, count(*) FROM logs GROUP BY ts ORDER BY ts DESC", false),
            (
                "SELECT * FROM logs l JOIN traces t USING (flux_id) ORDER BY ts DESC",
                false,
            ),
        ] {
            assert_eq!(read(text, &none()).unwrap().newest_first, newest, "{text}");
        }
    }
}
