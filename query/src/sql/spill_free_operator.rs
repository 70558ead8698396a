//! Operators that never spill: joins by pairs, and aggregates that gather values.
//!
//! A nested-loop join of DataFusion 55.2 that has no memory for its left side executes that side once more and spills it. Plans give
//! their rows once, so the second time some or all are missing; and outer and semi joins of several partitions give rows twice then
//! (`NestedLoopJoinExec::execute` says so). It does not where the runtime has no disk: then the statement is refused for its memory.
//!
//! Groups of `array_agg`, `count(DISTINCT …)` and their like ([`super::aggregate_memory`]) that were spilled are merged by batches of
//! so many groups, however large their lists are, and each merge makes larger ones: four times the memory of queries was needed before
//! one was refused.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;

use super::operator_memory::{RowPass, RowPassExec};

/// An operator in a runtime without a disk, with its memory in a pool; its inputs in `runtime`.
pub(super) fn without_spill(
    operator: Arc<dyn ExecutionPlan>,
    runtime: &Arc<RuntimeEnv>,
    memory_pool: Arc<dyn MemoryPool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = operator.children().into_iter().map(|input| {
        let input = RowPassExec::new(Arc::clone(input), RowPass::Within(Arc::clone(runtime)));
        Arc::new(input) as Arc<dyn ExecutionPlan>
    });
    let inputs = inputs.collect();
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let without_disk = RuntimeEnv {
        disk_manager: Arc::new(disk.build()?),
        memory_pool,
        ..runtime.as_ref().clone()
    };
    let operator = replace_children_if_necessary(operator, inputs)?;
    Ok(Arc::new(RowPassExec::new(
        operator,
        RowPass::Within(Arc::new(without_disk)),
    )))
}
