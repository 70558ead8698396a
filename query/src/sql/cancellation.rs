//! Cancellation of a statement in the middle of its plan.
//!
//! A task is ended between two polls, and some operators of a plan do not come to an end of a poll by themselves: a join that
//! finds no pair looks for one until all were tried, and what takes all that a join gives never waits for anything. So plans are
//! changed before they run: each join that asks a condition of its pairs asks first whether the statement was ended, and what
//! gives more rows than it takes lets others run now and then.
//!
//! # Invariants
//!
//! - No statement keeps a thread for longer than a few batches of work after it was cancelled, left, or out of time: not even
//!   where it finds nothing to say.
//! - Answers stay the same.
//!
//! # Not here
//!
//! Reading files, which is bounded by itself (`crate::scan`).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Schema};
use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::unnest::UnnestExec;
use tokio_util::sync::CancellationToken;

use super::aggregate_memory::{GatheringPool, gathers};
use super::operator_memory::count_operator_memory;
use super::spill_free_operator::without_spill;

/// When a statement ends, whatever it does.
#[derive(Debug)]
pub(crate) struct StatementCancellation {
    /// Nobody waits for it, or the querier closes.
    pub(crate) gone: CancellationToken,
    /// Its snapshot retains too much.
    pub(crate) too_old: CancellationToken,
    /// When its time is over.
    pub(crate) deadline: Option<Instant>,
}

/// A statement was ended in the middle of its work.
#[derive(Debug, thiserror::Error)]
#[error("the statement was ended")]
pub(crate) struct CancellationError;

impl StatementCancellation {
    /// An error if the statement was ended.
    pub(crate) fn check(&self) -> Result<()> {
        let is_ended = self.gone.is_cancelled() || self.too_old.is_cancelled();
        if is_ended || self.deadline.is_some_and(|end| Instant::now() >= end) {
            return Err(DataFusionError::External(Box::new(CancellationError)));
        }
        Ok(())
    }
}

/// The plan as it runs: the same answer, ended in time and within memory. `most` are the bytes of a batch.
pub(super) fn make_cancellable(
    plan: Arc<dyn ExecutionPlan>,
    stop: &Arc<StatementCancellation>,
    most: u64,
    runtime: &Arc<RuntimeEnv>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_up(|plan| {
        let counted = count_operator_memory(&plan, most)?;
        let (is_new, plan) = (counted.is_some(), counted.unwrap_or(plan));
        let checked = match check_join(&plan, stop)? {
            Some(checked) => checked,
            None if multiplies(&plan) => plan,
            None if gathers(&plan) => {
                let memory = GatheringPool::within(&runtime.memory_pool);
                return Ok(Transformed::yes(without_spill(plan, runtime, memory)?));
            }
            None => return Ok(Transformed::new_transformed(plan, is_new)),
        };
        let checked = if checked.is::<NestedLoopJoinExec>() {
            without_spill(checked, runtime, Arc::clone(&runtime.memory_pool))?
        } else {
            checked
        };
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(checked)) as _))
    })?;
    Ok(changed.data)
}

/// Whether it may give many rows for one, without a condition that could be asked.
fn multiplies(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<CrossJoinExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<UnnestExec>()
}

/// A join that may look at many pairs before it gives a row, with a condition that hears of the end.
fn check_join(
    plan: &Arc<dyn ExecutionPlan>,
    stop: &Arc<StatementCancellation>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = join.filter() else {
            return Ok(None);
        };
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_projection_ref(join.projection().clone())
            .with_filter(Some(with_check(filter, stop)))
            .build()?;
        return Ok(Some(Arc::new(join)));
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(None);
    };
    let filter = match join.filter() {
        Some(filter) => with_check(filter, stop),
        // Of many equal pairs it gives one, or none.
        None if !join.null_aware && gives_one_side(*join.join_type()) => {
            with_check(&JoinFilter::new(lit(true), Vec::new(), Arc::new(Schema::empty())), stop)
        }
        None => return Ok(None),
    };
    join.builder().with_filter(Some(filter)).build_exec().map(Some)
}

const fn gives_one_side(join: JoinType) -> bool {
    matches!(
        join,
        JoinType::LeftSemi
            | JoinType::RightSemi
            | JoinType::LeftAnti
            | JoinType::RightAnti
            | JoinType::LeftMark
            | JoinType::RightMark
    )
}

fn with_check(filter: &JoinFilter, stop: &Arc<StatementCancellation>) -> JoinFilter {
    let condition = Arc::new(CancellableCondition {
        condition: Arc::clone(filter.expression()),
        stop: Arc::clone(stop),
    });
    JoinFilter::new(condition, filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

/// A condition that is asked only while its statement is not ended.
#[derive(Debug)]
struct CancellableCondition {
    condition: Arc<dyn PhysicalExpr>,
    stop: Arc<StatementCancellation>,
}

impl PartialEq for CancellableCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition) && Arc::ptr_eq(&self.stop, &other.stop)
    }
}

impl Eq for CancellableCondition {}

impl Hash for CancellableCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for CancellableCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for CancellableCondition {
    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.condition.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = children.into_iter().next();
        Ok(Arc::new(Self {
            condition: condition.unwrap_or_else(|| Arc::clone(&self.condition)),
            stop: Arc::clone(&self.stop),
        }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
