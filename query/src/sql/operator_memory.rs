//! Accounts for the memory of operators that DataFusion does not count: rows are measured on their way in and out.
//!
//! ```text
//! rows ─> taken: counts them ─> window functions, which keep rows until their frames are whole ─> given: counts them off ─> rows
//! rows ─> in pieces of which not too much is made ─> unnest, which makes all rows of a piece at once ─> rows
//! rows without columns ─> all in one batch ─> joins by pairs, which keep them: batches of nothing have no size
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;

use super::size_bounds::{ELEMENT, bytes_of};

/// A row is there twice while a partition is made one batch of.
const COPIES: u64 = 2;
/// What functions make of a row.
const MADE: u64 = 32;

/// An operator whose rows are counted; `None` for one that counts them itself. `most` are the bytes of a batch.
pub(super) fn count_operator_memory(
    plan: &Arc<dyn ExecutionPlan>,
    most: u64,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(unnest) = plan.downcast_ref::<UnnestExec>() {
        let lists = unnest.list_column_indices().iter();
        let lists = lists.map(|list| list.index_in_input_schema).collect();
        let input = RowPassExec::new(Arc::clone(unnest.input()), RowPass::Pieces(lists, most));
        return replace_children_if_necessary(Arc::clone(plan), vec![Arc::new(input)]).map(Some);
    }
    if plan.is::<CrossJoinExec>() || plan.is::<NestedLoopJoinExec>() {
        let [left, right] = plan.children()[..] else {
            return Ok(None);
        };
        if !left.schema().fields().is_empty() {
            return Ok(None);
        }
        let left = RowPassExec::new(Arc::clone(left), RowPass::Merged);
        return replace_children_if_necessary(Arc::clone(plan), vec![Arc::new(left), Arc::clone(right)]).map(Some);
    }
    if !plan.is::<WindowAggExec>() && !plan.is::<BoundedWindowAggExec>() {
        return Ok(None);
    }
    let children = plan.children().into_iter().map(Arc::clone);
    let held: Arc<HeldRows> = Arc::default();
    let taken = |input| Arc::new(RowPassExec::new(input, RowPass::Taken(Arc::clone(&held)))) as Arc<dyn ExecutionPlan>;
    let windows = replace_children_if_necessary(Arc::clone(plan), children.map(taken).collect())?;
    Ok(Some(Arc::new(RowPassExec::new(windows, RowPass::Given(held)))))
}

/// The rows that the partitions of a plan hold.
#[derive(Debug, Default)]
pub(super) struct HeldRows(Mutex<HashMap<usize, Arc<HeldPartition>>>);

impl HeldRows {
    /// Those of a partition, which are `new` where its rows are given: that is asked first whenever a plan begins.
    fn of(&self, partition: usize, new: bool, context: &TaskContext) -> Arc<HeldPartition> {
        let made = || {
            let memory = MemoryConsumer::new("rows of window functions").register(context.memory_pool());
            Arc::new(HeldPartition {
                memory,
                rows: AtomicU64::new(0),
            })
        };
        let mut partitions = self.0.lock();
        if new {
            partitions.remove(&partition);
        }
        Arc::clone(partitions.entry(partition).or_insert_with(made))
    }
}

#[derive(Debug)]
struct HeldPartition {
    memory: MemoryReservation,
    rows: AtomicU64,
}

impl HeldPartition {
    fn take(&self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter();
        let bytes = columns
            .flat_map(|column| bytes_of(column.as_ref()))
            .fold(0, u64::saturating_add);
        let made = (batch.num_rows() as u64).saturating_mul(MADE);
        let bytes = bytes.saturating_mul(COPIES).saturating_add(made);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.memory.try_grow(bytes)?;
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Rows are about as large as each other.
    fn give(&self, rows: u64) {
        let held = self.rows.load(Ordering::Relaxed);
        let share = u128::from(rows.min(held)) * self.memory.size() as u128 / u128::from(held.max(1));
        self.memory.shrink(usize::try_from(share).unwrap_or(0));
        self.rows.fetch_sub(rows.min(held), Ordering::Relaxed);
    }
}

/// The rows of a batch in pieces, so that not too much is made of one when its lists are written out.
fn pieces(batch: &RecordBatch, lists: &[usize], most: u64) -> Result<Vec<RecordBatch>> {
    let mut sizes = vec![(0_u64, 1_u64); batch.num_rows()];
    for (index, column) in batch.columns().iter().enumerate() {
        let is_list = lists.contains(&index);
        for ((bytes, copies), own) in sizes.iter_mut().zip(bytes_of(column.as_ref())) {
            if is_list {
                *copies = (*copies).max(own / ELEMENT);
            } else {
                *bytes = bytes.saturating_add(own);
            }
        }
    }
    let (mut pieces, mut sum, mut from) = (Vec::new(), 0_u64, 0);
    for (row, (bytes, copies)) in sizes.into_iter().enumerate() {
        let size = bytes.saturating_mul(copies);
        if size > most {
            let text = format!("unnest makes {size} bytes of a row, more than {most}");
            return Err(DataFusionError::ResourcesExhausted(text));
        }
        sum = sum.saturating_add(size);
        if sum > most {
            pieces.push(batch.slice(from, row - from));
            (sum, from) = (size, row);
        }
    }
    pieces.push(batch.slice(from, batch.num_rows() - from));
    Ok(pieces)
}

/// A task in another runtime.
fn within(context: &TaskContext, runtime: &Arc<RuntimeEnv>) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone(),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        Arc::clone(runtime),
    ))
}

/// Rows without columns in one batch.
async fn merged(rows: SendableRecordBatchStream) -> Result<RecordBatch> {
    let schema = rows.schema();
    let count = rows.try_fold(0_usize, async |count, batch| Ok(count.saturating_add(batch.num_rows())));
    let count = RecordBatchOptions::new().with_row_count(Some(count.await?));
    Ok(RecordBatch::try_new_with_options(schema, Vec::new(), &count)?)
}

/// What is done with rows that go by.
#[derive(Debug, Clone)]
pub(super) enum RowPass {
    /// Window functions take them.
    Taken(Arc<HeldRows>),
    /// Window functions have given them.
    Given(Arc<HeldRows>),
    /// The lists of these columns are unnested, of which so many bytes may come.
    Pieces(Vec<usize>, u64),
    /// They have no columns, and become one batch.
    Merged,
    /// They are made in this runtime.
    Within(Arc<RuntimeEnv>),
}

/// Looks at the rows that go by.
#[derive(Debug, Clone)]
pub(super) struct RowPassExec {
    input: Arc<dyn ExecutionPlan>,
    pass: RowPass,
    properties: Arc<PlanProperties>,
}

impl RowPassExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, pass: RowPass) -> Self {
        Self {
            properties: Arc::clone(input.properties()),
            input,
            pass,
        }
    }
}

impl DisplayAs for RowPassExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for RowPassExec {
    fn name(&self) -> &str {
        "RowPassExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next();
        let input = input.unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(input, self.pass.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let held = match &self.pass {
            RowPass::Taken(held) => Some(held.of(partition, false, &context)),
            RowPass::Given(held) => Some(held.of(partition, true, &context)),
            RowPass::Pieces(..) | RowPass::Merged | RowPass::Within(_) => None,
        };
        if let RowPass::Within(runtime) = &self.pass {
            return self.input.execute(partition, within(&context, runtime));
        }
        let rows = self.input.execute(partition, context)?;
        if matches!(self.pass, RowPass::Merged) {
            let schema = rows.schema();
            let merged = futures::stream::once(merged(rows));
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, merged)));
        }
        let pass = self.pass.clone();
        let look = move |batch: RecordBatch| -> Result<Vec<RecordBatch>> {
            match (&pass, &held) {
                (RowPass::Pieces(lists, most), _) => return pieces(&batch, lists, *most),
                (RowPass::Taken(_), Some(held)) => held.take(&batch)?,
                (_, Some(held)) => held.give(batch.num_rows() as u64),
                (_, None) => {}
            }
            Ok(vec![batch])
        };
        let rows = rows.flat_map(move |batch| {
            let passed = batch
                .and_then(&look)
                .map_or_else(|error| vec![Err(error)], |made| made.into_iter().map(Ok).collect());
            futures::stream::iter(passed)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), rows)))
    }
}
