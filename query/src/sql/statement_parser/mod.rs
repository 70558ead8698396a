//! Parses a text into one read-only statement that is small enough to plan.
//!
//! # Bounds
//!
//! | of | by | why |
//! |---|---|---|
//! | the text | [`LONGEST`] bytes | it is kept, copied and searched |
//! | brackets, operators | what [`token_limits`] says | a parser recurses |
//! | ways to read it | what [`bounded_dialect`] says | a parser backtracks |
//! | expressions and tables | what [`planning_cost`] says | planning recurses |
//!
//! # Invariants
//!
//! - What is not known to read only is refused; so is what the planner would pass over without a word.
//! - Where the parser reads what PostgreSQL does not mean, the tree is put right ([`ast_normalizer`]).
//! - Parameters take their places in the parsed statement as literals: no text is ever put into a text.

mod ast_normalizer;
mod bounded_dialect;
mod parameter_collector;
mod parameter_types;
mod placeholders;
mod planning_cost;
mod row_comparisons;
mod statement_splitter;
mod statement_tokens;
mod syntax_rewrites;
#[cfg(test)]
mod tests;
mod token_limits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use arrow_schema::DataType;
use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, OrderByKind, Query, SetExpr, Statement as Ast, TableFactor};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use self::ast_normalizer::normalize;
use self::bounded_dialect::BoundedDialect;
use self::parameter_collector::{MOST_PARAMETERS, bind_nulls};
use self::placeholders::{bind_values, compare_with_items};
use self::planning_cost::check_planning_cost;
pub use self::statement_splitter::split_statements;
pub use self::statement_tokens::{StatementToken, TokenKind, statement_tokens};
use self::token_limits::check_token_limits;
use super::SqlStatement;
use super::column_headers::ColumnHeaders;
use super::error_mapping::statement_error;
use super::postgres::PostgresCompatibility;
use crate::Error;

/// The longest text of a statement, in bytes.
const LONGEST: usize = 64 << 10;
/// Levels of statements and queries within each other.
const LEVELS: usize = 64;

/// A statement that may be planned.
#[derive(Debug)]
pub(super) struct ParsedStatement {
    pub(super) statement: Parsed,
    /// Whether rows come out of it, and not a plan or a description.
    pub(super) is_query: bool,
    /// Whether it asks for rows of one table, newest first.
    pub(super) newest_first: bool,
    /// What its columns are called, if not as the planner calls them.
    pub(super) headers: Option<ColumnHeaders>,
}

/// A statement whose parameters have no values yet.
#[derive(Debug)]
pub(super) struct UnboundStatement {
    /// With nulls in their places.
    pub(super) asked: ParsedStatement,
    /// As it is written.
    pub(super) with_places: Parsed,
    /// How many there are.
    pub(super) parameters: usize,
    /// The types of those that count rows (`LIMIT $1`) or are cast (`$1::bigint`).
    pub(super) types: BTreeMap<String, DataType>,
    /// Those that are lists, whose items are in their places in `with_places`.
    pub(super) lists: BTreeSet<String>,
}

/// As [`parse_bound`], without values for parameters.
pub(super) fn parse_unbound(
    written: &SqlStatement,
    postgres: Option<&PostgresCompatibility>,
) -> Result<UnboundStatement, Error> {
    let (mut with_places, headers) = parse_checked(&written.query, postgres)?;
    let mut statement = with_places.clone();
    let found = bind_nulls(require_read_only(&mut statement)?.0, &written.declared)?;
    compare_with_items(require_read_only(&mut with_places)?.0);
    // As many as are written: questions about the catalogue lose what has no rows, and parameters with it.
    let tokens = postgres
        .and_then(|_| statement_tokens(&written.query))
        .unwrap_or_default();
    let places = tokens
        .iter()
        .filter_map(|token| token.plain().strip_prefix('$')?.parse::<usize>().ok());
    let greatest = places
        .filter(|place| *place <= MOST_PARAMETERS)
        .max()
        .unwrap_or_default();
    Ok(UnboundStatement {
        asked: asked(statement, headers)?,
        with_places,
        parameters: found.greatest.max(greatest),
        types: found.types,
        lists: found.lists,
    })
}

/// Reads a statement with the values of its parameters.
pub(super) fn parse_bound(
    written: &SqlStatement,
    postgres: Option<&PostgresCompatibility>,
) -> Result<ParsedStatement, Error> {
    let (mut statement, headers) = parse_checked(&written.query, postgres)?;
    let ast = require_read_only(&mut statement)?.0;
    let unused = bind_values(ast, &written.parameters, &written.declared)?;
    // Questions about the catalogue lose what has no rows, and parameters with it.
    if let Some(name) = unused.filter(|_| postgres.is_none()) {
        return Err(Error::statement(format!(
            "the parameter {name} is given but is not used in the text"
        )));
    }
    asked(statement, headers)
}

/// The one statement of a text, which reads and is small enough, with the headers of its columns where PostgreSQL's are wanted.
fn parse_checked(
    text: &str,
    postgres: Option<&PostgresCompatibility>,
) -> Result<(Parsed, Option<ColumnHeaders>), Error> {
    if text.len() > LONGEST {
        let reason = format!("the text has {} bytes, more than {LONGEST}", text.len());
        return Err(Error::statement(reason));
    }
    let mut statement = parse(text, postgres)?;
    let ast = require_read_only(&mut statement)?.0;
    check_planning_cost(ast)?;
    let headers = postgres.and_then(|_| ColumnHeaders::of(ast));
    normalize(ast)?;
    Ok((statement, headers))
}

fn asked(mut statement: Parsed, headers: Option<ColumnHeaders>) -> Result<ParsedStatement, Error> {
    let (ast, explained) = require_read_only(&mut statement)?;
    let is_query = matches!(ast, Ast::Query(_));
    let newest_first = matches!(ast, Ast::Query(query) if is_newest_first(query));
    Ok(ParsedStatement {
        statement,
        is_query: is_query && !explained,
        newest_first,
        headers: headers.filter(|_| !explained),
    })
}

fn parse(text: &str, postgres: Option<&PostgresCompatibility>) -> Result<Parsed, Error> {
    let dialect = BoundedDialect::default();
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize_with_location()
        .map_err(|error| statement_error(ParserError::from(error).into()))?;
    check_token_limits(&tokens)?;
    let parser = DFParserBuilder::new(tokens.clone())
        .with_dialect(&dialect)
        .with_recursion_limit(LEVELS)
        .build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    if dialect.is_exhausted() {
        return Err(Error::statement(
            "it could be read in too many ways: something is not closed, or calls and CASE are too deep within each other; take inner \
             ones into a WITH",
        ));
    }
    let explains = matches!(&statements, Ok(read) if matches!(read.front(), Some(Parsed::Explain(_))));
    let postgres = postgres.filter(|_| !explains);
    if let Some(rewritten) = postgres.and_then(|postgres| postgres.parse_catalog_query(text, &tokens)) {
        let statements = rewritten.map_err(|error| statement_error(error.into()))?;
        return exactly_one(
            statements
                .into_iter()
                .map(|ast| Parsed::Statement(Box::new(ast)))
                .collect(),
        );
    }
    exactly_one(statements.map_err(statement_error)?)
}

fn exactly_one(mut statements: VecDeque<Parsed>) -> Result<Parsed, Error> {
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

/// The statement itself, and whether it is only to be explained.
fn require_read_only(statement: &mut Parsed) -> Result<(&mut Ast, bool), Error> {
    let refused = |statement: &dyn fmt::Display| {
        let what = opening(&statement.to_string());
        Err(Error::ReadOnly { what })
    };
    match statement {
        Parsed::Statement(ast) => match ast.as_ref() {
            Ast::Query(_)
            | Ast::ShowTables { .. }
            | Ast::ShowColumns { .. }
            | Ast::ShowFunctions { .. }
            | Ast::ExplainTable { .. } => Ok((ast, false)),
            _ => refused(ast),
        },
        Parsed::Explain(explain) => match explain.statement.as_ref() {
            Parsed::Statement(ast) if matches!(**ast, Ast::Query(_)) => match explain.statement.as_mut() {
                Parsed::Statement(ast) => Ok((ast, true)),
                other => refused(other),
            },
            other => refused(other),
        },
        Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) | Parsed::Reset(_) => refused(statement),
    }
}

/// The word with which a statement begins.
fn opening(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_uppercase()
}

/// Whether a body is, or has, a statement that changes something.
fn has_write(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select.into.is_some(),
        SetExpr::SetOperation { left, right, .. } => has_write(left) || has_write(right),
        SetExpr::Query(_) | SetExpr::Values(_) | SetExpr::Table(_) => false,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => true,
    }
}

/// Whether rows of one table are asked for, newest first.
fn is_newest_first(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let is_table = |relation: &TableFactor| matches!(relation, TableFactor::Table { .. });
    let one_table = matches!(select.from.as_slice(), [table] if table.joins.is_empty() && is_table(&table.relation))
        && query.with.is_none();
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
