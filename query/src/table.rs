//! One table of one [`ReadView`] for DataFusion: its segments and its hot rows in one plan.
//!
//! ```text
//!                      ┌─ sealed segments that do not overlap, newest first, declared sorted by ts DESC
//! UnionExec ───────────┼─ other segments: open ones, and all where order is of no use
//!                      └─ hot batches
//! ```
//!
//! # Invariants
//!
//! - Segments and batches outside the window are left out by the catalogue alone; filters are pushed down as hints
//!   (`Inexact`), so a plan is right even if a hint is ignored.
//! - Order is declared only within a chain of sealed segments of which each ends before the next begins. Declared order
//!   helps "newest first"; aggregates are better off without it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{SchemaRef, SortOptions};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use engine::{ReadView, Segment};
use model::Table;

use crate::reader::{Meter, SegmentReaders, Source};
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
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parallel = state.config().target_partitions().max(1);
        let files = self.view.files(self.table).iter();
        let (chains, rest) = arrange(
            files.filter(|file| self.window.meets(file.min_ts, file.max_ts)),
            self.order,
        );
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        if !chains.is_empty() {
            let groups = chains.into_iter().flat_map(|chain| contiguous(&chain, parallel));
            inputs.push(self.segments(groups.collect(), true, projection, limit)?);
        }
        if !rest.is_empty() {
            inputs.push(self.segments(dealt(rest, parallel), false, projection, limit)?);
        }
        let hot = self.hot(parallel);
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
    /// The hot batches within the window, in at most `parallel` shares.
    fn hot(&self, parallel: usize) -> Vec<Vec<RecordBatch>> {
        let hot = self.view.hot(self.table).iter();
        let hot = hot.filter(|hot| self.window.meets(hot.min_ts, hot.max_ts));
        dealt(hot.map(|hot| hot.batch.clone()).collect(), parallel)
    }

    fn segments(
        &self,
        groups: Vec<Vec<Arc<Segment>>>,
        sorted: bool,
        projection: Option<&Vec<usize>>,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let ordering = if sorted { newest_first() } else { None };
        let groups = groups.into_iter().map(|group| {
            let files = group.into_iter().map(|segment| self.file(segment, ordering.clone()));
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
    fn file(&self, segment: Arc<Segment>, ordering: Option<LexOrdering>) -> PartitionedFile {
        let name = format!("{}/segment_{}_v{}.parquet", self.table, segment.id, segment.version);
        PartitionedFile::new(name, segment.size)
            .with_statistics(Arc::new(statistics(self.table, &segment)))
            .with_ordering(ordering)
            .with_extension(Source(segment))
    }
}

fn statistics(table: Table, segment: &Segment) -> Statistics {
    let exact = |ts: model::Timestamp| {
        Precision::Exact(ScalarValue::TimestampMicrosecond(Some(ts.micros()), Some("UTC".into())))
    };
    let mut columns = vec![ColumnStatistics::new_unknown(); table.columns().len()];
    if let Some(ts) = columns.first_mut() {
        ts.min_value = exact(segment.min_ts);
        ts.max_value = exact(segment.max_ts);
        ts.null_count = Precision::Exact(0);
    }
    Statistics {
        num_rows: usize::try_from(segment.rows).map_or(Precision::Absent, Precision::Exact),
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

/// The chains of sealed segments that are worth their order, and the other segments.
fn arrange<'a>(
    files: impl Iterator<Item = &'a Arc<Segment>>,
    order: Order,
) -> (Vec<Vec<Arc<Segment>>>, Vec<Arc<Segment>>) {
    let files = files.map(Arc::clone);
    if order == Order::Any {
        return (Vec::new(), files.collect());
    }
    let (sealed, mut rest): (Vec<_>, Vec<_>) = files.partition(|file| file.sealed);
    let chains = chains(sealed);
    if chains.len() > MAX_CHAINS {
        rest.extend(chains.into_iter().flatten());
        return (Vec::new(), rest);
    }
    (chains, rest)
}

/// As few chains as possible, newest first, in which each segment begins after the next one ends.
fn chains(mut sealed: Vec<Arc<Segment>>) -> Vec<Vec<Arc<Segment>>> {
    sealed.sort_by_key(|file| std::cmp::Reverse((file.max_ts, file.min_ts, file.id)));
    let mut chains: Vec<Vec<Arc<Segment>>> = Vec::new();
    for file in sealed {
        let fits = |chain: &&mut Vec<Arc<Segment>>| chain.last().is_some_and(|last| last.min_ts > file.max_ts);
        match chains.iter_mut().find(fits) {
            Some(chain) => chain.push(file),
            None => chains.push(vec![file]),
        }
    }
    chains
}

/// At most `parts` parts that keep the order: the first holds the newest files.
fn contiguous(chain: &[Arc<Segment>], parts: usize) -> Vec<Vec<Arc<Segment>>> {
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
