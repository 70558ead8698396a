//! Joins by pairs that never spill.
//!
//! A nested-loop join of DataFusion 55.2 that has no memory for its left side executes that side once more and spills it. Plans give
//! their rows once, so the second time some or all are missing; and outer and semi joins of several partitions give rows twice then
//! (`NestedLoopJoinExec::execute` says so). It does not where the runtime has no disk: then the statement is refused for its memory.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// A join in a runtime without a disk, its inputs in `runtime`.
pub(super) fn unspilled(join: Arc<dyn ExecutionPlan>, runtime: &Arc<RuntimeEnv>) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = join.children().into_iter().map(|input| {
        let input = RuntimeExec::new(Arc::clone(input), Arc::clone(runtime));
        Arc::new(input) as Arc<dyn ExecutionPlan>
    });
    let inputs = inputs.collect();
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let without_disk = RuntimeEnv {
        disk_manager: Arc::new(disk.build()?),
        ..runtime.as_ref().clone()
    };
    let join = replace_children_if_necessary(join, inputs)?;
    Ok(Arc::new(RuntimeExec::new(join, Arc::new(without_disk))))
}

/// Executes a plan in a runtime.
#[derive(Debug)]
struct RuntimeExec {
    input: Arc<dyn ExecutionPlan>,
    runtime: Arc<RuntimeEnv>,
}

impl RuntimeExec {
    const fn new(input: Arc<dyn ExecutionPlan>, runtime: Arc<RuntimeEnv>) -> Self {
        Self { input, runtime }
    }
}

impl DisplayAs for RuntimeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for RuntimeExec {
    fn name(&self) -> &str {
        "RuntimeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
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
        Ok(Arc::new(Self::new(input, Arc::clone(&self.runtime))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let within = TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            Arc::clone(&self.runtime),
        );
        self.input.execute(partition, Arc::new(within))
    }
}
