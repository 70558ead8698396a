//! The one scan of a table below filters and projections, and what stands above it as expressions of its columns.

use std::collections::HashMap;

use arrow_schema::FieldRef;
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use datafusion::optimizer::push_down_filter::replace_cols_by_name;

/// A scan, and expressions and conditions that stand above it, all of its columns.
pub(super) struct BaseScan {
    pub(super) scan: TableScan,
    pub(super) exprs: Vec<Expr>,
    pub(super) conditions: Vec<Expr>,
}

/// `None` if anything else stands above it.
pub(super) fn base_scan(mut plan: &LogicalPlan, mut exprs: Vec<Expr>) -> Result<Option<BaseScan>> {
    let mut conditions = Vec::new();
    let flat = |column: (Option<&TableReference>, &FieldRef)| Column::from(column).flat_name();
    loop {
        let names: HashMap<String, Expr> = match plan {
            LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
                conditions.extend(scan.filters.iter().cloned());
                let scan = scan.clone();
                return Ok(Some(BaseScan {
                    scan,
                    exprs,
                    conditions,
                }));
            }
            LogicalPlan::Filter(filter) => {
                conditions.push(filter.predicate.clone());
                plan = &filter.input;
                continue;
            }
            LogicalPlan::Projection(projection) => {
                plan = &projection.input;
                let columns = projection.schema.iter().map(flat);
                columns
                    .zip(projection.expr.iter().map(|expr| expr.clone().unalias()))
                    .collect()
            }
            LogicalPlan::SubqueryAlias(alias) => {
                plan = &alias.input;
                let columns = alias.schema.iter().map(flat);
                columns
                    .zip(plan.schema().iter().map(|column| Expr::Column(column.into())))
                    .collect()
            }
            _ => return Ok(None),
        };
        for expr in exprs.iter_mut().chain(&mut conditions) {
            *expr = replace_cols_by_name(std::mem::take(expr), &names)?;
        }
    }
}
