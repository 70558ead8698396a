//! Comparisons, `BETWEEN` and `IN`: their sides are rewritten alike.

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

const fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(
        op,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
    )
}

/// A comparison with all its sides rewritten, where these are concerned; anything else as it is.
pub(super) fn rewrite_comparison(
    expr: Expr,
    are_concerned: impl Fn(&[&Expr]) -> bool,
    rewrite: impl Fn(Expr) -> Result<Expr>,
) -> Result<Transformed<Expr>> {
    let sides: Vec<&Expr> = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => vec![left, right],
        Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(expr.as_ref()).chain(list).collect(),
        _ => Vec::new(),
    };
    if sides.is_empty() || !are_concerned(&sides) {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|side| Ok(Transformed::yes(rewrite(side)?)))
}
