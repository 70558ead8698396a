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
//! - Filters are pushed down as hints (`Inexact`), so a plan is right even if a hint is ignored.
//! - Files of metrics lie by series and declare no order; a top-k finds the newest points.
//! - Order is declared only within a chain of pieces of which each ends before the next begins: sealed segments, or the runs
//!   of one that is not sorted as a whole. Declared order helps "newest first"; aggregates are better off without it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{SchemaRef, SortOptions};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use engine::{ReadView, Run, Segment};
use model::{Table, Timestamp};

use crate::lines;
use crate::reader::{Meter, SegmentReaders, Source};
use crate::scan::{Left, Pieces, Scanner};
use crate::times::narrowed;
use crate::window::Window;

/// More chains than this are merged cheaper by a top-k than by holding all of them open.
const MAX_CHAINS: usize = 8;

/// What the plan wants of the rows' order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The newest rows first.
    NewestFirst,
    /// Any.
    Any,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ViewTable {
    pub(crate) view: ReadView,
    pub(crate) table: Table,
    pub(crate) window: Window,
    pub(crate) pieces: Pieces,
    pub(crate) order: Order,
    pub(crate) meter: Arc<Meter>,
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
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
        let parallel = state.config().target_partitions().max(1);
        let window = narrowed(self.window, filters);
        let all = self.view.files(self.table);
        let Left { files, rows } = self.left(state, window, filters).await?;
        let hot = self.hot(window, parallel);
        let hot_rows = hot.iter().flatten().map(RecordBatch::num_rows).sum();
        self.meter.planned(all.len(), all.len() - files.len(), hot_rows);
        let (parquet, lines): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_parquet());
        let (chains, rest) = arrange(parquet.iter(), window, self.order());
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        if !chains.is_empty() {
            let groups = chains.into_iter().flat_map(|chain| contiguous(&chain, parallel));
            inputs.push(self.pieces(groups.collect(), &rows, true, projection, limit)?);
        }
        if !rest.is_empty() {
            inputs.push(self.pieces(dealt(rest, parallel), &rows, false, projection, limit)?);
        }
        if !lines.is_empty() {
            let shares = dealt(lines, parallel);
            inputs.push(lines::plan(&self.schema(), shares, projection, &self.meter)?);
        }
        if !hot.is_empty() {
            inputs.push(MemorySourceConfig::try_new_exec(
                &hot,
                self.schema(),
                projection.cloned(),
            )?);
        }
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

impl ViewTable {
    /// What the order of rows is good for: files of metrics lie by series, whatever is asked.
    fn order(&self) -> Order {
        if self.table == Table::Metrics {
            Order::Any
        } else {
            self.order
        }
    }

    /// The files in a window that can have what the filters ask for.
    async fn left(&self, state: &dyn Session, window: Window, filters: &[Expr]) -> Result<Left> {
        let files = self.view.files(self.table).iter();
        let files = files
            .filter(|file| window.meets(file.min_ts, file.max_ts) && self.pieces.have(file))
            .cloned()
            .collect();
        let Some(scanner) = state.config().get_extension::<Scanner>() else {
            return Ok(Left {
                files,
                ..Left::default()
            });
        };
        let left = scanner.left(self.table, filters, files, &self.meter).await;
        left.map_err(|error| DataFusionError::External(Box::new(error)))
    }

    /// The hot batches within a window, in at most `parallel` shares.
    fn hot(&self, window: Window, parallel: usize) -> Vec<Vec<RecordBatch>> {
        let hot = self.view.hot(self.table).iter();
        let hot = hot.filter(|hot| self.pieces.have_memory() && window.meets(hot.min_ts, hot.max_ts));
        dealt(hot.map(|hot| hot.batch.clone()).collect(), parallel)
    }

    fn pieces(
        &self,
        groups: Vec<Vec<Piece>>,
        rows: &HashMap<u64, ParquetAccessPlan>,
        sorted: bool,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let ordering = if sorted { newest_first() } else { None };
        let groups = groups.into_iter().map(|group| {
            let files = group.into_iter().map(|piece| self.file(piece, rows, ordering.clone()));
            FileGroup::new(files.collect())
        });
        let source = ParquetSource::new(schema)
            .with_parquet_file_reader_factory(Arc::new(SegmentReaders(Arc::clone(&self.meter))))
            .with_pushdown_filters(true);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups.collect())
            .with_projection_indices(projection.cloned())?
            .with_output_ordering(ordering.into_iter().collect())
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// The name is for plans and errors only: files are read through their [`Source`].
    fn file(
        &self,
        piece: Piece,
        rows: &HashMap<u64, ParquetAccessPlan>,
        ordering: Option<LexOrdering>,
    ) -> PartitionedFile {
        let Piece { segment, run } = &piece;
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
        let mut statistics = statistics(self.table, &piece);
        let file = match rows.get(&segment.id) {
            Some(rows) => {
                statistics.num_rows = statistics.num_rows.to_inexact();
                file.with_extension(rows.clone())
            }
            None => file,
        };
        file.with_statistics(Arc::new(statistics))
            .with_ordering(ordering)
            .with_extension(Source(piece.segment))
    }
}

/// A segment, or one of its runs.
#[derive(Debug, Clone)]
struct Piece {
    segment: Arc<Segment>,
    run: Option<Run>,
}

impl Piece {
    fn whole(segment: &Arc<Segment>) -> Self {
        Self {
            segment: Arc::clone(segment),
            run: None,
        }
    }

    /// The sorted pieces of a sealed segment.
    fn sorted(segment: &Arc<Segment>) -> Vec<Self> {
        let run = |run: &Run| Self {
            segment: Arc::clone(segment),
            run: Some(*run),
        };
        if segment.runs.is_empty() {
            vec![Self::whole(segment)]
        } else {
            segment.runs.iter().map(run).collect()
        }
    }

    fn rows(&self) -> u64 {
        self.run.map_or(self.segment.rows, |run| run.rows)
    }

    fn min_ts(&self) -> Timestamp {
        self.run.map_or(self.segment.min_ts, |run| run.min_ts)
    }

    fn max_ts(&self) -> Timestamp {
        self.run.map_or(self.segment.max_ts, |run| run.max_ts)
    }
}

fn statistics(table: Table, piece: &Piece) -> Statistics {
    let exact =
        |ts: Timestamp| Precision::Exact(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())));
    let mut columns = vec![ColumnStatistics::new_unknown(); table.columns().len()];
    if let Some(ts) = columns.first_mut() {
        ts.min_value = exact(piece.min_ts());
        ts.max_value = exact(piece.max_ts());
        ts.null_count = Precision::Exact(0);
    }
    Statistics {
        num_rows: usize::try_from(piece.rows()).map_or(Precision::Absent, Precision::Exact),
        total_byte_size: Precision::Absent,
        column_statistics: columns,
    }
}

/// `ts DESC`, as sealed segments are sorted.
fn newest_first() -> Option<LexOrdering> {
    let options = SortOptions {
        descending: true,
        nulls_first: true,
    };
    LexOrdering::new([PhysicalSortExpr::new(Arc::new(Column::new("ts", 0)), options)])
}

/// The chains of sorted pieces that are worth their order, and the other segments.
fn arrange<'a>(
    files: impl Iterator<Item = &'a Arc<Segment>>,
    window: Window,
    order: Order,
) -> (Vec<Vec<Piece>>, Vec<Piece>) {
    if order == Order::Any {
        return (Vec::new(), files.map(Piece::whole).collect());
    }
    let (sealed, open): (Vec<_>, Vec<_>) = files.partition(|file| file.sealed);
    let sorted = sealed.iter().copied().flat_map(Piece::sorted);
    let chains = chains(
        sorted
            .filter(|piece| window.meets(piece.min_ts(), piece.max_ts()))
            .collect(),
    );
    if chains.len() > MAX_CHAINS {
        return (Vec::new(), open.into_iter().chain(sealed).map(Piece::whole).collect());
    }
    (chains, open.into_iter().map(Piece::whole).collect())
}

/// As few chains as possible, newest first, in which each piece begins after the next one ends.
fn chains(mut pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    pieces.sort_by_key(|piece| std::cmp::Reverse((piece.max_ts(), piece.min_ts(), piece.segment.id)));
    let mut chains: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        let fits = |chain: &&mut Vec<Piece>| chain.last().is_some_and(|last| last.min_ts() > piece.max_ts());
        match chains.iter_mut().find(fits) {
            Some(chain) => chain.push(piece),
            None => chains.push(vec![piece]),
        }
    }
    chains
}

/// At most `parts` parts that keep the order: the first holds the newest pieces.
fn contiguous(chain: &[Piece], parts: usize) -> Vec<Vec<Piece>> {
    let size = chain.len().div_ceil(parts).max(1);
    chain.chunks(size).map(<[_]>::to_vec).collect()
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
