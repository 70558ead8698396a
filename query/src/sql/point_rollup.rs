//! Metric points that statements sum up, walked by the own scan as the API walks them.
//!
//! ```text
//! Aggregate: sum(sums), sum(rows) by entity_name, minute of ts
//!   [`PointRollup`]: ts, entity_name, rows, sums, least, greatest; only of points that meet the conditions
//! ```
//!
//! # Invariants
//!
//! - Conditions are met here: what they look at is gone above.
//! - A group may be there once for each walk: the aggregate above adds them up.
//! - Where a sum is no number a plan sums up: least and greatest are by its rule then.
//!
//! # Not here
//!
//! Which statements these are: [`super::rollups`]. The walk: [`crate::aggregation`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use model::Table;

use super::rollup_grain::RollUpGrain;
use super::rollups::{MAX, MIN, ROWS, SUM, VALUE, each_alone, projected, schema};
use super::scan_fallback::{RowConditions, or_fall_back, scan_executor};
use super::static_rows::StaticRows;
use crate::Error;
use crate::aggregation::bucket_aggregator::{SeriesBucket, SeriesIdentity};
use crate::aggregation::series_walk::{SeriesGrouping, SeriesWalk};
use crate::scan::FullScanRequest;
use crate::view_table::{RowOrder, ViewTable};

/// The columns of words that statements may see.
pub(super) const WORDS: [&str; 3] = ["name", "type", "entity_name"];
/// Finer grains are not rolled up: there would be as many roll-ups as points.
const FINEST: i64 = 1_000_000;
/// Bytes of a roll-up beside its words: its time, what its points come to and where its words begin.
const BYTES_BESIDE_WORDS: usize = 52;

/// Points that meet conditions, rolled up.
#[derive(Debug)]
pub(super) struct PointRollup {
    points: ViewTable,
    conditions: Vec<Expr>,
    walks: SeriesGrouping,
    /// Columns that are seen of points, and what points come to.
    schema: SchemaRef,
}

/// The conditions that a scan meets by itself.
pub(super) fn conditions(scan: &TableScan) -> Vec<Expr> {
    let provider = source_as_provider(&scan.source).ok();
    let points = provider
        .as_ref()
        .and_then(|provider| provider.downcast_ref::<PointRollup>());
    points.map(|points| points.conditions.clone()).unwrap_or_default()
}

impl PointRollup {
    /// `None` if a grain is too fine.
    pub(super) fn new(of: &ViewTable, conditions: RowConditions, grain: &RollUpGrain) -> Result<Option<Self>> {
        if grain.stretch.is_some_and(|stretch| stretch < FINEST) {
            return Ok(None);
        }
        let table = of.schema();
        let totals = [
            (ROWS, DataType::Int64),
            (SUM, DataType::Float64),
            (MIN, DataType::Float64),
            (MAX, DataType::Float64),
        ];
        Ok(Some(Self {
            schema: schema(&table, &grain.columns(&table), &totals)?,
            points: ViewTable {
                window: conditions.window,
                order: RowOrder::Any,
                ..of.clone()
            },
            conditions: conditions.others,
            walks: SeriesGrouping {
                width: grain.stretch,
                start: 0,
                words: WORDS.map(|word| grain.has(word).then_some(word)),
            },
        }))
    }

    /// By the scan; `None` if a plan must sum them up.
    async fn swept(&self, session: &dyn Session) -> Result<Option<StaticRows>> {
        let Some((state, scanner)) = scan_executor(session) else {
            return Ok(None);
        };
        let columns = self.walks.columns();
        let wanted = FullScanRequest {
            view: &self.points.view,
            table: Table::Metrics,
            window: self.points.window,
            conditions: &self.conditions,
            columns: &columns,
            meter: &self.points.meter,
            started: Instant::now(),
        };
        let memory = MemoryConsumer::new("summed points").register(&state.runtime_env().memory_pool);
        let (walks, of_walks) = (self.walks, memory.new_empty());
        let swept = scanner
            .full_scan(state, wanted, move || walks.begin(usize::MAX, of_walks.new_empty()))
            .await;
        let most = state.config().batch_size();
        let rows = swept.and_then(|walked| match walked {
            Some(walked) => self.rows(walked, most, &memory),
            None => Ok(None),
        });
        let rows = or_fall_back(rows)?;
        Ok(rows.map(|rows| StaticRows::new(rows, Arc::clone(&self.schema), memory)))
    }

    /// What was walked, at most so many roll-ups at once; `None` if a sum is no number.
    fn rows(
        &self,
        walked: Vec<SeriesWalk>,
        most: usize,
        memory: &MemoryReservation,
    ) -> Result<Option<Vec<RecordBatch>>, Error> {
        let mut rows = Vec::new();
        for walk in walked {
            let (groups, _walked) = walk.groups()?;
            if groups.cells.iter().any(|cell| cell.totals.sum.is_nan()) {
                return Ok(None);
            }
            for cells in groups.cells.chunks(most.max(1)) {
                rows.push(self.batch(&groups.series, cells, memory)?);
            }
        }
        Ok(Some(rows))
    }

    /// Roll-ups as rows, which are counted as memory.
    fn batch(
        &self,
        known: &[SeriesIdentity],
        cells: &[SeriesBucket],
        memory: &MemoryReservation,
    ) -> Result<RecordBatch> {
        let cells = || cells.iter();
        let series = |cell: &SeriesBucket| known.get(cell.series);
        let group = |series: &SeriesIdentity| series.group.as_deref().unwrap_or_default().len();
        let words = |series: &SeriesIdentity| series.name.len() + series.kind.len() + group(series);
        let sizes = cells().map(|cell| BYTES_BESIDE_WORDS + series(cell).map_or(0, words));
        memory.try_grow(sizes.sum())?;
        let texts = |word: fn(&SeriesIdentity) -> Option<&str>| {
            let texts = cells().map(|cell| series(cell).and_then(word).unwrap_or_default());
            Arc::new(StringArray::from_iter_values(texts)) as ArrayRef
        };
        let floats =
            |of: fn(&SeriesBucket) -> f64| Arc::new(Float64Array::from_iter_values(cells().map(of))) as ArrayRef;
        let numbers = Int64Array::from_iter_values(cells().map(|cell| cell.totals.samples));
        let starts = TimestampMicrosecondArray::from_iter_values(cells().map(|cell| cell.bucket));
        let mut all: HashMap<&str, ArrayRef> = HashMap::from([
            ("ts", Arc::new(starts.with_timezone("UTC")) as ArrayRef),
            ("name", texts(|series| Some(&series.name))),
            ("type", texts(|series| Some(&series.kind))),
            ("entity_name", texts(|series| series.group.as_deref())),
            (ROWS, Arc::new(numbers)),
            (SUM, floats(|cell| cell.totals.sum)),
            (MIN, floats(|cell| cell.totals.min)),
            (MAX, floats(|cell| cell.totals.max)),
        ]);
        let fields = self.schema.fields().iter();
        let columns = fields.filter_map(|field| all.remove(field.name().as_str()));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?)
    }

    /// The points that meet the conditions, each alone.
    async fn planned(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let asked = self.conditions.iter().flat_map(Expr::column_refs);
        let asked: Vec<&str> = asked.map(|column| column.name.as_str()).collect();
        let table = self.points.schema();
        let is_read = |name: &str| name == VALUE || asked.contains(&name) || self.schema.index_of(name).is_ok();
        let columns = table.fields().iter().enumerate();
        let columns = columns.filter(|(_, field)| is_read(field.name()));
        let columns: Vec<usize> = columns.map(|(at, _)| at).collect();
        let mut points = self.points.scan(state, Some(&columns), &self.conditions, None).await?;
        if let Some(condition) = self.conditions.iter().cloned().reduce(Expr::and) {
            let schema = DFSchema::try_from(points.schema())?;
            let condition = state.create_physical_expr(condition, &schema)?;
            points = Arc::new(FilterExec::try_new(condition, points)?);
        }
        each_alone(points, &self.schema)
    }
}

#[async_trait]
impl TableProvider for PointRollup {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = match self.swept(state).await? {
            Some(rows) => {
                self.points.count_window(self.points.window);
                rows.plan()?
            }
            None => self.planned(state).await?,
        };
        projected(plan, projection)
    }
}
