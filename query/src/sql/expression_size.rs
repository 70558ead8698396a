//! Expression size: how large a plan's expressions become when column names are expanded.
//!
//! An optimizer that moves conditions towards tables does just that, and a column that is used twice in each of twenty queries
//! within each other becomes a million terms. One rule makes them all at once, so a plan is weighed before. Subqueries
//! weigh as often as they are planned. `CUBE`, `ROLLUP` and `GROUPING SETS` weigh as many columns as all their sets have: DataFusion
//! makes them all for each batch, and counts none.

use std::collections::HashSet;

use arrow_schema::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable as _, GroupingSet, LogicalPlan, Operator, Subquery,
};

use super::point_rollup;
use super::statement_bounds::StatementBounds;
use crate::Error;

/// The most terms of all expressions together.
const MOST_TERMS: u64 = 50_000;

/// The bytes of a value that are as much as a term; what a term makes of a row has about as many.
const TERM_BYTES: usize = 16;
/// The fewest rows of a batch.
const FEWEST_ROWS: usize = 8;

/// How often the subquery of `ANY` or `ALL` is planned, which `IN` may become.
const QUANTIFIED: u64 = 3;
/// How often any other subquery is looked at: with the query around it, and by itself. Each within another one doubles it again:
/// twenty took 20 s.
const LOOKED_AT: u64 = 2;

/// Aggregates whose state of one group has no bounds, or thousands of bytes; so has that of any with `DISTINCT`.
const LARGE_STATES: [&str; 5] = [
    "array_agg",
    "string_agg",
    "median",
    "percentile_cont",
    "approx_distinct",
];

/// What the expressions of a plan come to.
#[derive(Debug, Clone, Copy, Default)]
struct ExpressionSize {
    terms: u64,
    /// Terms that planning looks at again, once for each time.
    replanned: u64,
    patterns: usize,
    /// Whether groups have large states.
    large_states: bool,
}

impl ExpressionSize {
    fn planned(&self) -> u64 {
        self.terms.saturating_add(self.replanned)
    }

    /// Counts what came after `before` so many times for planning, once for rows.
    fn replan(&mut self, before: u64, times: u64) {
        let own = self.planned().saturating_sub(before);
        self.replanned = self.replanned.saturating_add(own.saturating_mul(times - 1));
    }
}

/// Refuses a plan whose expressions would grow beyond all bounds, and fits its session to them: what is made of the rows of a
/// batch is within the bounds of a batch, for a text that is written once is there once for each row; and all regular
/// expressions together are within the memory of the statement.
pub(super) fn check(plan: &LogicalPlan, session: &mut SessionState) -> Result<(), Error> {
    let weight = measure_plan(plan)?;
    if weight.planned() > MOST_TERMS {
        return Err(Error::statement(format!(
            "its expressions come to more than {MOST_TERMS} terms when columns of inner queries and grouping sets are written out, and \
             subqueries within each other are planned: name fewer of them twice, group by fewer at once, nest fewer subqueries"
        )));
    }
    fit(session, weight);
    Ok(())
}

/// Fits the session to an optimized plan, whose literals are there that functions make of constants. Groups with large states are
/// made by one thread: between two, the states of as many groups as a batch has rows wait for each other, however large they are.
pub(super) fn fit_optimized(plan: &LogicalPlan, session: &mut SessionState) -> Result<()> {
    let weight = measure_plan(plan)?;
    fit(session, weight);
    let options = session.config_mut().options_mut();
    if weight.large_states {
        options.execution.target_partitions = 1;
    }
    plan.apply_with_subqueries(|node| {
        let optimizer = &mut options.optimizer;
        match node {
            // A limit moves below windows, to groups that these have to see (<https://github.com/apache/datafusion/pull/25066>).
            LogicalPlan::Window(_) => {
                optimizer.enable_topk_aggregation = false;
                optimizer.enable_distinct_aggregation_soft_limit = false;
            }
            // The filter that a `min` or `max` of a column makes removes rows that one of an expression beside it has to see.
            LogicalPlan::Aggregate(of) if of.aggr_expr.iter().any(is_of_expression) => {
                optimizer.enable_aggregate_dynamic_filter_pushdown = false;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether an aggregate is of more than a column.
fn is_of_expression(aggregate: &Expr) -> bool {
    match aggregate.clone().unalias() {
        Expr::AggregateFunction(call) => call.params.args.iter().any(|arg| !matches!(arg, Expr::Column(_))),
        _ => true,
    }
}

fn measure_plan(plan: &LogicalPlan) -> Result<ExpressionSize> {
    let mut weight = ExpressionSize::default();
    columns(plan, &mut weight)?;
    Ok(weight)
}

fn fit(session: &mut SessionState, weight: ExpressionSize) {
    let options = session.config_mut().options_mut();
    let Some(bounds) = options.extensions.get_mut::<StatementBounds>() else {
        return;
    };
    bounds.set_patterns(weight.patterns);
    let terms = usize::try_from(weight.terms).unwrap_or(usize::MAX);
    let rows = (bounds.batch() / terms.saturating_mul(TERM_BYTES).max(1)).max(FEWEST_ROWS);
    if rows < session.config().batch_size() {
        *session.config_mut() = session.config().clone().with_batch_size(rows);
    }
}

/// The columns of all grouping sets together: each set has its own for the rows of a batch.
fn grouping_terms(groups: &[Expr]) -> u64 {
    let terms = |group: &Expr| match group {
        Expr::GroupingSet(GroupingSet::Cube(columns)) => {
            let sets = u32::try_from(columns.len())
                .ok()
                .and_then(|columns| 1_u64.checked_shl(columns));
            sets.unwrap_or(u64::MAX).saturating_mul(columns.len() as u64)
        }
        Expr::GroupingSet(GroupingSet::Rollup(columns)) => (columns.len() as u64 + 1) * columns.len() as u64,
        // A set has a column, null, for each one of the others.
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            let columns: HashSet<_> = sets.iter().flatten().collect();
            (sets.len() as u64).saturating_mul(columns.len() as u64)
        }
        _ => 0,
    };
    groups.iter().map(terms).fold(0, u64::saturating_add)
}

/// Whether groups have an aggregate whose state is large.
fn has_large_states(aggregate: &Aggregate) -> Result<bool> {
    let is_large = |expr: &Expr| {
        Ok(matches!(expr, Expr::AggregateFunction(call)
            if call.params.distinct || LARGE_STATES.contains(&call.func.name())))
    };
    let mut any = false;
    for expr in aggregate.aggr_expr.iter().filter(|_| !aggregate.group_expr.is_empty()) {
        any |= expr.exists(is_large)?;
    }
    Ok(any)
}

/// The terms behind each column that a plan gives; adds those of all its expressions.
fn columns(plan: &LogicalPlan, weight: &mut ExpressionSize) -> Result<Vec<u64>> {
    let inputs = plan.inputs().into_iter();
    let inputs: Vec<_> = inputs
        .map(|input| Ok((input.schema(), columns(input, weight)?)))
        .collect::<Result<_>>()?;
    let known: Vec<_> = inputs
        .iter()
        .map(|(schema, terms)| (schema.as_ref(), terms.as_slice()))
        .collect();
    let mut own = plan.expressions();
    if let LogicalPlan::TableScan(scan) = plan {
        own.extend(point_rollup::conditions(scan));
    }
    let sizes: Vec<_> = own
        .iter()
        .map(|expr| size(expr, &known, weight))
        .collect::<Result<_>>()?;
    weight.terms = sizes.iter().fold(weight.terms, |sum, size| sum.saturating_add(*size));
    let width = plan.schema().fields().len();
    let greatest = |terms: &[u64]| terms.iter().copied().max().unwrap_or(1);
    Ok(match plan {
        LogicalPlan::Projection(_) if sizes.len() == width => sizes,
        LogicalPlan::Aggregate(aggregate) => {
            weight.terms = weight.terms.saturating_add(grouping_terms(&aggregate.group_expr));
            weight.large_states |= has_large_states(aggregate)?;
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
fn size(expr: &Expr, inputs: &[(&DFSchema, &[u64])], weight: &mut ExpressionSize) -> Result<u64> {
    let mut sum = 0_u64;
    expr.apply(|term| {
        sum = sum.saturating_add(1);
        let is_condition = |term: &Expr| {
            let mut schemas = inputs.iter().map(|(schema, _)| *schema);
            schemas.any(|schema| matches!(term.get_type(schema), Ok(DataType::Boolean)))
        };
        if let Some((times, which)) = rewritten_often(term, is_condition) {
            let mut index = 0;
            term.apply_children(|child| {
                let times = if which.contains(&index) { times } else { 1 };
                let before = weight.planned();
                sum = sum.saturating_add(size(child, inputs, weight)?.saturating_mul(times));
                // Subqueries within it.
                weight.replan(before, times);
                index += 1;
                Ok(TreeNodeRecursion::Continue)
            })?;
            return Ok(TreeNodeRecursion::Jump);
        }
        match term {
            Expr::Column(column) => {
                let found = inputs.iter().find_map(|(schema, terms)| {
                    let index = schema.maybe_index_of_column(column)?;
                    terms.get(index).copied()
                });
                sum = sum.saturating_add(found.unwrap_or(1));
            }
            Expr::Literal(value, _) => {
                let bytes = value.size().saturating_sub(size_of::<ScalarValue>());
                sum = sum.saturating_add((bytes / TERM_BYTES) as u64);
            }
            Expr::BinaryExpr(BinaryExpr {
                op: RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch,
                ..
            })
            | Expr::SimilarTo(_) => weight.patterns += 1,
            Expr::ScalarFunction(call) if call.name().starts_with("regexp_") => weight.patterns += 1,
            Expr::InSubquery(InSubquery { subquery, .. }) | Expr::SetComparison(SetComparison { subquery, .. }) => {
                subquery_terms(subquery, QUANTIFIED, weight)?;
            }
            Expr::ScalarSubquery(subquery) | Expr::Exists(Exists { subquery, .. }) => {
                subquery_terms(subquery, LOOKED_AT, weight)?;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(sum)
}

/// Adds the terms of a subquery, which is planned so many times.
fn subquery_terms(subquery: &Subquery, times: u64, weight: &mut ExpressionSize) -> Result<()> {
    let before = weight.planned();
    columns(&subquery.subquery, weight)?;
    weight.replan(before, times);
    Ok(())
}

/// The most values that are compared one by one.
const SHORT_LIST: usize = 3;

/// How often an optimizer writes some children of a term, and which ones; `None` if each once.
fn rewritten_often(term: &Expr, is_condition: impl Fn(&Expr) -> bool) -> Option<(u64, Vec<usize>)> {
    match term {
        // a >= low AND a <= high
        Expr::Between(_) => Some((2, vec![0])),
        // a = 1 OR a = 2 OR a = 3
        Expr::InList(list) if list.list.len() <= SHORT_LIST => Some((one_by_one(&list.expr), vec![0])),
        // CASE WHEN a IS NOT NULL THEN a ELSE b END
        Expr::ScalarFunction(call) if ["coalesce", "nvl"].contains(&call.name()) => {
            Some((2, (0..call.args.len().saturating_sub(1)).collect()))
        }
        // The same.
        Expr::ScalarFunction(call) if call.name() == "array_has" => {
            Some((call.args.get(1).map_or(1, one_by_one), vec![1]))
        }
        // (a AND b) OR (NOT a AND c)
        Expr::Case(case) if case.when_then_expr.iter().any(|(_, then)| is_condition(then)) => {
            let first = usize::from(case.expr.is_some());
            let whens = 0..case.when_then_expr.len();
            Some((3, whens.map(|n| first + 2 * n).collect()))
        }
        // Nulls on either side, and the ends of the range that a function maps to a value.
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
                || op.supports_propagation() && (has_preimage(left) || has_preimage(right)) =>
        {
            Some((3, vec![0, 1]))
        }
        _ => None,
    }
}

/// How often a term is written that is compared with the values of a short list, of which each may be a range.
fn one_by_one(term: &Expr) -> u64 {
    SHORT_LIST as u64 * if has_preimage(term) { 2 } else { 1 }
}

/// Whether a comparison with it becomes one of its argument with the ends of a range.
fn has_preimage(term: &Expr) -> bool {
    match term {
        Expr::ScalarFunction(call) => ["floor", "date_part", "date_trunc"].contains(&call.name()),
        Expr::Cast(cast) => *cast.field.data_type() == DataType::Date32 && !matches!(*cast.expr, Expr::Literal(..)),
        _ => false,
    }
}
