//! How large a plan's expressions become when every name of a column is replaced by what it stands for.
//!
//! An optimizer that moves conditions towards tables does just that, and a column that is used twice in each of twenty queries
//! within each other becomes a million terms. Nothing stops it in between, so a plan is weighed before.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::Error;

/// The most terms of all expressions together.
const MOST_TERMS: u64 = 50_000;

/// Refuses a plan whose expressions would grow beyond all bounds.
pub(super) fn check(plan: &LogicalPlan) -> Result<(), Error> {
    let mut terms = 0;
    columns(plan, &mut terms)?;
    if terms > MOST_TERMS {
        return Err(Error::statement(format!(
            "its expressions come to more than {MOST_TERMS} terms when columns of inner queries are written out: name fewer \
             of them twice"
        )));
    }
    Ok(())
}

/// The terms behind each column that a plan gives; adds those of all its expressions.
fn columns(plan: &LogicalPlan, terms: &mut u64) -> Result<Vec<u64>> {
    let inputs = plan.inputs().into_iter();
    let inputs: Vec<_> = inputs
        .map(|input| Ok((input.schema(), columns(input, terms)?)))
        .collect::<Result<_>>()?;
    let known: Vec<_> = inputs
        .iter()
        .map(|(schema, terms)| (schema.as_ref(), terms.as_slice()))
        .collect();
    let own = plan.expressions();
    let sizes: Vec<_> = own
        .iter()
        .map(|expr| size(expr, &known, terms))
        .collect::<Result<_>>()?;
    *terms = sizes.iter().fold(*terms, |sum, size| sum.saturating_add(*size));
    let width = plan.schema().fields().len();
    let greatest = |terms: &[u64]| terms.iter().copied().max().unwrap_or(1);
    Ok(match plan {
        LogicalPlan::Projection(_) if sizes.len() == width => sizes,
        LogicalPlan::Aggregate(aggregate) => {
            let groups = aggregate.group_expr.len().min(width);
            let mut all = sizes.get(..groups).unwrap_or_default().to_vec();
            all.resize(width, 1);
            all
        }
        LogicalPlan::Join(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Window(_) => {
            let mut all = known
                .iter()
                .flat_map(|(_, terms)| terms.iter().copied())
                .collect::<Vec<_>>();
            all.resize(width, 1);
            all
        }
        _ => vec![known.iter().map(|(_, terms)| greatest(terms)).max().unwrap_or(1); width],
    })
}

/// The terms of an expression over columns of known size.
fn size(expr: &Expr, inputs: &[(&DFSchema, &[u64])], terms: &mut u64) -> Result<u64> {
    let mut sum = 0_u64;
    expr.apply(|term| {
        sum = sum.saturating_add(1);
        match term {
            Expr::Column(column) => {
                let found = inputs.iter().find_map(|(schema, terms)| {
                    let index = schema.maybe_index_of_column(column)?;
                    terms.get(index).copied()
                });
                sum = sum.saturating_add(found.unwrap_or(1));
            }
            Expr::ScalarSubquery(query) => drop(columns(&query.subquery, terms)?),
            Expr::InSubquery(query) => drop(columns(&query.subquery.subquery, terms)?),
            Expr::Exists(query) => drop(columns(&query.subquery.subquery, terms)?),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(sum)
}
