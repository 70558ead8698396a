//! `sum` of whole numbers: a sum that does not fit is an error. DataFusion wraps it around. `avg` of differences of times: rounded
//! to a microsecond. DataFusion cuts it.
//!
//! ```text
//! Aggregate sum(n)   ─>   Projection CAST(sum(n) AS bigint)
//!                           Aggregate sum(CAST(n AS decimal))
//! Aggregate avg(d)   ─>   Projection CAST(round(avg(d)) AS duration)
//!                           Aggregate avg(CAST(d AS double))
//! ```
//!
//! The same of windows. A sum of so many digits has room for more numbers than there are rows.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::math::expr_fn::round;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable as _, LogicalPlan, Projection, Window, WindowFunctionDefinition, cast,
};

/// The digits of the greatest whole number.
const WIDE: DataType = DataType::Decimal128(20, 0);

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
        let kind = field.data_type();
        let narrow = match kind {
            _ if !is_sum => return column,
            DataType::Duration(_) => cast(cast(round(vec![column]), DataType::Int64), kind.clone()),
            _ => cast(column, kind.clone()),
        };
        narrow.alias_qualified(relation.cloned(), field.name())
    });
    let columns = columns.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(wide),
    )?)))
}

/// A sum of whole numbers as one of decimals, an average of durations as one of doubles, by the same name.
fn widened(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (function, args) = match expr.clone().unalias() {
        Expr::AggregateFunction(call) => (call.func.name().to_owned(), call.params.args),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => (function.name().to_owned(), call.params.args),
            WindowFunctionDefinition::WindowUDF(_) => return None,
        },
        _ => return None,
    };
    let [arg] = args.as_slice() else {
        return None;
    };
    let wide = match (function.as_str(), arg.get_type(schema).ok()?) {
        ("sum", kind) if kind.is_integer() => cast(arg.clone(), WIDE),
        // What a `CASE` is of is known later.
        ("avg", kind @ DataType::Duration(_)) => {
            cast(cast(cast(arg.clone(), kind), DataType::Int64), DataType::Float64)
        }
        _ => return None,
    };
    let widened = match expr.clone().unalias() {
        Expr::AggregateFunction(mut call) => {
            call.params.args = vec![wide];
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) => {
            call.params.args = vec![wide];
            Expr::WindowFunction(call)
        }
        _ => return None,
    };
    Some(NamePreserver::new_for_projection().save(expr).restore(widened))
}
