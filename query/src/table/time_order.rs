//! Sort pushdown: the rows of a table in the order of `ts`, a page after another for as long as somebody takes them.
//!
//! ```text
//! plan takes rows ─> page: 12:30 … 12:29 │ page: … 12:01, four times as large │ …      each by [`Scan::first`], without a sort
//! ```
//!
//! # Invariants
//!
//! - Rows come in the order of `ts`, each once: a page has all rows of its last `ts`, and the next one begins beyond it.
//! - Conditions only spare reading, and so does what is known of how many rows are wanted: what stands above is carried out on
//!   whatever comes.
//! - What the scan is not made for, a plan finds, for one page; rows of one `ts` that are too many for a page are streamed.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{SchemaRef, SortOptions};
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, ident};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt as _, stream};
use model::Timestamp;
use model::filter::SortOrder;

use super::ViewTable;
use crate::Error;
use crate::exec::Scan;
use crate::memory::Session;
use crate::rows::{beyond, first_rows, of_types};
use crate::scan::{rank, times_of};
use crate::times::{is_a_window, narrowed};
use crate::window::Window;

/// Rows of the first page where nobody says how many are wanted.
const FIRST: usize = 1_024;
/// Rows of a page, at most, but for the first.
const MOST: usize = 32_768;
/// Rows of a batch, at most.
const BATCH: usize = 8_192;

/// The order in which rows are wanted, by their times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeOrder {
    pub(crate) order: SortOrder,
    /// How many are wanted, where that is known.
    pub(crate) wanted: Option<usize>,
}

/// A plan of a table's rows in an order; `ts` is one of the columns.
pub(super) fn plan(
    table: &ViewTable,
    (session, state): (&Arc<Session>, &SessionState),
    in_order: TimeOrder,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
) -> Result<Arc<dyn ExecutionPlan>> {
    let window = narrowed(table.window, filters);
    let files = table.view.files(table.table).len();
    let met = window.files(&table.view, table.table).count();
    let hot = window.hot(&table.view, table.table);
    let hot_rows = hot.map(|hot| hot.batch.num_rows()).sum();
    table.meter.planned(files, files - met, hot_rows);

    let all = table.table.schema();
    let given = projection.cloned().unwrap_or_else(|| (0..all.fields().len()).collect());
    let mut columns = given.clone();
    columns.sort_unstable();
    columns.dedup();
    let places = given.iter().filter_map(|column| columns.binary_search(column).ok());
    let places: Vec<_> = places.collect();
    // Conditions that need small batches are left to what stands above.
    let are_small = state.config().batch_size() >= BATCH;
    let conditions = filters
        .iter()
        .filter(|filter| are_small && !is_a_window(filter) && is_told_by_row(filter));
    let (session, view) = (Arc::clone(session), table.view.clone());
    let scan = Scan::new(session, view, table.table, window, conditions.cloned().collect());
    let mut scan = scan.of_statement(state, columns, &table.meter);
    scan.order = in_order.order;
    let schema = Arc::new(all.project(&given)?);
    let wanted = in_order.wanted.unwrap_or(FIRST).max(1);
    Ok(Arc::new(OrderedRowsExec::new(scan, places, schema, wanted)?))
}

/// Whether a condition can be evaluated for a row, by itself.
fn is_told_by_row(condition: &Expr) -> bool {
    let needs_more = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
        )
    };
    !condition.is_volatile() && matches!(condition.exists(|expr| Ok(needs_more(expr))), Ok(false))
}

/// See the module.
#[derive(Debug)]
struct OrderedRowsExec {
    scan: Arc<Scan>,
    /// The places of the columns that are given, among those that the scan finds.
    places: Vec<usize>,
    wanted: usize,
    properties: Arc<PlanProperties>,
}

impl OrderedRowsExec {
    fn new(scan: Scan, places: Vec<usize>, schema: SchemaRef, wanted: usize) -> Result<Self> {
        let options = SortOptions {
            descending: scan.order == SortOrder::Desc,
            nulls_first: true,
        };
        let ts = Arc::new(Column::new_with_schema("ts", &schema)?);
        let orderings = [[PhysicalSortExpr::new(ts, options)]];
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, orderings),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            scan: Arc::new(scan),
            places,
            wanted,
            properties: Arc::new(properties),
        })
    }
}

impl DisplayAs for OrderedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.scan.order {
            SortOrder::Desc => "newest",
            SortOrder::Asc => "oldest",
        };
        let (table, wanted) = (self.scan.table(), self.wanted);
        write!(f, "{}: {table}, {order} first, wanted={wanted}", self.name())
    }
}

impl ExecutionPlan for OrderedRowsExec {
    fn name(&self) -> &'static str {
        "OrderedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// So few that they are not dealt to threads, which would read ahead.
    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let rows = Precision::Inexact(self.wanted.min(FIRST));
        Ok(Arc::new(Statistics::new_unknown(&self.schema()).with_num_rows(rows)))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let pages = OrderedPages {
            scan: Arc::clone(&self.scan),
            places: self.places.clone(),
            schema: self.schema(),
            left: Some(self.scan.window),
            wanted: self.wanted,
            most: MOST,
            batch: context.session_config().batch_size().min(BATCH),
            page: OrderedPage::default(),
            ties: None,
        };
        let rows = stream::try_unfold(pages, |mut pages| async move {
            let batch = pages.next().await.map_err(failure)?;
            Ok(batch.map(|batch| (batch, pages)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// What a plan is told: what a condition says of a row is the statement's fault, and is told as it would be by a plan.
fn failure(error: Error) -> DataFusionError {
    match error {
        Error::Execution(error) => *error,
        other => DataFusionError::External(Box::new(other)),
    }
}

/// How far the rows of a table are given.
struct OrderedPages {
    scan: Arc<Scan>,
    places: Vec<usize>,
    schema: SchemaRef,
    /// Where rows are left beside those of the page.
    left: Option<Window>,
    /// Rows of the next page.
    wanted: usize,
    most: usize,
    /// Rows of a batch.
    batch: usize,
    page: OrderedPage,
    /// Rows of one `ts` that come after the page.
    ties: Option<SendableRecordBatchStream>,
}

impl OrderedPages {
    async fn next(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(batch) = self.page.next(self.batch)? {
                return self.shown(&batch).map(Some);
            }
            if let Some(ties) = &mut self.ties {
                match ties.next().await.transpose()? {
                    Some(batch) => return self.shown(&batch).map(Some),
                    None => self.ties = None,
                }
            }
            let Some(window) = self.left.take() else {
                return Ok(None);
            };
            self.turn(window).await?;
        }
    }

    /// The columns that are given, with their types.
    fn shown(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        of_types(&batch.project(&self.places)?, &self.schema)
    }

    /// Finds the first rows of a window.
    async fn turn(&mut self, window: Window) -> Result<(), Error> {
        let (scan, wanted) = (Arc::clone(&self.scan), self.wanted);
        let before = scan.meter.pruned();
        let (page, is_by_plan) = match OrderedPage::find(&scan, window, wanted).await {
            Err(error) if error.lacks_memory() && wanted > 1 => {
                self.most = wanted / 4;
                self.wanted = self.most.max(1);
                self.left = Some(window);
                return Ok(());
            }
            found => found?,
        };
        self.page = page;
        // What indexes rule out is known only now.
        let ruled_out = scan.meter.pruned().saturating_sub(before);
        scan.meter.planned(0, usize::try_from(ruled_out).unwrap_or(0), 0);
        self.wanted = (wanted * 4).min(self.most).max(1);
        if self.page.rows.len() < wanted {
            return Ok(());
        }
        let Some(last) = self.page.last() else {
            return Ok(());
        };
        let last = Timestamp::from_micros(last);
        self.left = Some(beyond(&scan, last));
        if is_by_plan {
            // Of these some may be missing.
            self.page.forget_last();
            let all = scan.table().columns();
            let columns = scan.columns().iter().filter_map(|column| all.get(*column));
            let names = columns.map(|column| ident(column.name)).collect::<Vec<_>>();
            let ties = scan.frame(Window::at(last))?.select(names)?;
            self.ties = Some(ties.execute_stream().await?);
        }
        Ok(())
    }
}

/// Rows in an order, of which some were given.
#[derive(Default)]
struct OrderedPage {
    batches: Vec<RecordBatch>,
    /// The `ts` of each row and where it is.
    rows: Vec<(i64, usize, usize)>,
    given: usize,
    _memory: Option<MemoryReservation>,
}

impl OrderedPage {
    /// The first rows of a window, and whether a plan found them, so that rows of the last `ts` may be missing.
    async fn find(scan: &Scan, window: Window, wanted: usize) -> Result<(Self, bool), Error> {
        if let Some(found) = scan.first(window, None, 0, wanted).await? {
            return Ok((Self::of(found.batches, scan.order, found.memory), false));
        }
        let rows = first_rows(scan, window, wanted).await?;
        let rows = rows.iter().map(|batch| batch.project(scan.columns()));
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        let memory = scan.memory("page");
        memory.try_grow(rows.iter().map(RecordBatch::get_array_memory_size).sum())?;
        Ok((Self::of(rows, scan.order, memory), true))
    }

    fn of(batches: Vec<RecordBatch>, order: SortOrder, memory: MemoryReservation) -> Self {
        let mut rows = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
        for (number, batch) in batches.iter().enumerate() {
            let times = times_of(batch).iter().enumerate();
            rows.extend(times.map(|(index, ts)| (*ts, number, index)));
        }
        rows.sort_by_key(|(ts, _, _)| Reverse(rank(order, *ts)));
        Self {
            batches,
            rows,
            given: 0,
            _memory: Some(memory),
        }
    }

    fn last(&self) -> Option<i64> {
        self.rows.last().map(|(ts, _, _)| *ts)
    }

    fn forget_last(&mut self) {
        let last = self.last();
        let is_before = |(ts, _, _): &(i64, usize, usize)| Some(*ts) != last;
        self.rows.truncate(self.rows.partition_point(is_before));
    }

    fn next(&mut self, rows: usize) -> Result<Option<RecordBatch>, Error> {
        let left = self.rows.get(self.given..).unwrap_or_default();
        let places: Vec<_> = left.iter().take(rows).map(|(_, batch, row)| (*batch, *row)).collect();
        if places.is_empty() {
            *self = Self::default();
            return Ok(None);
        }
        self.given += places.len();
        let batches: Vec<_> = self.batches.iter().collect();
        Ok(Some(interleave_record_batch(&batches, &places)?))
    }
}
