//! Security barrier: the rows of a table that are in a scope, as a table of statements.
//!
//! ```text
//! what the statement says ── times ──┐            its other filters, limits, expressions stay above
//!                                    ▼
//! ScopedRowsExec  a leaf of the plan: no rule sees what is behind it
//!   └ FilterExec: the condition of the scope
//!       └ ViewTable: files, rows in memory
//! ```
//!
//! # Invariants
//!
//! - Nothing that a statement says is evaluated on a row outside the scope: a cast that fails says what it could not cast. Bounds of `ts`,
//!   which cannot fail, are the exception.
//! - What is not of the type [`ViewTable`] is rolled up, looked up and counted by no rule of ours; plans say nothing of files and numbers of
//!   rows behind the barrier, not even `EXPLAIN ANALYZE`.
//! - A scope of all entities has no barrier: plans are as without one.
//!
//! # Not here
//!
//! What a scope is: [`crate::data_scope`].

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule as _;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use model::Table;

use super::session::TABLES;
use crate::Error;
use crate::data_scope::DataScope;
use crate::time_bounds::is_time_range;
use crate::view_table::ViewTable;

/// A table with the rows of a scope only.
pub(super) fn within_scope(rows: ViewTable, scope: &DataScope) -> Result<Arc<dyn TableProvider>> {
    let condition = scope.conditions(rows.table).map_err(external)?;
    Ok(match conjunction(condition) {
        None => Arc::new(rows),
        Some(condition) => Arc::new(ScopedTable { rows, condition }),
    })
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The tables of a scope, which says of others that they are outside.
#[derive(Debug)]
pub(super) struct ScopedSchema {
    pub(super) tables: MemorySchemaProvider,
    pub(super) scope: Arc<DataScope>,
}

#[async_trait]
impl SchemaProvider for ScopedSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table = table_of(name);
        match table.is_none_or(|table| self.scope.includes_table(table)) {
            true => self.tables.table(name).await,
            false => Err(external(self.scope.refusal(table, name))),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.table_exist(name)
    }
}

/// The table whose rows have a name in statements. Whether there is a spec of that name is not said where its rows are outside a scope.
fn table_of(name: &str) -> Option<Table> {
    let is_of = |table: &Table| name == table.name();
    let of_spec = name.starts_with("messages_").then_some(Table::Messages);
    TABLES.into_iter().find(is_of).or(of_spec)
}

/// See the module.
#[derive(Debug)]
struct ScopedTable {
    rows: ViewTable,
    condition: Expr,
}

#[async_trait]
impl TableProvider for ScopedTable {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn table_type(&self) -> TableType {
        self.rows.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = self.rows.supports_filters_pushdown(filters)?;
        let support = |(filter, support): (&&Expr, _)| match is_time_range(filter) {
            true => support,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().zip(supported).map(support).collect())
    }

    /// A limit counts the rows of the scope: it stays above.
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let asked = projection.map_or_else(|| (0..schema.fields().len()).collect(), Vec::clone);
        let mut columns = asked.clone();
        for column in self.condition.column_refs() {
            let at = schema.index_of(&column.name)?;
            if !columns.contains(&at) {
                columns.push(at);
            }
        }
        let times = filters.iter().filter(|filter| is_time_range(filter)).cloned();
        let filters: Vec<_> = times.chain([self.condition.clone()]).collect();
        let rows = self.rows.scan(state, Some(&columns), &filters, None).await?;
        let condition = state.create_physical_expr(self.condition.clone(), &DFSchema::try_from(rows.schema())?)?;
        let filter = FilterExecBuilder::new(condition, rows).apply_projection(Some((0..asked.len()).collect()))?;
        // The rules of the statement do not come here.
        let rows = FilterPushdown::new().optimize(Arc::new(filter.build()?), state.config_options())?;
        Ok(Arc::new(ScopedRowsExec { rows }))
    }
}

/// The rows of a plan that is none of the plan it is in.
#[derive(Debug)]
struct ScopedRowsExec {
    rows: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for ScopedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for ScopedRowsExec {
    fn name(&self) -> &str {
        "ScopedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.rows.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = reset_plan_states(Arc::clone(&self.rows))?;
        Ok(Arc::new(Self { rows }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.rows.execute(partition, context)
    }
}
