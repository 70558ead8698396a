//! Rows of grouping sets and of unions: their plans do not say that a column is constant or ordered where it is not.
//!
//! The optimizer leaves constant columns out of sort keys, and aggregation gives a group out as soon as an ordered key has moved on. What
//! DataFusion 55.2 takes to be constant or ordered is neither
//!
//! - behind `CUBE`, `ROLLUP` and `GROUPING SETS`: the key is null in the sets that leave it out. Groups came twice, and rows out of order
//!   (<https://github.com/apache/datafusion/issues/24421>);
//! - behind a `UNION ALL` of different constants, which are constant within a partition only: the partitions of a sort with a limit
//!   share their bound, and one with the first rows was cut by another (<https://github.com/apache/datafusion/pull/23528>).
//!
//! # Invariants
//!
//! - The node above either sees an input about which nothing but its schema and the number of its partitions is known.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{AcrossPartitions, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};

/// The rule, to run before all that look at properties.
#[derive(Debug)]
pub(crate) struct UnknownOrderRule;

impl PhysicalOptimizerRule for UnknownOrderRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(if says_too_much(&node) {
                Transformed::yes(Arc::new(UnknownOrderExec::new(node)) as _)
            } else {
                Transformed::no(node)
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "forget_false_properties"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn says_too_much(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().has_grouping_set();
    }
    let constants = || node.properties().equivalence_properties().constants();
    node.is::<UnionExec>()
        && constants()
            .iter()
            .any(|constant| constant.across_partitions == AcrossPartitions::Heterogeneous)
}

/// Gives the rows of its input and knows no order of them.
#[derive(Debug)]
struct UnknownOrderExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl UnknownOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let known = input.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(known.output_partitioning().partition_count()),
            known.emission_type,
            known.boundedness,
        );
        Self {
            input,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for UnknownOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for UnknownOrderExec {
    fn name(&self) -> &str {
        "UnknownOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
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
        Ok(Arc::new(Self::new(input.unwrap_or_else(|| Arc::clone(&self.input)))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }
}
