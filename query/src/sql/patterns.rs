//! Patterns that a statement has as they are become [`Matches`]: `text ~ 'pattern'`, `regexp_like(text, 'pattern')`.
//!
//! A pattern that is none is left to DataFusion, which says what is wrong with it; so are flags, `~*`, and patterns out of columns.

use arrow_schema::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable as _, Operator};

use crate::patterns::Matches;

/// See the module.
pub(super) fn replaced(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let matched = match &expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::RegexMatch,
            right,
        }) => matched(left, right, schema),
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "regexp_like" => match args.as_slice() {
            [text, pattern] => matched(text, pattern, schema),
            _ => None,
        },
        _ => None,
    };
    matched.map_or_else(|| Transformed::no(expr), Transformed::yes)
}

fn matched(text: &Expr, pattern: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Utf8(Some(pattern)) | ScalarValue::Utf8View(Some(pattern)), _) = pattern else {
        return None;
    };
    // What is not of this type would be made it, row by row.
    (text.get_type(schema).ok()? == DataType::Utf8).then(|| Matches::call(text.clone(), pattern))?
}
