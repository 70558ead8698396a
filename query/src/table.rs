//! One table of one [`ReadView`] for DataFusion: its segments and its hot rows in one plan.
//!
//! ```text
//!                      ┌─ segments, by readers of DataFusion's
//! UnionExec ───────────┼─ segments of lines, see [`crate::lines`]
//!                      └─ hot batches
//!
//! OrderedRowsExec ──────── all of them in the order of `ts`, where a plan sorts by it, see [`time_order`]
//! ```
//!
//! # Invariants
//!
//! - Segments and batches outside the window, and outside what the filters say of `ts`, are left out by the catalogue alone;
//!   those without the ids and texts that the filters ask for by their indexes, which also say which rows of the others to read.
//! - Filters are pushed down as hints (`Inexact`), so a plan is right even if a hint is ignored. Those of times alone are met here:
//!   pieces wholly within them are read without a look at `ts`, of the others rows are left out.
//! - Files of metrics lie by series: a top-k finds the newest points.

mod spec;
mod time_order;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{ArrowError, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr_adapter::PhysicalExprAdapterFactory;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::union::UnionExec;
use engine::{HotBatch, ReadView, Segment};
use model::{Table, Timestamp};

use self::spec::SpecAdapterFactory;
pub(crate) use self::time_order::TimeOrder;
use crate::exec::scanner;
use crate::filter::within;
use crate::lines;
use crate::memory;
use crate::reader::{Meter, SegmentReaders, Source};
use crate::scan::{Left, Pieces, Scanner, Shortcut};
use crate::specs::SpecTable;
use crate::times::{is_a_window, narrowed};
use crate::window::Window;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct ViewTable {
    /// That of a statement: its rows may be asked for in an order, which a plan for a page of them does not.
    pub(crate) session: Option<Arc<memory::Session>>,
    pub(crate) view: ReadView,
    pub(crate) table: Table,
    /// Only the rows of this spec, with its columns.
    pub(crate) spec: Option<Arc<SpecTable>>,
    pub(crate) window: Window,
    pub(crate) pieces: Pieces,
    /// The order in which a plan wants its rows, if it is one of time.
    pub(crate) in_order: Option<TimeOrder>,
    pub(crate) meter: Arc<Meter>,
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        match &self.spec {
            None => self.table.schema(),
            Some(spec) => Arc::clone(&spec.schema),
        }
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if is_a_window(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Inexact
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Without `ts` nobody sees the order.
        let has_times = projection.is_none_or(|columns| columns.contains(&0));
        let sessions = (self.session.as_ref()).zip(state.as_any().downcast_ref::<SessionState>());
        if let (Some(in_order), Some(sessions), true) = (self.in_order, sessions, has_times) {
            return time_order::plan(self, sessions, in_order, projection, filters);
        }
        let window = narrowed(self.window, filters);
        let all = self.files(Window::ALL).count();
        let Left { files, rows } = self.left(state, window, filters).await?;
        let hot = self.hot(window);
        let hot_rows = hot.iter().map(|hot| hot.batch.num_rows()).sum();
        self.meter.planned(all, all - files.len(), hot_rows);
        let inputs = self.planned(state, window, Found { files, hot }, &rows, projection, limit)?;
        if inputs.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema().project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        UnionExec::try_new(inputs)
    }
}

/// What of a view is left to be read.
struct Found<'a> {
    files: Vec<Arc<Segment>>,
    hot: Vec<&'a HotBatch>,
}

/// Of some files which rows are left to be read.
type Rows = HashMap<u64, ParquetAccessPlan>;

impl ViewTable {
    /// Plans for what was found, rows within a window cut out of it where that is asked for.
    fn planned(
        &self,
        state: &dyn Session,
        window: Window,
        Found { files, hot }: Found<'_>,
        rows: &Rows,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let (files, cut_files) = files
            .into_iter()
            .partition(|file: &Arc<Segment>| window.holds(file.min_ts, file.max_ts));
        let (hot, cut_hot) = hot.into_iter().partition(|hot| window.holds(hot.min_ts, hot.max_ts));
        let mut inputs = self.inputs(state, Found { files, hot }, rows, projection, limit)?;
        if !cut_files.is_empty() || !cut_hot.is_empty() {
            let columns = with_ts(projection);
            let cut = Found {
                files: cut_files,
                hot: cut_hot,
            };
            let cut = self.inputs(state, cut, rows, columns.as_ref(), None)?;
            inputs.push(rows_within(state, window, UnionExec::try_new(cut)?, projection)?);
        }
        Ok(inputs)
    }
}

/// The columns, and `ts`, which is the first of a table: after the others if it is none of them.
fn with_ts(columns: Option<&Vec<usize>>) -> Option<Vec<usize>> {
    let mut columns = columns.cloned()?;
    if !columns.contains(&0) {
        columns.push(0);
    }
    Some(columns)
}

/// The rows within a window of a plan that gives columns and `ts`, and of these rows the columns.
fn rows_within(
    state: &dyn Session,
    window: Window,
    plan: Arc<dyn ExecutionPlan>,
    columns: Option<&Vec<usize>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = DFSchema::try_from(plan.schema())?;
    let condition = state.create_physical_expr(within(window), &schema)?;
    let columns = columns.map(|columns| (0..columns.len()).collect());
    let filter = FilterExecBuilder::new(condition, plan).apply_projection(columns)?;
    Ok(Arc::new(filter.build()?))
}

impl ViewTable {
    /// The same, its rows in an order; `None` if it has none, or none that it knows.
    pub(crate) fn in_order(&self, in_order: TimeOrder) -> Option<Self> {
        let is_by_time = self.table != Table::Metrics && self.spec.is_none();
        let is_taken = scanner(self.session.as_ref()?)?.takes(Shortcut::SortPushdown);
        (is_by_time && is_taken && self.in_order.is_none()).then(|| Self {
            in_order: Some(in_order),
            ..self.clone()
        })
    }

    /// Its files that can have rows within a window: those of its spec, if it has one.
    fn files(&self, window: Window) -> impl Iterator<Item = &Arc<Segment>> {
        let files = window.files(&self.view, self.table);
        files.filter(|file| self.spec.as_ref().is_none_or(|of| file.spec() == Some(of.spec)))
    }

    /// The files in a window that can have what the filters ask for.
    async fn left(&self, state: &dyn Session, window: Window, filters: &[Expr]) -> Result<Left> {
        let files = self.files(window);
        let files = files.filter(|file| self.pieces.have(file)).cloned().collect();
        let Some(scanner) = state.config().get_extension::<Scanner>() else {
            return Ok(Left {
                files,
                ..Left::default()
            });
        };
        let left = scanner.left(self.table, filters, files, &self.meter).await;
        left.map_err(|error| DataFusionError::External(Box::new(error)))
    }

    /// The hot batches that can have rows within a window.
    fn hot(&self, window: Window) -> Vec<&HotBatch> {
        let hot = window.hot(&self.view, self.table).filter(|_| self.pieces.have_memory());
        hot.filter(|hot| self.spec.as_ref().is_none_or(|of| hot.spec == Some(of.spec)))
            .collect()
    }

    /// A plan for each kind of piece.
    fn inputs(
        &self,
        state: &dyn Session,
        Found { files, hot }: Found<'_>,
        rows: &Rows,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let parallel = state.config().target_partitions().max(1);
        let spec = self.spec.as_ref().map(|spec| (Arc::clone(spec), projection.cloned()));
        let (parquet, lines): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_parquet());
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        if !parquet.is_empty() {
            inputs.push(self.parquet(dealt(parquet, parallel), rows, projection, limit)?);
        }
        // Rows of a spec that lie without its columns are made with those that are asked for.
        let (schema, projection) = match (&self.spec, projection) {
            (Some(_), Some(asked)) => (Arc::new(self.schema().project(asked)?), None),
            _ => (self.schema(), projection),
        };
        if !lines.is_empty() {
            let shares = dealt(lines, parallel);
            inputs.push(lines::plan(&schema, spec.as_ref(), shares, projection, &self.meter)?);
        }
        let hot = hot.into_iter().map(|hot| match &spec {
            None => Ok(hot.batch.clone()),
            Some((spec, asked)) => spec.rows(&hot.batch, asked.as_deref()),
        });
        let hot = hot.collect::<Result<Vec<_>, ArrowError>>()?;
        if !hot.is_empty() {
            let hot = dealt(hot, parallel);
            inputs.push(MemorySourceConfig::try_new_exec(&hot, schema, projection.cloned())?);
        }
        Ok(inputs)
    }

    fn parquet(
        &self,
        shares: Vec<Vec<Arc<Segment>>>,
        rows: &Rows,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let groups = shares.into_iter().map(|share| {
            let files = share.into_iter().map(|segment| self.file(segment, rows));
            FileGroup::new(files.collect())
        });
        let adapter = self.spec.clone().map(|spec| -> Arc<dyn PhysicalExprAdapterFactory> {
            // What a file has of the columns is seen when it is opened.
            Arc::new(SpecAdapterFactory(spec))
        });
        let source = ParquetSource::new(self.schema())
            .with_parquet_file_reader_factory(Arc::new(SegmentReaders(Arc::clone(&self.meter))))
            .with_pushdown_filters(true);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups.collect())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_expr_adapter(adapter)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// The name is for plans and errors only: files are read through their [`Source`].
    fn file(&self, segment: Arc<Segment>, rows: &Rows) -> PartitionedFile {
        let name = format!("{}/segment_{}_v{}.parquet", self.table, segment.id, segment.version);
        let file = PartitionedFile::new(name, segment.size);
        let mut statistics = self.statistics(&segment);
        let file = match rows.get(&segment.id) {
            Some(rows) => {
                statistics.num_rows = statistics.num_rows.to_inexact();
                file.with_extension(rows.clone())
            }
            None => file,
        };
        file.with_statistics(Arc::new(statistics))
            .with_extension(Source(segment))
    }

    fn statistics(&self, segment: &Segment) -> Statistics {
        let exact =
            |ts: Timestamp| Precision::Exact(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())));
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = usize::try_from(segment.rows).map_or(Precision::Absent, Precision::Exact);
        if let Some(ts) = statistics.column_statistics.first_mut() {
            ts.min_value = exact(segment.min_ts);
            ts.max_value = exact(segment.max_ts);
            ts.null_count = Precision::Exact(0);
        }
        statistics
    }
}

/// At most `parts` hands, dealt round.
fn dealt<T>(items: Vec<T>, parts: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..parts.min(items.len())).map(|_| Vec::new()).collect();
    let count = hands.len().max(1);
    for (index, item) in items.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(index % count) {
            hand.push(item);
        }
    }
    hands
}
