//! Normalizes the syntax tree where the parser reads a statement in another way than PostgreSQL.
//!
//! | written | read | meant |
//! |---|---|---|
//! | `a IS DISTINCT FROM b AND c` | `a IS DISTINCT FROM (b AND c)` | `(a IS DISTINCT FROM b) AND c` |
//! | `d AND a IS DISTINCT FROM b OR c` | `d AND (a IS DISTINCT FROM (b OR c))` | `(d AND a IS DISTINCT FROM b) OR c` |
//! | `ts AT TIME ZONE 'Europe/Berlin'` | a cast, which keeps the moment and its zone | `timezone('Europe/Berlin', ts)` |
//! | `-2 ^ 2` | `-(2 ^ 2)` | `(-2) ^ 2` |
//! | `- INTERVAL '1 hour 5 minutes'` | an hour back and five minutes on | all of it back |
//! | rows of values, `= ANY(ARRAY[…])` | structures and lists, whose nulls are equal | see [`row_comparisons`] |
//! | `FETCH FIRST`, `ESCAPE '#'`, `ORDER BY` of an alias and more | not at all, or otherwise | see [`syntax_rewrites`] |
//!
//! # Invariants
//!
//! - What stands in brackets stays together.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, Statement as Ast, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use super::{row_comparisons, syntax_rewrites};
use crate::Error;
use crate::sql::time_zones::TIMEZONE;

/// Puts a statement right, or refuses what cannot be; see the module.
pub(super) fn normalize(ast: &mut Ast) -> Result<(), Error> {
    match VisitMut::visit(ast, &mut AstNormalizer) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

fn passed(done: Result<(), Error>) -> ControlFlow<Box<Error>> {
    match done {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

struct AstNormalizer;

impl VisitorMut for AstNormalizer {
    type Break = Box<Error>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Box<Error>> {
        let read = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        match row_comparisons::expanded(normalize_expr(read)) {
            Ok(meant) => *expr = syntax_rewrites::respelled(meant),
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Box<Error>> {
        syntax_rewrites::fetch_is_limit(query);
        passed(syntax_rewrites::order(query))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Box<Error>> {
        passed(syntax_rewrites::distinct_ordinals(select))?;
        syntax_rewrites::name_alike(select);
        passed(syntax_rewrites::joins(select))
    }

    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Box<Error>> {
        if let Value::UnicodeStringLiteral(text) = &mut value.value {
            value.value = Value::SingleQuotedString(std::mem::take(text));
        }
        ControlFlow::Continue(())
    }
}

fn normalize_expr(read: Expr) -> Expr {
    match read {
        Expr::IsDistinctFrom(left, right) => {
            let distinct = |right| Expr::IsDistinctFrom(left, Box::new(right));
            within(*right, is_and_or_or, distinct)
        }
        Expr::IsNotDistinctFrom(left, right) => {
            let distinct = |right| Expr::IsNotDistinctFrom(left, Box::new(right));
            within(*right, is_and_or_or, distinct)
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } if begins_with_distinct(&right) => {
            let and = |right| Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right: Box::new(right),
            };
            within(*right, |op| *op == BinaryOperator::Or, and)
        }
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } if begins_with_distinct(&expr) => {
            let not = |expr| Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(expr),
            };
            within(*expr, is_and_or_or, not)
        }
        Expr::UnaryOp {
            op: op @ (UnaryOperator::Minus | UnaryOperator::Plus),
            expr,
        } => signed(op, *expr),
        Expr::AtTimeZone { timestamp, time_zone } => syntax_rewrites::call(TIMEZONE, [*time_zone, *timestamp]),
        right => right,
    }
}

/// A sign binds tighter than a power.
fn signed(op: UnaryOperator, expr: Expr) -> Expr {
    match expr {
        Expr::BinaryOp {
            left,
            op: power @ BinaryOperator::PGExp,
            right,
        } => Expr::BinaryOp {
            left: Box::new(signed(op, *left)),
            op: power,
            right,
        },
        // Of an interval that is written out the planner takes the sign to be of its first part.
        interval @ Expr::Interval(_) => signed(op, Expr::Nested(Box::new(interval))),
        expr => Expr::UnaryOp {
            op,
            expr: Box::new(expr),
        },
    }
}

fn is_and_or_or(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::And | BinaryOperator::Or)
}

/// Makes something of the first part of an expression that operators join which bind less tightly.
fn within(expr: Expr, is_looser: fn(&BinaryOperator) -> bool, make: impl FnOnce(Expr) -> Expr) -> Expr {
    match expr {
        Expr::BinaryOp { left, op, right } if is_looser(&op) => Expr::BinaryOp {
            left: Box::new(within(*left, is_looser, make)),
            op,
            right,
        },
        first => make(first),
    }
}

/// Whether it came out of the right side of a comparison: nothing else without brackets is looser than what it is a part of.
fn begins_with_distinct(expr: &Expr) -> bool {
    match expr {
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => true,
        Expr::BinaryOp { left, op, .. } if is_and_or_or(op) => begins_with_distinct(left),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => begins_with_distinct(expr),
        _ => false,
    }
}
