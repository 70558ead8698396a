//! Top-k by `ts` and lookups of ids: statements for few rows are answered by our own scan, however they are worded.
//!
//! ```text
//! Sort: ts DESC, fetch=50           Sort: ts DESC, fetch=50
//!   Filter: level = 'error'    ─>     Filter: level = 'error'
//!     logs                              [`RowLookup`]: the newest 50 errors, and all others of the last one's `ts`
//!
//! Filter: trace_id = '…'            Filter: trace_id = '…'
//!   traces                     ─>     [`RowLookup`]: all of the trace
//! ```
//!
//! # Invariants
//!
//! - Sort and filter stay where they are: of rows with one `ts` they take those that the other keys of the order come to first.
//! - What the scan is not made for, has no memory for, or fails at, the plan of the table finds, and says what is wrong. A statement
//!   that was ended ends.
//!
//! # Not here
//!
//! The scan: [`crate::scan`]. Lists of the API: [`crate::keyset_pagination`].

use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, TableProviderFilterPushDown, TableScan, TableType};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use model::Table;
use model::filter::SortOrder;

use super::base_scan::base_scan;
use super::scan_fallback::{RowConditions, or_fall_back, scan_executor};
use super::static_rows::StaticRows;
use crate::scan::{TopKRequest, TopKRows, asks_for_ids};
use crate::time_bounds::is_ts;
use crate::view_table::ViewTable;

/// More rows than these are left to the plan, which sorts them in little memory.
const MAX_TOP_K: usize = 10_000;
/// A lookup that finds more rows is left to the plan.
const MAX_LOOKUP: usize = 1_000;

/// The rule; see the module.
#[derive(Debug)]
pub(super) struct RowLookupRule;

impl OptimizerRule for RowLookupRule {
    fn name(&self) -> &str {
        "find_few_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let few = match &plan {
            LogicalPlan::Sort(sort) => RowLookup::first(sort)?,
            LogicalPlan::TableScan(scan) => RowLookup::lookup(scan)?,
            _ => None,
        };
        let Some(few) = few else {
            return Ok(Transformed::no(plan));
        };
        let source = provider_as_source(Arc::new(few));
        plan.transform_down(|node| {
            Ok(match node {
                LogicalPlan::TableScan(scan) => Transformed::yes(LogicalPlan::TableScan(TableScan {
                    source: Arc::clone(&source),
                    ..scan
                })),
                node => Transformed::no(node),
            })
        })
    }
}

/// How many rows are asked for.
#[derive(Debug, Clone, Copy)]
enum RowFetch {
    TopK(usize, SortOrder),
    /// All, which must be few.
    All,
}

/// The rows of a table that meet conditions; the filters of a scan are among these.
#[derive(Debug)]
struct RowLookup {
    rows: ViewTable,
    asked: RowFetch,
    conditions: RowConditions,
}

impl RowLookup {
    /// `None` if a sort does not ask for few rows of one table by `ts`.
    fn first(sort: &Sort) -> Result<Option<Self>> {
        let (Some(by), Some(wanted)) = (sort.expr.first(), sort.fetch.filter(|wanted| *wanted <= MAX_TOP_K)) else {
            return Ok(None);
        };
        let base = base_scan(&sort.input, vec![by.expr.clone()])?;
        let Some(base) = base.filter(|base| base.exprs.iter().all(is_ts)) else {
            return Ok(None);
        };
        let order = if by.asc { SortOrder::Asc } else { SortOrder::Desc };
        Self::of(&base.scan, base.conditions, RowFetch::TopK(wanted, order))
    }

    /// `None` if a scan does not ask for ids that are indexed.
    fn lookup(scan: &TableScan) -> Result<Option<Self>> {
        if scan.fetch.is_some() {
            return Ok(None);
        }
        let all = Self::of(scan, scan.filters.clone(), RowFetch::All)?;
        Ok(all.filter(|all| asks_for_ids(all.rows.table, &all.conditions.others)))
    }

    fn of(scan: &TableScan, conditions: Vec<Expr>, asked: RowFetch) -> Result<Option<Self>> {
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(None);
        };
        let Some(rows) = provider.downcast_ref::<ViewTable>() else {
            return Ok(None);
        };
        if rows.spec.is_some() || rows.table == Table::Metrics {
            return Ok(None);
        }
        let conditions = RowConditions::of(rows.window, conditions)?;
        Ok(conditions.map(|conditions| Self {
            rows: rows.clone(),
            asked,
            conditions,
        }))
    }

    /// By the scan; `None` if the plan must find them.
    async fn found(&self, session: &dyn Session, columns: &[usize]) -> Result<Option<TopKRows>> {
        let Some((state, scanner)) = scan_executor(session).filter(|_| columns.is_sorted()) else {
            return Ok(None);
        };
        let (wanted, order) = match self.asked {
            RowFetch::TopK(wanted, order) => (wanted, order),
            RowFetch::All => (MAX_LOOKUP + 1, SortOrder::Desc),
        };
        let request = TopKRequest {
            view: &self.rows.view,
            table: self.rows.table,
            window: self.conditions.window,
            order,
            conditions: &self.conditions.others,
            columns,
            uncounted: None,
            skip: 0,
            wanted,
            meter: &self.rows.meter,
            started: Instant::now(),
        };
        let found = or_fall_back(scanner.top_k(state, request).await)?;
        Ok(found.filter(|found| self.is_answered_by(found)))
    }

    fn is_answered_by(&self, found: &TopKRows) -> bool {
        let rows: usize = found.batches.iter().map(RecordBatch::num_rows).sum();
        matches!(self.asked, RowFetch::TopK(..)) || rows <= MAX_LOOKUP
    }
}

#[async_trait]
impl TableProvider for RowLookup {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema().fields().len()).collect();
        let columns = projection.unwrap_or(&all);
        let Some(TopKRows { batches, memory, .. }) = self.found(state, columns).await? else {
            return self.rows.scan(state, projection, filters, limit).await;
        };
        self.rows.count_window(self.conditions.window);
        let schema = Arc::new(self.schema().project(columns)?);
        StaticRows::new(batches, schema, memory).plan()
    }
}
