//! Keys of sorts are columns. DataFusion counts the memory of a sort by the columns that go in: a key that is only computed while it
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
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort, Window};

/// See the module.
pub(super) fn as_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        Ok(match node {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => of_sort(sort)?,
            LogicalPlan::Window(window) => of_window(window)?,
            other => Transformed::no(other),
        })
    })?;
    Ok(plan.data)
}

fn of_sort(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::default();
    keys.take_all(&mut sort.expr);
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let before = Arc::clone(sort.input.schema());
    sort.input = keys.beside(sort.input)?;
    only(&before, LogicalPlan::Sort(sort))
}

fn of_window(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::default();
    let names = NamePreserver::new_for_projection();
    let exprs: Vec<Expr> = window
        .window_expr
        .iter()
        .map(|expr| names.save(expr).restore(keys.of_window(expr.clone())))
        .collect();
    if keys.0.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let inner = Window::try_new(exprs, keys.beside(window.input)?)?;
    only(&window.schema, LogicalPlan::Window(inner))
}

/// The keys that are no columns, in the order of their columns.
#[derive(Default)]
struct Keys(Vec<Expr>);

impl Keys {
    fn name(place: usize) -> String {
        format!("__sort_key_{place}")
    }

    /// The column that a key becomes.
    fn take(&mut self, key: &mut Expr) {
        if matches!(key, Expr::Column(_) | Expr::Literal(..)) {
            return;
        }
        let known = self.0.iter().position(|known| known == key && !key.is_volatile());
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

    fn of_window(&mut self, expr: Expr) -> Expr {
        match expr {
            Expr::Alias(mut alias) => {
                alias.expr = Box::new(self.of_window(*alias.expr));
                Expr::Alias(alias)
            }
            Expr::WindowFunction(mut call) => {
                let WindowFunction { params, .. } = call.as_mut();
                params.partition_by.iter_mut().for_each(|key| self.take(key));
                self.take_all(&mut params.order_by);
                Expr::WindowFunction(call)
            }
            other => other,
        }
    }

    /// The input with the keys beside its columns.
    fn beside(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let keys = self.0.into_iter().enumerate();
        let keys = keys.map(|(place, key)| key.alias(Self::name(place)));
        let exprs = columns_of(input.schema()).chain(keys).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
    }
}

/// The columns of `schema` only.
fn only(schema: &DFSchema, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let exprs = columns_of(schema).collect();
    let projection = Projection::try_new(exprs, Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn columns_of(schema: &DFSchema) -> impl Iterator<Item = Expr> {
    schema.iter().map(Expr::from)
}
