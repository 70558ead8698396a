//! `sum` of whole numbers and of differences of times: a sum that does not fit is an error. DataFusion wraps it around.
//! `avg` of differences of times is rounded to a microsecond. DataFusion cuts it.
//!
//! ```text
//! Aggregate sum(n)   ─>   Projection CAST(sum(n) AS bigint)
//!                           Aggregate sum(CAST(n AS decimal))
//! Aggregate avg(d)   ─>   Projection CAST(round(avg(d)) AS duration)
//!                           Aggregate avg(CAST(d AS decimal))
//! ```
//!
//! Distinct values of one expression that were named while it was rewritten get their names in such a projection, too.
//!
//! The same of windows. A sum of so many digits has room for more numbers than there are rows.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
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
pub(super) fn rewrite_sums(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (input, exprs) = match &plan {
        LogicalPlan::Aggregate(aggregate) => (&aggregate.input, &aggregate.aggr_expr),
        LogicalPlan::Window(window) => (&window.input, &window.window_expr),
        _ => return Ok(Transformed::no(plan)),
    };
    let widened: Vec<_> = exprs.iter().map(|expr| widened(expr, input.schema())).collect();
    let splits_distinct = can_split_distinct(&plan);
    if widened.iter().all(Option::is_none) && !splits_distinct {
        return Ok(Transformed::no(plan));
    }
    let (before, has_groupings) = (Arc::clone(plan.schema()), has_groupings(&plan));
    // Columns of groups, or of the rows that a window is over.
    let others = before.fields().len().saturating_sub(widened.len());
    let (exprs, units): (Vec<_>, Vec<_>) = widened
        .into_iter()
        .zip(exprs)
        .map(|(wide, expr)| match wide {
            Some((wide, unit)) => (wide, Some(unit)),
            None if splits_distinct => (expr.clone().unalias(), None),
            None => (expr.clone(), None),
        })
        .unzip();
    let wide = match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, .. }) => {
            LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, exprs)?)
        }
        LogicalPlan::Window(Window { input, .. }) => LogicalPlan::Window(Window::try_new(exprs, input)?),
        other => other,
    };
    let units = std::iter::repeat_n(None, others).chain(units);
    let columns = wide.schema().iter().zip(before.iter()).zip(units);
    // Of that column `grouping(…)` is made, by a rule that puts it between the two.
    let columns =
        columns.filter(|((_, (_, field)), _)| !has_groupings || field.name() != Aggregate::INTERNAL_GROUPING_ID);
    let columns = columns.map(|((made, (relation, field)), unit)| {
        let (column, kind) = (Expr::from(made), field.data_type());
        let narrow = match unit {
            None if made.1.name() == field.name() => return column,
            None => column,
            Some(unit @ DataType::Duration(_)) => {
                cast(cast(cast(round(vec![column]), DataType::Int64), unit), kind.clone())
            }
            Some(_) => cast(column, kind.clone()),
        };
        narrow.alias_qualified(relation.cloned(), field.name())
    });
    let columns = columns.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(wide),
    )?)))
}

fn has_groupings(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    matches!(aggregate.group_expr.first(), Some(Expr::GroupingSet(_)))
}

/// Whether distinct values of one expression are aggregated by another name. DataFusion makes two groupings of them, which can spill, but
/// only where a call has no name of its own, and nothing of the rows has a name that it gives.
fn can_split_distinct(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    let is_named = |expr: &Expr| matches!(expr, Expr::Alias(_));
    let distinct = aggregate
        .aggr_expr
        .iter()
        .filter_map(|expr| match expr.clone().unalias() {
            Expr::AggregateFunction(call) if call.params.distinct => Some((is_named(expr), call.params.args)),
            _ => None,
        });
    let distinct: Vec<_> = distinct.collect();
    let args: HashSet<_> = distinct.iter().map(|(_, args)| args).collect();
    let is_single = args.len() == 1 && args.iter().all(|args| args.len() == 1);
    let own_name = |expr: &Expr| expr.clone().unalias().schema_name().to_string();
    let names: HashSet<_> = aggregate.aggr_expr.iter().map(own_name).collect();
    let mut columns = aggregate.input.schema().fields().iter();
    is_single
        && distinct.iter().any(|(is_named, _)| *is_named)
        && names.len() == aggregate.aggr_expr.len()
        && !has_groupings(plan)
        && !columns.any(|field| field.name().starts_with("alias") || field.name().starts_with("group_alias_"))
}

/// A sum, or an average of durations, as one of decimals, by the same name; and the type of what they count.
fn widened(expr: &Expr, schema: &DFSchema) -> Option<(Expr, DataType)> {
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
    let unit = match (function.as_str(), arg.get_type(schema).ok()?) {
        ("sum", kind) if kind.is_integer() || matches!(kind, DataType::Duration(_)) => kind,
        ("avg", DataType::Duration(_)) => DataType::Duration(TimeUnit::Microsecond),
        _ => return None,
    };
    let number = match &unit {
        // What a `CASE` is of is known later.
        DataType::Duration(_) => cast(cast(arg.clone(), unit.clone()), DataType::Int64),
        _ => arg.clone(),
    };
    let wide = cast(number, WIDE);
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
    Some((NamePreserver::new_for_projection().save(expr).restore(widened), unit))
}
