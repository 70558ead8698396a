//! Sort keys as columns: those of `ORDER BY`, of windows and of ordered aggregates are projected beneath the sort. DataFusion counts the memory of a sort by the columns that go in: a key that is only computed while it
//! sorts is in nobody's memory (`SELECT 1 FROM logs ORDER BY random()` took 1.3 GB under a limit of 64 MiB), and is computed again
//! by each stage that merges.
//!
//! # Invariants
//!
//! - A plan has the columns it had, by the names they had.
//! - Sorts of few rows (`LIMIT`) stay as they are: they count what they keep.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Sort, Window};
use datafusion::optimizer::OptimizerConfig;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimizer::Optimizer;

/// The optimized plan, with its sort keys as columns.
pub(super) fn materialize_sort_keys(plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        Ok(match node {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => of_sort(sort)?,
            LogicalPlan::Window(window) => of_window(window)?,
            LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate)?,
            other => Transformed::no(other),
        })
    })?;
    if !plan.transformed {
        return Ok(plan.data);
    }
    // What keys were made of is not sorted with them.
    let rule = Arc::new(OptimizeProjections::new());
    Optimizer::with_rules(vec![rule]).optimize(plan.data, config, |_, _| {})
}

fn of_sort(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let mut keys = KeyColumns::default();
    keys.take_all(&mut sort.expr);
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let before = Arc::clone(sort.input.schema());
    sort.input = keys.project_with_keys(sort.input)?;
    project_only(&before, LogicalPlan::Sort(sort))
}

fn of_window(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys = KeyColumns::default();
    let exprs = keys.of_functions(&window.window_expr);
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let inner = Window::try_new(exprs, keys.project_with_keys(window.input)?)?;
    project_only(&window.schema, LogicalPlan::Window(inner))
}

fn of_aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut keys = KeyColumns::default();
    let exprs = keys.of_functions(&aggregate.aggr_expr);
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let inner = Aggregate::try_new(keys.project_with_keys(aggregate.input)?, aggregate.group_expr, exprs)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(inner)))
}

/// The keys that are no columns, in the order of their columns.
#[derive(Default)]
struct KeyColumns(Vec<Expr>);

impl KeyColumns {
    fn name(place: usize) -> String {
        format!("__sort_key_{place}")
    }

    /// The column that a key becomes.
    fn take(&mut self, key: &mut Expr) {
        // A key that several windows share is a column with the name of what it was made of.
        let mut bare = &*key;
        while let Expr::Alias(alias) = bare {
            bare = &alias.expr;
        }
        if matches!(bare, Expr::Column(_) | Expr::Literal(..)) {
            return;
        }
        let known = self.0.iter().position(|known| known == key);
        let place = known.unwrap_or(self.0.len());
        let taken = std::mem::replace(key, Expr::Column(Column::new_unqualified(Self::name(place))));
        if known.is_none() {
            self.0.push(taken);
        }
    }

    fn take_all(&mut self, keys: &mut [SortKey]) {
        for key in keys {
            self.take(&mut key.expr);
        }
    }

    /// Window or aggregate functions over the columns that their keys become, by the names they had.
    fn of_functions(&mut self, functions: &[Expr]) -> Vec<Expr> {
        let names = NamePreserver::new_for_projection();
        let functions = functions.iter();
        functions
            .map(|expr| names.save(expr).restore(self.of_function(expr.clone())))
            .collect()
    }

    fn of_function(&mut self, expr: Expr) -> Expr {
        match expr {
            Expr::Alias(mut alias) => {
                alias.expr = Box::new(self.of_function(*alias.expr));
                Expr::Alias(alias)
            }
            Expr::WindowFunction(mut call) => {
                let WindowFunction { params, .. } = call.as_mut();
                params.partition_by.iter_mut().for_each(|key| self.take(key));
                self.take_all(&mut params.order_by);
                Expr::WindowFunction(call)
            }
            Expr::AggregateFunction(mut call) => {
                self.take_all(&mut call.params.order_by);
                Expr::AggregateFunction(call)
            }
            other => other,
        }
    }

    /// The input with the keys beside its columns.
    fn project_with_keys(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let keys = self.0.into_iter().enumerate();
        let keys = keys.map(|(place, key)| key.alias(Self::name(place)));
        let exprs = columns_of(input.schema()).chain(keys).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
    }
}

/// The columns of `schema` only.
fn project_only(schema: &DFSchema, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let exprs = columns_of(schema).collect();
    let projection = Projection::try_new(exprs, Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn columns_of(schema: &DFSchema) -> impl Iterator<Item = Expr> {
    schema.iter().map(Expr::from)
}
