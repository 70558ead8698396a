//! PostgreSQL's dialect for a parser that does not backtrack without bound.
//!
//! The parser of `sqlparser` backtracks: where what it tries ends with an error, it tries the next thing that could be there (a call, a
//! type, the name of a column), and with each one all that is within. Of a text that is wrong innermost, or not closed, it so begins
//! expressions exponentially often: `CASE WHEN true THEN ` forty times takes years. It asks its dialect wherever an expression begins,
//! and this one lets it begin [`MOST_EXPRESSIONS`].
//!
//! # Invariants
//!
//! - Within that bound a text is read as [`PostgreSqlDialect`] reads it.
//! - Beyond it nothing is an expression any more: the parser comes to its end soon, whatever it takes that for.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// How often a parser may begin an expression: some tenths of a second. The longest text without a mistake has tens of thousands.
const MOST_EXPRESSIONS: u64 = 200_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BoundedDialect {
    expressions: Cell<u64>,
}

impl BoundedDialect {
    /// Whether the parser has begun more expressions than it may: what it found is not what was written.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.expressions.get() > MOST_EXPRESSIONS
    }
}

/// What [`PostgreSqlDialect`] says of itself.
macro_rules! as_postgres {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            PostgreSqlDialect {}.$name()
        })*
    };
}

impl Dialect for BoundedDialect {
    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.expressions.set(self.expressions.get() + 1);
        self.is_exhausted().then_some(Err(ParserError::RecursionLimitExceeded))
    }

    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.dialect()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        PostgreSqlDialect {}.prec_value(precedence)
    }

    as_postgres!(
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_alter_column_type_using,
        supports_array_typedef_with_brackets,
        supports_bitwise_shift_operators,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_comment_optimizer_hint,
        supports_create_index_with_clause,
        supports_create_table_like_parenthesized,
        supports_empty_projections,
        supports_explain_with_utility_options,
        supports_factorial_operator,
        supports_filter_during_aggregation,
        supports_geometric_types,
        supports_group_by_expr,
        supports_insert_table_alias,
        supports_interval_options,
        supports_listen_notify,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_named_fn_args_with_expr_name,
        supports_nested_comments,
        supports_notnull_operator,
        supports_numeric_literal_underscores,
        supports_select_wildcard_with_alias,
        supports_set_names,
        supports_string_escape_constant,
        supports_unicode_string_literal,
        supports_xml_expressions,
    );
}
