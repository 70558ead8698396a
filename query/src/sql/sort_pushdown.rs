//! Optimizer rule: a table that is sorted by `ts` is told so, and gives its rows in that order.
//!
//! ```text
//! Sort: ts DESC, fetch 50            Sort: ts DESC, fetch 50        (nothing is left to sort: it goes from the plan)
//!   Filter: level = 'error'    ─>      Filter: level = 'error'
//!     logs                               logs, newest first, some 50
//! ```
//!
//! # Invariants
//!
//! - The sort and all conditions stay: a plan is right whatever the table makes of what it is told.
//!
//! # Not here
//!
//! Which rows come, and how: [`crate::table`].

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, TableScan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use model::filter::SortOrder;

use crate::table::{TimeOrder, ViewTable};

/// The rule; see the module.
#[derive(Debug)]
pub(super) struct SortPushdown;

impl OptimizerRule for SortPushdown {
    fn name(&self) -> &str {
        "sort_pushdown"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let input = match &plan {
            LogicalPlan::Sort(sort) => told(sort)?,
            _ => None,
        };
        Ok(match (plan, input) {
            (LogicalPlan::Sort(sort), Some(input)) => Transformed::yes(LogicalPlan::Sort(Sort {
                input: Arc::new(input),
                ..sort
            })),
            (plan, _) => Transformed::no(plan),
        })
    }
}

/// What is sorted, if it is a table that can give its rows in that order.
fn told(sort: &Sort) -> Result<Option<LogicalPlan>> {
    let Some(first) = sort.expr.first() else {
        return Ok(None);
    };
    let order = if first.asc { SortOrder::Asc } else { SortOrder::Desc };
    let in_order = TimeOrder {
        order,
        wanted: sort.fetch,
    };
    match &first.expr {
        Expr::Column(column) => in_order_of(&sort.input, column, in_order),
        _ => Ok(None),
    }
}

fn in_order_of(plan: &LogicalPlan, column: &Column, in_order: TimeOrder) -> Result<Option<LogicalPlan>> {
    let below = match plan {
        LogicalPlan::TableScan(scan) => return Ok(scan_in_order(scan, column, in_order)),
        LogicalPlan::Filter(_) => Some(column.clone()),
        LogicalPlan::Projection(projection) => {
            let at = projection.schema.maybe_index_of_column(column);
            match at
                .and_then(|at| projection.expr.get(at))
                .map(|expr| expr.clone().unalias())
            {
                Some(Expr::Column(column)) => Some(column),
                _ => None,
            }
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let at = alias.schema.maybe_index_of_column(column);
            at.map(|at| Column::from(alias.input.schema().qualified_field(at)))
        }
        _ => None,
    };
    let inputs = plan.inputs();
    let (Some(column), [input]) = (below, inputs.as_slice()) else {
        return Ok(None);
    };
    match in_order_of(input, &column, in_order)? {
        Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Some),
        None => Ok(None),
    }
}

fn scan_in_order(scan: &TableScan, column: &Column, in_order: TimeOrder) -> Option<LogicalPlan> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<ViewTable>()?.in_order(in_order)?;
    let is_whole = column.name == "ts" && scan.fetch.is_none();
    is_whole.then(|| {
        LogicalPlan::TableScan(TableScan {
            source: provider_as_source(Arc::new(table)),
            ..scan.clone()
        })
    })
}
