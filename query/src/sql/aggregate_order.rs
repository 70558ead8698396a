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
use datafusion::logical_expr::{Expr, LogicalPlan};

/// See the module.
pub(super) fn dedupe_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Aggregate(mut aggregate) = node else {
            return Ok(Transformed::no(node));
        };
        let mut is_changed = false;
        for expr in &mut aggregate.aggr_expr {
            if let Some(once) = ordered_once(expr) {
                *expr = once;
                is_changed = true;
            }
        }
        let plan = LogicalPlan::Aggregate(aggregate);
        Ok(if is_changed {
            Transformed::yes(plan)
        } else {
            Transformed::no(plan)
        })
    })?;
    Ok(plan.data)
}

/// An aggregate whose order has each expression once, by the name that it had; `None` if it is one already.
fn ordered_once(aggregate: &Expr) -> Option<Expr> {
    let mut inner = aggregate;
    while let Expr::Alias(alias) = inner {
        inner = &alias.expr;
    }
    let Expr::AggregateFunction(call) = inner else {
        return None;
    };
    let mut seen: Vec<Expr> = Vec::new();
    let mut once = call.clone();
    once.params.order_by.retain(|by| {
        let expr = by.expr.clone().unalias_nested().data;
        let is_new = !seen.contains(&expr);
        seen.push(expr);
        is_new
    });
    let name = NamePreserver::new_for_projection().save(aggregate);
    (once.params.order_by.len() < seen.len()).then(|| name.restore(Expr::AggregateFunction(once)))
}
