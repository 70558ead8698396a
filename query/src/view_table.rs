//! One table of one [`ReadView`] for DataFusion: its segments and its hot rows in one plan.
//!
//! ```text
//!                      ┌─ sorted pieces that do not overlap, newest first, declared sorted by ts DESC
//! UnionExec ───────────┼─ other segments: open ones, and all where order is of no use
//!                      ├─ segments of lines, see [`crate::lines`]
//!                      └─ hot batches
//! ```
//!
//! # Invariants
//!
//! - Segments and batches outside the window, and outside what the filters say of `ts`, are left out by the catalogue alone;
//!   those without the ids and texts that the filters ask for by their indexes, which also say which rows of the others to read.
//! - Filters are pushed down as hints (`Inexact`), so a plan is right even if a hint is ignored. Where order is of no use, those of
//!   times alone are met here: pieces wholly within them are read without a look at `ts`, of the others rows are left out.
//! - Files of metrics lie by series and declare no order; a top-k finds the newest points.
//! - Order is declared only within a chain of pieces of which each ends before the next begins: sealed segments, or the runs
//!   of one that is not sorted as a whole. Declared order helps "newest first"; aggregates are better off without it.

mod segment_slices;
mod spec_adapter;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{ArrowError, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr_adapter::PhysicalExprAdapterFactory;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::union::UnionExec;
use engine::{DataFileHandle, HotBatch, ReadView};
use model::Table;

use self::segment_slices::{SegmentSlice, arrange, contiguous, newest_first, round_robin, statistics};
use self::spec_adapter::SpecAdapterFactory;
use crate::filter::in_range;
use crate::ndjson_scan;
use crate::scan::{CandidateFiles, ScanExecutor, SegmentSelection};
use crate::segment_reader::{ScanMeter, SegmentExtension, SegmentReaderFactory};
use crate::spec_tables::SpecTable;
use crate::time_bounds::{is_time_range, narrow_range};
use crate::time_range::TimeRange;

/// What the plan wants of the rows' order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// The newest rows first.
    NewestFirst,
    /// Any.
    Any,
}

/// What a plan keeps of a file: its name, what is known of it, and a copy of these while rules change the plan.
const PLANNED_FILE: usize = 2 << 10;
/// The share of the memory of queries that a plan always has for what it reads of files.
const SHARE_OF_READERS: usize = 4;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct ViewTable {
    pub(crate) view: ReadView,
    pub(crate) table: Table,
    /// Only the rows of this spec, with its columns.
    pub(crate) spec: Option<Arc<SpecTable>>,
    pub(crate) window: TimeRange,
    pub(crate) pieces: SegmentSelection,
    pub(crate) order: RowOrder,
    pub(crate) meter: Arc<ScanMeter>,
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
        let support = |filter: &&Expr| match self.order() {
            RowOrder::Any if is_time_range(filter) => TableProviderFilterPushDown::Exact,
            _ => TableProviderFilterPushDown::Inexact,
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
        let window = narrow_range(self.window, filters);
        let all = self.files().count();
        let CandidateFiles { files, rows } = self.candidate_files(state, window, filters).await?;
        let hot = self.hot(window);
        let hot_rows = hot.iter().map(|hot| hot.batch.num_rows()).sum();
        self.meter.count_planned(all, all - files.len(), hot_rows);
        let inputs = self.plan_inputs(state, window, ScanInputs { files, hot }, &rows, projection, limit)?;
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
struct ScanInputs<'a> {
    files: Vec<Arc<DataFileHandle>>,
    hot: Vec<&'a HotBatch>,
}

/// Of some files which rows are left to be read.
type FileRowSelections = HashMap<u64, ParquetAccessPlan>;

impl ViewTable {
    /// Plans for what was found, rows within a window cut out of it where that is asked for.
    fn plan_inputs(
        &self,
        state: &dyn Session,
        window: TimeRange,
        ScanInputs { files, hot }: ScanInputs<'_>,
        rows: &FileRowSelections,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let is_whole = |min, max| self.order() != RowOrder::Any || window.contains_span(min, max);
        let (files, cut_files) = files
            .into_iter()
            .partition(|file: &Arc<DataFileHandle>| is_whole(file.min_ts, file.max_ts));
        let (hot, cut_hot) = hot.into_iter().partition(|hot| is_whole(hot.min_ts, hot.max_ts));
        let mut inputs = self.inputs(state, window, ScanInputs { files, hot }, rows, projection, limit)?;
        if !cut_files.is_empty() || !cut_hot.is_empty() {
            let columns = with_ts(projection);
            let cut = ScanInputs {
                files: cut_files,
                hot: cut_hot,
            };
            let cut = self.inputs(state, window, cut, rows, columns.as_ref(), None)?;
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
    window: TimeRange,
    plan: Arc<dyn ExecutionPlan>,
    columns: Option<&Vec<usize>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = DFSchema::try_from(plan.schema())?;
    let condition = state.create_physical_expr(in_range(window), &schema)?;
    let columns = columns.map(|columns| (0..columns.len()).collect());
    let filter = FilterExecBuilder::new(condition, plan).apply_projection(columns)?;
    Ok(Arc::new(filter.build()?))
}

impl ViewTable {
    /// What the order of rows is good for: files of metrics lie by series, whatever is asked.
    fn order(&self) -> RowOrder {
        if self.table == Table::Metrics {
            RowOrder::Any
        } else {
            self.order
        }
    }

    /// Its files: those of its spec, if it has one.
    fn files(&self) -> impl Iterator<Item = &Arc<DataFileHandle>> {
        let files = self.view.files(self.table).iter();
        files.filter(|file| self.spec.as_ref().is_none_or(|of| file.spec() == Some(of.spec)))
    }

    /// The files in a window that can have what the filters ask for.
    async fn candidate_files(
        &self,
        state: &dyn Session,
        window: TimeRange,
        filters: &[Expr],
    ) -> Result<CandidateFiles> {
        let files = self
            .files()
            .filter(|file| window.overlaps(file.min_ts, file.max_ts) && self.pieces.includes_segment(file))
            .cloned()
            .collect();
        let Some(scanner) = state.config().get_extension::<ScanExecutor>() else {
            return Ok(CandidateFiles {
                files,
                ..CandidateFiles::default()
            });
        };
        let left = scanner.prune_files(self.table, filters, files, &self.meter).await;
        left.map_err(|error| DataFusionError::External(Box::new(error)))
    }

    /// The hot batches that can have rows within a window.
    pub(crate) fn hot(&self, window: TimeRange) -> Vec<&HotBatch> {
        let hot = self.view.hot(self.table).iter().map(AsRef::as_ref);
        let hot = hot.filter(|hot: &&HotBatch| self.spec.as_ref().is_none_or(|of| hot.spec == Some(of.spec)));
        hot.filter(|hot| self.pieces.includes_memory() && window.overlaps(hot.min_ts, hot.max_ts))
            .collect()
    }

    /// Counts what catalogue and indexes said of a window, for a scan that has read it without a plan.
    pub(crate) fn count_window(&self, window: TimeRange) {
        let is_left =
            |file: &DataFileHandle| window.overlaps(file.min_ts, file.max_ts) && !self.meter.is_ruled_out(file.id);
        let (all, left) = self
            .files()
            .fold((0, 0), |(all, left), file| (all + 1, left + usize::from(is_left(file))));
        let hot = self.hot(window).into_iter();
        let hot_rows = hot.map(|hot| hot.batch.num_rows()).sum();
        self.meter.count_planned(all, all - left, hot_rows);
    }

    /// A plan for each kind of piece.
    fn inputs(
        &self,
        state: &dyn Session,
        window: TimeRange,
        ScanInputs { files, hot }: ScanInputs<'_>,
        rows: &FileRowSelections,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let parallel = state.config().target_partitions().max(1);
        let spec = self.spec.as_ref().map(|spec| (Arc::clone(spec), projection.cloned()));
        let (parquet, lines): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_parquet());
        let (chains, rest) = arrange(parquet.iter(), window, self.order());
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        if !chains.is_empty() {
            let groups = chains.into_iter().flat_map(|chain| contiguous(&chain, parallel));
            inputs.push(self.pieces(state, groups.collect(), rows, true, projection, limit)?);
        }
        if !rest.is_empty() {
            inputs.push(self.pieces(state, round_robin(rest, parallel), rows, false, projection, limit)?);
        }
        // Rows of a spec that lie without its columns are made with those that are asked for.
        let (schema, projection) = match (&self.spec, projection) {
            (Some(_), Some(asked)) => (Arc::new(self.schema().project(asked)?), None),
            _ => (self.schema(), projection),
        };
        if !lines.is_empty() {
            let shares = round_robin(lines, parallel);
            inputs.push(ndjson_scan::plan(
                &schema,
                spec.as_ref(),
                shares,
                projection,
                &self.meter,
            )?);
        }
        let hot = hot.into_iter().map(|hot| match &spec {
            None => Ok(hot.batch.clone()),
            Some((spec, asked)) => spec.rows(&hot.batch, asked.as_deref()),
        });
        let hot = hot.collect::<Result<Vec<_>, ArrowError>>()?;
        if !hot.is_empty() {
            let hot = round_robin(hot, parallel);
            inputs.push(MemorySourceConfig::try_new_exec(&hot, schema, projection.cloned())?);
        }
        Ok(inputs)
    }

    fn pieces(
        &self,
        state: &dyn Session,
        groups: Vec<Vec<SegmentSlice>>,
        rows: &FileRowSelections,
        sorted: bool,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let memory = &state.runtime_env().memory_pool;
        let planned = MemoryConsumer::new("files of a plan").register(memory);
        let always = match memory.memory_limit() {
            MemoryLimit::Finite(most) => most / SHARE_OF_READERS,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        let files: usize = groups.iter().map(Vec::len).sum();
        planned.try_grow(files.saturating_mul(PLANNED_FILE))?;
        let schema = self.schema();
        let ordering = if sorted { newest_first() } else { None };
        let groups = groups.into_iter().map(|group| {
            let files = group.into_iter().map(|piece| self.file(piece, rows, ordering.clone()));
            FileGroup::new(files.collect())
        });
        let adapter = self.spec.clone().map(|spec| -> Arc<dyn PhysicalExprAdapterFactory> {
            // What a file has of the columns is seen when it is opened.
            Arc::new(SpecAdapterFactory(spec))
        });
        let source = ParquetSource::new(schema)
            .with_parquet_file_reader_factory(Arc::new(SegmentReaderFactory {
                meter: Arc::clone(&self.meter),
                planned,
                always,
            }))
            .with_pushdown_filters(true);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups.collect())
            .with_projection_indices(projection.cloned())?
            .with_output_ordering(ordering.into_iter().collect())
            .with_limit(limit)
            .with_expr_adapter(adapter)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// The name is for plans and errors only: files are read through their [`SegmentExtension`].
    fn file(&self, piece: SegmentSlice, rows: &FileRowSelections, ordering: Option<LexOrdering>) -> PartitionedFile {
        let SegmentSlice { segment, run } = &piece;
        let name = format!("{}/segment_{}_v{}.parquet", self.table, segment.id, segment.version);
        let file = PartitionedFile::new(name, segment.size);
        let file = match run {
            // A range means the row groups that begin in it.
            Some(run) => {
                let at = i64::try_from(run.at).unwrap_or(i64::MAX);
                file.with_range(at, at.saturating_add(1))
            }
            None => file,
        };
        let mut statistics = statistics(&piece);
        let file = match rows.get(&segment.id) {
            Some(rows) => {
                statistics.num_rows = statistics.num_rows.to_inexact();
                file.with_extension(rows.clone())
            }
            None => file,
        };
        file.with_statistics(Arc::new(statistics))
            .with_ordering(ordering)
            .with_extension(SegmentExtension(piece.segment))
    }
}
