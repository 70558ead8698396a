//! Tells calls apart that differ in casts alone: the planner's names of columns have no casts, and no two columns may have one name.
//!
//! `sum(value), sum(value::bigint)` is planned as `sum(value), sum(coalesce(value::bigint))`. Of one value `coalesce` is that value: the
//! optimizer takes it out again.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement as Ast, Value, visit_expressions,
    visit_expressions_mut,
};

use super::syntax_rewrites::call;
use crate::sql::column_headers::type_name;

/// So many calls that differ in casts alone are told apart: each has one `coalesce` more than the one before.
const MOST_ALIKE: usize = 4;

/// See the module. A statement that has no such calls stays as it is.
pub(super) fn tell_casts_apart(ast: &mut Ast) {
    let mut alike: HashMap<String, Vec<String>> = HashMap::new();
    let _ = visit_expressions(&*ast, |expr| {
        if matches!(expr, Expr::Function(_)) {
            let (name, meant) = (without_casts(expr), with_types(expr));
            let has_casts = name != meant;
            let calls = alike.entry(name).or_default();
            if calls.len() <= MOST_ALIKE && !calls.contains(&meant) {
                // The first one stays as it is: that without casts has to.
                calls.insert(if has_casts { calls.len() } else { 0 }, meant);
            }
        }
        ControlFlow::<()>::Continue(())
    });
    alike.retain(|_, calls| (2..=MOST_ALIKE).contains(&calls.len()));
    if alike.is_empty() {
        return;
    }
    let _ = visit_expressions_mut(ast, |expr| {
        let calls = matches!(expr, Expr::Function(_)).then(|| alike.get(&without_casts(expr)));
        let place = calls.flatten().and_then(|calls| {
            let meant = with_types(expr);
            calls.iter().position(|call| *call == meant)
        });
        if let Some(place) = place
            && let Expr::Function(Function {
                args: FunctionArguments::List(list),
                ..
            }) = expr
            // What distinct values are ordered by must be the argument.
            && list.clauses.is_empty()
        {
            list.args.iter_mut().for_each(|arg| mark_cast(arg, place));
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Wraps an argument that has a cast. Of a literal the planner may need the value at once.
fn mark_cast(arg: &mut FunctionArg, times: usize) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg
        && !matches!(&*arg, Expr::Cast { expr, .. } if matches!(**expr, Expr::Value(_)))
        && without_casts(arg) != with_types(arg)
    {
        for _ in 0..times {
            *arg = call("coalesce", [taken(arg)]);
        }
    }
}

/// What the planner's name is made of.
fn without_casts(expr: &Expr) -> String {
    text_of(expr, |value, _| value)
}

/// What tells calls apart, however their casts are written.
fn with_types(expr: &Expr) -> String {
    text_of(expr, |value, kind| call(kind, [value]))
}

/// A text without brackets, with something else in place of casts.
fn text_of(expr: &Expr, cast: fn(Expr, &str) -> Expr) -> String {
    let mut plain = expr.clone();
    let _ = visit_expressions_mut(&mut plain, |part| {
        let bare = match part {
            Expr::Nested(inner) => taken(inner),
            Expr::Cast { expr, data_type, .. } => cast(taken(expr), &type_name(data_type)),
            _ => return ControlFlow::<()>::Continue(()),
        };
        *part = bare;
        ControlFlow::Continue(())
    });
    plain.to_string()
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn of_calls_that_differ_in_casts_alone_all_but_one_are_marked() {
        for (text, meant) in [
            (
                "SELECT sum(a::INT), sum(a) FROM t ORDER BY sum(CAST((a) AS integer))",
                "SELECT sum(coalesce(a::INT)), sum(a) FROM t ORDER BY sum(coalesce(CAST((a) AS INTEGER)))",
            ),
            (
                "SELECT max(a::INT), max(a::BIGINT), max(f(a::TEXT)) FROM t",
                "SELECT max(a::INT), max(coalesce(a::BIGINT)), max(f(a::TEXT)) FROM t",
            ),
            // One call, however it is written; casts of literals; an order of distinct values.
            (
                "SELECT sum(a::INT), sum((a)::INTEGER), sum(b), count(a)::INT, count(a) FROM t",
                "SELECT sum(a::INT), sum((a)::INTEGER), sum(b), count(a)::INT, count(a) FROM t",
            ),
            (
                "SELECT f('1'::INT, a), f('1', a), g(DISTINCT a::INT ORDER BY a::INT), g(DISTINCT a ORDER BY a) FROM t",
                "SELECT f('1'::INT, a), f('1', a), g(DISTINCT a::INT ORDER BY a::INT), g(DISTINCT a ORDER BY a) FROM t",
            ),
        ] {
            let mut ast = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
            tell_casts_apart(&mut ast);
            assert_eq!(ast.to_string(), meant);
        }
    }
}
