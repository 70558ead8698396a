//! Log records that statements count, taken from the counts of segments.
//!
//! ```text
//! Aggregate: sum(rows) by level, hour of ts
//!   Filter: entity_name = 'db-03'
//!     [`LogRollup`]: ts, level, entity_name, rows
//! ```
//!
//! # Invariants
//!
//! - Conditions that are a window of `ts` are met exactly; others are met above.
//! - Rows that no counts tell of are read, and each counts once: those in memory, in open files, in minutes that a window cuts.
//!
//! # Not here
//!
//! Which statements these are: [`super::rollups`]. Which segments' counts are believed, and what of a window they leave:
//! [`crate::scan`]. Histograms of the API: [`crate::aggregation`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use engine::MINUTE;

use super::rollup_grain::RollUpGrain;
use super::rollups::{ROWS, each_alone, projected, schema};
use super::static_rows::StaticRows;
use crate::scan::{RollupCounts, RollupGrouping, RollupQuery, ScanExecutor, SegmentSelection};
use crate::time_range::TimeRange;
use crate::view_table::{RowOrder, ViewTable};

/// Bytes of a counted row beside its names: its time, its number and where its names begin.
const BYTES_BESIDE_NAMES: usize = 24;
/// More groups and stretches of time than these are not counted together: rows are read.
const MOST: usize = 1 << 18;

/// Log records, many of them in one row.
#[derive(Debug)]
pub(super) struct LogRollup {
    logs: ViewTable,
    question: RollupQuery,
    /// Columns of log records.
    columns: Vec<usize>,
    /// These columns, and [`ROWS`].
    schema: SchemaRef,
}

impl LogRollup {
    /// `None` if a grain is finer than counts are.
    pub(super) fn new(of: &ViewTable, window: TimeRange, grain: &RollUpGrain) -> Result<Option<Self>> {
        if grain.stretch.is_some_and(|stretch| stretch % MINUTE != 0) {
            return Ok(None);
        }
        let columns = grain.columns(&of.schema());
        Ok(Some(Self {
            schema: schema(&of.schema(), &columns, &[(ROWS, DataType::Int64)])?,
            logs: ViewTable {
                window,
                order: RowOrder::Any,
                ..of.clone()
            },
            question: RollupQuery {
                window,
                bucket: grain.stretch.map(|stretch| stretch / MINUTE),
                split: RollupGrouping {
                    level: grain.has("level"),
                    entity: grain.has("entity_name"),
                },
                levels: None,
                entities: Vec::new(),
                other_than: BTreeSet::new(),
                most: MOST,
            },
            columns,
        }))
    }

    /// What was counted, as batches of at most so many rows that are counted as memory of the query.
    fn rows(&self, counted: RollupCounts, most: usize, pool: &Arc<dyn MemoryPool>) -> Result<StaticRows> {
        let groups: Vec<_> = counted.groups().collect();
        let sizes = groups
            .iter()
            .map(|(level, entity, buckets)| buckets.len() * (level.len() + entity.len() + BYTES_BESIDE_NAMES));
        let memory = MemoryConsumer::new("counted rows").register(pool);
        memory.try_grow(sizes.sum())?;
        let (mut ts, mut rows) = (Vec::new(), Vec::new());
        let (mut levels, mut entities) = (StringBuilder::new(), StringBuilder::new());
        for (level, entity, buckets) in groups {
            for (start, count) in buckets {
                ts.push(start);
                levels.append_value(&level);
                entities.append_value(&entity);
                rows.push(count);
            }
        }
        let mut all: HashMap<&str, ArrayRef> = HashMap::from([
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from(ts).with_timezone("UTC")) as ArrayRef,
            ),
            ("level", Arc::new(levels.finish())),
            ("entity_name", Arc::new(entities.finish())),
            (ROWS, Arc::new(Int64Array::from(rows))),
        ]);
        let columns = self
            .schema
            .fields()
            .iter()
            .filter_map(|field| all.remove(field.name().as_str()));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?;
        Ok(StaticRows::sliced(&rows, most, memory))
    }
}

#[async_trait]
impl TableProvider for LogRollup {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let logs = &self.logs;
        let counted = match state.config().get_extension::<ScanExecutor>() {
            Some(scanner) => scanner.count_from_rollup(&self.question, &logs.view, &logs.meter).await,
            None => Ok(None),
        };
        let counted = counted.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (left, mut inputs) = match counted {
            Some(mut counted) => {
                let left = std::mem::take(&mut counted.left);
                let rows = self.rows(counted, state.config().batch_size(), &state.runtime_env().memory_pool)?;
                (left, vec![rows.plan()?])
            }
            None => (vec![(logs.window, SegmentSelection::All)], Vec::new()),
        };
        if left.is_empty() {
            let files = logs.view.files(logs.table).len();
            let hot = logs.hot(logs.window).into_iter();
            let hot_rows = hot.map(|hot| hot.batch.num_rows()).sum();
            logs.meter.count_planned(files, files, hot_rows);
        }
        for (window, pieces) in left {
            let rows = ViewTable {
                window,
                pieces,
                ..logs.clone()
            };
            let rows = rows.scan(state, Some(&self.columns), filters, None).await?;
            inputs.push(each_alone(rows, &self.schema)?);
        }
        projected(UnionExec::try_new(inputs)?, projection)
    }
}
