//! The order of an aggregate's values, without what is in it twice: `first_value(message ORDER BY ts DESC, ts)`, and `DISTINCT ON`,
//! which is planned as such aggregates. DataFusion drops the second from a plan's order, counts it all the same, and panics.
//!
//! # Invariants
//!
//! - Plans are optimized before: what becomes the same only when constants are computed is met too.
//! - Columns keep their names.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};

/// See the module.
pub(super) fn without_repeats(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(Aggregate {
            input,
            group_expr,
            aggr_expr,
            ..
        }) = node
        else {
            return Ok(Transformed::no(node));
        };
        let ordered = aggr_expr.into_iter().map(ordered_once).collect();
        let aggregate = Aggregate::try_new(input, group_expr, ordered)?;
        Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
    })?;
    Ok(plan.data)
}

/// An aggregate whose order has each expression once, by the name that it had.
fn ordered_once(aggregate: Expr) -> Expr {
    let name = NamePreserver::new_for_projection().save(&aggregate);
    let Expr::AggregateFunction(mut call) = aggregate.clone().unalias() else {
        return aggregate;
    };
    let mut seen: Vec<Expr> = Vec::new();
    call.params.order_by.retain(|by| {
        let expr = by.expr.clone().unalias_nested().data;
        let is_new = !seen.contains(&expr);
        seen.push(expr);
        is_new
    });
    if call.params.order_by.len() == seen.len() {
        return aggregate;
    }
    name.restore(Expr::AggregateFunction(call))
}
