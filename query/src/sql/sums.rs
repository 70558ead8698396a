//! `sum` of whole numbers: a sum that does not fit is an error. DataFusion wraps it around.
//!
//! ```text
//! Aggregate sum(n)   ─>   Projection CAST(sum(n) AS bigint)
//!                           Aggregate sum(CAST(n AS decimal))
//! ```
//!
//! The same of windows. A sum of so many digits has room for more numbers than there are rows.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable as _, LogicalPlan, Projection, Window, WindowFunctionDefinition, cast,
};

/// The digits of the greatest whole number.
pub(super) const WIDE: DataType = DataType::Decimal128(20, 0);

/// See the module.
pub(super) fn checked(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (input, exprs) = match &plan {
        LogicalPlan::Aggregate(aggregate) => (&aggregate.input, &aggregate.aggr_expr),
        LogicalPlan::Window(window) => (&window.input, &window.window_expr),
        _ => return Ok(Transformed::no(plan)),
    };
    let widened: Vec<_> = exprs.iter().map(|expr| widened(expr, input.schema())).collect();
    if widened.iter().all(Option::is_none) {
        return Ok(Transformed::no(plan));
    }
    let before = Arc::clone(plan.schema());
    // Columns of groups, or of the rows that a window is over.
    let others = before.fields().len().saturating_sub(widened.len());
    let sums: Vec<_> = widened.iter().map(Option::is_some).collect();
    let exprs = widened
        .into_iter()
        .zip(exprs)
        .map(|(wide, expr)| wide.unwrap_or_else(|| expr.clone()));
    let exprs = exprs.collect();
    let wide = match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, .. }) => {
            LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, exprs)?)
        }
        LogicalPlan::Window(Window { input, .. }) => LogicalPlan::Window(Window::try_new(exprs, input)?),
        other => other,
    };
    let is_sum = std::iter::repeat_n(false, others).chain(sums);
    let columns = wide.schema().iter().zip(before.iter()).zip(is_sum);
    let columns = columns.map(|((made, (relation, field)), is_sum)| {
        let column = Expr::from(made);
        if is_sum {
            cast(column, field.data_type().clone()).alias_qualified(relation.cloned(), field.name())
        } else {
            column
        }
    });
    let columns = columns.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(wide),
    )?)))
}

/// A sum of whole numbers as one of decimals, by the same name.
fn widened(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let wide = |args: Vec<Expr>| args.into_iter().map(|arg| cast(arg, WIDE)).collect();
    let is_whole = |args: &[Expr]| match args {
        [arg] => arg.get_type(schema).is_ok_and(|kind| kind.is_integer()),
        _ => false,
    };
    let sum = match expr.clone().unalias() {
        Expr::AggregateFunction(mut call) if call.func.name() == "sum" && is_whole(&call.params.args) => {
            call.params.args = wide(call.params.args);
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call)
            if matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(sum) if sum.name() == "sum")
                && is_whole(&call.params.args) =>
        {
            call.params.args = wide(std::mem::take(&mut call.params.args));
            Expr::WindowFunction(call)
        }
        _ => return None,
    };
    Some(NamePreserver::new_for_projection().save(expr).restore(sum))
}
